//! Follows changes: each plans anew the Services it concerns and nothing else, and the result is what a computation
//! from scratch would give, whatever the order in which the inputs came.
//!
//! In: [`Update`]s. Out: the [`Plan`], and what was [`Touched`]. Of a Service only its ports in the plan are kept: they
//! say all it said. Of a slice small records are kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::ip::Family;
use api::view::{EndpointSlice, Node, Service, ServiceCidr};
use ipnet::IpNet;

use crate::address::lenient_ranges;
use crate::categories::{Chooser, fill, is_healthy};
use crate::claims::{self, Frontend};
use crate::endpoints::{Held, Pools, Seen, of_port};
use crate::options::Options;
use crate::plan::{Health, Plan, Problem, Touched};
use crate::service::read;
use crate::service_port::{PortKey, ServicePort};

/// A change of the inputs. Keys are `namespace/name`, or a name alone.
#[derive(Clone, PartialEq, Debug)]
pub enum Update {
    /// A Service is new or changed.
    Service(Box<Service>),
    /// A Service is gone.
    ServiceGone(String),
    /// A slice is new or changed.
    Slice(EndpointSlice),
    /// A slice is gone.
    SliceGone(String),
    /// Our Node is new or changed; nothing when it is gone.
    Node(Option<Box<Node>>),
    /// A range of Service addresses is new or changed.
    Cidr(ServiceCidr),
    /// A range of Service addresses is gone.
    CidrGone(String),
    /// The addresses that the machine has now.
    Machine(BTreeSet<IpAddr>),
}

/// Keeps a plan in step with its inputs.
#[derive(Debug, Default)]
pub struct Planner {
    pub(crate) plan: Plan,
    pub(crate) services: HashMap<Arc<str>, Known>,
    /// Of which Service each slice is.
    slices: HashMap<Box<str>, Arc<str>>,
    suspects: crate::suspects::Suspects,
    pools: Pools,
    contested: BTreeSet<Frontend>,
    /// What people should know about a Service, where there is something.
    problems: BTreeMap<Arc<str>, Vec<String>>,
    cidrs: HashMap<Box<str>, Vec<IpNet>>,
    machine: BTreeSet<IpAddr>,
}

/// What is known of a Service: the object may be missing, or its slices.
#[derive(Debug, Default)]
pub(crate) struct Known {
    cluster_ips: Vec<IpAddr>,
    /// Its ports, as the plan has them.
    ports: Vec<Arc<ServicePort>>,
    /// What is wrong with the object itself.
    problems: Vec<String>,
    /// Its slices, by name.
    pub(crate) slices: Vec<Held>,
}

/// Services to plan anew. With ports: the object changed, and these are what it says now. Without: something else did.
type Dirty = BTreeMap<Arc<str>, Option<Vec<ServicePort>>>;

impl Planner {
    /// Nothing planned yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { plan: Plan { options, ..Plan::default() }, ..Self::default() }
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What people should know.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        let problem = |service: &Arc<str>, what| Problem { service: Arc::clone(service), what };
        let said = self
            .problems
            .iter()
            .flat_map(move |(service, all)| all.iter().map(move |one| problem(service, one.clone())));
        said.chain(claims::losses(&self.plan.frontends, &self.contested).map(move |(loser, winner, frontend)| {
            problem(&loser.service, format!("its {frontend} is taken by {winner}; traffic there goes to that one"))
        }))
    }

    /// Follows a change, and answers what it touched.
    pub fn update(&mut self, update: Update) -> Touched {
        self.update_all([update])
    }

    /// Follows several changes at once: a Service that is concerned by many is planned once.
    pub fn update_all(&mut self, updates: impl IntoIterator<Item = Update>) -> Touched {
        let (mut dirty, mut touched) = (Dirty::new(), Touched::default());
        for update in updates {
            self.take(update, &mut dirty, &mut touched);
        }
        for (service, ports) in dirty {
            self.plan_anew(&service, ports, &mut touched);
        }
        touched
    }

    fn take(&mut self, update: Update, dirty: &mut Dirty, touched: &mut Touched) {
        match update {
            Update::Service(service) => {
                let name = service.metadata.key();
                self.take_service(&name, Some(&service), dirty, touched);
            }
            Update::ServiceGone(name) => self.take_service(&name, None, dirty, touched),
            Update::Slice(slice) => {
                let name = slice.metadata.key();
                self.take_slice(&name, Some(slice), dirty);
            }
            Update::SliceGone(name) => self.take_slice(&name, None, dirty),
            Update::Node(node) => self.take_node(node.as_deref(), dirty, touched),
            Update::Cidr(cidr) => {
                self.cidrs.insert(cidr.metadata.name.clone(), lenient_ranges(&cidr.spec.cidrs).collect());
                self.place_ranges(touched);
            }
            Update::CidrGone(name) => {
                self.cidrs.remove(&*name);
                self.place_ranges(touched);
            }
            Update::Machine(addresses) => {
                self.machine = addresses;
                self.place_node_ports(touched);
            }
        }
    }

    fn take_service(&mut self, name: &str, object: Option<&Service>, dirty: &mut Dirty, touched: &mut Touched) {
        let name = self.name(name);
        let rootless = self.plan.options.rootless;
        let read = object.map(|object| read(object, &name, &mut self.pools.names, rootless)).unwrap_or_default();
        let known = self.services.entry(Arc::clone(&name)).or_default();
        known.problems = read.problems;
        let before = std::mem::replace(&mut known.cluster_ips, read.cluster_ips.clone());
        // The new ones first, so that those that stay never go.
        for ip in read.cluster_ips {
            let count = self.plan.cluster_ips.entry(ip).or_default();
            *count += 1;
            if *count == 1 {
                let slices =
                    self.services.iter().flat_map(|(name, known)| known.slices.iter().map(move |one| (name, one)));
                self.suspects.learn(ip, slices);
                self.flip(ip, dirty, touched);
            }
        }
        for ip in before {
            let Some(count) = self.plan.cluster_ips.get_mut(&ip) else { continue };
            *count -= 1;
            if *count == 0 {
                self.plan.cluster_ips.remove(&ip);
                self.flip(ip, dirty, touched);
            }
        }
        dirty.insert(name, Some(read.ports));
    }

    /// An address became a cluster IP, or is none any more.
    fn flip(&self, ip: IpAddr, dirty: &mut Dirty, touched: &mut Touched) {
        for service in self.suspects.of(ip) {
            dirty.entry(Arc::clone(service)).or_default();
        }
        if !touched.cluster_ips.remove(&ip) {
            touched.cluster_ips.insert(ip);
        }
    }

    fn take_slice(&mut self, name: &str, slice: Option<EndpointSlice>, dirty: &mut Dirty) {
        let slice = slice.filter(|slice| !slice.is_headless());
        let owner = slice.as_ref().and_then(EndpointSlice::service).map(|service| self.name(&service));
        let held = slice.map(|slice| Held::of(name, slice, &self.plan.options, &mut self.pools));
        if let Some(service) = self.slices.remove(name)
            && let Some(known) = self.services.get_mut(&service)
            && let Ok(place) = known.slices.binary_search_by(|one| (*one.name).cmp(name))
        {
            // Servers send objects again whenever a watch starts anew.
            if owner.as_ref() == Some(&service) && held.as_ref() == Some(&known.slices[place]) {
                self.slices.insert(name.into(), service);
                return;
            }
            let old = known.slices.remove(place);
            self.suspects.remove(&service, &old);
            dirty.entry(service).or_default();
        }
        let (Some(held), Some(service)) = (held, owner) else { return };
        self.suspects.add(&service, &held);
        self.slices.insert(name.into(), Arc::clone(&service));
        let slices = &mut self.services.entry(Arc::clone(&service)).or_default().slices;
        let place = slices.partition_point(|one| *one.name < *name);
        slices.reserve_exact(1);
        slices.insert(place, held);
        dirty.entry(service).or_default();
    }

    fn take_node(&mut self, node: Option<&Node>, dirty: &mut Dirty, touched: &mut Touched) {
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
        self.place_node_ports(touched);
    }

    fn place_node_ports(&mut self, touched: &mut Touched) {
        let ips = self.plan.options.node_port_addresses.of(&self.plan.node_ips, &self.machine);
        touched.node |= self.plan.node_port_ips != ips;
        self.plan.node_port_ips = ips;
    }

    fn place_ranges(&mut self, touched: &mut Touched) {
        let all: Vec<IpNet> = self.cidrs.values().flatten().copied().collect();
        let mut ranges = IpNet::aggregate(&all);
        ranges.sort_unstable();
        touched.ranges |= self.plan.ranges != ranges;
        self.plan.ranges = ranges;
    }

    /// The name of a Service, as all who know it share it.
    fn name(&self, name: &str) -> Arc<str> {
        self.services.get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name))
    }

    /// Plans a Service anew.
    fn plan_anew(&mut self, service: &Arc<str>, ports: Option<Vec<ServicePort>>, touched: &mut Touched) {
        let Some(known) = self.services.get(service) else { return };
        let mut ports = ports.unwrap_or_else(|| known.ports.iter().map(|port| port.bare()).collect());
        let mut problems = Vec::new();
        if !ports.is_empty() {
            problems.extend(known.slices.iter().flat_map(|slice| &slice.problems).cloned());
            problems.extend(self.loops(known));
        }
        problems.extend(known.problems.iter().cloned());
        let health = self.fill_all(known, &mut ports);
        self.place_ports(service, ports, &health, touched);
        let said = if problems.is_empty() {
            self.problems.remove(service)
        } else {
            self.problems.insert(Arc::clone(service), problems)
        };
        touched.problems |= said.as_ref() != self.problems.get(service);
        if self.services.get(service).is_some_and(Known::is_nothing) {
            self.services.remove(service);
        }
    }

    /// Tells all ports of a Service their endpoints; answers its health.
    fn fill_all(&self, known: &Known, ports: &mut [ServicePort]) -> BTreeMap<Family, Health> {
        let mut healthy: BTreeMap<Family, (u16, BTreeSet<IpAddr>)> = BTreeMap::new();
        for port in ports {
            let key = port.key.clone();
            let found = self.usable(&known.slices, &key);
            fill(port, &found, self.chooser());
            let allowed = |ip: &IpAddr| port.source_ranges.iter().flatten().any(|range| range.contains(ip));
            port.own_vips_allowed = self.plan.node_ips.iter().any(allowed);
            if let Some(number) = port.health_port {
                let (_, ips) = healthy.entry(key.family).or_insert_with(|| (number, BTreeSet::new()));
                ips.extend(found.iter().filter(|seen| is_healthy(seen.endpoint)).map(|seen| seen.backend.ip));
            }
        }
        healthy.into_iter().map(|(family, (port, ips))| (family, Health { port, local_ready: ips.len() })).collect()
    }

    pub(crate) fn chooser(&self) -> Chooser<'_> {
        Chooser { node: &self.plan.options.node_name, zone: self.plan.zone.as_deref() }
    }

    /// The endpoints of a port that are not cluster IPs.
    fn usable<'a>(&self, slices: &'a [Held], key: &'a PortKey) -> Vec<Seen<'a>> {
        let mut found = of_port(slices, key);
        found.retain(|seen| !self.is_cluster_ip(seen.backend.ip));
        found
    }

    /// Whether an endpoint's address is a cluster IP. (Hardly any is suspected, so hardly any is looked up.)
    pub(crate) fn is_cluster_ip(&self, endpoint: IpAddr) -> bool {
        !self.suspects.of(endpoint).is_empty() && self.plan.cluster_ips.contains_key(&endpoint)
    }

    /// What is to say about endpoints that are cluster IPs.
    fn loops(&self, known: &Known) -> impl Iterator<Item = String> {
        let endpoints = known.slices.iter().flat_map(|slice| &slice.endpoints).map(|endpoint| endpoint.ip);
        let looping: BTreeSet<IpAddr> = endpoints.filter(|ip| self.is_cluster_ip(*ip)).collect();
        looping.into_iter().map(|ip| {
            format!("its endpoint {ip} is the cluster IP of a Service; it is left out, traffic would go in circles")
        })
    }

    /// Puts the ports of a Service in the place of those it had.
    fn place_ports(
        &mut self,
        service: &Arc<str>,
        ports: Vec<ServicePort>,
        health: &BTreeMap<Family, Health>,
        touched: &mut Touched,
    ) {
        let Some(known) = self.services.get_mut(service) else { return };
        let before = std::mem::take(&mut known.ports);
        for old in &before {
            if ports.iter().all(|port| port.key != old.key) {
                self.plan.ports.remove(&old.key);
                claims::replace(&mut self.plan.frontends, &mut self.contested, (Some(old), None), touched);
                touched.ports.insert(old.key.clone());
            }
        }
        known.ports.reserve_exact(ports.len());
        for port in ports {
            let old = before.iter().find(|old| old.key == port.key);
            if let Some(old) = old.filter(|old| ***old == port) {
                known.ports.push(Arc::clone(old));
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
            known.ports.push(port);
        }
        if known.ports.iter().chain(&before).any(|port| port.health_port.is_some()) {
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

impl Known {
    /// Whether there is no reason to keep it.
    fn is_nothing(&self) -> bool {
        self.slices.is_empty() && self.cluster_ips.is_empty() && self.problems.is_empty()
    }
}
