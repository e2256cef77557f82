//! The IPVS backend: virtual servers balance, a dummy device holds their addresses, nftables does the rest.
//!
//! The three cannot be changed in one transaction, so the order is chosen such that a failure in between is harmless:
//! add servers and destinations, then change the tables, then remove servers and destinations. After a failure
//! everything is read and synced again.
//!
//! Virtual servers have no owner field. Ours are recorded in the table before they are created and until they are
//! deleted; others are left alone unless a Service uses their address and port.

mod desired;
mod host;
mod servers;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use api::ip::Family;
use kernel::ipvs::{Change, Ipvs as Balancer, IpvsError, Scheduler, Server};
use kernel::links::{Links, LinksError};
use kernel::nft::{Nft, NftError};
use plan::{DataPlane, Plan, Policy, ServicePort, Touched};

pub use host::prepare;

use self::desired::{Affected, DesiredState};
use self::steps::KernelServer;
use crate::nft::{ADDRESSES, SERVERS, TableKind, Trust, address_key, server_from, server_key};
use crate::nftables::{self, ExtraElement, KernelState, Nftables};
use crate::{Backend, BackendError, SyncScope, SyncStats, TamperCallback};

/// Device that holds the addresses of Services.
pub const DEVICE: &str = "waypost-ipvs0";
/// How often draining destinations are checked for open connections.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// IP protocol number of UDP.
const UDP: u8 = 17;

/// Options of the IPVS mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// IPVS scheduler.
    pub scheduler: Scheduler,
    /// Full resync interval: IPVS has no change notifications.
    pub resync: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { scheduler: Scheduler::Rr, resync: Duration::from_secs(30) }
    }
}

/// The IPVS backend.
pub struct Ipvs<B, L, N> {
    balancer: B,
    links: L,
    rules: Nftables<N>,
    config: Config,
    desired: DesiredState,
    /// Our virtual servers in the kernel.
    kernel: BTreeMap<Server, KernelServer>,
    /// Addresses on our device, and on other devices.
    device: BTreeSet<IpAddr>,
    elsewhere: BTreeSet<IpAddr>,
    /// Servers with draining destinations.
    draining: BTreeSet<Server>,
    last_drain_poll: Instant,
    last_resync: Instant,
}

impl<B: Balancer, L: Links, N: Nft> Ipvs<B, L, N> {
    /// Nothing is written yet.
    pub fn new(balancer: B, links: L, nft: N, config: Config) -> Self {
        Self {
            balancer,
            links,
            rules: Nftables::with_kind(nft, TableKind::Ipvs),
            config,
            desired: DesiredState::default(),
            kernel: BTreeMap::new(),
            device: BTreeSet::new(),
            elsewhere: BTreeSet::new(),
            draining: BTreeSet::new(),
            last_drain_poll: Instant::now(),
            last_resync: Instant::now(),
        }
    }

    /// Reads the kernel state and corrects the differences.
    fn full_sync(&mut self, plan: &Plan, trust: Trust) -> Result<SyncStats, BackendError> {
        let rules = self.rules.kernel_state()?;
        self.desired = DesiredState::of(plan, self.config.scheduler);
        self.read_kernel(&rules)?;
        let all = Affected {
            servers: self.desired.servers.keys().chain(self.kernel.keys()).copied().collect(),
            addresses: self.desired.addresses.keys().chain(&self.device).copied().collect(),
        };
        let addresses = all.addresses.iter().filter(|ip| self.device.contains(ip) || self.is_bound(**ip));
        let extra = all.servers.iter().map(server_record).chain(addresses.map(address_record)).collect();
        let mut stats = self.rules.reconcile(plan, trust, rules, extra)?;
        stats.changes += self.add(&all)? + self.remove(&all)?;
        self.last_resync = Instant::now();
        Ok(stats)
    }

    /// Reads our objects from the kernel.
    fn read_kernel(&mut self, rules: &KernelState) -> Result<(), BackendError> {
        let found = self.links.state(DEVICE)?;
        if found.index.is_none() {
            self.links.make(DEVICE)?;
        }
        (self.device, self.elsewhere) = (found.here, found.elsewhere);
        let ours: BTreeSet<Server> = rules.keys(SERVERS).filter_map(|(family, key)| server_from(family, key)).collect();
        self.kernel.clear();
        for (server, settings) in self.balancer.servers()? {
            if ours.contains(&server) || self.desired.servers.contains_key(&server) {
                let loads = self.balancer.destinations(&server)?;
                let destinations = loads.into_iter().map(|(at, load)| (at, load.weight)).collect();
                self.kernel.insert(server, KernelServer { settings, destinations });
            }
        }
        self.draining = self.kernel.keys().copied().collect();
        Ok(())
    }

    /// Applies changes of the plan.
    fn incremental_sync(&mut self, plan: &Plan, touched: &Touched) -> Result<SyncStats, BackendError> {
        let mut affected = self.desired.update(plan, touched, self.config.scheduler);
        let is_new = |ip: &IpAddr| !self.device.contains(ip) && !plan.cluster_ips.contains_key(ip);
        if touched.node || affected.addresses.iter().any(is_new) {
            // Another device may have gained or lost the address of a Service.
            self.elsewhere = self.links.state(DEVICE)?.elsewhere;
        }
        if touched.node {
            affected.addresses.extend(self.desired.addresses.keys());
        }
        let new_server =
            |server: &&Server| self.desired.servers.contains_key(server) && !self.kernel.contains_key(server);
        let servers = affected.servers.iter().filter(new_server).map(server_record);
        let addresses = affected.addresses.iter().filter(|ip| self.is_new(**ip)).map(address_record);
        let extra = servers.chain(addresses).collect();
        self.rules.write_extra(extra, Vec::new())?;
        let added = self.add(&affected)?;
        let mut stats = self.rules.incremental_sync(plan, touched)?;
        stats.changes += added + self.remove(&affected)?;
        Ok(stats)
    }

    /// Whether an address belongs on our device: those of Services and of draining servers, except addresses of other
    /// devices.
    fn is_bound(&self, ip: IpAddr) -> bool {
        let is_draining = || self.device.contains(&ip) && self.draining.iter().any(|server| server.ip == ip);
        !self.elsewhere.contains(&ip) && (self.desired.addresses.contains_key(&ip) || is_draining())
    }

    fn is_new(&self, ip: IpAddr) -> bool {
        !self.device.contains(&ip) && self.is_bound(ip)
    }

    /// Adds servers, destinations and addresses; returns the number of changes.
    fn add(&mut self, affected: &Affected) -> Result<usize, BackendError> {
        let step =
            |server: &Server| steps::additions(server, self.desired.servers.get(server), self.kernel.get(server));
        let changes: Vec<Change> = affected.servers.iter().flat_map(step).collect();
        self.apply(&changes)?;
        let new: Vec<IpAddr> = affected.addresses.iter().filter(|ip| self.is_new(**ip)).copied().collect();
        self.links.add(DEVICE, &new)?;
        self.device.extend(&new);
        Ok(changes.len() + new.len())
    }

    /// Removes or drains surplus servers and destinations; returns the number of changes.
    fn remove(&mut self, affected: &Affected) -> Result<usize, BackendError> {
        let DesiredState { servers, exclusive, .. } = &self.desired;
        let step = |server: &Server| {
            steps::removals(server, servers.get(server), self.kernel.get(server), exclusive.contains(server))
        };
        let changes: Vec<Change> = affected.servers.iter().flat_map(step).collect();
        let kernel = |server: &&Server| self.kernel.contains_key(server);
        let before: Vec<Server> = affected.servers.iter().filter(kernel).copied().collect();
        self.apply(&changes)?;
        self.draining.extend(changes.iter().map(|change| *change.server()));
        let idle = self.delete_idle(&before)?;
        self.release(&before, affected.addresses.iter().copied())?;
        Ok(changes.len() + idle)
    }

    /// Deletes surplus destinations without connections.
    fn delete_idle(&mut self, servers: &[Server]) -> Result<usize, IpvsError> {
        let mut changes = Vec::new();
        for server in servers.iter().filter(|server| self.draining.contains(server)) {
            let surplus = self.surplus(server);
            if surplus.is_empty() {
                continue;
            }
            let loads = self.balancer.destinations(server)?;
            let idle = surplus.iter().filter(|at| loads.get(at).is_none_or(|load| load.is_idle()));
            let gone: Vec<Change> = idle.map(|at| Change::DeleteDestination(*server, *at)).collect();
            if gone.len() == surplus.len() && !self.desired.servers.contains_key(server) {
                changes.push(Change::DeleteServer(*server));
            } else {
                changes.extend(gone);
            }
        }
        self.apply(&changes)?;
        let done: Vec<Server> =
            self.draining.iter().filter(|server| self.surplus(server).is_empty()).copied().collect();
        for server in done {
            self.draining.remove(&server);
        }
        Ok(changes.len())
    }

    /// Surplus destinations of a server.
    fn surplus(&self, server: &Server) -> Vec<SocketAddr> {
        let wanted = self.desired.servers.get(server);
        let is_surplus = |at: &&SocketAddr| wanted.is_none_or(|wanted| !wanted.destinations.contains_key(*at));
        let kernel = self.kernel.get(server).into_iter().flat_map(|kernel| kernel.destinations.keys());
        kernel.filter(is_surplus).copied().collect()
    }

    /// Removes records of deleted servers and unused addresses.
    fn release(&mut self, servers: &[Server], addresses: impl Iterator<Item = IpAddr>) -> Result<(), BackendError> {
        let gone = servers.iter().filter(|server| !self.kernel.contains_key(server));
        let surplus: Vec<IpAddr> = addresses.filter(|ip| self.device.contains(ip) && !self.is_bound(*ip)).collect();
        let extra = gone.map(server_record).chain(surplus.iter().map(address_record)).collect();
        self.links.remove(DEVICE, &surplus)?;
        for ip in &surplus {
            self.device.remove(ip);
        }
        self.rules.write_extra(Vec::new(), extra)?;
        Ok(())
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), IpvsError> {
        if !changes.is_empty() {
            self.balancer.apply(changes)?;
        }
        for change in changes {
            steps::apply(&mut self.kernel, change);
        }
        Ok(())
    }
}

fn server_record(server: &Server) -> ExtraElement {
    (Family::of(server.ip), SERVERS, server_key(server))
}

fn address_record(ip: &IpAddr) -> ExtraElement {
    (Family::of(*ip), ADDRESSES, address_key(*ip))
}

impl<B: Balancer, L: Links, N: Nft> Backend for Ipvs<B, L, N> {
    fn mode(&self) -> &'static str {
        "ipvs"
    }

    fn is_ipvs(&self) -> bool {
        true
    }

    fn data_plane(&mut self) -> DataPlane {
        let mut lacks = |policy: &Policy| {
            let scheduler = servers::scheduler_of(*policy).filter(|scheduler| *scheduler != self.config.scheduler);
            let settings = scheduler.map(|scheduler| scheduler.settings(None));
            settings.is_some_and(|settings| kernel::ipvs::probe(&mut self.balancer, &settings).is_err())
        };
        DataPlane::Ipvs { missing: Policy::ALL.into_iter().filter(|policy| lacks(policy)).collect() }
    }

    fn sync(&mut self, plan: &Plan, scope: &SyncScope) -> Result<SyncStats, BackendError> {
        match scope {
            SyncScope::FullResync => self.full_sync(plan, Trust::RuleCount),
            SyncScope::Tampered => self.full_sync(plan, Trust::None),
            SyncScope::Changed(touched) => self.incremental_sync(plan, touched),
        }
    }

    fn watch_tampering(&mut self, on_tampering: TamperCallback) -> Result<(), BackendError> {
        self.rules.watch_tampering(on_tampering)
    }

    fn next_maintenance(&self) -> Option<Duration> {
        let poll =
            (!self.draining.is_empty()).then(|| DRAIN_POLL_INTERVAL.saturating_sub(self.last_drain_poll.elapsed()));
        let resync = self.config.resync.saturating_sub(self.last_resync.elapsed());
        Some(poll.map_or(resync, |poll| poll.min(resync)))
    }

    fn maintain(&mut self, plan: &Plan) -> Result<SyncStats, BackendError> {
        if self.last_resync.elapsed() >= self.config.resync {
            return self.full_sync(plan, Trust::RuleCount);
        }
        let mut stats = SyncStats::default();
        if self.last_drain_poll.elapsed() >= DRAIN_POLL_INTERVAL {
            self.last_drain_poll = Instant::now();
            let draining: Vec<Server> = self.draining.iter().copied().collect();
            stats.changes = self.delete_idle(&draining)?;
            let addresses: BTreeSet<IpAddr> = draining.iter().map(|server| server.ip).collect();
            self.release(&draining, addresses.into_iter())?;
        }
        Ok(stats)
    }

    fn rules(&self, plan: &Plan, port: &ServicePort) -> String {
        let port_servers = servers::of(plan, port, self.config.scheduler);
        self.rules.rules(plan, port) + &servers::text(&port_servers)
    }
}

impl From<IpvsError> for BackendError {
    fn from(error: IpvsError) -> Self {
        Self { message: error.to_string() }
    }
}

impl From<LinksError> for BackendError {
    fn from(error: LinksError) -> Self {
        Self { message: error.to_string() }
    }
}

/// Checks whether this machine supports IPVS, the scheduler and dummy devices.
///
/// # Errors
/// What is missing, and how to get it.
pub fn probe(balancer: &mut dyn Balancer, links: &mut dyn Links, scheduler: Scheduler) -> Result<(), BackendError> {
    let fit = kernel::ipvs::probe(balancer, &scheduler.settings(None));
    fit.map_err(|unfit| BackendError { message: unfit.to_string() })?;
    links.make(DEVICE).map_err(|error| BackendError {
        message: format!("{error}; load it with `modprobe dummy`, or choose another --proxy-mode"),
    })
}

/// Whether our virtual servers have open TCP connections. UDP is ignored: its entries stay active for minutes.
///
/// # Errors
/// When the kernel refuses.
pub fn has_active_connections(balancer: &mut dyn Balancer, nft: &mut dyn Nft) -> Result<bool, BackendError> {
    let there = balancer.servers()?;
    for server in recorded_servers(nft)?.into_iter().filter(|one| one.protocol != UDP && there.contains_key(one)) {
        if balancer.destinations(&server)?.values().any(|load| load.active > 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes our virtual servers, the device and the tables; returns whether there were any. On a kernel without IPVS
/// there is no balancer and there are no servers.
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
        let ours: Vec<Change> = recorded_servers(nft)?
            .into_iter()
            .filter(|one| there.contains_key(one))
            .map(Change::DeleteServer)
            .collect();
        found |= !ours.is_empty();
        if !ours.is_empty() {
            balancer.apply(&ours)?;
        }
    }
    found |= links.delete(DEVICE)?;
    found |= nftables::remove(nft, TableKind::Ipvs)?;
    Ok(found)
}

/// Virtual servers recorded as ours.
fn recorded_servers(nft: &mut dyn Nft) -> Result<Vec<Server>, NftError> {
    let mut servers = Vec::new();
    for family in crate::nft::FAMILIES {
        let table = nft.dump(crate::nft::kernel_family(family), TableKind::Ipvs.table())?;
        let set = table.as_ref().and_then(|table| table.sets.get(SERVERS));
        servers.extend(set.into_iter().flat_map(|set| set.elements.keys()).filter_map(|key| server_from(family, key)));
    }
    Ok(servers)
}

#[cfg(test)]
mod tests;
