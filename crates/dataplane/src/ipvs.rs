//! The IPVS backend: virtual servers balance, a device has their addresses, a table does the rest.
//!
//! Three parts of the kernel are brought into step, and there is no transaction over all of them. So they are changed in an order
//! in which a failure between two of them harms nobody: servers take everything that is new, then the table lets it through and
//! refuses what is old, then servers give up what is old. What failed is read anew and tried again, as everywhere.
//!
//! Virtual servers have no owner. Ours are noted in the table before they are made and until they are gone; all others are left
//! alone, unless a Service of ours has their address and port.

mod host;
mod servers;
mod steps;
mod wishes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use api::ip::Family;
use kernel::ipvs::{Change, Ipvs as Balancer, IpvsError, Scheduler, Server};
use kernel::links::{Links, LinksError};
use kernel::nft::{Nft, NftError};
use plan::{Plan, ServicePort, Touched};

pub use host::prepare;

use self::steps::Held;
use self::wishes::{Affected, Wishes};
use crate::nft::{ADDRESSES, SERVERS, Style, Trust, address_key, server_from, server_key};
use crate::nftables::{self, Found, Nftables, Noted};
use crate::{Backend, BackendError, Brought, Since, Tampered};

/// The device that has the addresses of Services.
pub const DEVICE: &str = "waypost-ipvs0";
/// How often destinations that wait for the end of their connections are looked at.
const LOOK: Duration = Duration::from_secs(10);

/// The number of UDP.
const UDP: u8 = 17;

/// How to balance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manner {
    /// Who gets the next connection.
    pub scheduler: Scheduler,
    /// How often everything is read and set right: nobody tells when others change it.
    pub resync: Duration,
}

impl Default for Manner {
    fn default() -> Self {
        Self { scheduler: Scheduler::Rr, resync: Duration::from_secs(30) }
    }
}

/// The backend.
pub struct Ipvs<B, L, N> {
    balancer: B,
    links: L,
    rules: Nftables<N>,
    manner: Manner,
    wishes: Wishes,
    /// Our virtual servers as the kernel has them.
    held: BTreeMap<Server, Held>,
    /// The addresses on our device, and those on others.
    device: BTreeSet<IpAddr>,
    elsewhere: BTreeSet<IpAddr>,
    /// Servers with destinations that wait for the end of their connections.
    fading: BTreeSet<Server>,
    looked: Instant,
    read: Instant,
}

impl<B: Balancer, L: Links, N: Nft> Ipvs<B, L, N> {
    /// Nothing is written yet.
    pub fn new(balancer: B, links: L, nft: N, manner: Manner) -> Self {
        Self {
            balancer,
            links,
            rules: Nftables::styled(nft, Style::BesideIpvs),
            manner,
            wishes: Wishes::default(),
            held: BTreeMap::new(),
            device: BTreeSet::new(),
            elsewhere: BTreeSet::new(),
            fading: BTreeSet::new(),
            looked: Instant::now(),
            read: Instant::now(),
        }
    }

    /// Reads what the kernel has and makes it what it should be.
    fn bring_all(&mut self, plan: &Plan, trust: Trust) -> Result<Brought, BackendError> {
        let rules = self.rules.found()?;
        self.wishes = Wishes::of(plan, self.manner.scheduler);
        self.read_all(&rules)?;
        let all = Affected {
            servers: self.wishes.servers.keys().chain(self.held.keys()).copied().collect(),
            addresses: self.wishes.addresses.keys().chain(&self.device).copied().collect(),
        };
        let addresses = all.addresses.iter().filter(|ip| self.device.contains(ip) || self.is_bound(**ip));
        let noted = all.servers.iter().map(note_server).chain(addresses.map(note_address)).collect();
        let mut brought = self.rules.correct(plan, trust, rules, noted)?;
        brought.changes += self.open(&all)? + self.close(&all)?;
        self.read = Instant::now();
        Ok(brought)
    }

    /// Learns what the kernel has of what is ours.
    fn read_all(&mut self, rules: &Found) -> Result<(), BackendError> {
        let found = self.links.look(DEVICE)?;
        if found.index.is_none() {
            self.links.make(DEVICE)?;
        }
        (self.device, self.elsewhere) = (found.here, found.elsewhere);
        let ours: BTreeSet<Server> = rules.keys(SERVERS).filter_map(|(family, key)| server_from(family, key)).collect();
        self.held.clear();
        for (server, settings) in self.balancer.servers()? {
            if ours.contains(&server) || self.wishes.servers.contains_key(&server) {
                let loads = self.balancer.destinations(&server)?;
                let destinations = loads.into_iter().map(|(at, load)| (at, load.weight)).collect();
                self.held.insert(server, Held { settings, destinations });
            }
        }
        self.fading = self.held.keys().copied().collect();
        Ok(())
    }

    /// Follows a plan in which something changed.
    fn bring_last(&mut self, plan: &Plan, touched: &Touched) -> Result<Brought, BackendError> {
        let mut affected = self.wishes.follow(plan, touched, self.manner.scheduler);
        let is_new = |ip: &IpAddr| !self.device.contains(ip) && !plan.cluster_ips.contains_key(ip);
        if touched.node || affected.addresses.iter().any(is_new) {
            // Other devices may have got an address that a Service has, or lost it.
            self.elsewhere = self.links.look(DEVICE)?.elsewhere;
        }
        if touched.node {
            affected.addresses.extend(self.wishes.addresses.keys());
        }
        let new_server = |server: &&Server| self.wishes.servers.contains_key(server) && !self.held.contains_key(server);
        let servers = affected.servers.iter().filter(new_server).map(note_server);
        let addresses = affected.addresses.iter().filter(|ip| self.is_new(**ip)).map(note_address);
        let noted = servers.chain(addresses).collect();
        self.rules.note(noted, Vec::new())?;
        let opened = self.open(&affected)?;
        let mut brought = self.rules.follow(plan, touched)?;
        brought.changes += opened + self.close(&affected)?;
        Ok(brought)
    }

    /// Whether an address should be on our device: those of Services, and those of servers that still have connections; but none
    /// that another device has.
    fn is_bound(&self, ip: IpAddr) -> bool {
        let is_fading = || self.device.contains(&ip) && self.fading.iter().any(|server| server.ip == ip);
        !self.elsewhere.contains(&ip) && (self.wishes.addresses.contains_key(&ip) || is_fading())
    }

    fn is_new(&self, ip: IpAddr) -> bool {
        !self.device.contains(&ip) && self.is_bound(ip)
    }

    /// Has servers take everything that they should; answers how much changed.
    fn open(&mut self, affected: &Affected) -> Result<usize, BackendError> {
        let step = |server: &Server| steps::open(server, self.wishes.servers.get(server), self.held.get(server));
        let changes: Vec<Change> = affected.servers.iter().flat_map(step).collect();
        self.order(&changes)?;
        let new: Vec<IpAddr> = affected.addresses.iter().filter(|ip| self.is_new(**ip)).copied().collect();
        self.links.add(DEVICE, &new)?;
        self.device.extend(&new);
        Ok(changes.len() + new.len())
    }

    /// Takes from servers what they should not have any more; answers how much changed.
    fn close(&mut self, affected: &Affected) -> Result<usize, BackendError> {
        let step = |server: &Server| steps::close(server, self.wishes.servers.get(server), self.held.get(server));
        let changes: Vec<Change> = affected.servers.iter().flat_map(step).collect();
        let held = |server: &&Server| self.held.contains_key(server);
        let before: Vec<Server> = affected.servers.iter().filter(held).copied().collect();
        self.order(&changes)?;
        self.fading.extend(changes.iter().map(|change| *change.server()));
        let idle = self.delete_idle(&before)?;
        self.forget(&before, affected.addresses.iter().copied())?;
        Ok(changes.len() + idle)
    }

    /// Deletes destinations that are wanted no more and have no connections, of those of these servers that have such.
    fn delete_idle(&mut self, servers: &[Server]) -> Result<usize, IpvsError> {
        let mut changes = Vec::new();
        for server in servers.iter().filter(|server| self.fading.contains(server)) {
            let surplus = self.surplus(server);
            if surplus.is_empty() {
                continue;
            }
            let loads = self.balancer.destinations(server)?;
            let idle = surplus.iter().filter(|at| loads.get(at).is_none_or(|load| load.is_idle()));
            let gone: Vec<Change> = idle.map(|at| Change::DeleteDestination(*server, *at)).collect();
            if gone.len() == surplus.len() && !self.wishes.servers.contains_key(server) {
                changes.push(Change::DeleteServer(*server));
            } else {
                changes.extend(gone);
            }
        }
        self.order(&changes)?;
        let done: Vec<Server> = self.fading.iter().filter(|server| self.surplus(server).is_empty()).copied().collect();
        for server in done {
            self.fading.remove(&server);
        }
        Ok(changes.len())
    }

    /// The destinations of a server that nobody wants any more.
    fn surplus(&self, server: &Server) -> Vec<SocketAddr> {
        let wanted = self.wishes.servers.get(server);
        let is_surplus = |at: &&SocketAddr| wanted.is_none_or(|wanted| !wanted.destinations.contains(at));
        let held = self.held.get(server).into_iter().flat_map(|held| held.destinations.keys());
        held.filter(is_surplus).copied().collect()
    }

    /// Forgets servers of these that are gone, and addresses that nobody needs any more.
    fn forget(&mut self, servers: &[Server], addresses: impl Iterator<Item = IpAddr>) -> Result<(), BackendError> {
        let gone = servers.iter().filter(|server| !self.held.contains_key(server));
        let surplus: Vec<IpAddr> = addresses.filter(|ip| self.device.contains(ip) && !self.is_bound(*ip)).collect();
        let noted = gone.map(note_server).chain(surplus.iter().map(note_address)).collect();
        self.links.remove(DEVICE, &surplus)?;
        for ip in &surplus {
            self.device.remove(ip);
        }
        self.rules.note(Vec::new(), noted)?;
        Ok(())
    }

    fn order(&mut self, changes: &[Change]) -> Result<(), IpvsError> {
        if !changes.is_empty() {
            self.balancer.apply(changes)?;
        }
        for change in changes {
            steps::follow(&mut self.held, change);
        }
        Ok(())
    }
}

fn note_server(server: &Server) -> Noted {
    (Family::of(server.ip), SERVERS, server_key(server))
}

fn note_address(ip: &IpAddr) -> Noted {
    (Family::of(*ip), ADDRESSES, address_key(*ip))
}

impl<B: Balancer, L: Links, N: Nft> Backend for Ipvs<B, L, N> {
    fn mode(&self) -> &'static str {
        "ipvs"
    }

    fn is_ipvs(&self) -> bool {
        true
    }

    fn bring(&mut self, plan: &Plan, since: &Since) -> Result<Brought, BackendError> {
        match since {
            Since::Ever => self.bring_all(plan, Trust::Counted),
            Since::Tampered => self.bring_all(plan, Trust::Nothing),
            Since::Last(touched) => self.bring_last(plan, touched),
        }
    }

    fn guard(&mut self, tampered: Tampered) -> Result<(), BackendError> {
        self.rules.guard(tampered)
    }

    fn rest(&self) -> Option<Duration> {
        let look = (!self.fading.is_empty()).then(|| LOOK.saturating_sub(self.looked.elapsed()));
        let resync = self.manner.resync.saturating_sub(self.read.elapsed());
        Some(look.map_or(resync, |look| look.min(resync)))
    }

    fn tend(&mut self, plan: &Plan) -> Result<Brought, BackendError> {
        if self.read.elapsed() >= self.manner.resync {
            return self.bring_all(plan, Trust::Counted);
        }
        let mut brought = Brought::default();
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            let fading: Vec<Server> = self.fading.iter().copied().collect();
            brought.changes = self.delete_idle(&fading)?;
            let addresses: BTreeSet<IpAddr> = fading.iter().map(|server| server.ip).collect();
            self.forget(&fading, addresses.into_iter())?;
        }
        Ok(brought)
    }

    fn rules(&self, plan: &Plan, port: &ServicePort) -> String {
        let reach = servers::of(plan, port, self.manner.scheduler);
        self.rules.rules(plan, port) + &servers::text(&reach)
    }
}

impl From<IpvsError> for BackendError {
    fn from(error: IpvsError) -> Self {
        Self { what: error.to_string() }
    }
}

impl From<LinksError> for BackendError {
    fn from(error: LinksError) -> Self {
        Self { what: error.to_string() }
    }
}

/// Tries whether this machine can balance so, before anything is promised: IPVS, its scheduler, and a device for addresses.
///
/// # Errors
/// Why it cannot, and what to do about it.
pub fn probe(balancer: &mut dyn Balancer, links: &mut dyn Links, scheduler: Scheduler) -> Result<(), BackendError> {
    let fit = kernel::ipvs::probe(balancer, &scheduler.settings(None));
    fit.map_err(|unfit| BackendError { what: unfit.to_string() })?;
    links.make(DEVICE).map_err(|error| BackendError {
        what: format!("{error}; load it with `modprobe dummy`, or choose another --proxy-mode"),
    })
}

/// Whether servers that are noted as ours have open connections. UDP has none: the kernel calls every flow of it open for minutes.
///
/// # Errors
/// When the kernel refuses.
pub fn carries(balancer: &mut dyn Balancer, nft: &mut dyn Nft) -> Result<bool, BackendError> {
    let there = balancer.servers()?;
    for server in noted_servers(nft)?.into_iter().filter(|one| one.protocol != UDP && there.contains_key(one)) {
        if balancer.destinations(&server)?.values().any(|load| load.active > 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes everything that this backend ever made: virtual servers that are noted as ours, the device, the tables. Answers whether
/// there was something. A kernel without IPVS has none of our servers: then there is no balancer to ask.
///
/// # Errors
/// When the kernel refuses.
pub fn cleanup(
    balancer: Option<&mut dyn Balancer>,
    links: &mut dyn Links,
    nft: &mut dyn Nft,
) -> Result<bool, BackendError> {
    let mut found = false;
    if let Some(balancer) = balancer {
        let there = balancer.servers()?;
        let ours: Vec<Change> =
            noted_servers(nft)?.into_iter().filter(|one| there.contains_key(one)).map(Change::DeleteServer).collect();
        found |= !ours.is_empty();
        if !ours.is_empty() {
            balancer.apply(&ours)?;
        }
    }
    found |= links.delete(DEVICE)?;
    found |= nftables::remove(nft, Style::BesideIpvs)?;
    Ok(found)
}

/// The servers that are noted as ours.
fn noted_servers(nft: &mut dyn Nft) -> Result<Vec<Server>, NftError> {
    let mut servers = Vec::new();
    for family in crate::nft::FAMILIES {
        let table = nft.dump(crate::nft::kernel_family(family), Style::BesideIpvs.table())?;
        let set = table.as_ref().and_then(|table| table.sets.get(SERVERS));
        servers.extend(set.into_iter().flat_map(|set| set.elements.keys()).filter_map(|key| server_from(family, key)));
    }
    Ok(servers)
}

#[cfg(test)]
mod tests;
