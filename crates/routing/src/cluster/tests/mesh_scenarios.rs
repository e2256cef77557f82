//! Services as parents of routes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::world::{World, grant, key, short};
use crate::cluster::Ancestor;
use crate::mesh::{MOST_CONSUMED, NotServed};
use crate::model::{
    BackendProtocol, Clients, InvalidTarget, ListenerProtocol, MeshPort, Place, RouteId, RouteKind, ServicePortId,
    Target,
};

use RouteKind::{Grpc, Http, Tcp, Tls, Udp};

/// A world with the Service `apps/shop`, with ports of several application protocols.
fn world() -> World {
    let mut world = World::new();
    world.put("Service", "apps/shop", shop());
    world
}

fn shop() -> Value {
    json!({ "type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"], "ports": [
        { "name": "http", "port": 80, "appProtocol": "http" },
        { "name": "any", "port": 81 },
        { "name": "https", "port": 443, "appProtocol": "https" },
        { "name": "dns", "port": 53, "protocol": "UDP" },
    ] })
}

/// Creates a Service with the annotation.
fn put_annotated(world: &mut World, name: &str, value: &str, spec: Value) -> crate::cluster::Touched {
    let metadata = json!({ "annotations": { (api::view::annotations::LAYER_7): value } });
    world.put_with("Service", name, json!({ "metadata": metadata, "spec": spec }))
}

/// A reference to `apps/shop`, with these members.
fn to_shop(more: Value) -> Value {
    let mut reference = json!({ "group": "", "kind": "Service", "name": "shop", "namespace": "apps" });
    for (member, value) in more.as_object().into_iter().flatten() {
        reference[member] = value.clone();
    }
    reference
}

fn route(parents: Value, backend: Value) -> Value {
    json!({ "parentRefs": parents, "hostnames": ["a.test"], "rules": [{ "backendRefs": [backend] }] })
}

fn web() -> Value {
    json!({ "name": "web", "port": 80 })
}

/// Condition `Accepted` of a route with one parent.
fn accepted(world: &World, kind: RouteKind, name: &str) -> String {
    short(&world.parent(kind, name).accepted)
}

/// What the ports of `apps/shop` are read as, by client: `80 All Http`.
fn served(world: &World) -> Vec<String> {
    let config = world.0.mesh("apps/shop");
    let ports = config.iter().flat_map(|config| &config.ports);
    let port = |port: &Arc<MeshPort>| {
        let clients = |clients: &Clients| match clients {
            Clients::All => "All".to_owned(),
            Clients::Namespace(namespace) => namespace.to_string(),
        };
        let places = port.places.iter();
        let text = places.map(|(one, protocol)| format!("{} {} {protocol:?}", port.number, clients(one)));
        text.collect::<Vec<_>>()
    };
    ports.flat_map(port).collect()
}

fn place(port: u16, clients: Clients) -> Place {
    Place::ServicePort(ServicePortId { service: "apps/shop".into(), port, clients })
}

fn id(kind: RouteKind, name: &str) -> RouteId {
    RouteId { kind, key: key(name) }
}

#[test]
fn each_condition_of_a_reference_has_its_reason() {
    let cases = [
        // Of no kind that goes with a port, TLS is one.
        (Http, json!({}), "True/Accepted", &[80, 81][..]),
        (Grpc, json!({}), "True/Accepted", &[80, 81]),
        (Tls, json!({}), "True/Accepted", &[81, 443]),
        (Tcp, json!({}), "True/Accepted", &[80, 81, 443]),
        (Udp, json!({}), "False/NotAllowedByListeners", &[]),
        (Http, json!({ "port": 81 }), "True/Accepted", &[81]),
        (Http, json!({ "sectionName": "http" }), "True/Accepted", &[80]),
        (Http, json!({ "sectionName": "http", "port": 80 }), "True/Accepted", &[80]),
        (Http, json!({ "sectionName": "http", "port": 81 }), "False/NoMatchingParent", &[]),
        (Http, json!({ "sectionName": "odd" }), "False/NoMatchingParent", &[]),
        (Http, json!({ "port": 53 }), "False/NoMatchingParent", &[]),
        (Http, json!({ "port": 443 }), "False/NotAllowedByListeners", &[]),
        (Tls, json!({ "port": 80 }), "False/NotAllowedByListeners", &[]),
        (Http, json!({ "name": "odd" }), "False/NoMatchingParent", &[]),
    ];
    for (kind, reference, expected, ports) in cases {
        let mut world = world();
        let touched = world.put(kind.name(), "apps/r", route(json!([to_shop(reference.clone())]), web()));
        assert_eq!(accepted(&world, kind, "apps/r"), expected, "{kind:?} {reference}");
        let parent = world.parent(kind, "apps/r");
        assert_eq!(
            short(&parent.resolved_refs),
            if kind == Udp { "False/BackendNotFound" } else { "True/ResolvedRefs" }
        );
        let found: Vec<_> =
            parent.places.iter().map(|(place, hosts)| (place.service_port().unwrap().port, hosts)).collect();
        let expected: Vec<_> = ports.iter().map(|port| (*port, Vec::new())).collect();
        assert_eq!(found.iter().map(|(port, hosts)| (*port, (*hosts).clone())).collect::<Vec<_>>(), expected);
        assert_eq!(touched.mesh.len(), usize::from(!ports.is_empty()), "{kind:?} {reference}");
        assert!(touched.listeners.is_empty());
        assert_eq!(world.0.attached(&place(81, Clients::All)).count(), usize::from(ports.contains(&81)));
    }
}

#[test]
fn a_parent_needs_a_cluster_ip_and_the_proxy_of_the_cluster() {
    let spec = |more: Value| {
        let mut spec = shop();
        for (member, value) in more.as_object().into_iter().flatten() {
            spec[member] = value.clone();
        }
        spec
    };
    let headless = spec(json!({ "clusterIP": "None", "clusterIPs": ["None"] }));
    let alias = spec(json!({ "type": "ExternalName", "externalName": "x.test" }));
    let metadata = |key: &str, label: Option<&str>| match label {
        Some(value) => json!({ "labels": { key: value } }),
        None => json!({ "annotations": { key: "x" } }),
    };
    let cases = [
        (json!({ "spec": spec(json!({ "type": "NodePort" })) }), "True/Accepted"),
        (json!({ "spec": spec(json!({ "type": "LoadBalancer" })) }), "True/Accepted"),
        (json!({ "spec": headless }), "False/UnsupportedValue"),
        (json!({ "spec": alias }), "False/UnsupportedValue"),
        (json!({ "spec": shop(), "metadata": metadata("waypost.dev/gateway", None) }), "False/UnsupportedValue"),
        (
            json!({ "spec": shop(), "metadata": metadata("service.kubernetes.io/service-proxy-name", Some("other")) }),
            "False/UnsupportedValue",
        ),
    ];
    let mut world = world();
    world.put("HTTPRoute", "apps/r", route(json!([to_shop(json!({}))]), web()));
    for (service, expected) in cases {
        let touched = world.put_with("Service", "apps/shop", service.clone());
        assert_eq!(accepted(&world, Http, "apps/r"), expected, "{service}");
        assert_eq!(world.0.mesh("apps/shop").is_some(), expected.starts_with("True"));
        assert_eq!(touched.is_empty(), expected.starts_with("True"), "the type alone changes nothing");
        world.put("Service", "apps/shop", shop());
    }
    let touched = world.delete("Service", "apps/shop");
    assert_eq!(accepted(&world, Http, "apps/r"), "False/NoMatchingParent");
    assert_eq!((touched.mesh.len(), touched.route_changes.len()), (1, 2));
    world.put("Service", "default/kubernetes", shop());
    let api = json!([{ "group": "", "kind": "Service", "name": "kubernetes", "namespace": "default" }]);
    world.put("TCPRoute", "apps/t", route(api, web()));
    assert_eq!(accepted(&world, Tcp, "apps/t"), "False/UnsupportedValue");
}

#[test]
fn one_kind_has_precedence_at_a_port() {
    let mut world = world();
    // From the least to the first; each comes and displaces the one before.
    let kinds = [Tcp, Tls, Http, Grpc];
    for (number, kind) in kinds.into_iter().enumerate() {
        world.put(kind.name(), "apps/r", route(json!([to_shop(json!({ "port": 81 }))]), web()));
        for other in &kinds[..=number] {
            let expected = if *other == kind { "True/Accepted" } else { "False/Conflicted" };
            assert_eq!(accepted(&world, *other, "apps/r"), expected, "{other:?} after {kind:?}");
        }
        let attached: Vec<_> = world.0.attached(&place(81, Clients::All)).map(|(id, ..)| id.kind).collect();
        assert_eq!(attached, [kind]);
    }
    assert_eq!(
        world.parent(Tcp, "apps/r").accepted.message,
        "GRPCRoutes have precedence over TCPRoutes at port 81 of Service \"apps/shop\""
    );
    let conflict = world.0.port_placements(&id(Tcp, "apps/r"), &world.parent(Tcp, "apps/r").parent_ref);
    let outcomes: Vec<_> = conflict.iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [Err(NotServed::Port), Err(NotServed::Conflict(Grpc)), Err(NotServed::Port)]);
    // A route that loses at one port keeps the others.
    world.put("HTTPRoute", "apps/r", route(json!([to_shop(json!({}))]), web()));
    assert_eq!(accepted(&world, Http, "apps/r"), "True/Accepted");
    assert_eq!(served(&world), ["80 All Http", "81 All Http"]);
    // Routes of another namespace are for other clients: there is no conflict.
    world.put("TCPRoute", "other/r", route(json!([to_shop(json!({ "port": 81 }))]), web()));
    assert_eq!(accepted(&world, Tcp, "other/r"), "True/Accepted");
    assert_eq!(served(&world), ["80 All Http", "81 All Http", "81 other Tcp"]);
    world.delete("GRPCRoute", "apps/r");
    assert_eq!(accepted(&world, Tls, "apps/r"), "False/Conflicted");
    world.delete("HTTPRoute", "apps/r");
    assert_eq!(
        (accepted(&world, Tls, "apps/r"), accepted(&world, Tcp, "apps/r")),
        ("True/Accepted".into(), "False/Conflicted".into())
    );
}

#[test]
fn a_route_without_a_valid_rule_displaces_nobody() {
    let mut world = world();
    world.put("HTTPRoute", "apps/r", route(json!([to_shop(json!({ "port": 80 }))]), web()));
    let odd = json!([{ "matches": [{ "method": { "type": "RegularExpression", "service": "[" } }] }]);
    world.put("GRPCRoute", "apps/g", json!({ "parentRefs": [to_shop(json!({ "port": 80 }))], "rules": odd }));
    assert_eq!(accepted(&world, Http, "apps/r"), "True/Accepted");
    assert_eq!(accepted(&world, Grpc, "apps/g"), "False/UnsupportedValue");
    world.delete("HTTPRoute", "apps/r");
    assert_eq!(accepted(&world, Grpc, "apps/g"), "False/UnsupportedValue");
    assert!(world.0.mesh("apps/shop").is_none());
}

#[test]
fn routes_of_another_namespace_are_for_its_own_clients() {
    let mut world = world();
    world.put("HTTPRoute", "other/r", route(json!([to_shop(json!({ "port": 81 }))]), web()));
    assert_eq!(accepted(&world, Http, "other/r"), "True/Accepted");
    assert_eq!(served(&world), ["81 other Http"], "clients of other namespaces are not read");
    let port = Arc::clone(&world.0.mesh("apps/shop").unwrap().ports[0]);
    let other: Arc<str> = "other".into();
    assert_eq!(port.place_of(Some(&other)), Some((Clients::Namespace(Arc::clone(&other)), ListenerProtocol::Http)));
    assert_eq!((port.place_of(Some(&"apps".into())), port.place_of(None)), (None, None));
    let Target::Service(own) = &port.own.target else { panic!("{:?}", port.own) };
    assert_eq!((&*own.service, own.port, own.protocol), ("apps/shop", 81, BackendProtocol::Stream));
    // A producer route comes: it is for all others.
    world.put("HTTPRoute", "apps/r", route(json!([to_shop(json!({}))]), web()));
    assert_eq!(served(&world), ["80 All Http", "81 All Http", "81 other Http"]);
    let names = |clients| world.0.attached(&place(81, clients)).map(|(id, ..)| id.key.to_string()).collect::<Vec<_>>();
    assert_eq!(names(Clients::All), ["apps/r"]);
    assert_eq!(names(Clients::Namespace("other".into())), ["other/r"]);
}

#[test]
fn the_routes_of_a_namespace_have_a_limited_number_of_foreign_parents() {
    let mut world = World::new();
    let name = |number: usize| format!("apps/s{number:03}");
    let parent = |number: usize| {
        let name = format!("s{number:03}");
        json!([{ "group": "", "kind": "Service", "name": name, "namespace": "apps" }])
    };
    for number in 0..=MOST_CONSUMED {
        world.put("Service", &name(number), shop());
        world.put("HTTPRoute", &format!("other/r{number}"), route(parent(number), web()));
        world.put("HTTPRoute", &format!("apps/r{number}"), route(parent(number), web()));
    }
    assert_eq!(world.0.mesh_configs().count(), MOST_CONSUMED + 1, "its own are not limited");
    let last = format!("other/r{MOST_CONSUMED}");
    assert_eq!(accepted(&world, Http, &last), "False/TooManyServices");
    assert_eq!(accepted(&world, Http, &format!("other/r{}", MOST_CONSUMED - 1)), "True/Accepted");
    world.delete("HTTPRoute", "other/r0");
    assert_eq!(accepted(&world, Http, &last), "True/Accepted");
}

#[test]
fn a_service_may_opt_in_or_out() {
    let mut world = world();
    let touched = put_annotated(&mut world, "apps/shop", "true", shop());
    assert_eq!(touched.mesh.into_iter().collect::<Vec<_>>(), ["apps/shop".into()]);
    assert_eq!(served(&world), ["80 All Http"], "neither https nor a port of unknown protocol");
    let config = world.0.mesh("apps/shop").unwrap();
    assert_eq!(config.cluster_ips, ["10.0.0.1".parse::<std::net::IpAddr>().unwrap(), "fd00::1".parse().unwrap()]);
    let Target::Service(own) = &config.ports[0].own.target else { panic!("{config:?}") };
    assert_eq!((own.port, &*own.port_name, own.protocol), (80, "http", BackendProtocol::Http1));
    // A TrafficPolicy of the Service and a BackendTLSPolicy hold for it.
    let target = json!([{ "group": "", "kind": "Service", "name": "shop" }]);
    let touched = world.put("TrafficPolicy", "apps/p", json!({ "targetRefs": target, "timeouts": { "read": "5s" } }));
    assert_eq!(touched.mesh.len(), 1);
    assert!(world.0.mesh("apps/shop").unwrap().ports[0].own.policy.is_some());
    assert_eq!(world.traffic_policy("apps/p").ancestors, [Ancestor::service(&"apps/shop".into())]);
    assert_eq!(world.traffic_policy("apps/p").accepted.message, "The policy is accepted");
    let odd = json!({ "hostname": "h", "wellKnownCACertificates": "Odd" });
    world.put("BackendTLSPolicy", "apps/p", json!({ "targetRefs": target, "validation": odd }));
    assert_eq!(world.policy("apps/p").ancestors, [Ancestor::service(&"apps/shop".into())]);
    let config = world.0.mesh("apps/shop").unwrap();
    assert_eq!(config.ports[0].own.target, Target::Invalid(InvalidTarget::InvalidTlsPolicy), "never without TLS");
    // Out: routes of all namespaces are refused.
    world.put("HTTPRoute", "other/r", route(json!([to_shop(json!({}))]), web()));
    put_annotated(&mut world, "apps/shop", "false", shop());
    assert_eq!(accepted(&world, Http, "other/r"), "False/NotAllowedByListeners");
    assert!(world.0.mesh("apps/shop").is_none());
}

#[test]
fn references_need_no_grant_at_services_and_hostnames_do_not_count() {
    let mut world = world();
    world.gateway(
        "gw",
        json!([{ "name": "l", "port": 80, "protocol": "HTTP", "hostname": "b.test",
        "allowedRoutes": { "namespaces": { "from": "All" } } },
        { "name": "m", "port": 81, "protocol": "HTTP", "allowedRoutes": { "namespaces": { "from": "All" } } }]),
    );
    let gateway = json!({ "name": "gw", "namespace": "infra" });
    let foreign = json!({ "name": "web", "namespace": "infra", "port": 80 });
    world.put("HTTPRoute", "apps/r", route(json!([gateway, to_shop(json!({ "port": 80 }))]), foreign));
    let route = world.route(Http, "apps/r");
    let resolved: Vec<_> = route.parents.iter().map(|parent| short(&parent.resolved_refs)).collect();
    assert_eq!(resolved, ["False/RefNotPermitted", "True/ResolvedRefs"]);
    let (at_port, at_gateway) =
        (place(80, Clients::All), Place::from(route.parents[0].places[0].0.listener().unwrap().clone()));
    assert_eq!(route.parents[0].places.len(), 1, "the hostname counts at the Gateway");
    let target = |world: &World, place: &Place| {
        let (_, state, hosts) = world.0.attached(place).next().unwrap();
        let served = world.0.with_policies(place, &id(Http, "apps/r"));
        assert!(served.is_none_or(|served| served.rules == state.rules));
        (state.rules[0].backends[0].target.clone(), hosts.len())
    };
    assert_eq!(target(&world, &at_gateway), (Target::Invalid(InvalidTarget::RefNotPermitted), 1));
    assert!(matches!(target(&world, &at_port), (Target::Service(_), 0)));
    let touched = world.put("ReferenceGrant", "infra/g", grant(("HTTPRoute", "apps"), ("Service", None)));
    let changed: Vec<_> = touched.route_changes.iter().map(|(place, _)| place.clone()).collect();
    assert_eq!(changed, std::slice::from_ref(&at_gateway), "nothing changes at the Service");
    assert!(matches!(target(&world, &at_gateway), (Target::Service(_), 1)));
}

#[test]
fn policies_know_the_services_that_are_parents() {
    let mut world = world();
    let target = json!([{ "group": "", "kind": "Service", "name": "web" }]);
    let tls = json!({ "hostname": "h", "wellKnownCACertificates": "System" });
    world.put("BackendTLSPolicy", "apps/p", json!({ "targetRefs": target, "validation": tls }));
    world.put("TrafficPolicy", "apps/p", json!({ "targetRefs": target, "timeouts": { "read": "5s" } }));
    assert!(world.policy("apps/p").ancestors.is_empty());
    let touched = world.put("HTTPRoute", "apps/r", route(json!([to_shop(json!({ "port": 80 }))]), web()));
    assert_eq!((touched.policies.len(), touched.traffic_policies.len()), (1, 1));
    let shop = [Ancestor::service(&"apps/shop".into())];
    assert_eq!(
        (&world.policy("apps/p").ancestors[..], &world.traffic_policy("apps/p").ancestors[..]),
        (&shop[..], &shop[..])
    );
    let at = world.0.with_policies(&place(80, Clients::All), &id(Http, "apps/r")).expect("a policy holds there");
    let backend = &at.rules[0].backends[0];
    assert!(backend.policy.is_some());
    assert!(matches!(&backend.target, Target::Service(target) if target.tls.is_some()));
}

#[test]
fn a_change_costs_what_depends_on_it() {
    let mut world = world();
    for number in 0..1000 {
        world.put("Service", &format!("apps/s{number}"), shop());
    }
    assert_eq!(world.0.derived, world_cost(), "Services that nobody names cost nothing");
    for number in 0..100 {
        world.put("HTTPRoute", &format!("apps/r{number}"), route(json!([to_shop(json!({ "port": 80 }))]), web()));
        let parent = json!([{ "group": "", "kind": "Service", "name": format!("s{number}") }]);
        world.put("HTTPRoute", &format!("apps/q{number}"), route(parent, web()));
    }
    let mut cost = |change: &mut dyn FnMut(&mut World)| {
        let before = world.0.derived;
        change(&mut world);
        world.0.derived - before
    };
    let parent = || json!([to_shop(json!({ "port": 80 }))]);
    let other = || route(parent(), json!({ "name": "web", "port": 81 }));
    assert_eq!(cost(&mut |world| drop(world.put("HTTPRoute", "apps/r7", other()))), 1, "the route");
    assert_eq!(cost(&mut |world| drop(world.delete("HTTPRoute", "apps/r7"))), 2, "the Service and the route");
    assert_eq!(cost(&mut |world| drop(world.put("HTTPRoute", "other/r", other()))), 2, "no route of other clients");
    assert_eq!(cost(&mut |world| drop(world.put("GRPCRoute", "apps/r", other()))), 101, "its rivals; r7 is gone");
    assert_eq!(cost(&mut |world| drop(put_annotated(world, "apps/s999", "true", shop()))), 1, "the Service");
    assert_eq!(cost(&mut |world| drop(put_annotated(world, "apps/s999", "odd", shop()))), 1, "the Service");
    let mut addressed = json!({ "spec": shop() });
    addressed["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } });
    assert_eq!(cost(&mut |world| drop(world.put_with("Service", "apps/shop", addressed.clone()))), 0);
    let mut changed = addressed.clone();
    changed["spec"]["clusterIPs"] = json!(["10.0.0.2"]);
    assert_eq!(
        cost(&mut |world| drop(world.put_with("Service", "apps/shop", changed.clone()))),
        1,
        "no route depends on it"
    );
}

/// What it costs to make the world.
fn world_cost() -> usize {
    world().0.derived
}
