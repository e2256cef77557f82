//! The overview: rows in order of precedence, judgements, what may not be known, and limits.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::world::World;
use crate::layer7::{Kind, Needs, Overview};

/// The overview for a user who may list everything.
fn overview(world: &World) -> Overview {
    world.with(|layer7| layer7.overview(&|_| None))
}

/// The rows of the first Gateway: host, condition, route and rule.
fn rows(world: &World) -> Vec<String> {
    let rows = overview(world).gateways.remove(0).rows;
    rows.iter().map(|row| format!("{} {}: {} {}", row.host, row.condition, row.route.name(), row.rule)).collect()
}

fn path(kind: &str, value: &str) -> Value {
    json!({"matches": [{"path": {"type": kind, "value": value}}], "backendRefs": [{"name": "web", "port": 80}]})
}

#[test]
fn s52_rows_are_in_order_of_precedence() {
    let mut world = World::new();
    world.route("any", json!({"rules": [path("PathPrefix", "/"), path("Exact", "/x")]}));
    world.route("wild", json!({"hostnames": ["*.example.com", "*.shop.example.com"]}));
    let get = json!({"path": {"type": "PathPrefix", "value": "/cart"}, "method": "GET"});
    let cart = json!({"matches": [{"path": {"type": "PathPrefix", "value": "/cart"}}, get]});
    let regex = path("RegularExpression", "/c.*");
    let rules = json!([cart, path("PathPrefix", "/cart/items"), path("Exact", "/c"), regex]);
    world.route("exact", json!({"hostnames": ["shop.example.com"], "rules": rules}));
    let wanted = [
        "shop.example.com path = /c: exact 2",
        "shop.example.com path ~ /c.*: exact 3",
        "shop.example.com path prefix /cart/items: exact 1",
        "shop.example.com path prefix /cart, method GET: exact 0",
        "shop.example.com path prefix /cart: exact 0",
        "*.shop.example.com path prefix /: wild 0",
        "*.example.com path prefix /: wild 0",
        "* path = /x: any 1",
        "* path prefix /: any 0",
    ];
    assert_eq!(rows(&world), wanted);
    let row = &overview(&world).gateways[0].rows[0];
    assert_eq!(row.backends[0].service.as_deref(), Some("default/web"));
    assert_eq!(row.listeners, ["http"]);
}

#[test]
fn s52_listeners_and_routes_are_judged_by_their_first_finding() {
    let mut world = World::new();
    world.route("good", json!({"hostnames": ["a.test"]}));
    world.route("bad", json!({"rules": [{"backendRefs": [{"name": "wbe", "port": 80}]}]}));
    world.route("lost", json!({"parentRefs": [{"name": "wg"}], "hostnames": ["lost.test"]}));
    world.add("Gateway", "other", json!({"gatewayClassName": "foreign", "listeners": []}));
    let found = overview(&world);
    let states: Vec<(&str, &str)> =
        found.gateways.iter().map(|front| (&*front.subject.key, front.judgement.state)).collect();
    assert_eq!(states, [("default/gw", "ok"), ("default/other", "not ours")]);
    let gateway = &found.gateways[0];
    assert_eq!((&*gateway.class, &gateway.addresses[..]), ("waypost", &["192.0.2.1".to_owned()][..]));
    let listener = &gateway.listeners[0];
    assert_eq!((listener.port, &*listener.host, listener.routes, listener.judgement.state), (80, "*", 2, "ok"));
    let bad = &found.routes["HTTPRoute default/bad"];
    assert_eq!((bad.state, bad.code.as_deref()), ("not working", Some("BackendMissing")));
    assert_eq!(bad.fix.as_deref(), Some("kubectl edit httproute bad -n default"));
    assert_eq!(found.routes["HTTPRoute default/good"].state, "ok");
    let [lost] = &found.apart[..] else { panic!("{:?}", found.apart) };
    assert_eq!((lost.subject.name(), lost.judgement.code.as_deref()), ("lost", Some("ParentMissing")));
    assert_eq!(lost.hosts, ["lost.test"]);
}

#[test]
fn s51_ingresses_are_rows_of_their_class() {
    let mut world = World::new();
    world.add("IngressClass", "/waypost", json!({"controller": api::view::ingress::CONTROLLER}));
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    let rules = json!([{"host": "shop.test", "http": {"paths": paths}}]);
    world.add("Ingress", "shop", json!({"ingressClassName": "waypost", "rules": rules}));
    let found = overview(&world);
    let class = found.gateways.iter().find(|front| front.subject.kind == "IngressClass").expect("the class");
    assert_eq!((class.rows.len(), &*class.rows[0].host, class.rows[0].route.kind), (1, "shop.test", "Ingress"));
    assert_eq!(found.routes["Ingress default/shop"].state, "ok");
    let leading = world.with(|layer7| layer7.leading_to("default/web", 9, &|_| None));
    assert_eq!(leading.iter().map(|one| one.subject.to_string()).collect::<Vec<_>>(), ["Ingress default/shop"]);
}

#[test]
fn s52_what_needs_more_than_may_be_listed_is_unknown() {
    let mut world = World::new();
    world.route("bad", json!({"rules": [{"backendRefs": [{"name": "vault", "namespace": "bank", "port": 80}]}]}));
    world.route("good", json!({"hostnames": ["a.test"]}));
    let needs = world.with(|layer7| layer7.needs(Kind::HttpRoute, "default/bad"));
    let wanted: Needs = [
        ("gatewayclasses", ""),
        ("namespaces", ""),
        ("gateways", "default"),
        ("services", "bank"),
        ("endpointslices", "bank"),
        ("backendtlspolicies", "bank"),
        ("referencegrants", "bank"),
    ]
    .map(|(plural, namespace)| (plural, namespace.into()))
    .into();
    assert_eq!(needs, wanted);
    let unknown = |needs: &Needs| needs.contains(&("services", "bank".into())).then(|| "you may not".to_owned());
    let found = world.with(|layer7| layer7.overview(&unknown));
    let bad = &found.routes["HTTPRoute default/bad"];
    assert_eq!((bad.state, bad.message.as_deref(), &bad.code), ("unknown", Some("you may not"), &None));
    assert_eq!(found.routes["HTTPRoute default/good"].state, "ok");
    let rows = &found.gateways[0].rows;
    let bad = rows.iter().find(|row| row.route.name() == "bad").expect("its row");
    assert_eq!((&bad.backends[0].service, bad.backends[0].why), (&None, None));
    let leading = world.with(|layer7| layer7.leading_to("bank/vault", 9, &unknown));
    assert_eq!(leading[0].judgement.state, "unknown", "{leading:?}");
}

#[test]
fn s52_a_route_has_so_many_rows_and_no_more() {
    let mut world = World::new();
    let hosts: Vec<String> = (0..16).map(|at| format!("h{at}.test")).collect();
    let rules: Vec<Value> = (0..16).map(|at| path("Exact", &format!("/{at}"))).collect();
    world.route("huge", json!({"hostnames": hosts, "rules": rules}));
    let found = overview(&world);
    assert_eq!((found.gateways[0].rows.len(), found.more), (64, 16 * 16 - 64));
}

#[test]
fn s52_kinds_have_the_names_of_their_lists() {
    let resources: BTreeSet<String> = Kind::ALL.into_iter().map(|kind| format!("{:?}", kind.resource())).collect();
    assert_eq!(resources.len(), Kind::ALL.len());
    assert_eq!(Kind::Namespace.resource(), ("", "v1", "namespaces"));
    assert_eq!(Kind::ReferenceGrant.resource(), ("gateway.networking.k8s.io", "v1beta1", "referencegrants"));
    assert!(Kind::ALL.into_iter().all(|kind| Kind::named(kind.name()) == Some(kind)));
}
