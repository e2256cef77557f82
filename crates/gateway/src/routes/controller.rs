//! Follows the objects of the Gateway API and Ingresses, and keeps the Gateways of this node.
//!
//! In: changes of the feed. Out: programmed Gateways, tables of rules. All changes in the queue are applied to the
//! cluster first, then to what they touched. Ingresses have an engine and gateways of their own ([`super::ingresses`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::ip::parse_lenient;
use api::view::gateway_api::{BackendTlsPolicy, Gateway, ListenerSet, Material};
use api::view::{EndpointSlice, ObjectMeta, Pod, Protocol, Secret, Service};
use client::watch::{Object, Source};
use routing::cluster::{Change, Cluster, Options, Touched};
use routing::ingress;
use routing::model::{GatewayConfig, ListenerId, Place, RouteId, RouteKind};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{MissedTickBehavior, interval};

use super::compile::Compiler;
use super::feed::{Changed, Feed, Topic};
use super::ingresses::{IngressClasses, Resources};
use super::mesh::Mesh;
use super::pools::Pools;
use super::programmed::{self, Frontend, Problem, Programmed};
use super::secrets::{MOST_OF_LISTENERS, MOST_OF_POLICIES, PolicySecrets, References};
use super::tables::Tables;
use super::trust::{ConfigMap, Trust};
use crate::controller::{Notice, Shared};
use crate::objects::parse;
use crate::source_ranges::SourceRanges;

/// Interval at which idle upstream connections are closed.
const IDLE_SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Runs until it is dropped.
pub(crate) async fn run(source: Arc<dyn Source>, shared: Arc<Shared>) {
    let mut feed = Feed::new(source, &shared.node);
    let (mut addresses, mut zone, mut layer7) =
        (shared.addresses.clone(), shared.zone.clone(), shared.layer7_wanted.subscribe());
    // It may have been said before.
    layer7.mark_changed();
    let mut routes = Routes::new(shared);
    let mut sweep = interval(IDLE_SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            changes = feed.next() => {
                routes.collect(changes);
                if !feed.is_whole() && routes.ingresses.is_used() {
                    feed.watch_everything();
                }
                if let Some(wanted) = routes.wanted() {
                    let gone = feed.refer_to(&wanted);
                    routes.collect(gone);
                }
                routes.is_ready = routes.is_ready || feed.is_ready();
                routes.ingresses.is_loading = feed.is_loading_secrets();
            }
            Ok(()) = addresses.changed() => {
                routes.dirty.extend(routes.programmed.keys().cloned());
                routes.ingresses.open_again();
                routes.mesh.open_again();
            }
            Ok(()) = zone.changed() => routes.pools.set_zone(zone.borrow_and_update().clone()),
            Ok(()) = layer7.changed() => {
                // A Service asks for layer 7 by an annotation.
                if *layer7.borrow_and_update() {
                    feed.watch_everything();
                }
            }
            _ = sweep.tick() => routes.sweep(),
        }
        if routes.is_ready {
            routes.program();
            let has_pods = feed.watch_pods(routes.mesh.is_used());
            routes.mesh.set_has_pods(has_pods);
        }
    }
}

/// What is known, and what is served.
struct Routes {
    shared: Arc<Shared>,
    cluster: Cluster,
    ingresses: IngressClasses,
    pools: Pools,
    trust: Trust,
    /// References of Gateways, ListenerSets and BackendTLSPolicies.
    references: BTreeMap<(Topic, Arc<str>), Vec<Material>>,
    references_changed: bool,
    /// Secrets with passwords, to which the TrafficPolicies of rules refer.
    policy_secrets: PolicySecrets,
    /// Namespaces whose objects refer to more than is watched.
    beyond: BTreeMap<Box<str>, usize>,
    /// Services of Gateways and of classes of Ingresses.
    frontends: HashMap<Arc<str>, Frontend>,
    programmed: BTreeMap<Arc<str>, Programmed>,
    mesh: Mesh,
    /// Whether all lists are complete.
    is_ready: bool,
    /// What changed in the cluster and is not applied yet.
    touched: Touched,
    /// Gateways to program again.
    dirty: BTreeSet<Arc<str>>,
    /// Secrets and ConfigMaps that changed.
    trust_changed: BTreeSet<Arc<str>>,
    reported: BTreeSet<(Arc<str>, Problem)>,
}

/// An object of which the labels matter.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Labelled {
    metadata: ObjectMeta,
}

impl Routes {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            cluster: Cluster::new(Options::default()),
            ingresses: IngressClasses::new(Arc::clone(&shared)),
            pools: Pools::new(shared.limits, shared.workers.count(), shared.metrics.clone()).at_node(&shared.node),
            trust: Trust::default(),
            references: BTreeMap::new(),
            references_changed: false,
            policy_secrets: PolicySecrets::default(),
            beyond: BTreeMap::new(),
            frontends: HashMap::new(),
            programmed: BTreeMap::new(),
            mesh: Mesh::new(Arc::clone(&shared)),
            is_ready: false,
            touched: Touched::default(),
            dirty: BTreeSet::new(),
            trust_changed: BTreeSet::new(),
            reported: BTreeSet::new(),
            shared,
        }
    }

    /// Applies changes to the cluster and to the Ingresses.
    fn collect(&mut self, changes: Vec<Changed>) {
        let changes: Vec<Change> = changes.into_iter().filter_map(|changed| self.read(changed)).collect();
        self.ingresses.apply();
        if !changes.is_empty() {
            let touched = self.cluster.apply_all(changes);
            // Only those of our classes count.
            self.references_changed |= !touched.gateways.is_empty() || !touched.sets.is_empty();
            for (place, route) in &touched.route_changes {
                let effective = self.cluster.with_policies(place, route);
                let rules = effective.as_ref().map(|state| &state.rules[..]).unwrap_or_default();
                self.references_changed |= self.policy_secrets.apply(place, route, rules);
            }
            self.touched.extend(touched);
        }
    }

    /// The change of an object; none if the cluster need not know it.
    fn read(&mut self, Changed { topic, key, object }: Changed) -> Option<Change> {
        let object = object.as_ref();
        Some(match topic {
            Topic::GatewayClass => Change::GatewayClass(key, typed(object)),
            Topic::Gateway => {
                let gateway: Option<Arc<Gateway>> = typed(object);
                self.refer(topic, &key, gateway.as_deref().map(Gateway::materials));
                Change::Gateway(key, gateway)
            }
            Topic::ListenerSet => {
                let set: Option<Arc<ListenerSet>> = typed(object);
                self.refer(topic, &key, set.as_deref().map(ListenerSet::materials));
                Change::ListenerSet(key, set)
            }
            Topic::BackendTlsPolicy => {
                let policy: Option<Arc<BackendTlsPolicy>> = typed(object);
                self.refer(topic, &key, policy.as_deref().map(BackendTlsPolicy::materials));
                Change::BackendTlsPolicy(key, policy)
            }
            Topic::TrafficPolicy => Change::TrafficPolicy(key, typed(object)),
            Topic::HttpRoute => Change::HttpRoute(key, typed(object)),
            Topic::GrpcRoute => Change::GrpcRoute(key, typed(object)),
            Topic::TlsRoute => Change::TlsRoute(key, typed(object)),
            Topic::TcpRoute => Change::TcpRoute(key, typed(object)),
            Topic::UdpRoute => Change::UdpRoute(key, typed(object)),
            Topic::ReferenceGrant => Change::ReferenceGrant(key, typed(object)),
            Topic::IngressClass => {
                self.ingresses.change(ingress::Change::Class(key, typed(object)));
                return None;
            }
            Topic::Ingress => {
                self.ingresses.change(ingress::Change::Ingress(key, typed(object)));
                return None;
            }
            Topic::Namespace => {
                let labels = object.and_then(parse::<Labelled>).map(|namespace| namespace.metadata.labels);
                Change::Namespace(key, labels)
            }
            Topic::Service => {
                let service: Option<Arc<Service>> = typed(object);
                self.pools.apply_service(&key, service.as_deref());
                self.apply_frontend(&key, service.as_deref());
                self.ingresses.change(ingress::Change::Service(Arc::clone(&key), service.clone()));
                Change::Service(key, service)
            }
            Topic::EndpointSlice => {
                self.pools.apply_slice(&key, object.and_then(parse::<EndpointSlice>));
                return None;
            }
            Topic::Secret => {
                self.trust_changed.insert(Arc::clone(&key));
                let state = self.trust.apply_secret(&key, object.and_then(parse::<Secret>).as_ref());
                self.ingresses.change_secret(&key, state.as_ref());
                Change::Secret(key, state)
            }
            Topic::ConfigMap => {
                self.trust_changed.insert(Arc::clone(&key));
                let state = self.trust.apply_config_map(&key, object.and_then(parse::<ConfigMap>).as_ref());
                Change::ConfigMap(key, state)
            }
            Topic::Pod => {
                self.mesh.apply_pod(&key, object.and_then(parse::<Pod>).as_ref());
                return None;
            }
            Topic::Challenges => {
                let map = object.and_then(parse::<ConfigMap>).unwrap_or_default();
                self.shared.challenges.set(&map.data);
                return None;
            }
        })
    }

    fn refer(&mut self, topic: Topic, key: &Arc<str>, to: Option<Vec<Material>>) {
        let key = (topic, Arc::clone(key));
        let to = to.filter(|to| !to.is_empty());
        if self.references.get(&key) == to.as_ref() {
            return;
        }
        self.references_changed = true;
        match to {
            Some(to) => drop(self.references.insert(key, to)),
            None => drop(self.references.remove(&key)),
        }
    }

    /// The Secrets and ConfigMaps to watch, if they may have changed.
    fn wanted(&mut self) -> Option<BTreeSet<Material>> {
        let of_ingresses = self.ingresses.references_changed();
        (std::mem::take(&mut self.references_changed) || of_ingresses).then_some(())?;
        let (mut of_listeners, mut of_policies) = (References::default(), References::default());
        for ((topic, key), to) in &self.references {
            match topic {
                Topic::Gateway if self.cluster.gateway(key).is_none() => {}
                Topic::ListenerSet if self.cluster.listener_set(key).is_none() => {}
                Topic::Gateway | Topic::ListenerSet => of_listeners.add(key, to.iter().cloned()),
                _ => of_policies.add(key, to.iter().cloned()),
            }
        }
        for (ingress, secrets) in self.ingresses.secrets() {
            of_listeners.add(ingress, secrets.iter().cloned().map(Material::Secret));
        }
        for secret in self.policy_secrets.keys() {
            of_policies.add(secret, [Material::Secret((**secret).into())]);
        }
        let mut beyond = BTreeMap::new();
        let mut wanted = of_listeners.bounded(MOST_OF_LISTENERS, &mut beyond);
        wanted.extend(of_policies.bounded(MOST_OF_POLICIES, &mut beyond));
        wanted.extend(self.ingresses.default_certificate());
        self.note_beyond(beyond);
        Some(wanted)
    }

    /// Reports namespaces whose objects refer to more than is watched.
    fn note_beyond(&mut self, beyond: BTreeMap<Box<str>, usize>) {
        for namespace in beyond.keys().filter(|namespace| !self.beyond.contains_key(*namespace)) {
            tracing::warn!(
                namespace,
                "ignored Secrets and ConfigMaps: the Ingresses, Gateways or policies of the namespace name too many"
            );
        }
        self.shared.metrics.routing().set_unread(beyond.values().sum());
        self.beyond = beyond;
    }

    fn apply_frontend(&mut self, key: &Arc<str>, service: Option<&Service>) {
        let service = service.filter(|service| service.gateway().is_some() && service.has_own_load_balancer());
        let frontend = service.map(|service| Frontend {
            vips: service.vips().filter_map(parse_lenient).collect(),
            sources: SourceRanges::of(&service.spec.load_balancer_source_ranges),
            udp: service
                .spec
                .ports
                .iter()
                .filter(|port| port.protocol == Some(Protocol::Udp))
                .map(|port| port.port)
                .collect(),
        });
        if self.frontends.get(key) == frontend.as_ref() {
            return;
        }
        match frontend {
            Some(frontend) => drop(self.frontends.insert(Arc::clone(key), frontend)),
            None => drop(self.frontends.remove(key)),
        }
        let of_it = self.programmed.values().filter(|one| one.config.service == *key);
        self.dirty.extend(of_it.map(|one| Arc::clone(&one.config.key)));
        self.ingresses.frontend_changed(key);
    }

    /// Applies what was touched to what is served.
    fn program(&mut self) {
        self.pools.update();
        let changed = std::mem::take(&mut self.trust_changed);
        if !changed.is_empty() {
            self.pools.trust_changed(&changed, &self.trust);
            let uses =
                |one: &&Programmed| one.config.listeners.iter().any(|listener| programmed::uses(listener, &changed));
            self.dirty.extend(self.programmed.values().filter(uses).map(|one| Arc::clone(&one.config.key)));
        }
        let touched = std::mem::take(&mut self.touched);
        let mut by_place: BTreeMap<Place, Vec<RouteId>> = BTreeMap::new();
        for (place, route) in touched.route_changes {
            by_place.entry(place).or_default().push(route);
        }
        for (place, routes) in &by_place {
            self.change_table(place, routes);
        }
        // The program has the rule before the kernel sends it the connections.
        let is_stream = |route: &RouteId| matches!(route.kind, RouteKind::Tcp | RouteKind::Udp);
        let streams = by_place.iter().filter(|(_, routes)| routes.iter().any(is_stream));
        let listeners = streams.filter_map(|(place, _)| place.listener());
        for gateway in listeners.map(|listener| &listener.gateway).collect::<BTreeSet<_>>() {
            if let Some(programmed) = self.programmed.get_mut(gateway) {
                programmed.publish();
            }
        }
        self.dirty.extend(touched.configs);
        for gateway in std::mem::take(&mut self.dirty) {
            self.program_gateway(&gateway, &changed);
        }
        self.program_mesh(touched.mesh);
        let Self { ingresses, pools, trust, frontends, .. } = self;
        for (config, problems) in ingresses.program(Resources { pools, trust, frontends, changed: &changed }) {
            self.report(&config, problems);
        }
    }

    /// Applies changes of routes to the table of a place, if it is served.
    fn change_table(&mut self, place: &Place, routes: &[RouteId]) {
        let (table, client) = match place {
            Place::Listener(listener) => {
                let Some(programmed) = self.programmed.get(&listener.gateway) else { return };
                (programmed.tables(listener).cloned(), programmed.config.client_certificate.clone())
            }
            Place::ServicePort(id) => (self.mesh.tables(id).cloned(), None),
        };
        let Some(table) = table else { return };
        let mut new = Tables::clone(&table.load());
        self.compiler().change(&mut new, place, routes, client.as_ref());
        table.store(Arc::new(new));
    }

    fn compiler(&mut self) -> Compiler<'_> {
        let Self { cluster, pools, trust, shared, .. } = self;
        Compiler { cluster, pools, trust, shared }
    }

    /// Programs the configuration of a Gateway. These Secrets and ConfigMaps have changed.
    fn program_gateway(&mut self, gateway: &Arc<str>, changed: &BTreeSet<Arc<str>>) {
        let Some(config) = self.cluster.config(gateway) else {
            self.programmed.remove(gateway);
            self.reported.retain(|(of, _)| of != gateway);
            return;
        };
        let before = self.programmed.remove(gateway);
        // Upstreams are shown the certificate of the Gateway: another one means other upstreams.
        let client = config.client_certificate.clone();
        let (mut programmed, is_stale) = match before {
            Some(before) => {
                let is_stale = before.config.client_certificate != client;
                (before, is_stale)
            }
            None => (Programmed::new(Arc::clone(&config), Arc::clone(&self.shared)), false),
        };
        let mut tables: HashMap<ListenerId, Tables> = HashMap::new();
        for listener in &config.listeners {
            if is_stale || programmed.tables(&listener.id).is_none() {
                let table = self.compiler().table(&listener.id.clone().into(), client.as_ref());
                tables.insert(listener.id.clone(), table);
            }
        }
        if is_stale {
            for (id, table) in &tables {
                if let Some(known) = programmed.tables(id) {
                    known.store(Arc::new(table.clone()));
                }
            }
        }
        let frontend = self.frontends.get(&config.service).cloned().unwrap_or_default();
        let trust = (&self.trust, changed);
        let problems = programmed.apply(config, &frontend, trust, |id| tables.remove(id).unwrap_or_default());
        self.report(&programmed.config, problems);
        self.programmed.insert(Arc::clone(gateway), programmed);
    }

    /// Programs Services whose ports at layer 7 differ, and those that must be opened again.
    fn program_mesh(&mut self, touched: BTreeSet<Arc<str>>) {
        let Self { mesh, cluster, pools, trust, shared, .. } = self;
        let programmed = mesh.program(touched, &mut Compiler { cluster, pools, trust, shared });
        for (service, problems) in programmed {
            self.report_of(&format!("Service/{service}").into(), &service, problems);
        }
    }

    /// Reports new problems of a Gateway.
    fn report(&mut self, config: &GatewayConfig, problems: Vec<Problem>) {
        self.report_of(&config.key, &config.service, problems);
    }

    /// Reports new problems as Events of a Service; `key` is of what has them.
    fn report_of(&mut self, key: &Arc<str>, service: &str, problems: Vec<Problem>) {
        self.reported.retain(|(of, problem)| of != key || problems.contains(problem));
        for problem in problems {
            if self.reported.insert((Arc::clone(key), problem.clone())) {
                let Problem { reason, message } = problem;
                let (namespace, name) = service.split_once('/').unwrap_or_default();
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                self.shared.emit(Notice { namespace, name, reason, message });
            }
        }
    }

    fn sweep(&mut self) {
        if let Some(before) = Instant::now().checked_sub(self.shared.limits.pool_idle) {
            self.pools.sweep(before);
            self.shared.enforcer.sweep(before);
            self.shared.metrics.routing().sweep();
        }
    }
}

/// Parses an object; none if it was deleted or is invalid.
fn typed<T: DeserializeOwned>(object: Option<&Object>) -> Option<Arc<T>> {
    object.and_then(parse).map(Arc::new)
}
