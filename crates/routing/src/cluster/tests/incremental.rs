//! The incremental engine against a recomputation from scratch: after each of random changes both have equal states, and
//! everything that differs from before is in `Touched`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::generate::changes;
use crate::cluster::{
    Change, ClassState, Cluster, GatewayState, ListenerSetState, Options, PolicyState, RouteState, Touched,
    TrafficPolicyState,
};
use crate::model::{
    Clients, GatewayConfig, ListenerConfig, ListenerId, ListenerProtocol, MeshConfig, Place, RouteId, RouteKind,
    ServicePortId,
};

/// The hostnames of a route at a listener, its state, and what policies make of it there.
type Attachment = (Vec<Arc<str>>, RouteState, RouteState);

/// All that can be seen of a cluster.
#[derive(PartialEq, Debug)]
struct Seen {
    classes: BTreeMap<Arc<str>, ClassState>,
    gateways: BTreeMap<Arc<str>, GatewayState>,
    sets: BTreeMap<Arc<str>, ListenerSetState>,
    policies: BTreeMap<Arc<str>, PolicyState>,
    traffic_policies: BTreeMap<Arc<str>, TrafficPolicyState>,
    routes: BTreeMap<RouteId, RouteState>,
    configs: BTreeMap<Arc<str>, Arc<GatewayConfig>>,
    meshes: BTreeMap<Arc<str>, Arc<MeshConfig>>,
    attached: BTreeMap<(Place, RouteId), Attachment>,
}

impl Seen {
    fn of(cluster: &Cluster) -> Self {
        let keys = || ["a/x", "a/y", "b/x"].into_iter().map(Arc::<str>::from);
        let ids = keys().flat_map(|key| RouteKind::ALL.map(|kind| RouteId { kind, key: Arc::clone(&key) }));
        let routes: BTreeMap<_, _> = ids.filter_map(|id| Some((id.clone(), cluster.route(&id)?.clone()))).collect();
        let mut attached = BTreeMap::new();
        let parents = keys().flat_map(|gateway| {
            let sets = keys().map(Some).chain([None]);
            sets.flat_map(move |set| {
                let gateway = Arc::clone(&gateway);
                ["l", "m", "n"].map(|name| {
                    let id = ListenerId { gateway: Arc::clone(&gateway), set: set.clone(), name: name.into() };
                    Place::Listener(id)
                })
            })
        });
        let services = ["a/x", "a/y", "b/x", "b/y"].into_iter().map(Arc::<str>::from).flat_map(|service| {
            let clients = ["a", "b"].map(|namespace| Clients::Namespace(namespace.into()));
            clients.into_iter().chain([Clients::All]).flat_map(move |clients| {
                [80, 81, 443].map(|port| {
                    let (service, clients) = (Arc::clone(&service), clients.clone());
                    Place::ServicePort(ServicePortId { service, port, clients })
                })
            })
        });
        for place in parents.chain(services) {
            for (id, state, hostnames) in cluster.attached(&place) {
                let served = cluster.with_policies(&place, id).unwrap_or_else(|| state.clone());
                attached.insert((place.clone(), id.clone()), (hostnames.to_vec(), state.clone(), served));
            }
        }
        Self {
            classes: ["one", "two"]
                .iter()
                .filter_map(|name| Some(((*name).into(), cluster.class(name)?.clone())))
                .collect(),
            gateways: keys().filter_map(|key| Some((Arc::clone(&key), cluster.gateway(&key)?.clone()))).collect(),
            sets: keys().filter_map(|key| Some((Arc::clone(&key), cluster.listener_set(&key)?.clone()))).collect(),
            policies: keys().filter_map(|key| Some((Arc::clone(&key), cluster.policy(&key)?.clone()))).collect(),
            traffic_policies: keys()
                .filter_map(|key| Some((Arc::clone(&key), cluster.traffic_policy(&key)?.clone())))
                .collect(),
            routes,
            configs: cluster.configs().map(|config| (Arc::clone(&config.key), Arc::clone(config))).collect(),
            meshes: cluster.mesh_configs().map(|config| (Arc::clone(&config.service), Arc::clone(config))).collect(),
            attached,
        }
    }

    fn listeners(&self) -> BTreeMap<ListenerId, Arc<ListenerConfig>> {
        let all = self.configs.values().flat_map(|config| &config.listeners);
        all.map(|listener| (listener.id.clone(), Arc::clone(listener))).collect()
    }

    /// A port is served as routes are attached to it, and the other way round.
    fn check_places(&self) {
        for (place, route) in self.attached.keys() {
            let Place::ServicePort(ServicePortId { service, port, clients }) = place else { continue };
            let ports = self.meshes.get(service).map(|config| &config.ports[..]).unwrap_or_default();
            let found = ports.iter().find(|one| one.number == *port).and_then(|one| one.places.get(clients));
            let expected = match route.kind {
                RouteKind::Http | RouteKind::Grpc => ListenerProtocol::Http,
                RouteKind::Tls => ListenerProtocol::TlsPassthrough,
                _ => ListenerProtocol::Tcp,
            };
            assert_eq!(found, Some(&expected), "{route:?} at {place:?}");
            let of_others = self.attached.keys().filter(|(other, id)| other == place && id.kind != route.kind);
            assert_eq!(of_others.count(), 0, "one kind of routes at {place:?}");
        }
        for config in self.meshes.values() {
            for (port, clients) in config.ports.iter().flat_map(|port| port.places.keys().map(move |one| (port, one))) {
                let service = Arc::clone(&config.service);
                let place = ServicePortId { service, port: port.number, clients: clients.clone() }.into();
                let has_routes = self.attached.keys().any(|(one, _)| *one == place);
                assert!(has_routes || *clients == Clients::All, "no route at {place:?}");
            }
        }
    }

    /// The number of attached routes, counted from the states of the routes.
    fn check_counts(&self) {
        let own = self.gateways.values().flat_map(|state| &state.listeners);
        let all = own.chain(self.sets.values().flat_map(|state| &state.listeners));
        for listener in all {
            let leads_there = |state: &&RouteState| {
                let mut places = state.parents.iter().flat_map(|parent| &parent.places);
                places.any(|(place, _)| place.listener() == Some(&listener.id))
            };
            let count = self.routes.values().filter(leads_there).count();
            assert_eq!(listener.attached_routes, count, "attachedRoutes of {:?}", listener.id);
        }
    }
}

/// The keys whose values differ.
fn differing<K: Ord + Clone, V: PartialEq>(before: &BTreeMap<K, V>, after: &BTreeMap<K, V>) -> BTreeSet<K> {
    let keys = before.keys().chain(after.keys());
    keys.filter(|key| before.get(key) != after.get(key)).cloned().collect()
}

fn check_touched(before: &Seen, after: &Seen, touched: &Touched) {
    assert_eq!(touched.classes, differing(&before.classes, &after.classes), "classes");
    assert_eq!(touched.policies, differing(&before.policies, &after.policies), "policies");
    let traffic_policies = differing(&before.traffic_policies, &after.traffic_policies);
    assert_eq!(touched.traffic_policies, traffic_policies, "traffic policies");
    assert_eq!(touched.routes, differing(&before.routes, &after.routes), "routes");
    assert_eq!(touched.mesh, differing(&before.meshes, &after.meshes), "Services at layer 7");
    assert_eq!(touched.configs, differing(&before.configs, &after.configs), "configs");
    let missed =
        |one: BTreeSet<Arc<str>>, touched: &BTreeSet<Arc<str>>| one.difference(touched).cloned().collect::<Vec<_>>();
    assert_eq!(missed(differing(&before.gateways, &after.gateways), &touched.gateways), [], "gateways");
    assert_eq!(missed(differing(&before.sets, &after.sets), &touched.sets), [], "sets");
    let content = |seen: &Seen| -> BTreeMap<_, _> {
        let content = |state: &RouteState| (state.rules.clone(), state.stream.clone(), Arc::clone(&state.created));
        let of = |(hosts, state, served): &Attachment| (hosts.clone(), content(state), content(served));
        seen.attached.iter().map(|(key, attachment)| (key.clone(), of(attachment))).collect()
    };
    let route_changes = differing(&content(before), &content(after));
    assert_eq!(touched.route_changes, route_changes, "routes of places");
    let mut listeners = differing(&before.listeners(), &after.listeners());
    listeners.extend(route_changes.into_iter().filter_map(|(place, _)| place.listener().cloned()));
    assert_eq!(listeners.difference(&touched.listeners).collect::<Vec<_>>(), Vec::<&ListenerId>::new(), "listeners");
}

/// The key under which a later change replaces an earlier one.
fn place(change: &Change) -> (u8, Arc<str>) {
    match change {
        Change::GatewayClass(key, _) => (0, Arc::clone(key)),
        Change::Gateway(key, _) => (1, Arc::clone(key)),
        Change::ListenerSet(key, _) => (2, Arc::clone(key)),
        Change::HttpRoute(key, _) => (3, Arc::clone(key)),
        Change::GrpcRoute(key, _) => (4, Arc::clone(key)),
        Change::TlsRoute(key, _) => (5, Arc::clone(key)),
        Change::TcpRoute(key, _) => (6, Arc::clone(key)),
        Change::UdpRoute(key, _) => (7, Arc::clone(key)),
        Change::ReferenceGrant(key, _) => (8, Arc::clone(key)),
        Change::BackendTlsPolicy(key, _) => (9, Arc::clone(key)),
        Change::Service(key, _) => (10, Arc::clone(key)),
        Change::Namespace(key, _) => (11, Arc::clone(key)),
        Change::Secret(key, _) => (12, Arc::clone(key)),
        Change::ConfigMap(key, _) => (13, Arc::clone(key)),
        Change::TrafficPolicy(key, _) => (14, Arc::clone(key)),
    }
}

/// A world in which most references lead somewhere, so that random changes have something to disturb.
fn beginnings() -> Vec<Change> {
    let json = serde_json::json!({ "spec": { "controllerName": api::view::gateway_api::CONTROLLER } });
    let class = serde_json::from_value(json).expect("a class");
    let namespace = |name: &str| Change::Namespace(name.into(), Some([("team", "blue")].into_iter().collect()));
    vec![Change::GatewayClass("one".into(), Some(Arc::new(class))), namespace("a"), namespace("b")]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn states_equal_a_recomputation_and_all_differences_are_touched(changes in changes()) {
        let mut cluster = Cluster::new(Options::default());
        let mut objects = BTreeMap::new();
        let mut before = Seen::of(&cluster);
        for change in beginnings().into_iter().chain(changes) {
            objects.insert(place(&change), change.clone());
            let touched = cluster.apply(change);
            let after = Seen::of(&cluster);
            let mut fresh = Cluster::new(Options::default());
            fresh.apply_all(objects.values().cloned());
            prop_assert_eq!(&after, &Seen::of(&fresh));
            after.check_counts();
            after.check_places();
            check_touched(&before, &after, &touched);
            before = after;
        }
    }

    #[test]
    fn a_cluster_without_objects_keeps_nothing(changes in changes()) {
        let mut cluster = Cluster::new(Options::default());
        cluster.apply_all(changes.iter().cloned());
        for change in &changes {
            cluster.apply(deletion(change));
        }
        prop_assert_eq!(Seen::of(&cluster), Seen::of(&Cluster::new(Options::default())));
        prop_assert!(cluster.is_empty(), "{:?}", cluster);
    }
}

fn deletion(change: &Change) -> Change {
    match change.clone() {
        Change::GatewayClass(key, _) => Change::GatewayClass(key, None),
        Change::Gateway(key, _) => Change::Gateway(key, None),
        Change::ListenerSet(key, _) => Change::ListenerSet(key, None),
        Change::HttpRoute(key, _) => Change::HttpRoute(key, None),
        Change::GrpcRoute(key, _) => Change::GrpcRoute(key, None),
        Change::TlsRoute(key, _) => Change::TlsRoute(key, None),
        Change::TcpRoute(key, _) => Change::TcpRoute(key, None),
        Change::UdpRoute(key, _) => Change::UdpRoute(key, None),
        Change::ReferenceGrant(key, _) => Change::ReferenceGrant(key, None),
        Change::BackendTlsPolicy(key, _) => Change::BackendTlsPolicy(key, None),
        Change::Service(key, _) => Change::Service(key, None),
        Change::Namespace(key, _) => Change::Namespace(key, None),
        Change::Secret(key, _) => Change::Secret(key, None),
        Change::ConfigMap(key, _) => Change::ConfigMap(key, None),
        Change::TrafficPolicy(key, _) => Change::TrafficPolicy(key, None),
    }
}
