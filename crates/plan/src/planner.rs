//! Incremental planning: each update replans only the Services it affects. The result equals a computation from
//! scratch, whatever the order of updates.
//!
//! In: [`Update`]s. Out: the [`Plan`], and what was [`Touched`]. Of a Service only its planned ports are kept, of a
//! slice only small records.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::ip::Family;
use api::view::{EndpointSlice, Node, Protocol, Service, ServiceCidr};
use ipnet::IpNet;

use crate::address::lenient_ranges;
use crate::balancing::{DataPlane, Policy, Requested};
use crate::claims::{self, Frontend};
use crate::endpoints::{Pools, PortEndpoint, SliceRecord};
use crate::leader::Leaders;
use crate::options::Options;
use crate::plan::{Health, Plan, Problem, Touched};
use crate::redirect::{Redirect, Redirects, unsplit};
use crate::selection::{NodeLocation, fill, is_healthy};
use crate::service::read;
use crate::service_port::{PortKey, ServicePort};

/// A change of the inputs. Keys are `namespace/name`, or a name alone.
#[derive(Clone, PartialEq, Debug)]
pub enum Update {
    /// A Service was added or changed.
    Service(Box<Service>),
    /// A Service was deleted.
    ServiceGone(String),
    /// An EndpointSlice was added or changed.
    Slice(EndpointSlice),
    /// An EndpointSlice was deleted.
    SliceGone(String),
    /// The local Node was added or changed; none if deleted.
    Node(Option<Box<Node>>),
    /// A ServiceCIDR was added or changed.
    Cidr(ServiceCidr),
    /// A ServiceCIDR was deleted.
    CidrGone(String),
    /// The current addresses of the machine.
    Machine(BTreeSet<IpAddr>),
    /// All current redirects.
    Redirects(Arc<BTreeSet<Redirect>>),
    /// A Lease (`namespace/name`) was observed: its holder identity, none if nobody holds it now.
    Leader(Arc<str>, Option<Box<str>>),
    /// Another data plane carries the connections.
    DataPlane(DataPlane),
}

/// Keeps a plan in sync with its inputs.
#[derive(Debug, Default)]
pub struct Planner {
    pub(crate) plan: Plan,
    pub(crate) services: HashMap<Arc<str>, ServiceState>,
    /// The Service of each slice.
    slices: HashMap<Box<str>, Arc<str>>,
    cluster_ip_endpoints: crate::cluster_ip_endpoints::ClusterIpEndpoints,
    pools: Pools,
    contested: BTreeSet<Frontend>,
    /// Problems per Service.
    problems: BTreeMap<Arc<str>, Vec<String>>,
    cidrs: HashMap<Box<str>, Vec<IpNet>>,
    machine: BTreeSet<IpAddr>,
    pub(crate) redirects: Redirects,
    pub(crate) leaders: Leaders,
}

/// State of a Service; the object or its slices may be missing.
#[derive(Debug, Default)]
pub(crate) struct ServiceState {
    cluster_ips: Vec<IpAddr>,
    /// Its planned ports.
    ports: Vec<Arc<ServicePort>>,
    /// The policy that it requests; none for `random`.
    pub(crate) requested: Option<Box<Requested>>,
    /// Problems of the object itself.
    problems: Vec<String>,
    /// Its slices, sorted by name.
    pub(crate) slices: Vec<SliceRecord>,
}

/// Services to replan. With ports: the object changed to these. Without: something else changed.
type Dirty = BTreeMap<Arc<str>, Option<Vec<ServicePort>>>;

impl Planner {
    /// An empty plan.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { plan: Plan { options, ..Plan::default() }, ..Self::default() }
    }

    /// The current plan.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Number of redirects of cluster IPs that are in effect.
    #[must_use]
    pub fn redirected_cluster_ips(&self) -> usize {
        self.redirects.of_cluster_ips()
    }

    /// All problems.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        let problem = |service: &Arc<str>, what| Problem { service: Arc::clone(service), what };
        let said = self
            .problems
            .iter()
            .flat_map(move |(service, all)| all.iter().map(move |one| problem(service, one.clone())));
        said.chain(claims::losses(&self.plan.frontends, &self.contested).map(move |(loser, winner, frontend)| {
            problem(&loser.service, format!("its {frontend} is owned by {winner}, which gets the traffic"))
        }))
    }

    /// Applies an update and returns what it touched.
    pub fn update(&mut self, update: Update) -> Touched {
        self.update_all([update])
    }

    /// Applies several updates at once; a Service affected by many is planned once.
    pub fn update_all(&mut self, updates: impl IntoIterator<Item = Update>) -> Touched {
        let (mut dirty, mut touched) = (Dirty::new(), Touched::default());
        for update in updates {
            self.apply(update, &mut dirty, &mut touched);
        }
        for (service, ports) in dirty {
            self.replan(&service, ports, &mut touched);
        }
        touched
    }

    fn apply(&mut self, update: Update, dirty: &mut Dirty, touched: &mut Touched) {
        match update {
            Update::Service(service) => {
                let name = service.metadata.key();
                self.apply_service(&name, Some(&service), dirty, touched);
            }
            Update::ServiceGone(name) => self.apply_service(&name, None, dirty, touched),
            Update::Slice(slice) => {
                let name = slice.metadata.key();
                self.apply_slice(&name, Some(slice), dirty);
            }
            Update::SliceGone(name) => self.apply_slice(&name, None, dirty),
            Update::Node(node) => self.apply_node(node.as_deref(), dirty, touched),
            Update::Cidr(cidr) => {
                self.cidrs.insert(cidr.metadata.name.clone(), lenient_ranges(&cidr.spec.cidrs).collect());
                self.update_ranges(touched);
            }
            Update::CidrGone(name) => {
                self.cidrs.remove(&*name);
                self.update_ranges(touched);
            }
            Update::Machine(addresses) => {
                self.machine = addresses;
                self.update_node_port_ips(touched);
            }
            Update::Redirects(redirects) => {
                let redirects = Redirects::of(&redirects, &self.plan.options);
                let before = std::mem::replace(&mut self.redirects, redirects);
                for service in before.changed(&self.redirects) {
                    dirty.entry(Arc::clone(service)).or_default();
                }
            }
            Update::Leader(lease, holder) => {
                for service in self.leaders.set_holder(&lease, holder) {
                    self.endpoints_changed(&service, dirty);
                }
            }
            Update::DataPlane(data_plane) => self.apply_data_plane(data_plane, dirty),
        }
    }

    fn apply_data_plane(&mut self, data_plane: DataPlane, dirty: &mut Dirty) {
        if self.plan.options.data_plane != data_plane {
            self.plan.options.data_plane = data_plane;
            let requesting = self.services.iter().filter(|(_, state)| state.requested.is_some());
            dirty.extend(requesting.map(|(service, _)| (Arc::clone(service), None)));
        }
    }

    fn apply_service(&mut self, name: &str, object: Option<&Service>, dirty: &mut Dirty, touched: &mut Touched) {
        let name = self.name(name);
        let rootless = self.plan.options.rootless;
        let read = object.map(|object| read(object, &name, &mut self.pools.names, rootless)).unwrap_or_default();
        self.leaders.set_lease(&name, read.requested.lease.as_ref());
        let state = self.services.entry(Arc::clone(&name)).or_default();
        state.problems = read.problems;
        let requested = (read.requested.policy != Policy::Random).then(|| Box::new(read.requested));
        let is_other = std::mem::replace(&mut state.requested, requested) != state.requested;
        let before = std::mem::replace(&mut state.cluster_ips, read.cluster_ips.clone());
        // Add before removing, so that unchanged cluster IPs are not touched.
        for ip in read.cluster_ips {
            let count = self.plan.cluster_ips.entry(ip).or_default();
            *count += 1;
            if *count == 1 {
                let slices =
                    self.services.iter().flat_map(|(name, state)| state.slices.iter().map(move |one| (name, one)));
                self.cluster_ip_endpoints.add_cluster_ip(ip, slices);
                self.cluster_ip_changed(ip, dirty, touched);
            }
        }
        for ip in before {
            let Some(count) = self.plan.cluster_ips.get_mut(&ip) else { continue };
            *count -= 1;
            if *count == 0 {
                self.plan.cluster_ips.remove(&ip);
                self.cluster_ip_changed(ip, dirty, touched);
            }
        }
        if is_other {
            self.endpoints_changed(&name, dirty);
        }
        dirty.insert(name, Some(read.ports));
    }

    /// Handles an address that became a cluster IP or stopped being one.
    fn cluster_ip_changed(&self, ip: IpAddr, dirty: &mut Dirty, touched: &mut Touched) {
        for service in self.cluster_ip_endpoints.of(ip) {
            self.endpoints_changed(service, dirty);
        }
        if !touched.cluster_ips.remove(&ip) {
            touched.cluster_ips.insert(ip);
        }
    }

    fn apply_slice(&mut self, name: &str, slice: Option<EndpointSlice>, dirty: &mut Dirty) {
        let slice = slice.filter(|slice| !slice.is_headless());
        let owner = slice.as_ref().and_then(EndpointSlice::service).map(|service| self.name(&service));
        let record = slice.map(|slice| SliceRecord::of(name, slice, &self.plan.options, &mut self.pools));
        if let Some(service) = self.slices.remove(name)
            && let Some(state) = self.services.get_mut(&service)
            && let Ok(index) = state.slices.binary_search_by(|one| (*one.name).cmp(name))
        {
            // Watches resend unchanged objects when they restart.
            if owner.as_ref() == Some(&service) && record.as_ref() == Some(&state.slices[index]) {
                self.slices.insert(name.into(), service);
                return;
            }
            let old = state.slices.remove(index);
            self.cluster_ip_endpoints.remove(&service, &old);
            self.endpoints_changed(&service, dirty);
        }
        let (Some(record), Some(service)) = (record, owner) else { return };
        self.cluster_ip_endpoints.add(&service, &record);
        self.slices.insert(name.into(), Arc::clone(&service));
        let slices = &mut self.services.entry(Arc::clone(&service)).or_default().slices;
        let index = slices.partition_point(|one| *one.name < *name);
        slices.reserve_exact(1);
        slices.insert(index, record);
        self.endpoints_changed(&service, dirty);
    }

    /// Replans a Service whose endpoints changed, and those that are redirected to them.
    fn endpoints_changed(&self, service: &Arc<str>, dirty: &mut Dirty) {
        for service in self.redirects.dependents(service).chain([service]) {
            dirty.entry(Arc::clone(service)).or_default();
        }
    }

    fn apply_node(&mut self, node: Option<&Node>, dirty: &mut Dirty, touched: &mut Touched) {
        let plan = &mut self.plan;
        let ips = node.map_or_else(Vec::new, Node::addresses);
        let zone: Option<Box<str>> = node.and_then(Node::zone).map(Into::into);
        let eligible = node.is_some_and(Node::is_eligible);
        let pods = node.map_or_else(Vec::new, |node| lenient_ranges(&node.spec.pod_cidrs).collect());
        if (&plan.node_ips, &plan.node_pods, &plan.zone, plan.node_eligible) == (&ips, &pods, &zone, eligible) {
            return;
        }
        let (moved, elsewhere) = (plan.node_ips != ips, plan.zone != zone);
        let concerned = plan.ports.values().filter(|port| elsewhere || (moved && port.source_ranges.is_some()));
        for service in concerned.map(|port| &port.key.service) {
            dirty.entry(Arc::clone(service)).or_default();
        }
        (plan.node_ips, plan.node_pods, plan.zone, plan.node_eligible) = (ips, pods, zone, eligible);
        touched.node = true;
        self.update_node_port_ips(touched);
    }

    fn update_node_port_ips(&mut self, touched: &mut Touched) {
        let ips = self.plan.options.node_port_addresses.of(&self.plan.node_ips, &self.machine);
        touched.node |= self.plan.node_port_ips != ips;
        self.plan.node_port_ips = ips;
    }

    fn update_ranges(&mut self, touched: &mut Touched) {
        let all: Vec<IpNet> = self.cidrs.values().flatten().copied().collect();
        let mut ranges = IpNet::aggregate(&all);
        ranges.sort_unstable();
        touched.ranges |= self.plan.ranges != ranges;
        self.plan.ranges = ranges;
    }

    /// The interned name of a Service.
    fn name(&self, name: &str) -> Arc<str> {
        self.services.get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name))
    }

    /// Replans a Service.
    fn replan(&mut self, service: &Arc<str>, ports: Option<Vec<ServicePort>>, touched: &mut Touched) {
        let Some(state) = self.services.get(service) else { return };
        let mut ports = ports.unwrap_or_else(|| unsplit(&state.ports));
        self.redirects.split(&mut ports);
        let mut problems = Vec::new();
        if !ports.is_empty() {
            problems.extend(state.slices.iter().flat_map(|slice| &slice.problems).cloned());
            problems.extend(self.loop_problems(state));
        }
        problems.extend(state.problems.iter().cloned());
        let health = self.set_endpoints(state, &mut ports, &mut problems);
        self.replace_ports(service, ports, &health, touched);
        let said = if problems.is_empty() {
            self.problems.remove(service)
        } else {
            self.problems.insert(Arc::clone(service), problems)
        };
        touched.problems |= said.as_ref() != self.problems.get(service);
        if self.services.get(service).is_some_and(ServiceState::is_unused) {
            self.services.remove(service);
        }
    }

    /// Sets the endpoints and the balancing of all ports of a Service; returns its health.
    fn set_endpoints(
        &self,
        state: &ServiceState,
        ports: &mut [ServicePort],
        problems: &mut Vec<String>,
    ) -> BTreeMap<Family, Health> {
        let mut healthy: BTreeMap<Family, (u16, BTreeSet<IpAddr>)> = BTreeMap::new();
        for port in ports {
            let key = port.key.clone();
            let found = self.usable(state, &key);
            if key.redirected.is_some() {
                self.set_redirect(port);
            }
            fill(port, &found, self.location());
            if key.redirected.is_some() && key.protocol == Protocol::Udp {
                self.keep_flows(port);
            }
            if let Some(requested) = state.requested.as_ref().filter(|_| key.redirected.is_none()) {
                let (balancing, problem) = requested.balancing(port, &found, &self.plan.options.data_plane);
                port.balancing = balancing;
                // The ports of a Service have the same problem.
                problems.extend(problem.filter(|problem| !problems.contains(problem)));
            }
            let allowed = |ip: &IpAddr| port.source_ranges.iter().flatten().any(|range| range.contains(ip));
            port.own_vips_allowed = self.plan.node_ips.iter().any(allowed);
            if let Some(number) = port.health_port {
                let (_, ips) = healthy.entry(key.family).or_insert_with(|| (number, BTreeSet::new()));
                ips.extend(found.iter().filter(|seen| is_healthy(seen.endpoint)).map(|seen| seen.backend.ip));
            }
        }
        healthy.into_iter().map(|(family, (port, ips))| (family, Health { port, local_ready: ips.len() })).collect()
    }

    pub(crate) fn location(&self) -> NodeLocation<'_> {
        NodeLocation { node: &self.plan.options.node_name, zone: self.plan.zone.as_deref() }
    }

    /// Endpoints of a port: those to which it is redirected, else those in the slices of the Service.
    pub(crate) fn endpoints<'a>(&'a self, state: &'a ServiceState, key: &'a PortKey) -> Vec<PortEndpoint<'a>> {
        if key.redirected.is_none() {
            return self.of_slices(state, key);
        }
        let Some(redirected) = self.redirects.get(key) else { return Vec::new() };
        self.direct(redirected).unwrap_or_else(|| vec![redirected.listener()])
    }

    /// Endpoints of a port, except cluster IPs.
    fn usable<'a>(&'a self, state: &'a ServiceState, key: &'a PortKey) -> Vec<PortEndpoint<'a>> {
        let mut found = self.endpoints(state, key);
        found.retain(|seen| !self.is_cluster_ip(seen.backend.ip));
        found
    }

    /// Whether an endpoint address is a cluster IP. Candidates are rare, so this is cheap.
    pub(crate) fn is_cluster_ip(&self, endpoint: IpAddr) -> bool {
        !self.cluster_ip_endpoints.of(endpoint).is_empty() && self.plan.cluster_ips.contains_key(&endpoint)
    }

    /// Problems about endpoints that are cluster IPs.
    fn loop_problems(&self, state: &ServiceState) -> impl Iterator<Item = String> {
        let endpoints = state.slices.iter().flat_map(|slice| &slice.endpoints).map(|endpoint| endpoint.ip);
        let looping: BTreeSet<IpAddr> = endpoints.filter(|ip| self.is_cluster_ip(*ip)).collect();
        looping
            .into_iter()
            .map(|ip| format!("its endpoint {ip} is the cluster IP of a Service; ignored, traffic would loop"))
    }

    /// Replaces the ports of a Service in the plan.
    fn replace_ports(
        &mut self,
        service: &Arc<str>,
        ports: Vec<ServicePort>,
        health: &BTreeMap<Family, Health>,
        touched: &mut Touched,
    ) {
        let Some(state) = self.services.get_mut(service) else { return };
        let before = std::mem::take(&mut state.ports);
        for old in &before {
            if ports.iter().all(|port| port.key != old.key) {
                self.plan.ports.remove(&old.key);
                claims::replace(&mut self.plan.frontends, &mut self.contested, (Some(old), None), touched);
                touched.ports.insert(old.key.clone());
            }
        }
        state.ports.reserve_exact(ports.len());
        for port in ports {
            let old = before.iter().find(|old| old.key == port.key);
            if let Some(old) = old.filter(|old| ***old == port) {
                state.ports.push(Arc::clone(old));
                continue;
            }
            claims::replace(
                &mut self.plan.frontends,
                &mut self.contested,
                (old.map(|old| &**old), Some(&port)),
                touched,
            );
            touched.ports.insert(port.key.clone());
            let port = Arc::new(port);
            self.plan.ports.insert(port.key.clone(), Arc::clone(&port));
            state.ports.push(port);
        }
        if state.ports.iter().chain(&before).any(|port| port.health_port.is_some()) {
            for family in [Family::V4, Family::V6] {
                let key = (Arc::clone(service), family);
                match health.get(&family) {
                    Some(health) => drop(self.plan.health.insert(key, *health)),
                    None => drop(self.plan.health.remove(&key)),
                }
            }
        }
    }
}

impl ServiceState {
    /// Whether it can be dropped.
    fn is_unused(&self) -> bool {
        self.slices.is_empty() && self.cluster_ips.is_empty() && self.problems.is_empty()
    }
}
