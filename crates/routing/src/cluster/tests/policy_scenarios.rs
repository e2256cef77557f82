//! BackendTLSPolicies.

use std::sync::Arc;

use serde_json::{Value, json};

use super::world::{World, short};
use crate::cluster::{Ancestor, CaState};
use crate::model::{BackendTls, InvalidTarget, RouteKind, SubjectName, Target};

/// A Service `tls` with ports `one` and `two`, and a route to both.
fn world() -> World {
    let mut world = World::new();
    world.config_map("ca", Some(CaState::Bundle));
    world.gateway("gw", json!([{ "name": "l", "port": 80, "protocol": "HTTP" }]));
    world.put("Service", "tls", json!({ "ports": [{ "name": "one", "port": 1 }, { "name": "two", "port": 2 }] }));
    world.put(
        "HTTPRoute",
        "r",
        json!({ "parentRefs": [{ "name": "gw" }], "rules": [{ "backendRefs": [
        { "name": "tls", "port": 1 }, { "name": "tls", "port": 2 }] }] }),
    );
    world
}

fn target(section: Option<&str>) -> Value {
    json!({ "group": "", "kind": "Service", "name": "tls", "sectionName": section })
}

fn policy(targets: Value, authorities: Value, hostname: &str, day: u8) -> Value {
    json!({
        "metadata": { "creationTimestamp": format!("2026-01-0{day}T00:00:00Z"), "generation": 4 },
        "spec": { "targetRefs": targets, "validation": { "hostname": hostname, "caCertificateRefs": authorities } },
    })
}

fn ca(name: &str) -> Value {
    json!([{ "group": "", "kind": "ConfigMap", "name": name }])
}

/// TLS towards each of both ports.
fn tls(world: &World) -> Vec<Result<Option<Arc<BackendTls>>, InvalidTarget>> {
    let rule = &world.route(RouteKind::Http, "r").rules[0];
    let tls = rule.backends.iter().map(|backend| match &backend.target {
        Target::Service(target) => Ok(target.tls.clone()),
        Target::Invalid(problem) => Err(*problem),
    });
    tls.collect()
}

fn hostnames(world: &World) -> Vec<String> {
    let name = |tls: Result<Option<Arc<BackendTls>>, _>| match tls {
        Ok(Some(tls)) => tls.hostname.to_string(),
        Ok(None) => "plain".to_owned(),
        Err(problem) => format!("{problem:?}"),
    };
    tls(world).into_iter().map(name).collect()
}

#[test]
fn a_policy_leads_to_tls_and_has_the_gateway_as_its_ancestor() {
    let mut world = world();
    assert_eq!(hostnames(&world), ["plain", "plain"]);
    let touched = world.put_with("BackendTLSPolicy", "p", policy(json!([target(None)]), ca("ca"), "a.test", 1));
    assert_eq!(hostnames(&world), ["a.test", "a.test"]);
    assert_eq!((touched.policies.len(), touched.route_changes.len()), (1, 1));
    let state = world.policy("p");
    assert_eq!(state.ancestors, [Ancestor::gateway(&"infra/gw".into())]);
    assert_eq!((short(&state.accepted).as_str(), state.generation), ("True/Accepted", 4));
    let found = tls(&world)[0].clone().expect("valid").expect("TLS");
    assert_eq!((&found.authorities[..], found.verify), (&["infra/ca".into()][..], true));
    let touched = world.delete("HTTPRoute", "r");
    assert!(touched.policies.contains("infra/p"));
    assert!(world.policy("p").ancestors.is_empty(), "no route leads to the Service");
}

#[test]
fn a_policy_without_valid_certificates_never_leads_to_plain_connections() {
    let cases = [
        (ca("missing"), "False/NoValidCACertificate", "False/InvalidCACertificateRef"),
        (ca("malformed"), "False/NoValidCACertificate", "False/InvalidCACertificateRef"),
        (
            json!([{ "group": "odd.example", "kind": "Odd", "name": "ca" }]),
            "False/NoValidCACertificate",
            "False/InvalidKind",
        ),
    ];
    for (authorities, accepted, resolved) in cases {
        let mut world = world();
        world.config_map("malformed", Some(CaState::Invalid("not PEM".to_owned())));
        world.put_with("BackendTLSPolicy", "p", policy(json!([target(None)]), authorities.clone(), "a.test", 1));
        let state = world.policy("p");
        assert_eq!([short(&state.accepted), short(&state.resolved_refs)], [accepted, resolved], "{authorities}");
        assert_eq!(hostnames(&world), ["InvalidTlsPolicy", "InvalidTlsPolicy"]);
        assert!(world.parent(RouteKind::Http, "r").resolved_refs.holds());
    }
}

#[test]
fn one_valid_certificate_is_enough() {
    let mut world = world();
    let both = json!([ca("ca")[0], ca("missing")[0]]);
    world.put_with("BackendTLSPolicy", "p", policy(json!([target(None)]), both, "a.test", 1));
    let state = world.policy("p");
    assert_eq!([&state.accepted, &state.resolved_refs].map(short), ["True/Accepted", "False/InvalidCACertificateRef"]);
    assert_eq!(hostnames(&world), ["a.test", "a.test"]);
    world.config_map("missing", Some(CaState::Bundle));
    assert_eq!(short(&world.policy("p").resolved_refs), "True/ResolvedRefs", "a change of the ConfigMap takes effect");
}

#[test]
fn the_older_policy_applies_then_the_first_by_name() {
    for section in [None, Some("one")] {
        let mut world = world();
        world.put_with("BackendTLSPolicy", "younger", policy(json!([target(section)]), ca("ca"), "younger.test", 2));
        world.put_with("BackendTLSPolicy", "b-older", policy(json!([target(section)]), ca("missing"), "b.test", 1));
        world.put_with("BackendTLSPolicy", "c-older", policy(json!([target(section)]), ca("ca"), "c.test", 1));
        assert_eq!(short(&world.policy("younger").accepted), "False/Conflicted");
        assert_eq!(short(&world.policy("c-older").accepted), "False/Conflicted");
        assert_eq!(hostnames(&world)[0], "InvalidTlsPolicy", "a younger policy does not replace one that is not valid");
        world.delete("BackendTLSPolicy", "b-older");
        assert_eq!(short(&world.policy("c-older").accepted), "True/Accepted");
        assert_eq!(hostnames(&world)[0], "c.test");
        assert_eq!(hostnames(&world)[1], if section.is_none() { "c.test" } else { "plain" });
    }
}

#[test]
fn a_policy_for_a_port_comes_before_one_for_the_service() {
    let mut world = world();
    world.put_with("BackendTLSPolicy", "all", policy(json!([target(None)]), ca("ca"), "all.test", 1));
    world.put_with("BackendTLSPolicy", "one", policy(json!([target(Some("one"))]), ca("ca"), "one.test", 2));
    assert_eq!(hostnames(&world), ["one.test", "all.test"]);
    for name in ["all", "one"] {
        assert_eq!(short(&world.policy(name).accepted), "True/Accepted", "{name}");
    }
}

#[test]
fn targets_must_exist_and_settings_must_be_known() {
    let mut world = world();
    let missing = json!([{ "group": "", "kind": "Service", "name": "missing" }]);
    world.put_with("BackendTLSPolicy", "p", policy(missing, ca("ca"), "a.test", 1));
    assert_eq!(short(&world.policy("p").accepted), "False/TargetNotFound");
    world.put_with("BackendTLSPolicy", "p", policy(json!([target(Some("three"))]), ca("ca"), "a.test", 1));
    assert_eq!(short(&world.policy("p").accepted), "False/TargetNotFound");
    let mut object = policy(json!([target(None)]), json!([]), "a.test", 1);
    for (known, accepted, host) in [("System", "True/Accepted", "a.test"), ("Odd", "False/Invalid", "InvalidTlsPolicy")]
    {
        object["spec"]["validation"]["wellKnownCACertificates"] = known.into();
        world.put_with("BackendTLSPolicy", "p", object.clone());
        assert_eq!(short(&world.policy("p").accepted), accepted);
        assert_eq!(hostnames(&world)[0], host);
    }
}

#[test]
fn subject_alt_names_are_carried_over() {
    let mut world = world();
    let mut object = policy(json!([target(None)]), ca("ca"), "a.test", 1);
    object["spec"]["validation"]["subjectAltNames"] =
        json!([{ "type": "Hostname", "hostname": "b.test" }, { "type": "URI", "uri": "spiffe://x" }]);
    world.put_with("BackendTLSPolicy", "p", object);
    let found = tls(&world)[0].clone().expect("valid").expect("TLS");
    let names = [SubjectName::Hostname("b.test".into()), SubjectName::Uri("spiffe://x".into())];
    assert_eq!(found.subject_alt_names, names);
}

#[test]
fn a_policy_makes_https_backends_reachable() {
    let mut world = world();
    world.put(
        "Service",
        "tls",
        json!({ "ports": [{ "name": "one", "port": 1, "appProtocol": "HTTPS" }, { "name": "two", "port": 2 }] }),
    );
    assert_eq!(hostnames(&world)[0], "UnsupportedProtocol");
    world.put_with("BackendTLSPolicy", "p", policy(json!([target(None)]), ca("ca"), "a.test", 1));
    assert_eq!(hostnames(&world)[0], "a.test");
}

#[test]
fn policies_apply_to_tls_routes_where_tls_ends() {
    for (mode, expected) in [("Terminate", Some("a.test")), ("Passthrough", None)] {
        let mut world = world();
        world.gateway(
            "tls-gw",
            json!([{ "name": "l", "port": 443, "protocol": "TLS",
            "tls": { "mode": mode, "certificateRefs": [{ "name": "cert" }] } }]),
        );
        world.put(
            "TLSRoute",
            "t",
            json!({ "parentRefs": [{ "name": "tls-gw" }], "hostnames": ["a.test"],
            "rules": [{ "backendRefs": [{ "name": "tls", "port": 1 }] }] }),
        );
        world.put_with("BackendTLSPolicy", "p", policy(json!([target(None)]), ca("ca"), "a.test", 1));
        let stream = world.route(RouteKind::Tls, "t").stream.clone().expect("a rule");
        let Target::Service(found) = &stream.backends[0].target else { panic!("{stream:?}") };
        assert_eq!(found.tls.as_ref().map(|tls| &*tls.hostname), expected);
        let ancestors = ["infra/gw", "infra/tls-gw"].map(|key| Ancestor::gateway(&key.into()));
        assert_eq!(world.policy("p").ancestors, ancestors);
    }
}
