//! Gateways, ListenerSets and their listeners.

use serde_json::{Value, json};

use super::world::{World, conditions, grant, short};
use crate::cluster::{CaState, SecretState};
use crate::model::{ListenerProtocol, RouteKind};

const GOOD: [&str; 3] = ["True/Accepted", "True/Programmed", "True/ResolvedRefs"];

fn http(name: &str, port: u16, host: &str) -> Value {
    json!({ "name": name, "port": port, "protocol": "HTTP", "hostname": host,
        "allowedRoutes": { "namespaces": { "from": "All" } } })
}

fn https(name: &str, port: u16, certificate: Value) -> Value {
    json!({ "name": name, "port": port, "protocol": "HTTPS", "hostname": format!("{name}.test"),
        "tls": { "certificateRefs": [certificate] } })
}

fn set(gateway: &str, listeners: Value) -> Value {
    json!({ "parentRef": { "name": gateway, "namespace": "infra" }, "listeners": listeners })
}

#[test]
fn a_gateway_is_programmed_when_its_service_has_an_address() {
    let mut world = World::new();
    world.gateway("gw", json!([http("web", 80, "")]));
    world.address("gw", &[]);
    assert_eq!(short(&world.state("gw").accepted), "True/Accepted");
    assert_eq!(short(&world.state("gw").programmed), "False/AddressNotAssigned");
    assert_eq!(short(&world.state("gw").addresses_assigned), "False/NotAssigned");
    assert_eq!(world.served("gw"), ["web"], "the Service needs its ports before it has an address");
    let touched = world.address("gw", &["192.0.2.1", "2001:db8::1"]);
    assert!(touched.gateways.contains("infra/gw"));
    assert_eq!(short(&world.state("gw").programmed), "True/Programmed");
    let addresses: Vec<_> = world.state("gw").addresses.iter().map(|a| (a.kind, &*a.value)).collect();
    assert_eq!(addresses, [("IPAddress", "192.0.2.1"), ("IPAddress", "2001:db8::1")]);
    assert_eq!(conditions(world.listener("gw", "web")), GOOD);
}

#[test]
fn requested_addresses_are_supported_and_usable_or_say_why_not() {
    let mut world = World::new();
    let mut judge = |addresses: Value, have: &[&str]| {
        world.address("gw", have);
        world.put(
            "Gateway",
            "gw",
            json!({ "gatewayClassName": "ours", "addresses": addresses,
            "listeners": [http("web", 8080, "")] }),
        );
        let state = world.state("gw");
        [&state.accepted, &state.programmed, &state.addresses_assigned].map(short)
    };
    let (odd, unusable, usable) = (
        json!({ "type": "test/odd", "value": "x" }),
        json!({ "value": "203.0.113.1" }),
        json!({ "value": "192.0.2.9" }),
    );
    let all = json!([odd, unusable, usable]);
    assert_eq!(judge(all, &["192.0.2.9"])[..2], ["False/UnsupportedAddress", "False/Invalid"]);
    let two = json!([unusable, usable]);
    assert_eq!(
        judge(two.clone(), &["192.0.2.9"]),
        ["True/Accepted", "False/AddressNotUsable", "False/PartiallyAssigned"]
    );
    assert_eq!(judge(two, &[]), ["True/Accepted", "False/AddressNotUsable", "False/NotAssigned"]);
    let good = ["True/Accepted", "True/Programmed", "True/AddressesAssigned"];
    assert_eq!(judge(json!([usable]), &["192.0.2.9"]), good);
    assert_eq!(judge(json!([{ "type": "IPAddress" }]), &["192.0.2.9"]), good, "no value: any address");
    assert_eq!(judge(json!([{ "type": "IPAddress" }]), &[])[1], "False/AddressNotAssigned");
    assert_eq!(judge(json!([{ "type": "Hostname", "value": "a.test" }]), &[])[0], "False/UnsupportedAddress");
}

#[test]
fn parameters_of_unknown_kinds_are_refused() {
    let mut world = World::new();
    world.gateway("gw", json!([http("web", 80, "")]));
    assert_eq!(world.served("gw"), ["web"]);
    world.put(
        "Gateway",
        "gw",
        json!({ "gatewayClassName": "ours", "listeners": [http("web", 80, "")],
        "infrastructure": { "parametersRef": { "group": "invalid.io", "kind": "Invalid", "name": "x" } } }),
    );
    assert_eq!(short(&world.state("gw").accepted), "False/InvalidParameters");
    assert!(world.0.config("infra/gw").is_none());
    let parameters = json!({ "group": "g", "kind": "K", "name": "n" });
    world.put(
        "GatewayClass",
        "ours",
        json!({ "controllerName": api::view::gateway_api::CONTROLLER, "parametersRef": parameters }),
    );
    assert_eq!(short(&world.0.class("ours").expect("ours").accepted), "False/InvalidParameters");
}

#[test]
fn a_gateway_of_another_class_has_no_state() {
    let mut world = World::new();
    world.gateway("gw", json!([http("web", 80, "")]));
    world.put("HTTPRoute", "r", json!({ "parentRefs": [{ "name": "gw" }] }));
    assert!(world.0.class("ours").is_some_and(|class| class.is_used));
    let touched = world.put("GatewayClass", "ours", json!({ "controllerName": "example.com/other" }));
    assert!(world.0.gateway("infra/gw").is_none() && world.0.class("ours").is_none());
    assert!(touched.gateways.contains("infra/gw") && touched.configs.contains("infra/gw"));
    assert_eq!(world.route(RouteKind::Http, "r").parents, []);
    assert_eq!((touched.routes.len(), touched.listeners.len()), (1, 1));
}

#[test]
fn certificates_are_judged_by_permission_then_existence() {
    let cases = [
        (json!({ "name": "cert" }), "True/ResolvedRefs"),
        (json!({ "name": "missing" }), "False/InvalidCertificateRef"),
        (json!({ "name": "malformed" }), "False/InvalidCertificateRef"),
        (json!({ "group": "wrong.example", "kind": "Secret", "name": "cert" }), "False/InvalidCertificateRef"),
        (json!({ "kind": "WrongKind", "name": "cert" }), "False/InvalidCertificateRef"),
        (json!({ "name": "cert", "namespace": "apps" }), "False/RefNotPermitted"),
        (json!({ "name": "missing", "namespace": "apps" }), "False/RefNotPermitted"),
    ];
    for (reference, expected) in cases {
        let mut world = World::new();
        world.secret("malformed", Some(SecretState::Invalid("tls.crt is not PEM".to_owned())));
        world.secret("apps/cert", Some(SecretState::Certificate));
        world.gateway("gw", json!([https("https", 443, reference.clone())]));
        let listener = world.listener("gw", "https");
        assert_eq!(short(&listener.resolved_refs), expected, "{reference}");
        let is_good = expected == "True/ResolvedRefs";
        assert_eq!(short(&listener.programmed), if is_good { "True/Programmed" } else { "False/Invalid" });
        assert_eq!(short(&listener.accepted), "True/Accepted");
        assert_eq!(world.state("gw").accepted.holds(), is_good, "no good listener is left");
        let gateway = if is_good { "True/ResolvedRefs" } else { "False/ListenersNotResolved" };
        assert_eq!(short(&world.state("gw").resolved_refs), gateway);
    }
}

#[test]
fn grants_for_certificates_are_for_kind_namespace_and_name() {
    let cases = [
        (grant(("Gateway", "infra"), ("Secret", None)), true),
        (grant(("Gateway", "infra"), ("Secret", Some("cert"))), true),
        (grant(("Gateway", "infra"), ("Secret", Some("other"))), false),
        (grant(("Gateway", "other"), ("Secret", None)), false),
        (grant(("ListenerSet", "infra"), ("Secret", None)), false),
        (grant(("HTTPRoute", "infra"), ("Secret", None)), false),
        (grant(("Gateway", "infra"), ("ConfigMap", None)), false),
    ];
    for (spec, permitted) in cases {
        let mut world = World::new();
        world.secret("apps/cert", Some(SecretState::Certificate));
        world.gateway("gw", json!([https("https", 443, json!({ "name": "cert", "namespace": "apps" }))]));
        world.put("ReferenceGrant", "apps/g", spec.clone());
        let reason = if permitted { "True/ResolvedRefs" } else { "False/RefNotPermitted" };
        assert_eq!(short(&world.listener("gw", "https").resolved_refs), reason, "{spec}");
        assert_eq!(world.served("gw").len(), usize::from(permitted));
        world.delete("ReferenceGrant", "apps/g");
        assert_eq!(short(&world.listener("gw", "https").resolved_refs), "False/RefNotPermitted");
    }
}

#[test]
fn kinds_of_routes_are_those_that_fit_the_protocol() {
    use RouteKind::{Grpc, Http, Tcp, Tls, Udp};
    let tls = json!({ "mode": "Passthrough" });
    type Case<'a> = (&'a str, Value, &'a [&'a str], &'a [RouteKind], &'a str);
    let cases: [Case<'_>; 9] = [
        ("HTTP", Value::Null, &[], &[Http, Grpc], "True/ResolvedRefs"),
        ("HTTP", Value::Null, &["InvalidRoute"], &[], "False/InvalidRouteKinds"),
        ("HTTP", Value::Null, &["InvalidRoute", "HTTPRoute"], &[Http], "False/InvalidRouteKinds"),
        ("HTTP", Value::Null, &["GRPCRoute", "GRPCRoute"], &[Grpc], "True/ResolvedRefs"),
        ("TLS", tls.clone(), &[], &[Tls], "True/ResolvedRefs"),
        ("TLS", tls, &["HTTPRoute"], &[], "False/InvalidRouteKinds"),
        ("TCP", Value::Null, &[], &[Tcp], "True/ResolvedRefs"),
        ("UDP", Value::Null, &[], &[Udp], "True/ResolvedRefs"),
        ("example.com/odd", Value::Null, &[], &[], "True/ResolvedRefs"),
    ];
    for (protocol, tls, kinds, supported, resolved) in cases {
        let mut world = World::new();
        let kinds: Vec<_> = kinds.iter().map(|kind| json!({ "kind": kind })).collect();
        world.gateway(
            "gw",
            json!([{ "name": "l", "port": 80, "protocol": protocol, "tls": tls,
            "allowedRoutes": { "kinds": kinds } }]),
        );
        let listener = world.listener("gw", "l");
        assert_eq!(listener.supported_kinds, supported, "{protocol} {kinds:?}");
        assert_eq!(short(&listener.resolved_refs), resolved);
        let accepted = if protocol.contains('/') { "False/UnsupportedProtocol" } else { "True/Accepted" };
        assert_eq!(short(&listener.accepted), accepted);
        assert_eq!(world.served("gw").len(), usize::from(!supported.is_empty()));
    }
}

#[test]
fn some_bad_listeners_leave_the_gateway_accepted() {
    let mut world = World::new();
    world.gateway("gw", json!([http("web", 80, ""), https("https", 443, json!({ "name": "missing" }))]));
    assert_eq!(short(&world.state("gw").accepted), "True/ListenersNotValid");
    assert_eq!(short(&world.state("gw").programmed), "True/Programmed");
    assert_eq!(world.served("gw"), ["web"]);
    let touched = world.secret("missing", Some(SecretState::Certificate));
    assert_eq!(short(&world.state("gw").accepted), "True/Accepted");
    assert_eq!(touched.listeners.iter().map(|id| &*id.name).collect::<Vec<_>>(), ["https"]);
}

#[test]
fn nobody_wins_a_conflict_inside_a_gateway() {
    let tls = |name: &str, host: &str, mode: &str| {
        json!({ "name": name, "port": 443, "protocol": "TLS", "hostname": host,
        "tls": { "mode": mode, "certificateRefs": [{ "name": "cert" }] } })
    };
    let tcp = |name: &str, port: u16| json!({ "name": name, "port": port, "protocol": "TCP" });
    let udp = |name: &str, port: u16| json!({ "name": name, "port": port, "protocol": "UDP" });
    let mut secure = https("b", 443, json!({ "name": "cert" }));
    let cases = [
        (json!([http("a", 80, "a.test"), http("b", 80, "b.test"), http("c", 80, "")]), [None, None, None]),
        (
            json!([http("a", 443, "a.test"), secure, http("c", 80, "")]),
            [Some("ProtocolConflict"), Some("ProtocolConflict"), None],
        ),
        (
            json!([http("a", 80, "x.test"), http("b", 80, "x.test"), http("c", 80, "")]),
            [Some("HostnameConflict"), Some("HostnameConflict"), None],
        ),
        (
            json!([tls("a", "a.test", "Passthrough"), tls("b", "b.test", "Terminate"), http("c", 80, "")]),
            [None, None, None],
        ),
        (
            json!([tls("a", "a.test", "Passthrough"), tls("b", "a.test", "Terminate"), http("c", 80, "")]),
            [Some("HostnameConflict"), Some("HostnameConflict"), None],
        ),
        (
            json!([tcp("a", 80), http("b", 80, ""), udp("c", 80)]),
            [Some("ProtocolConflict"), Some("ProtocolConflict"), None],
        ),
        (json!([tcp("a", 90), tcp("b", 90), udp("c", 90)]), [Some("ProtocolConflict"), Some("ProtocolConflict"), None]),
    ];
    for (listeners, expected) in cases {
        let mut world = World::new();
        world.gateway("gw", listeners.clone());
        for (name, expected) in ["a", "b", "c"].into_iter().zip(expected) {
            let listener = world.listener("gw", name);
            let good = (String::from("True/Accepted"), String::from("False/NoConflicts"));
            let expected = expected.map_or(good, |reason| (format!("False/{reason}"), format!("True/{reason}")));
            assert_eq!((short(&listener.accepted), short(&listener.conflicted)), expected, "{name} of {listeners}");
            assert_eq!(world.served("gw").contains(&name.to_owned()), expected.1 == "False/NoConflicts");
        }
    }
    secure["hostname"] = "a.test".into();
    let mut world = World::new();
    world.gateway("gw", json!([tls("a", "b.test", "Passthrough"), secure]));
    assert_eq!(world.served("gw"), ["a", "b"], "HTTPS beside TLS is distinct by hostname");
}

#[test]
fn overlapping_hostnames_of_https_listeners_are_reported() {
    let listener = |name: &str, host: &str, port: u16| {
        let mut listener = https(name, port, json!({ "name": "cert" }));
        listener["hostname"] = host.into();
        listener
    };
    let mut world = World::new();
    let hosts = ["*.example.test", "foo.example.test", "example.test", "*.b.example.test", "other.test"];
    let list: Vec<_> = hosts.iter().enumerate().map(|(n, host)| listener(&n.to_string(), host, 443)).collect();
    world.gateway("gw", json!(list));
    let overlapping = |world: &World| -> Vec<bool> {
        world.state("gw").listeners.iter().map(|listener| listener.overlapping_tls.is_some()).collect()
    };
    assert_eq!(overlapping(&world), [true, true, false, true, false]);
    world.gateway("gw", json!([listener("a", "", 443), listener("b", "b.test", 443), listener("c", "", 8443)]));
    assert_eq!(overlapping(&world), [true, true, false], "a missing hostname overlaps with all of its port");
}

#[test]
fn listener_sets_are_allowed_by_namespace() {
    let selector = json!({ "from": "Selector", "selector": { "matchLabels": { "team": "apps" } } });
    let cases = [
        (json!({}), [false, false]),
        (json!({ "from": "None" }), [false, false]),
        (json!({ "from": "Same" }), [true, false]),
        (json!({ "from": "All" }), [true, true]),
        (selector, [false, true]),
    ];
    for (namespaces, expected) in cases {
        let mut world = World::new();
        world.address("gw", &["192.0.2.1"]);
        world.put(
            "Gateway",
            "gw",
            json!({ "gatewayClassName": "ours", "listeners": [http("web", 80, "gw.test")],
            "allowedListeners": { "namespaces": namespaces } }),
        );
        world.put("ListenerSet", "infra/s", set("gw", json!([http("one", 80, "one.test")])));
        world.put("ListenerSet", "apps/s", set("gw", json!([http("two", 80, "two.test")])));
        for (key, allowed) in ["infra/s", "apps/s"].into_iter().zip(expected) {
            let state = world.set(key);
            let conditions = [short(&state.accepted), short(&state.programmed)];
            let good = ["True/Accepted", "True/Programmed"];
            assert_eq!(conditions, if allowed { good } else { ["False/NotAllowed"; 2] }, "{key} {namespaces}");
        }
        assert_eq!(world.state("gw").attached_sets, expected.iter().filter(|allowed| **allowed).count());
        assert_eq!(world.served("gw").len(), 1 + world.state("gw").attached_sets);
    }
}

#[test]
fn the_earlier_object_wins_a_conflict_with_a_listener_set() {
    for (taken, other, reason) in [
        (http("taken", 80, "gw.test"), http("taken", 80, "gw.test"), "HostnameConflict"),
        (http("taken", 80, "gw.test"), https("taken", 80, json!({ "name": "cert" })), "ProtocolConflict"),
    ] {
        let mut world = World::new();
        let at = |listeners: Value, day: u8| {
            json!({ "spec": set("gw", listeners),
            "metadata": { "creationTimestamp": format!("2026-01-0{day}T00:00:00Z"), "generation": 1 } })
        };
        world.gateway("gw", json!([taken]));
        world.put_with("ListenerSet", "younger", at(json!([http("s", 81, "s.test")]), 2));
        world.put_with("ListenerSet", "older", at(json!([other, http("s", 81, "s.test")]), 1));
        let bad = [format!("False/{reason}"), format!("False/{reason}"), "True/ResolvedRefs".to_owned()];
        assert_eq!(conditions(world.set_listener("older", "taken")), bad);
        assert_eq!(short(&world.set_listener("older", "taken").conflicted), format!("True/{reason}"));
        assert_eq!(conditions(world.set_listener("older", "s")), GOOD);
        assert_eq!(conditions(world.listener("gw", "taken")), GOOD);
        assert_eq!(short(&world.set("older").accepted), "True/ListenersNotValid");
        assert_eq!(short(&world.set("older").programmed), "True/Programmed");
        assert_eq!(short(&world.set("younger").accepted), "False/ListenersNotValid");
        assert_eq!(short(&world.set("younger").programmed), "False/ListenersNotValid");
        assert_eq!(world.state("gw").attached_sets, 1);
        let touched = world.delete("ListenerSet", "older");
        assert_eq!(conditions(world.set_listener("younger", "s")), GOOD, "its listener is free now");
        assert!(touched.sets.contains("infra/younger") && touched.configs.contains("infra/gw"));
        assert!(touched.gateways.is_empty(), "one set is attached as before");
    }
}

#[test]
fn a_set_follows_the_state_of_its_gateway() {
    let mut world = World::new();
    world.gateway("gw", json!([http("web", 80, "gw.test")]));
    world.put("ListenerSet", "s", set("gw", json!([http("one", 80, "one.test")])));
    world.address("gw", &[]);
    assert_eq!(short(&world.set("s").accepted), "True/Accepted");
    assert_eq!(short(&world.set("s").programmed), "False/ParentNotProgrammed");
    world.put(
        "Gateway",
        "gw",
        json!({ "gatewayClassName": "ours", "listeners": [{ "name": "x", "port": 1, "protocol": "odd" }],
        "allowedListeners": { "namespaces": { "from": "All" } } }),
    );
    assert_eq!(short(&world.set("s").accepted), "False/ParentNotAccepted");
    assert_eq!(short(&world.set("s").programmed), "False/ParentNotProgrammed");
    world.delete("Gateway", "gw");
    assert!(world.0.listener_set("infra/s").is_none());
}

#[test]
fn references_of_a_set_need_grants_for_sets() {
    let mut world = World::new();
    world.secret("other/cert", Some(SecretState::Certificate));
    world.gateway("gw", json!([http("web", 80, "gw.test")]));
    let reference = json!({ "name": "cert", "namespace": "other" });
    world.put("ListenerSet", "apps/s", set("gw", json!([https("https", 443, reference)])));
    world.put("ReferenceGrant", "other/g", grant(("Gateway", "infra"), ("Secret", None)));
    assert_eq!(short(&world.set_listener("apps/s", "https").resolved_refs), "False/RefNotPermitted");
    assert_eq!(short(&world.set("apps/s").accepted), "False/ListenersNotValid");
    world.put("ReferenceGrant", "other/g", grant(("ListenerSet", "apps"), ("Secret", None)));
    assert_eq!(short(&world.set_listener("apps/s", "https").resolved_refs), "True/ResolvedRefs");
    assert_eq!(short(&world.set("apps/s").accepted), "True/Accepted");
}

#[test]
fn client_validation_is_by_port_and_for_https_only() {
    let mut world = World::new();
    world.config_map("ca", Some(CaState::Bundle));
    world.config_map("apps/ca", Some(CaState::Bundle));
    world.config_map("empty", Some(CaState::Invalid("no ca.crt".to_owned())));
    let validation = |refs: Value| json!({ "validation": { "caCertificateRefs": refs } });
    let config_map = |name: &str| json!({ "kind": "ConfigMap", "name": name });
    let foreign = json!({ "kind": "ConfigMap", "name": "ca", "namespace": "apps" });
    let per_port = [
        (7443, json!([config_map("missing")])),
        (8443, json!([{ "kind": "Service", "name": "web" }])),
        (6443, json!([foreign])),
        (9443, json!([config_map("empty"), config_map("ca")])),
        (80, json!([config_map("missing")])),
    ];
    let per_port: Vec<_> =
        per_port.into_iter().map(|(port, refs)| json!({ "port": port, "tls": validation(refs) })).collect();
    let certificate = || json!({ "name": "cert" });
    let mut listeners: Vec<_> =
        [443, 7443, 8443, 6443, 9443].map(|port| https(&port.to_string(), port, certificate())).to_vec();
    listeners.push(http("web", 80, ""));
    world.gateway("gw", json!([]));
    world.put(
        "Gateway",
        "gw",
        json!({ "gatewayClassName": "ours", "listeners": listeners, "tls": { "frontend": {
        "default": validation(json!([config_map("ca")])), "perPort": per_port } } }),
    );
    let bad =
        |reason: &str| ["False/NoValidCACertificate".to_owned(), "False/Invalid".to_owned(), format!("False/{reason}")];
    assert_eq!(conditions(world.listener("gw", "443")), GOOD);
    assert_eq!(conditions(world.listener("gw", "web")), GOOD, "not for HTTP");
    assert_eq!(conditions(world.listener("gw", "7443")), bad("InvalidCACertificateRef"));
    assert_eq!(conditions(world.listener("gw", "8443")), bad("InvalidCACertificateKind"));
    assert_eq!(conditions(world.listener("gw", "6443")), bad("RefNotPermitted"));
    let partly = ["True/Accepted", "True/Programmed", "False/InvalidCACertificateRef"];
    assert_eq!(conditions(world.listener("gw", "9443")), partly, "one CA certificate is valid");
    let config = world.0.config("infra/gw").expect("accepted");
    let served = config.listeners.iter().find(|listener| listener.port == 9443).expect("served");
    let authorities = served.client_validation.as_ref().map(|validation| validation.authorities.clone());
    assert_eq!(authorities, Some(vec!["infra/ca".into()]));
    assert_eq!(served.protocol, ListenerProtocol::Https);
    assert!(world.state("gw").insecure_frontend.is_none());
}

#[test]
fn an_insecure_frontend_is_reported() {
    let mut world = World::new();
    world.config_map("ca", Some(CaState::Bundle));
    let validation =
        json!({ "mode": "AllowInsecureFallback", "caCertificateRefs": [{ "kind": "ConfigMap", "name": "ca" }] });
    world.put(
        "Gateway",
        "gw",
        json!({ "gatewayClassName": "ours", "listeners": [https("https", 443, json!({ "name": "cert" }))],
        "tls": { "frontend": { "default": { "validation": validation } } } }),
    );
    let verdict = world.state("gw").insecure_frontend.as_ref().map(short);
    assert_eq!(verdict.as_deref(), Some("True/ConfigurationChanged"));
}

#[test]
fn a_bad_client_certificate_does_not_stop_the_gateway() {
    let cases = [
        (json!({ "name": "cert" }), "True/ResolvedRefs"),
        (json!({ "name": "missing" }), "False/InvalidClientCertificateRef"),
        (json!({ "group": "wrong.example", "name": "cert" }), "False/InvalidClientCertificateRef"),
        (json!({ "kind": "WrongKind", "name": "cert" }), "False/InvalidClientCertificateRef"),
        (json!({ "name": "cert", "namespace": "apps" }), "False/RefNotPermitted"),
    ];
    for (reference, expected) in cases {
        let mut world = World::new();
        world.address("gw", &["192.0.2.1"]);
        world.put(
            "Gateway",
            "gw",
            json!({ "gatewayClassName": "ours", "listeners": [http("web", 80, "")],
            "tls": { "backend": { "clientCertificateRef": reference } } }),
        );
        let state = world.state("gw");
        assert_eq!([&state.accepted, &state.programmed].map(short), ["True/Accepted", "True/Programmed"]);
        assert_eq!(short(&state.resolved_refs), expected, "{reference}");
        let config = world.0.config("infra/gw").expect("accepted");
        assert_eq!(config.client_certificate.is_some(), expected == "True/ResolvedRefs");
    }
}

#[test]
fn states_carry_the_generation() {
    let mut world = World::new();
    world.gateway("gw", json!([http("web", 80, "")]));
    let object = json!({ "metadata": { "generation": 7 }, "spec": { "gatewayClassName": "ours", "listeners": [
        http("web", 80, ""), http("more", 81, "")] } });
    let touched = world.put_with("Gateway", "gw", object.clone());
    assert_eq!((world.state("gw").generation, world.state("gw").listeners.len()), (7, 2));
    assert_eq!(touched.gateways.len(), 1);
    assert!(world.put_with("Gateway", "gw", object).is_empty(), "nothing differs");
    let controller = api::view::gateway_api::CONTROLLER;
    world.put_with(
        "GatewayClass",
        "ours",
        json!({ "metadata": { "generation": 3 }, "spec": { "controllerName": controller } }),
    );
    assert_eq!(world.0.class("ours").map(|class| class.generation), Some(3));
}
