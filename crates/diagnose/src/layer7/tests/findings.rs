//! One scenario for each code: what is said, and where.

#![expect(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::services::SERVICES;
use super::world::World;
use crate::layer7::{Kind, LAYER7_CODES};

/// A scenario: the change of its objects, the object that is explained, the code of the finding, and parts of the message and of the command.
pub(super) type Case =
    (&'static str, fn(&mut World), Kind, &'static str, &'static str, &'static [&'static str], &'static str);

fn tls(refs: Value) -> Value {
    json!([{"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": refs}}])
}

fn ingress(world: &mut World, class: Option<&str>) {
    let controller = api::view::ingress::CONTROLLER;
    world.add("IngressClass", "/waypost", json!({ "controller": controller }));
    world.add("IngressClass", "/nginx", json!({"controller": "k8s.io/ingress-nginx"}));
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    let rules = json!([{"host": "shop.test", "http": {"paths": paths}}]);
    world.add("Ingress", "shop", json!({"ingressClassName": class, "rules": rules}));
}

const GATEWAYS: &[Case] = &[
    (
        "class missing",
        |world| {
            world.add("Gateway", "gw", json!({"gatewayClassName": "waypsot", "listeners": []}));
        },
        Kind::Gateway,
        "gw",
        "GatewayClassMissing",
        &["waypsot does not exist", "did you mean waypost?"],
        "kubectl edit gateway gw -n default",
    ),
    (
        "class of another controller",
        |world| {
            world.add("Gateway", "gw", json!({"gatewayClassName": "foreign", "listeners": []}));
        },
        Kind::Gateway,
        "gw",
        "GatewayClassForeign",
        &["controller example.com/other"],
        "kubectl describe gateway gw",
    ),
    (
        "unsupported address",
        |world| {
            let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
            world.add(
                "Gateway",
                "gw",
                json!({"gatewayClassName": "waypost", "listeners": listeners,
            "addresses": [{"type": "NamedAddress", "value": "x"}]}),
            );
        },
        Kind::Gateway,
        "gw",
        "GatewayNotAccepted",
        &["NamedAddress"],
        "kubectl edit gateway gw",
    ),
    (
        "pool exhausted",
        |world| {
            world.address("gw", None);
        },
        Kind::Gateway,
        "gw",
        "GatewayNotProgrammed",
        &["no address is free in pool a"],
        "kubectl edit ippool a",
    ),
    (
        "two listeners for one host",
        |world| {
            world.gateway(
                json!([{"name": "a", "port": 80, "protocol": "HTTP"}, {"name": "b", "port": 80, "protocol": "HTTP"}]),
            );
        },
        Kind::Gateway,
        "gw",
        "ListenerConflicted",
        &["listener a", "port 80 has listener b of Gateway default/gw (HTTP)"],
        "kubectl edit gateway gw",
    ),
    (
        "certificate missing",
        |world| {
            world.gateway(tls(json!([{"name": "cert"}])));
        },
        Kind::Gateway,
        "gw",
        "CertificateInvalid",
        &["listener https", "default/cert", "does not exist"],
        "kubectl create secret tls cert -n default",
    ),
    (
        "certificate without key",
        |world| {
            world
                .object("Secret", "cert", json!({"data": {"tls.crt": "eA=="}}))
                .gateway(tls(json!([{"name": "cert"}])));
        },
        Kind::Gateway,
        "gw",
        "CertificateInvalid",
        &["it has no tls.key"],
        "kubectl edit gateway gw",
    ),
    (
        "certificate of another namespace",
        |world| {
            world.object("Secret", "infra/cert", json!({"data": {"tls.crt": "eA==", "tls.key": "eA=="}}));
            world.gateway(tls(json!([{"name": "cert", "namespace": "infra"}])));
        },
        Kind::Gateway,
        "gw",
        "ReferenceNotPermitted",
        &["Secret infra/cert", "Gateways of namespace default"],
        "| kubectl apply -f -",
    ),
    (
        "protocol not supported",
        |world| {
            world.gateway(json!([{"name": "x", "port": 80, "protocol": "example.com/x"}]));
        },
        Kind::Gateway,
        "gw",
        "ListenerInvalid",
        &["listener x", "example.com/x"],
        "kubectl edit gateway gw",
    ),
    (
        "ListenerSet not allowed",
        |world| {
            world.add(
                "ListenerSet",
                "apps/more",
                json!({"parentRef": {"name": "gw", "namespace": "default"},
            "listeners": [{"name": "a", "port": 81, "protocol": "HTTP"}]}),
            );
        },
        Kind::ListenerSet,
        "apps/more",
        "ListenerSetNotAllowed",
        &["Gateway default/gw", "from is None"],
        "kubectl edit gateway gw",
    ),
    (
        "ListenerSet without Gateway",
        |world| {
            world.add("ListenerSet", "apps/more", json!({"parentRef": {"name": "gw"}, "listeners": []}));
        },
        Kind::ListenerSet,
        "apps/more",
        "ParentMissing",
        &["Gateway apps/gw", "there is default/gw: add namespace: default"],
        "kubectl edit listenerset more -n apps",
    ),
];

const ROUTES: &[Case] = &[
    (
        "parent missing",
        |world| {
            world.route("r", json!({"parentRefs": [{"name": "gv"}]}));
        },
        Kind::HttpRoute,
        "r",
        "ParentMissing",
        &["Gateway default/gv", "did you mean gw?"],
        "kubectl edit httproute r",
    ),
    (
        "sectionName",
        |world| {
            world.route("r", json!({"parentRefs": [{"name": "gw", "sectionName": "htp"}]}));
        },
        Kind::HttpRoute,
        "r",
        "NoMatchingListener",
        &["no listener htp", "did you mean http?"],
        "kubectl edit httproute r",
    ),
    (
        "port",
        |world| {
            world.route("r", json!({"parentRefs": [{"name": "gw", "port": 8080}]}));
        },
        Kind::HttpRoute,
        "r",
        "NoMatchingListener",
        &["no listener with port 8080", "there is http (port 80)"],
        "kubectl edit httproute r",
    ),
    (
        "kind",
        |world| {
            world.add(
                "TCPRoute",
                "r",
                json!({"parentRefs": [{"name": "gw"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}),
            );
        },
        Kind::TcpRoute,
        "r",
        "RouteKindNotAllowed",
        &["no listener of Gateway default/gw takes TCPRoutes", "http (port 80) takes HTTPRoutes and GRPCRoutes"],
        "kubectl edit tcproute r",
    ),
    (
        "namespace",
        |world| {
            world.route(
                "apps/r",
                json!({"rules": [{"backendRefs": [{"name": "web", "namespace": "apps", "port": 80}]}]}),
            );
        },
        Kind::HttpRoute,
        "apps/r",
        "RouteNamespaceNotAllowed",
        &["does not take routes of namespace apps", "from: Same"],
        "kubectl edit gateway gw -n default",
    ),
    (
        "hostname",
        |world| {
            world.gateway(json!([{"name": "http", "port": 80, "protocol": "HTTP", "hostname": "*.example.com"}]));
            world.route("r", json!({"hostnames": ["shop.exmaple.com"]}));
        },
        Kind::HttpRoute,
        "r",
        "HostnamesDisjoint",
        &["shop.exmaple.com", "*.example.com", "did you mean shop.example.com?"],
        "kubectl edit httproute r",
    ),
    (
        "the apex of a wildcard",
        |world| {
            world.gateway(json!([{"name": "http", "port": 80, "protocol": "HTTP", "hostname": "*.example.com"}]));
            world.route("r", json!({"hostnames": ["example.com"]}));
        },
        Kind::HttpRoute,
        "r",
        "HostnamesDisjoint",
        &["*.example.com does not cover example.com itself"],
        "kubectl edit httproute r",
    ),
    (
        "listener not served",
        |world| {
            world.gateway(tls(json!([{"name": "cert"}])));
            world.route("r", json!({}));
        },
        Kind::HttpRoute,
        "r",
        "ListenerNotServed",
        &["listener https of Gateway default/gw"],
        "waypost explain gateway/gw -n default",
    ),
    (
        "regular expression",
        |world| {
            let bad = json!({"matches": [{"path": {"type": "RegularExpression", "value": "("}}], "backendRefs": [{"name": "web", "port": 80}]});
            world.route("r", json!({"rules": [bad]}));
        },
        Kind::HttpRoute,
        "r",
        "RuleNotSupported",
        &["not a regular expression"],
        "kubectl edit httproute r",
    ),
    (
        "filter of another API",
        |world| {
            let filter = json!({"type": "ExtensionRef", "extensionRef": {"group": "x.io", "kind": "Y", "name": "z"}});
            world.route("r", json!({"rules": [{"filters": [filter], "backendRefs": [{"name": "web", "port": 80}]}]}));
        },
        Kind::HttpRoute,
        "r",
        "RuleNotSupported",
        &["ExtensionRef"],
        "kubectl edit httproute r",
    ),
    (
        "no backend",
        |world| {
            world.route("r", json!({"rules": [{"name": "nowhere"}]}));
        },
        Kind::HttpRoute,
        "r",
        "RuleWithoutBackend",
        &["rule 0 (nowhere) has no backendRefs"],
        "kubectl edit httproute r",
    ),
    (
        "Service missing",
        |world| {
            world.route("r", json!({"rules": [{"backendRefs": [{"name": "wbe", "port": 80}]}]}));
        },
        Kind::HttpRoute,
        "r",
        "BackendMissing",
        &["rule 0: Service default/wbe", "did you mean web?"],
        "kubectl edit httproute r",
    ),
    (
        "port of the Pods",
        |world| {
            world.route("r", json!({"rules": [{"backendRefs": [{"name": "web", "port": 8080}]}]}));
        },
        Kind::HttpRoute,
        "r",
        "BackendPortMissing",
        &["no TCP port 8080", "8080 is the port of the Pods, that of the Service is 80"],
        "kubectl edit httproute r",
    ),
    (
        "another kind",
        |world| {
            world.route(
                "r",
                json!({"rules": [{"backendRefs": [{"kind": "Bucket", "group": "x.io", "name": "b", "port": 80}]}]}),
            );
        },
        Kind::HttpRoute,
        "r",
        "BackendNotSupported",
        &["backend default/b is a Bucket of x.io"],
        "kubectl edit httproute r",
    ),
    (
        "https without policy",
        |world| {
            world.service("web", json!([{"name": "http", "port": 80, "appProtocol": "https"}]), &[("10.0.0.1", true)]);
            world.route("r", json!({}));
        },
        Kind::HttpRoute,
        "r",
        "BackendNotSupported",
        &["appProtocol https", "BackendTLSPolicy"],
        "kubectl edit service web",
    ),
    (
        "Service of another namespace",
        |world| {
            world.service("infra/db", json!([{"name": "sql", "port": 80}]), &[("10.0.0.2", true)]);
            world.route("r", json!({"rules": [{"backendRefs": [{"name": "db", "namespace": "infra", "port": 80}]}]}));
        },
        Kind::HttpRoute,
        "r",
        "ReferenceNotPermitted",
        &["Service infra/db", "HTTPRoutes of namespace default"],
        "| kubectl apply -f -",
    ),
    (
        "no endpoint is ready",
        |world| {
            world.service("web", json!([{"name": "http", "port": 80}]), &[("10.0.0.1", false)]);
            world.route("r", json!({}));
        },
        Kind::HttpRoute,
        "r",
        "BackendNotReady",
        &["port 80 of Service default/web has no ready endpoint"],
        "kubectl ",
    ),
    (
        "shadowed",
        |world| {
            world.route("a", json!({"hostnames": ["x.test"]}));
            world.route("r", json!({"hostnames": ["x.test"]}));
        },
        Kind::HttpRoute,
        "r",
        "RuleShadowed",
        &["rule 0 takes nothing for x.test with path prefix /", "rule 0 of HTTPRoute default/a"],
        "kubectl edit httproute r",
    ),
    (
        "policy of the backend",
        |world| {
            policy(world, "p", "missing");
            world.route("r", json!({}));
        },
        Kind::HttpRoute,
        "r",
        "BackendTLSPolicyInvalid",
        &["BackendTLSPolicy default/p of Service default/web"],
        "waypost explain backendtlspolicy/p",
    ),
    (
        "policy",
        |world| {
            policy(world, "p", "missing");
        },
        Kind::BackendTlsPolicy,
        "p",
        "BackendTLSPolicyInvalid",
        &["ConfigMap \"default/missing\""],
        "kubectl edit backendtlspolicy p",
    ),
    (
        "two policies",
        |world| {
            world.object("ConfigMap", "ca", json!({"data": {"ca.crt": "-----BEGIN CERTIFICATE-----"}}));
            policy(world, "a", "ca");
            policy(world, "p", "ca");
        },
        Kind::BackendTlsPolicy,
        "p",
        "BackendTLSPolicyConflicted",
        &["default/a"],
        "kubectl edit backendtlspolicy p",
    ),
    (
        "IngressClass missing",
        |world| ingress(world, Some("waypots")),
        Kind::Ingress,
        "shop",
        "IngressClassMissing",
        &["waypots does not exist", "did you mean waypost?"],
        "kubectl edit ingress shop",
    ),
    (
        "IngressClass of another controller",
        |world| ingress(world, Some("nginx")),
        Kind::Ingress,
        "shop",
        "IngressClassForeign",
        &["k8s.io/ingress-nginx"],
        "kubectl describe ingress shop",
    ),
    (
        "Ingress without class",
        |world| ingress(world, None),
        Kind::Ingress,
        "shop",
        "IngressWithoutClass",
        &["names no class", "nginx and waypost"],
        "kubectl edit ingress shop",
    ),
];

fn policy(world: &mut World, name: &str, ca: &str) {
    world.add("BackendTLSPolicy", name, json!({
        "targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
        "validation": {"hostname": "web.test", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": ca}]},
    }));
}

#[test]
fn every_code_names_the_place_and_the_next_step() {
    let mut seen = BTreeSet::new();
    for (case, change, kind, name, code, parts, fix) in GATEWAYS.iter().chain(ROUTES).chain(SERVICES) {
        let mut world = World::new();
        change(&mut world);
        let key = if name.contains('/') { (*name).to_owned() } else { format!("default/{name}") };
        let found = world.with(|layer7| layer7.of(*kind, &key));
        let first = found.iter().find(|one| one.code == *code);
        let first = first.unwrap_or_else(|| panic!("{case}: {code} is not in {found:?}"));
        for part in *parts {
            assert!(first.message.contains(part), "{case}: {part:?} is not in {:?}", first.message);
        }
        assert!(first.fix.contains(fix), "{case}: {:?}", first.fix);
        seen.insert(*code);
        // The list of everything has it too, unless another controller is responsible.
        let all = world.with(|layer7| layer7.findings());
        let listed = all.iter().any(|(subject, _)| *subject.key == *key && subject.kind == kind.name());
        assert_eq!(listed, !code.ends_with("Foreign"), "{case}: {all:?}");
    }
    let missing: Vec<_> = LAYER7_CODES.iter().filter(|code| !seen.contains(**code)).collect();
    assert!(missing.is_empty(), "no scenario shows {missing:?}");
}

#[test]
fn what_works_has_no_finding() {
    let mut world = World::new();
    world.gateway(json!([
        {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}},
        {"name": "https", "port": 443, "protocol": "HTTPS", "hostname": "*.test", "tls": {"certificateRefs": [{"name": "cert"}]}},
    ]));
    world.object("Secret", "cert", json!({"data": {"tls.crt": "eA==", "tls.key": "eA=="}}));
    world.route("a", json!({"hostnames": ["a.test"]}));
    world.route("b", json!({"hostnames": ["b.test"]}));
    let redirect = json!({"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}});
    world.route("apps/c", json!({"hostnames": ["c.test"], "rules": [{"filters": [redirect]}]}));
    ingress(&mut world, Some("waypost"));
    assert_eq!(world.with(|layer7| layer7.findings()), []);
    let explained = world.with(|layer7| layer7.explain(Kind::Gateway, "default/gw")).unwrap();
    assert_eq!(explained.state, "ok");
    let listeners: Vec<_> = explained.items.iter().filter(|one| one.kind == "listener").collect();
    assert_eq!(listeners[0].says, "served; 3 routes attached");
}

#[test]
fn the_missing_grant_is_printed_and_permits_the_reference() {
    let mut world = World::new();
    world.service("infra/db", json!([{"name": "sql", "port": 80}]), &[("10.0.0.2", true)]);
    world.route("r", json!({"rules": [{"backendRefs": [{"name": "db", "namespace": "infra", "port": 80}]}]}));
    let found = world.with(|layer7| layer7.of(Kind::HttpRoute, "default/r"));
    let yaml = found[0].evidence[1..].join("\n");
    let (grant, _) = api::yaml::from_yaml(yaml.as_bytes()).unwrap();
    assert_eq!(grant["kind"], "ReferenceGrant", "{yaml}");
    let shell = found[0].fix.strip_prefix("echo '").and_then(|rest| rest.strip_suffix("' | kubectl apply -f -"));
    assert_eq!(serde_json::from_str::<Value>(shell.unwrap()).unwrap(), grant);
    world.add("ReferenceGrant", "infra/allow", grant["spec"].clone());
    assert_eq!(world.findings(Kind::HttpRoute, "r"), Vec::<String>::new());
}

#[test]
fn a_share_of_failures_is_a_degradation() {
    let mut world = World::new();
    world.route("r", json!({"rules": [{"backendRefs": [{"name": "web", "port": 80}, {"name": "gone", "port": 80}]}]}));
    let explained = world.with(|layer7| layer7.explain(Kind::HttpRoute, "default/r")).unwrap();
    assert_eq!((explained.state, &*explained.findings[0].code), ("degraded", "BackendMissing"));
}

#[test]
fn what_the_controllers_report_about_a_certificate_is_repeated() {
    let mut world = World::new();
    world.object("Secret", "cert", json!({"data": {"tls.crt": "eA==", "tls.key": "eA=="}}));
    let condition = |generation| {
        json!({"listeners": [{"name": "https", "conditions": [{
            "type": "ResolvedRefs", "status": "False", "reason": "InvalidCertificateRef", "observedGeneration": generation,
            "message": "the key does not belong to the certificate",
        }]}]})
    };
    for (generation, want) in [(2, 1), (1, 0)] {
        world.object(
            "Gateway",
            "gw",
            json!({
                "metadata": {"generation": 2}, "status": condition(generation),
                "spec": {"gatewayClassName": "waypost", "listeners": tls(json!([{"name": "cert"}]))},
            }),
        );
        let found = world.findings(Kind::Gateway, "gw");
        assert_eq!(found.len(), want, "{found:?}");
        assert!(found.iter().all(|one| one.ends_with("the key does not belong to the certificate")), "{found:?}");
    }
}

#[test]
fn routes_of_other_controllers_are_not_ours() {
    let mut world = World::new();
    world.add("Gateway", "gw", json!({"gatewayClassName": "foreign", "listeners": []}));
    world.route("r", json!({}));
    assert_eq!(world.with(|layer7| layer7.findings()), []);
    let state = |kind, key| world.with(|layer7| layer7.explain(kind, key)).map(|one| one.state);
    assert_eq!(state(Kind::HttpRoute, "default/r"), Some("not ours"));
    assert_eq!(state(Kind::Gateway, "default/gw"), Some("not ours"));
    assert_eq!(state(Kind::HttpRoute, "default/none"), None);
}
