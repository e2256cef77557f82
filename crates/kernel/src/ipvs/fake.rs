//! IPVS in memory: refuses what the kernel refuses, with the same error numbers, and schedules connections. Clones
//! share it.

mod schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{Change, Ipvs, IpvsError, Load, Scheduler, Server, Settings, Timeouts};

/// IPVS in memory.
#[derive(Clone)]
pub struct Fake(Arc<Mutex<Inner>>);

struct Inner {
    servers: BTreeMap<Server, Held>,
    schedulers: BTreeSet<String>,
    timeouts: Timeouts,
    changes: usize,
    failure: Option<Errno>,
    clock: u64,
}

/// A virtual server.
struct Held {
    settings: Settings,
    destinations: BTreeMap<SocketAddr, Load>,
    /// Last destination in round-robin order.
    turn: Option<SocketAddr>,
    /// Persistent clients and their expiry.
    clients: BTreeMap<IpAddr, (SocketAddr, u64)>,
}

impl Default for Fake {
    fn default() -> Self {
        Self::with(&Scheduler::ALL)
    }
}

impl Fake {
    /// A kernel with only these schedulers.
    #[must_use]
    pub fn with(schedulers: &[Scheduler]) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            servers: BTreeMap::new(),
            schedulers: schedulers.iter().map(|scheduler| scheduler.name().to_owned()).collect(),
            timeouts: Timeouts { tcp: 900, tcp_fin: 120, udp: 300 },
            changes: 0,
            failure: None,
            clock: 0,
        })))
    }

    /// Makes the next request fail.
    pub fn fail_next(&self, errno: Errno) {
        self.0.lock().failure = Some(errno);
    }

    /// Number of changes applied.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.0.lock().changes
    }

    /// Advances the clock of persistence.
    pub fn advance(&self, seconds: u64) {
        self.0.lock().clock += seconds;
    }

    /// A client connects. None without such a server or an available destination.
    pub fn connect(&self, client: SocketAddr, server: &Server) -> Option<SocketAddr> {
        let mut inner = self.0.lock();
        let clock = inner.clock;
        let held = inner.servers.get_mut(server)?;
        let stays = held.clients.get(&client.ip()).filter(|(_, until)| *until > clock).map(|(at, _)| *at);
        let takes = |at: &SocketAddr| held.destinations.get(at).is_some_and(|load| load.weight > 0);
        let chosen = match stays.filter(takes) {
            Some(at) => at,
            None => schedule::choose(&held.settings, &held.destinations, &mut held.turn, client, server)?,
        };
        if let Some(seconds) = held.settings.persistence {
            held.clients.insert(client.ip(), (chosen, clock + u64::from(seconds)));
        }
        held.destinations.get_mut(&chosen)?.active += 1;
        Some(chosen)
    }

    /// A connection is closed.
    pub fn close(&self, server: &Server, at: SocketAddr) {
        let mut inner = self.0.lock();
        if let Some(load) = inner.servers.get_mut(server).and_then(|held| held.destinations.get_mut(&at)) {
            load.active = load.active.saturating_sub(1);
            load.inactive += 1;
        }
    }

    /// Expires closed connections.
    pub fn forget(&self) {
        for held in self.0.lock().servers.values_mut() {
            held.destinations.values_mut().for_each(|load| load.inactive = 0);
        }
    }

    /// All servers with their destinations and weights.
    #[must_use]
    pub fn all(&self) -> BTreeMap<Server, (Settings, BTreeMap<SocketAddr, u32>)> {
        let weights = |held: &Held| held.destinations.iter().map(|(at, load)| (*at, load.weight)).collect();
        self.0.lock().servers.iter().map(|(server, held)| (*server, (held.settings.clone(), weights(held)))).collect()
    }

    /// Deletes everything as another program.
    pub fn flush(&self) {
        self.0.lock().servers.clear();
    }
}

impl Inner {
    fn carry_out(&mut self, change: &Change) -> Result<(), Errno> {
        match change {
            Change::NewServer(server, settings) => {
                if self.servers.contains_key(server) {
                    return Err(Errno::EXIST);
                }
                self.check(settings)?;
                let (destinations, clients) = (BTreeMap::new(), BTreeMap::new());
                self.servers.insert(*server, Held { settings: settings.clone(), destinations, turn: None, clients });
            }
            Change::SetServer(server, settings) => {
                // The existence of the server is checked before the scheduler.
                let known = self.check(settings);
                let held = self.servers.get_mut(server).ok_or(Errno::SRCH)?;
                known?;
                held.settings = settings.clone();
            }
            Change::DeleteServer(server) => {
                self.servers.remove(server).ok_or(Errno::SRCH)?;
            }
            Change::NewDestination(server, at, weight) => {
                let destinations = self.destinations(server)?;
                if at.is_ipv4() != server.ip.is_ipv4() {
                    return Err(Errno::INVAL);
                }
                if destinations.contains_key(at) {
                    return Err(Errno::EXIST);
                }
                destinations.insert(*at, Load { weight: *weight, ..Load::default() });
            }
            Change::SetDestination(server, at, weight) => {
                self.destinations(server)?.get_mut(at).ok_or(Errno::NOENT)?.weight = *weight;
            }
            Change::DeleteDestination(server, at) => {
                self.destinations(server)?.remove(at).ok_or(Errno::NOENT)?;
            }
        }
        self.changes += 1;
        Ok(())
    }

    fn check(&self, settings: &Settings) -> Result<(), Errno> {
        if self.schedulers.contains(&settings.scheduler) { Ok(()) } else { Err(Errno::NOENT) }
    }

    fn destinations(&mut self, server: &Server) -> Result<&mut BTreeMap<SocketAddr, Load>, Errno> {
        self.servers.get_mut(server).map(|held| &mut held.destinations).ok_or(Errno::SRCH)
    }
}

impl Ipvs for Fake {
    fn servers(&mut self) -> Result<BTreeMap<Server, Settings>, IpvsError> {
        Ok(self.0.lock().servers.iter().map(|(server, held)| (*server, held.settings.clone())).collect())
    }

    fn destinations(&mut self, server: &Server) -> Result<BTreeMap<SocketAddr, Load>, IpvsError> {
        Ok(self.0.lock().servers.get(server).map(|held| held.destinations.clone()).unwrap_or_default())
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), IpvsError> {
        let mut inner = self.0.lock();
        if let Some(errno) = inner.failure.take() {
            return Err(IpvsError::new("applying changes", errno));
        }
        let mut first = Ok(());
        for change in changes {
            if let Err(errno) = inner.carry_out(change) {
                let error = IpvsError { errno, change: Some(change.clone()), doing: "applying changes" };
                first = first.and(Err(error));
            }
        }
        first
    }

    fn timeouts(&mut self) -> Result<Timeouts, IpvsError> {
        Ok(self.0.lock().timeouts)
    }

    fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<(), IpvsError> {
        let held = &mut self.0.lock().timeouts;
        for (value, place) in
            [(timeouts.tcp, &mut held.tcp), (timeouts.tcp_fin, &mut held.tcp_fin), (timeouts.udp, &mut held.udp)]
        {
            if value != 0 {
                *place = value;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
