//! Attachment of routes, references to backends, rules.

use serde_json::{Value, json};

use super::world::{World, grant, short};
use crate::model::{BackendProtocol, InvalidTarget, RouteKind, Target};

const KINDS: [RouteKind; 5] = RouteKind::ALL;

fn listener(name: &str, port: u16, protocol: &str, from: &str) -> Value {
    json!({ "name": name, "port": port, "protocol": protocol, "allowedRoutes": { "namespaces": { "from": from } },
        "tls": if protocol == "TLS" { json!({ "mode": "Passthrough" }) } else { Value::Null } })
}

fn route(parents: Value, hostnames: Value, backend: Value) -> Value {
    json!({ "parentRefs": parents, "hostnames": hostnames, "rules": [{ "backendRefs": [backend] }] })
}

fn web() -> Value {
    json!({ "name": "web", "port": 80 })
}

fn accepted(world: &World, kind: RouteKind, name: &str) -> String {
    short(&world.parent(kind, name).accepted)
}

fn resolved(world: &World, kind: RouteKind, name: &str) -> String {
    short(&world.parent(kind, name).resolved_refs)
}

#[test]
fn the_first_step_that_leaves_no_listener_gives_the_reason() {
    let cases = [
        (json!({ "name": "gw" }), "infra/r", "True/Accepted"),
        (json!({ "name": "gw", "sectionName": "web" }), "infra/r", "True/Accepted"),
        (json!({ "name": "gw", "sectionName": "missing" }), "infra/r", "False/NoMatchingParent"),
        (json!({ "name": "gw", "port": 81 }), "infra/r", "False/NoMatchingParent"),
        (json!({ "name": "gw", "sectionName": "web", "port": 8080 }), "infra/r", "False/NoMatchingParent"),
        (json!({ "name": "gw", "sectionName": "web", "port": 80 }), "infra/r", "True/Accepted"),
        (json!({ "name": "gw", "namespace": "infra" }), "apps/r", "True/Accepted"),
        (json!({ "name": "gw", "namespace": "infra" }), "other/r", "False/NotAllowedByListeners"),
        (json!({ "name": "gw", "namespace": "infra", "sectionName": "web" }), "apps/r", "False/NotAllowedByListeners"),
        (json!({ "name": "gw", "sectionName": "tcp" }), "infra/r", "False/NotAllowedByListeners"),
        (json!({ "name": "gw", "sectionName": "host" }), "infra/r", "False/NoMatchingListenerHostname"),
    ];
    for (parent, key, expected) in cases {
        let mut world = World::new();
        let mut selected = listener("selected", 8080, "HTTP", "Selector");
        selected["allowedRoutes"]["namespaces"]["selector"] = json!({ "matchLabels": { "team": "apps" } });
        let mut host = listener("host", 82, "HTTP", "Same");
        host["hostname"] = "other.example".into();
        world.gateway(
            "gw",
            json!([listener("web", 80, "HTTP", "Same"), selected, listener("tcp", 9000, "TCP", "Same"), host]),
        );
        world.put("HTTPRoute", key, route(json!([parent]), json!(["a.test"]), web()));
        assert_eq!(accepted(&world, RouteKind::Http, key), expected, "{parent} of {key}");
        let is_attached = expected == "True/Accepted";
        assert_eq!(!world.parent(RouteKind::Http, key).places.is_empty(), is_attached);
        let count: usize = world.state("gw").listeners.iter().map(|listener| listener.attached_routes).sum();
        assert_eq!(count > 0, is_attached);
    }
}

#[test]
fn parents_that_are_not_ours_are_left_out() {
    let mut world = World::new();
    world.put(
        "Gateway",
        "foreign",
        json!({ "gatewayClassName": "foreign", "listeners": [listener("web", 80, "HTTP", "All")] }),
    );
    let parents =
        json!([{ "name": "foreign" }, { "name": "missing" }, { "group": "example.com", "kind": "Service", "name": "web" }]);
    world.put("HTTPRoute", "r", route(parents, json!([]), web()));
    assert_eq!(world.route(RouteKind::Http, "r").parents, []);
    world.gateway("missing", json!([listener("web", 80, "HTTP", "All")]));
    assert_eq!(accepted(&world, RouteKind::Http, "r"), "True/Accepted", "the Gateway came after the route");
}

#[test]
fn a_route_attaches_to_listeners_of_its_kind_only() {
    let protocols = ["HTTP", "TLS", "TCP", "UDP"];
    for kind in KINDS {
        for protocol in protocols {
            let mut world = World::new();
            world.gateway("gw", json!([listener("l", 80, protocol, "Same")]));
            world.put(kind.name(), "r", route(json!([{ "name": "gw" }]), json!(["a.test"]), web()));
            let fits = match kind {
                RouteKind::Http | RouteKind::Grpc | RouteKind::Ingress => protocol == "HTTP",
                RouteKind::Tls => protocol == "TLS",
                RouteKind::Tcp => protocol == "TCP",
                RouteKind::Udp => protocol == "UDP",
            };
            let expected = if fits { "True/Accepted" } else { "False/NotAllowedByListeners" };
            assert_eq!(accepted(&world, kind, "r"), expected, "{kind:?} at {protocol}");
        }
    }
}

#[test]
fn hostnames_of_a_listener_are_those_that_intersect() {
    let cases: [(&str, &[&str], &[&str]); 7] = [
        ("very.specific.com", &["non.matching.com", "*.nonmatching.io", "very.specific.com"], &["very.specific.com"]),
        ("very.specific.com", &["*.specific.com"], &["*.specific.com"]),
        (
            "*.wildcard.io",
            &["non.matching.com", "wildcard.io", "foo.wildcard.io", "foo.bar.wildcard.io"],
            &["foo.wildcard.io", "foo.bar.wildcard.io"],
        ),
        ("*.anotherwildcard.io", &["*.anotherwildcard.io"], &["*.anotherwildcard.io"]),
        ("*.a.test", &["*.test", "*.b.a.test", "*.c.test"], &["*.test", "*.b.a.test"]),
        ("", &["any.test"], &["any.test"]),
        ("Upper.Test", &["upper.test"], &["upper.test"]),
    ];
    for (own, hostnames, expected) in cases {
        let mut world = World::new();
        let mut only = listener("l", 80, "HTTP", "Same");
        only["hostname"] = own.into();
        world.gateway("gw", json!([only]));
        world.put("HTTPRoute", "r", route(json!([{ "name": "gw" }]), json!(hostnames), web()));
        let parent = world.parent(RouteKind::Http, "r");
        let found: Vec<_> = parent.places[0].1.iter().map(|host| &**host).collect();
        assert_eq!(found, expected, "{own}");
    }
}

#[test]
fn parents_of_a_set_and_of_its_gateway_are_judged_alone() {
    let mut world = World::new();
    world.gateway("gw", json!([listener("gw-web", 80, "HTTP", "Same")]));
    let mut own = listener("set-web", 80, "HTTP", "Same");
    own["hostname"] = "set.test".into();
    world.put(
        "ListenerSet",
        "apps/s",
        json!({ "parentRef": { "name": "gw", "namespace": "infra" }, "listeners": [own] }),
    );
    let gateway = json!({ "name": "gw", "namespace": "infra" });
    let by_set = json!({ "kind": "ListenerSet", "name": "s", "namespace": "apps" });
    let lost = json!({ "name": "gw", "namespace": "infra", "sectionName": "set-web" });
    world.put("HTTPRoute", "apps/r", route(json!([gateway, by_set, lost]), json!([]), web()));
    let parents = &world.route(RouteKind::Http, "apps/r").parents;
    let verdicts: Vec<_> = parents.iter().map(|parent| short(&parent.accepted)).collect();
    assert_eq!(verdicts, ["False/NotAllowedByListeners", "True/Accepted", "False/NoMatchingParent"]);
    assert_eq!(world.set_listener("apps/s", "set-web").attached_routes, 1, "Same is the namespace of the set");
    assert_eq!(world.listener("gw", "gw-web").attached_routes, 0);
    world.put("HTTPRoute", "infra/r", route(json!([gateway]), json!([]), web()));
    assert_eq!(world.listener("gw", "gw-web").attached_routes, 1);
    assert_eq!(world.set_listener("apps/s", "set-web").attached_routes, 1, "a Gateway does not lead to its sets");
}

#[test]
fn routes_are_counted_whatever_the_state_of_the_listener_is() {
    let mut world = World::new();
    world.gateway(
        "gw",
        json!([{ "name": "https", "port": 443, "protocol": "HTTPS",
        "tls": { "certificateRefs": [{ "name": "missing" }] } }]),
    );
    let missing = json!({ "name": "missing", "port": 80 });
    world.put("HTTPRoute", "one", route(json!([{ "name": "gw" }]), json!([]), missing));
    world.put("HTTPRoute", "two", route(json!([{ "name": "gw" }]), json!([]), web()));
    assert_eq!(world.listener("gw", "https").attached_routes, 2);
    assert_eq!(resolved(&world, RouteKind::Http, "one"), "False/BackendNotFound");
    let touched = world.delete("HTTPRoute", "one");
    assert_eq!(world.listener("gw", "https").attached_routes, 1);
    assert_eq!((touched.gateways.len(), touched.routes.len(), touched.listeners.len()), (1, 1, 1));
}

#[test]
fn two_stream_routes_of_a_listener_are_both_attached() {
    for (kind, protocol, port) in [(RouteKind::Tcp, "TCP", 80), (RouteKind::Udp, "UDP", 53)] {
        let mut world = World::new();
        world.gateway("gw", json!([listener("a", 90, protocol, "Same"), listener("b", 91, protocol, "Same")]));
        let backend = json!({ "name": "web", "port": port });
        world.put(kind.name(), "all", route(json!([{ "name": "gw" }]), json!([]), backend.clone()));
        world.put(
            kind.name(),
            "one",
            route(json!([{ "name": "gw", "sectionName": "a", "port": 90 }]), json!([]), backend),
        );
        let counts: Vec<_> = world.state("gw").listeners.iter().map(|listener| listener.attached_routes).collect();
        assert_eq!(counts, [2, 1]);
        let stream = world.route(kind, "all").stream.clone().expect("a rule");
        let Target::Service(target) = &stream.backends[0].target else { panic!("{stream:?}") };
        assert_eq!((&*target.service, target.port), ("infra/web", port));
    }
}

#[test]
fn backends_are_resolved_or_say_why_not() {
    let cases = [
        (json!({ "name": "web", "port": 80 }), "True/ResolvedRefs"),
        (json!({ "name": "web", "port": 8080 }), "False/BackendNotFound"),
        (json!({ "name": "web", "port": 53 }), "False/BackendNotFound"),
        (json!({ "name": "web" }), "False/BackendNotFound"),
        (json!({ "name": "nonexistent", "port": 80 }), "False/BackendNotFound"),
        (
            json!({ "group": "unknownkind.example.com", "kind": "NonExistent", "name": "web", "port": 80 }),
            "False/InvalidKind",
        ),
        (json!({ "kind": "NonExistent", "name": "web", "namespace": "apps" }), "False/InvalidKind"),
        (json!({ "name": "alias", "port": 80 }), "False/InvalidKind"),
        (json!({ "name": "web", "namespace": "apps", "port": 80 }), "False/RefNotPermitted"),
        (json!({ "name": "nonexistent", "namespace": "apps", "port": 80 }), "False/RefNotPermitted"),
    ];
    for kind in [RouteKind::Http, RouteKind::Grpc, RouteKind::Tls, RouteKind::Tcp] {
        for (backend, expected) in &cases {
            let mut world = World::new();
            world.put(
                "Service",
                "alias",
                json!({ "type": "ExternalName", "externalName": "a.test", "ports": [{ "port": 80 }] }),
            );
            let protocol = if matches!(kind, RouteKind::Tls | RouteKind::Tcp) {
                kind.name().trim_end_matches("Route")
            } else {
                "HTTP"
            };
            world.gateway("gw", json!([listener("l", 80, protocol, "Same")]));
            world.put(kind.name(), "r", route(json!([{ "name": "gw" }]), json!(["a.test"]), backend.clone()));
            assert_eq!(resolved(&world, kind, "r"), *expected, "{kind:?} {backend}");
            assert_eq!(accepted(&world, kind, "r"), "True/Accepted");
        }
    }
}

#[test]
fn of_several_problems_the_first_of_the_order_is_the_reason() {
    let mut world = World::new();
    world.gateway("gw", json!([listener("l", 80, "HTTP", "Same")]));
    let missing = json!({ "name": "missing", "port": 80 });
    let foreign = json!({ "name": "web", "namespace": "apps", "port": 80 });
    let mirror = json!([{ "type": "RequestMirror", "requestMirror": { "backendRef": foreign } }]);
    world.put(
        "HTTPRoute",
        "r",
        json!({ "parentRefs": [{ "name": "gw" }], "rules": [
        { "backendRefs": [missing, web()], "filters": mirror }] }),
    );
    assert_eq!(resolved(&world, RouteKind::Http, "r"), "False/RefNotPermitted", "mirrors count as well");
    let rule = &world.route(RouteKind::Http, "r").rules[0];
    assert_eq!(rule.mirrors, [Target::Invalid(InvalidTarget::RefNotPermitted)]);
    assert_eq!(rule.backends[0].target, Target::Invalid(InvalidTarget::BackendNotFound));
    assert!(matches!(rule.backends[1].target, Target::Service(_)));
}

#[test]
fn grants_for_backends_are_for_kind_namespace_and_name() {
    let cases = [
        (grant(("HTTPRoute", "infra"), ("Service", None)), true),
        (grant(("HTTPRoute", "infra"), ("Service", Some("web"))), true),
        (grant(("HTTPRoute", "infra"), ("Service", Some("other"))), false),
        (grant(("HTTPRoute", "apps"), ("Service", None)), false),
        (grant(("Gateway", "infra"), ("Service", None)), false),
        (grant(("HTTPRoute", "infra"), ("Secret", None)), false),
    ];
    for (spec, permitted) in cases {
        let mut world = World::new();
        world.gateway("gw", json!([listener("l", 80, "HTTP", "Same")]));
        world.put(
            "HTTPRoute",
            "r",
            route(json!([{ "name": "gw" }]), json!([]), json!({ "name": "web", "namespace": "apps", "port": 80 })),
        );
        world.put("ReferenceGrant", "other/elsewhere", grant(("HTTPRoute", "infra"), ("Service", None)));
        assert_eq!(resolved(&world, RouteKind::Http, "r"), "False/RefNotPermitted", "a grant of another namespace");
        let touched = world.put("ReferenceGrant", "apps/g", spec.clone());
        let expected = if permitted { "True/ResolvedRefs" } else { "False/RefNotPermitted" };
        assert_eq!(resolved(&world, RouteKind::Http, "r"), expected, "{spec}");
        assert_eq!(touched.route_changes.len(), usize::from(permitted));
        world.delete("ReferenceGrant", "apps/g");
        assert_eq!(resolved(&world, RouteKind::Http, "r"), "False/RefNotPermitted");
    }
}

#[test]
fn the_protocol_towards_backends_follows_app_protocol() {
    use BackendProtocol::{Http1, Http2};
    let cases = [
        ("", Some(Http1), Some(Http2)),
        ("http", Some(Http1), Some(Http2)),
        ("kubernetes.io/h2c", Some(Http2), Some(Http2)),
        ("kubernetes.io/ws", Some(Http1), None),
        ("kubernetes.io/wss", None, None),
        ("HTTPS", None, None),
        ("kubernetes.io/odd", None, None),
        ("tcp", None, None),
        ("grpc", Some(Http2), Some(Http2)),
    ];
    for (app, http, grpc) in cases {
        let mut world = World::new();
        world.gateway("gw", json!([listener("l", 80, "HTTP", "Same")]));
        world.put("Service", "web", json!({ "ports": [{ "port": 80, "appProtocol": app }] }));
        for (kind, expected) in [(RouteKind::Http, http), (RouteKind::Grpc, grpc)] {
            world.put(kind.name(), "r", route(json!([{ "name": "gw" }]), json!([]), web()));
            let protocol = match &world.route(kind, "r").rules[0].backends[0].target {
                Target::Service(target) => Some(target.protocol),
                Target::Invalid(problem) => {
                    assert_eq!(*problem, InvalidTarget::UnsupportedProtocol);
                    None
                }
            };
            assert_eq!(protocol, expected, "{kind:?} {app}");
            let reason = expected.map_or("False/UnsupportedProtocol", |_| "True/ResolvedRefs");
            assert_eq!(resolved(&world, kind, "r"), reason);
        }
    }
}

#[test]
fn invalid_rules_are_dropped_and_named() {
    let bad = json!({ "matches": [{ "path": { "type": "RegularExpression", "value": "[" } }], "backendRefs": [web()] });
    let good = json!({ "name": "good", "backendRefs": [web()] });
    let mut world = World::new();
    world.gateway("gw", json!([listener("l", 80, "HTTP", "Same")]));
    world.put("HTTPRoute", "r", json!({ "parentRefs": [{ "name": "gw" }], "rules": [bad, good] }));
    let parent = world.parent(RouteKind::Http, "r");
    assert_eq!(short(&parent.accepted), "True/Accepted");
    let partially = parent.partially_invalid.as_ref().expect("a dropped rule");
    assert_eq!(short(partially), "True/UnsupportedValue");
    assert!(partially.message.starts_with("Dropped Rule 0: "), "{}", partially.message);
    let rules = &world.route(RouteKind::Http, "r").rules;
    assert_eq!((rules.len(), rules[0].index, rules[0].name.as_deref()), (1, 1, Some("good")));
    world.put("HTTPRoute", "r", json!({ "parentRefs": [{ "name": "gw" }], "rules": [bad] }));
    let parent = world.parent(RouteKind::Http, "r");
    assert_eq!((short(&parent.accepted).as_str(), &parent.partially_invalid), ("False/UnsupportedValue", &None));
    assert_eq!(world.listener("gw", "l").attached_routes, 0);
}

#[test]
fn filters_that_cannot_be_applied_break_their_rule() {
    let mut world = World::new();
    world.gateway("gw", json!([listener("l", 80, "HTTP", "Same")]));
    let filter = json!({ "type": "ExtensionRef", "extensionRef": { "group": "g", "kind": "K", "name": "n" } });
    world.put(
        "HTTPRoute",
        "r",
        json!({ "parentRefs": [{ "name": "gw" }], "rules": [
        { "backendRefs": [web()], "filters": [filter] }, { "backendRefs": [web()] }] }),
    );
    let parent = world.parent(RouteKind::Http, "r");
    assert_eq!(short(&parent.accepted), "True/Accepted", "its requests fail, and are not left to other routes");
    assert_eq!(parent.partially_invalid.as_ref().map(short).as_deref(), Some("True/UnsupportedValue"));
    assert_eq!(short(&parent.resolved_refs), "False/InvalidKind");
    let broken: Vec<_> = world.route(RouteKind::Http, "r").rules.iter().map(|rule| rule.broken.is_some()).collect();
    assert_eq!(broken, [true, false]);
}

#[test]
fn timeouts_and_retries_have_defaults() {
    use std::time::Duration;
    let mut world = World::new();
    world.gateway("gw", json!([listener("l", 80, "HTTP", "Same")]));
    world.put(
        "HTTPRoute",
        "r",
        json!({ "parentRefs": [{ "name": "gw" }], "rules": [
        { "backendRefs": [web()], "timeouts": { "request": "1m30s", "backendRequest": "0s" },
          "retry": { "codes": [503], "backoff": "250ms" } },
        { "retry": { "attempts": 0 } }, {}] }),
    );
    let rules = &world.route(RouteKind::Http, "r").rules;
    assert_eq!(rules[0].request_timeout, Some(Duration::from_secs(90)));
    assert_eq!(rules[0].backend_timeout, Some(Duration::ZERO));
    let retry = rules[0].retry.as_ref().expect("retries");
    assert_eq!((&retry.codes[..], retry.attempts, retry.backoff), (&[503][..], 1, Some(Duration::from_millis(250))));
    assert_eq!(rules[1].retry.as_ref().map(|retry| retry.attempts), Some(0));
    assert_eq!((rules[2].request_timeout, &rules[2].retry), (None, &None));
}

#[test]
fn unchanged_rules_are_shared_and_a_change_touches_its_route_only() {
    let mut world = World::new();
    world.gateway("gw", json!([listener("l", 80, "HTTP", "Same")]));
    for name in ["a", "b", "c"] {
        world.put("HTTPRoute", name, route(json!([{ "name": "gw" }]), json!([format!("{name}.test")]), web()));
    }
    let before = world.route(RouteKind::Http, "a").rules.clone();
    let touched = world.put(
        "HTTPRoute",
        "a",
        json!({ "parentRefs": [{ "name": "gw" }], "hostnames": ["a.test"],
        "rules": [{ "backendRefs": [web()] }, { "backendRefs": [] }] }),
    );
    let after = &world.route(RouteKind::Http, "a").rules;
    assert!(std::sync::Arc::ptr_eq(&before[0], &after[0]));
    let routes: Vec<_> = touched.route_changes.iter().map(|(_, route)| &*route.key).collect();
    assert_eq!(routes, ["infra/a"]);
    assert!(touched.gateways.is_empty() && touched.configs.is_empty() && touched.sets.is_empty());
    let labels = [("team", "infra"), ("more", "labels")].into_iter().collect();
    let touched = world.0.apply(crate::cluster::Change::Namespace("infra".into(), Some(labels)));
    assert!(touched.is_empty(), "no selector depends on it");
}

#[test]
fn a_change_costs_what_depends_on_it() {
    let mut world = World::new();
    let certificate = json!({ "certificateRefs": [{ "name": "cert" }] });
    world.gateway(
        "gw",
        json!([listener("l", 80, "HTTP", "Same"),
        { "name": "https", "port": 443, "protocol": "HTTPS", "hostname": "other.example", "tls": certificate }]),
    );
    for number in 0..500 {
        let hostnames = json!([format!("{number}.test")]);
        world.put("HTTPRoute", &format!("r{number}"), route(json!([{ "name": "gw" }]), hostnames, web()));
    }
    let mut cost = |change: &mut dyn FnMut(&mut World)| {
        let before = world.0.derived;
        change(&mut world);
        world.0.derived - before
    };
    let other = route(json!([{ "name": "gw" }]), json!(["new.test"]), web());
    assert_eq!(cost(&mut |world| drop(world.put("HTTPRoute", "r7", other.clone()))), 1, "the route");
    assert_eq!(cost(&mut |world| drop(world.delete("HTTPRoute", "r7"))), 1, "the route");
    assert_eq!(cost(&mut |world| drop(world.secret("cert", None))), 4, "the listeners in four steps");
    assert_eq!(cost(&mut |world| drop(world.address("gw", &[]))), 1, "the Gateway");
    assert_eq!(
        cost(&mut |world| drop(world.put("ReferenceGrant", "apps/g", grant(("HTTPRoute", "x"), ("Service", None))))),
        0
    );
    assert_eq!(world.listener("gw", "l").attached_routes, 499);
}
