//! Services as parents of routes: one scenario for each code, and explanations.

#![expect(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use serde_json::{Value, json};

use super::findings::Case;
use super::world::World;
use crate::layer7::Kind;
use crate::layer7::request::Request;

/// An HTTPRoute `r` whose parent is Service `web`, with these members of the reference.
fn at_web(world: &mut World, more: Value) {
    let mut parent = json!({"group": "", "kind": "Service", "name": "web"});
    for (member, value) in more.as_object().into_iter().flatten() {
        parent[member] = value.clone();
    }
    world.route("r", json!({ "parentRefs": [parent] }));
}

pub(super) const SERVICES: &[Case] = &[
    (
        "a parent that does not exist",
        |world| at_web(world, json!({"name": "wbe"})),
        Kind::HttpRoute,
        "r",
        "ParentMissing",
        &["Service default/wbe, its parent, does not exist", "did you mean web?"],
        "kubectl edit httproute r",
    ),
    (
        "a Service without cluster IP",
        |world| {
            world.add("Service", "web", json!({"clusterIP": "None", "ports": [{"port": 80}]}));
            at_web(world, json!({}));
        },
        Kind::HttpRoute,
        "r",
        "ParentNotSupported",
        &["Service \"default/web\" cannot be a parent", "no cluster IP"],
        "kubectl edit httproute r",
    ),
    (
        "a port that the Service does not have",
        |world| at_web(world, json!({"port": 8080})),
        Kind::HttpRoute,
        "r",
        "NoMatchingListener",
        &["has no TCP port 8080", "there is http (80)"],
        "kubectl edit httproute r",
    ),
    (
        "a port with TLS",
        |world| {
            let ports = json!([{"name": "s", "port": 443, "appProtocol": "https"}]);
            world.service("web", ports, &[("10.0.0.1", true)]);
            at_web(world, json!({}));
        },
        Kind::HttpRoute,
        "r",
        "RouteKindNotAllowed",
        &["no port of Service default/web takes HTTPRoutes", "s (443, appProtocol https)"],
        "kubectl edit httproute r",
    ),
    (
        "routes of two kinds",
        |world| {
            at_web(world, json!({"port": 80}));
            let parent = json!([{"group": "", "kind": "Service", "name": "web"}]);
            let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
            world.add("GRPCRoute", "g", json!({"parentRefs": parent, "rules": rules}));
        },
        Kind::HttpRoute,
        "r",
        "RouteConflicted",
        &["GRPCRoutes have precedence over HTTPRoutes at port 80"],
        "kubectl edit httproute r",
    ),
];

#[test]
fn a_route_is_explained_at_each_port_of_its_service() {
    let mut world = World::new();
    let ports = json!([{"name": "http", "port": 80}, {"name": "tls", "port": 443, "appProtocol": "https"}]);
    world.service("web", ports, &[("10.0.0.1", true)]);
    at_web(&mut world, json!({"namespace": "default"}));
    // Of another namespace, to a Service of a third without grant.
    let parent = json!([{"group": "", "kind": "Service", "name": "web", "namespace": "default", "port": 80}]);
    let backend = json!([{"backendRefs": [{"name": "web", "namespace": "default", "port": 80}]}]);
    world.route("apps/r", json!({"parentRefs": parent, "rules": backend}));
    assert_eq!(world.with(|layer7| layer7.findings()), []);
    let items = |key: &str| {
        let explained = world.with(|layer7| layer7.explain(Kind::HttpRoute, key)).expect("a route");
        assert_eq!(explained.state, "ok");
        let parent = explained.items.into_iter().find(|one| one.kind == "parent").expect("a parent");
        let text = |name: &str, says: &str| format!("{name}: {says}");
        let ports: Vec<_> = parent.items.iter().map(|one| text(&one.name, &one.says)).collect();
        (text(&parent.name, &parent.says), ports)
    };
    assert_eq!(
        items("default/r"),
        (
            "Service default/web: attached to 1 of 2 TCP ports".to_owned(),
            vec![
                "http (80): attached for clients of all namespaces without routes of their own".to_owned(),
                "tls (443, appProtocol https): not attached: its appProtocol does not go with routes of this kind"
                    .to_owned(),
            ]
        )
    );
    let of_service = world.with(|layer7| layer7.service_ports("default/web"));
    let [port] = &of_service[..] else { panic!("one port: {of_service:?}") };
    assert_eq!((&*port.name, &*port.says), ("http 80", "served at layer 7"));
    let groups: Vec<_> = port.items.iter().map(|one| (&*one.name, &*one.items[0].name)).collect();
    let all = "clients of all namespaces without routes of their own";
    assert_eq!(groups, [(all, "HTTPRoute default/r"), ("Pods of namespace apps", "HTTPRoute apps/r")]);
    assert_eq!(world.with(|layer7| layer7.service_ports("default/gw-waypost")), []);
    let (parent, ports) = items("apps/r");
    assert_eq!(parent, "Service default/web, port 80: attached to 1 of 2 TCP ports");
    assert_eq!(ports[0], "http (80): attached for Pods of namespace apps");
}

#[test]
fn a_request_to_a_service_is_traced_by_its_routes() {
    let mut world = World::new();
    world.service("web", json!([{"name": "http", "port": 80}]), &[("10.0.0.1", true)]);
    at_web(&mut world, json!({"namespace": "default"}));
    let parent = json!([{"group": "", "kind": "Service", "name": "web", "namespace": "default", "port": 80}]);
    let matches = json!([{"path": {"type": "Exact", "value": "/only"}}]);
    let backend = json!([{"name": "web", "namespace": "default", "port": 80}]);
    world.route("apps/r", json!({"parentRefs": parent, "rules": [{"matches": matches, "backendRefs": backend}]}));
    for url in ["http://10.96.0.1/x", "http://web.default.svc.cluster.local/x"] {
        let request = Request::parse(url, "GET", &[], None).expect("a request");
        let trace = world.with(|layer7| layer7.trace(&request, None));
        let of_service = trace.candidates.iter().filter(|one| one.gateway.kind == "Service");
        let found: Vec<_> = of_service
            .map(|one| (&*one.gateway.key, &*one.listeners[0].says, one.answer.status, one.taken.is_some()))
            .collect();
        let all = ("default/web", "clients of all namespaces without routes of their own", None, true);
        assert_eq!(found, [all, ("default/web", "Pods of namespace apps", Some(404), false)], "{url}");
    }
}
