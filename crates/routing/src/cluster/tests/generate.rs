//! Random changes over few names, so that they interact.

use std::sync::Arc;

use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use api::view::Service;
use api::view::annotations::LAYER_7;

use crate::cluster::{CaState, Change, SecretState};

/// Numbers from which an object is chosen, part by part.
pub(super) struct Choices(Vec<u8>);

impl Choices {
    fn pick<T: Clone>(&mut self, options: &[T]) -> T {
        let number = self.0.pop().unwrap_or_default();
        options[usize::from(number) % options.len()].clone()
    }
}

pub(super) fn changes() -> impl Strategy<Value = Vec<Change>> {
    let one = (0_u8..17, prop::collection::vec(any::<u8>(), 26));
    prop::collection::vec(one.prop_map(|(kind, numbers)| change(kind, &mut Choices(numbers))), 1..60)
}

fn object<T: DeserializeOwned>(mut spec: Value, choices: &mut Choices) -> Option<Arc<T>> {
    if choices.pick(&[true, true, true, true, false]) {
        spec["metadata"] = json!({
            "generation": choices.pick(&[1, 2]),
            "creationTimestamp": choices.pick(&["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
        });
        Some(Arc::new(serde_json::from_value(spec).expect("an object of the kind")))
    } else {
        None
    }
}

fn change(kind: u8, choices: &mut Choices) -> Change {
    let key: Arc<str> = choices.pick(&["a/x", "a/y", "b/x"]).into();
    match kind {
        0 => {
            let spec = json!({ "spec": {
                "controllerName": choices.pick(&[api::view::gateway_api::CONTROLLER, "example.com/other"]),
                "parametersRef": choices.pick(&[Value::Null, Value::Null, json!({ "group": "g", "kind": "K", "name": "n" })]),
            } });
            Change::GatewayClass(choices.pick(&["one", "two"]).into(), object(spec, choices))
        }
        1 => Change::Gateway(key, object(json!({ "spec": gateway(choices) }), choices)),
        2 => Change::ListenerSet(key, object(json!({ "spec": set(choices) }), choices)),
        3 => Change::HttpRoute(key, object(json!({ "spec": http_route(choices) }), choices)),
        4 => Change::GrpcRoute(key, object(json!({ "spec": http_route(choices) }), choices)),
        5 => Change::TlsRoute(key, object(json!({ "spec": stream_route(choices) }), choices)),
        6 => Change::TcpRoute(key, object(json!({ "spec": stream_route(choices) }), choices)),
        7 => Change::UdpRoute(key, object(json!({ "spec": stream_route(choices) }), choices)),
        8 => Change::ReferenceGrant(key, object(json!({ "spec": grant(choices) }), choices)),
        9 => Change::BackendTlsPolicy(key, object(json!({ "spec": policy(choices) }), choices)),
        10 => {
            let key = choices.pick(&["a/x", "a/x", "a/y", "b/x", "a/x-waypost", "b/x-waypost"]).into();
            let mut service: Option<Arc<Service>> = object(service(choices), choices);
            let layer_7 = choices.pick(&[None, None, Some("true"), Some("false")]);
            if let (Some(service), Some(value)) = (&mut service, layer_7) {
                Arc::make_mut(service).metadata.annotations = [(LAYER_7, value)].into_iter().collect();
            }
            Change::Service(key, service)
        }
        11 => {
            let labels = choices.pick(&[None, Some(vec![]), Some(vec![("team", "blue")]), Some(vec![("team", "red")])]);
            Change::Namespace(choices.pick(&["a", "b"]).into(), labels.map(|labels| labels.into_iter().collect()))
        }
        12 => {
            let states = [
                None,
                Some(SecretState::Certificate),
                Some(SecretState::Passwords),
                Some(SecretState::Invalid("odd".to_owned())),
            ];
            Change::Secret(key, choices.pick(&states))
        }
        13 => {
            let states = [None, Some(CaState::Bundle), Some(CaState::Invalid("odd".to_owned()))];
            Change::ConfigMap(key, choices.pick(&states))
        }
        _ => Change::TrafficPolicy(key, object(json!({ "spec": traffic_policy(choices) }), choices)),
    }
}

fn gateway(choices: &mut Choices) -> Value {
    let selector = json!({ "from": "Selector", "selector": { "matchLabels": { "team": "blue" } } });
    let ca = |namespace: &str| json!([{ "kind": "ConfigMap", "name": "x", "namespace": namespace }]);
    json!({
        "gatewayClassName": choices.pick(&["one", "one", "two"]),
        "listeners": listeners(choices),
        "allowedListeners": { "namespaces": choices.pick(&[
            json!({}), json!({ "from": "Same" }), json!({ "from": "All" }), json!({ "from": "All" }), selector,
        ]) },
        "addresses": choices.pick(&[
            json!([]), json!([]), json!([{ "value": "192.0.2.1" }]), json!([{ "type": "example.com/odd" }]),
            json!([{ "type": "IPAddress" }]),
        ]),
        "infrastructure": choices.pick(&[json!({}), json!({}), json!({ "parametersRef": { "kind": "K", "name": "n" } })]),
        "tls": {
            "backend": { "clientCertificateRef": choices.pick(&[
                Value::Null, Value::Null, json!({ "name": "x" }), json!({ "name": "x", "namespace": "b" }),
            ]) },
            "frontend": choices.pick(&[
                Value::Null,
                Value::Null,
                json!({ "default": { "validation": { "caCertificateRefs": ca("a") } } }),
                json!({ "perPort": [{ "port": 443, "tls": { "validation":
                    { "mode": "AllowInsecureFallback", "caCertificateRefs": ca("b") } } }] }),
            ]),
        },
    })
}

fn set(choices: &mut Choices) -> Value {
    json!({
        "parentRef": choices.pick(&[
            json!({ "name": "x" }), json!({ "name": "x", "namespace": "a" }), json!({ "name": "y" }),
            json!({ "name": "x", "kind": "Service", "group": "" }),
        ]),
        "listeners": listeners(choices),
    })
}

fn listeners(choices: &mut Choices) -> Value {
    let names = choices.pick(&[&["l"][..], &["l", "m"], &["m"], &["l", "m", "n"]]);
    names.iter().map(|name| listener(name, choices)).collect::<Vec<_>>().into()
}

fn listener(name: &str, choices: &mut Choices) -> Value {
    let secret = json!({ "certificateRefs": [{ "name": "x" }] });
    let foreign = json!({ "certificateRefs": [{ "name": "x", "namespace": "b" }] });
    let mut listener = choices.pick(&[
        json!({ "port": 80, "protocol": "HTTP" }),
        json!({ "port": 80, "protocol": "HTTP", "hostname": "a.test" }),
        json!({ "port": 443, "protocol": "HTTPS", "hostname": "*.test", "tls": secret }),
        json!({ "port": 443, "protocol": "HTTPS", "hostname": "a.test", "tls": foreign }),
        json!({ "port": 443, "protocol": "TLS", "tls": { "mode": "Passthrough" } }),
        json!({ "port": 443, "protocol": "TLS", "hostname": "b.test", "tls": secret }),
        json!({ "port": 90, "protocol": "TCP" }),
        json!({ "port": 90, "protocol": "UDP" }),
        json!({ "port": 90, "protocol": "example.com/odd" }),
    ]);
    listener["name"] = name.into();
    listener["allowedRoutes"] = choices.pick(&[
        json!({}),
        json!({ "namespaces": { "from": "All" } }),
        json!({ "namespaces": { "from": "All" }, "kinds": [{ "kind": "HTTPRoute" }] }),
        json!({ "namespaces": { "from": "Selector", "selector": { "matchLabels": { "team": "blue" } } } }),
        json!({ "kinds": [{ "kind": "Odd" }] }),
    ]);
    listener
}

fn parents(choices: &mut Choices) -> Value {
    let one = json!({ "name": "x", "namespace": "a" });
    let named = json!({ "name": "x", "sectionName": "l" });
    let set = json!({ "kind": "ListenerSet", "name": "x", "namespace": "a" });
    let port = json!({ "name": "y", "port": 443 });
    let service = json!({ "group": "", "kind": "Service", "name": "x", "namespace": "a" });
    let own = json!({ "group": "", "kind": "Service", "name": "y" });
    let service_port = json!({ "group": "", "kind": "Service", "name": "x", "namespace": "a", "port": 80 });
    let section = json!({ "group": "", "kind": "Service", "name": "x", "sectionName": "tls" });
    choices.pick(&[
        json!([one]),
        json!([named]),
        json!([set]),
        json!([one, set]),
        json!([named, port, service]),
        json!([service]),
        json!([service_port, own]),
        json!([one, section]),
        json!([]),
    ])
}

fn hostnames(choices: &mut Choices) -> Value {
    choices.pick(&[
        json!([]),
        json!(["a.test"]),
        json!(["*.test"]),
        json!(["A.test", "b.test"]),
        json!(["other.example"]),
    ])
}

fn backends(choices: &mut Choices) -> Value {
    choices.pick(&[
        json!([]),
        json!([{ "name": "x", "port": 80 }]),
        json!([{ "name": "x", "port": 443 }, { "name": "y", "port": 80, "weight": 0 }]),
        json!([{ "name": "x", "namespace": "b", "port": 80 }]),
        json!([{ "name": "x", "kind": "Odd" }, { "name": "x", "port": 81 }]),
    ])
}

fn http_route(choices: &mut Choices) -> Value {
    let filters = choices.pick(&[
        json!([]),
        json!([]),
        json!([{ "type": "RequestMirror", "requestMirror": { "backendRef": { "name": "y", "port": 80 } } }]),
        json!([{ "type": "ExtensionRef", "extensionRef": { "group": "g", "kind": "K", "name": "n" } }]),
    ]);
    let matches =
        choices.pick(&[json!([]), json!([]), json!([{ "path": { "type": "RegularExpression", "value": "[" } }])]);
    let rule = json!({ "name": "first", "filters": filters, "matches": matches, "backendRefs": backends(choices) });
    let second = json!({ "backendRefs": backends(choices) });
    let rules = choices.pick(&[json!([rule]), json!([rule, second]), json!([])]);
    json!({ "parentRefs": parents(choices), "hostnames": hostnames(choices), "rules": rules })
}

fn stream_route(choices: &mut Choices) -> Value {
    json!({
        "parentRefs": parents(choices),
        "hostnames": hostnames(choices),
        "rules": [{ "backendRefs": backends(choices) }],
    })
}

fn grant(choices: &mut Choices) -> Value {
    let kind = choices.pick(&["Gateway", "ListenerSet", "HTTPRoute", "TLSRoute", "TCPRoute"]);
    let to = choices.pick(&["Secret", "Service", "ConfigMap"]);
    let name = choices.pick(&[Value::Null, json!("x"), json!("y")]);
    json!({
        "from": [{ "group": api::view::gateway_api::GROUP, "kind": kind, "namespace": "a" }],
        "to": [{ "group": "", "kind": to, "name": name }],
    })
}

fn policy(choices: &mut Choices) -> Value {
    let x = json!({ "group": "", "kind": "Service", "name": "x" });
    let section = json!({ "group": "", "kind": "Service", "name": "x", "sectionName": "tls" });
    let y = json!({ "group": "", "kind": "Service", "name": "y" });
    json!({
        "targetRefs": choices.pick(&[json!([x]), json!([section]), json!([x, y]), json!([{ "kind": "Odd", "name": "x" }])]),
        "validation": choices.pick(&[
            json!({ "hostname": "h", "wellKnownCACertificates": "System" }),
            json!({ "hostname": "h", "caCertificateRefs": [{ "kind": "ConfigMap", "name": "x" }] }),
            json!({ "hostname": "h", "caCertificateRefs": [{ "kind": "ConfigMap", "name": "x" }, { "kind": "Odd", "name": "x" }] }),
            json!({ "hostname": "h", "wellKnownCACertificates": "Odd" }),
        ]),
    })
}

fn traffic_policy(choices: &mut Choices) -> Value {
    let target = |choices: &mut Choices| {
        let (group, kind) = choices.pick(&[
            (api::view::gateway_api::GROUP, "Gateway"),
            (api::view::gateway_api::GROUP, "Gateway"),
            (api::view::gateway_api::GROUP, "ListenerSet"),
            (api::view::gateway_api::GROUP, "HTTPRoute"),
            (api::view::gateway_api::GROUP, "GRPCRoute"),
            ("", "Service"),
            ("", "Odd"),
        ]);
        let section = choices.pick(&[Value::Null, Value::Null, json!("l"), json!("first"), json!("tls")]);
        json!({ "group": group, "kind": kind, "name": choices.pick(&["x", "x", "y"]), "sectionName": section })
    };
    let targets = [target(choices), target(choices)];
    let restriction = choices.pick(&[
        json!({}),
        json!({ "requireHTTPS": true }),
        json!({ "sourceRanges": { "allow": ["192.0.2.0/24"] }, "rateLimits": [{ "requests": 5, "per": "Second" }] }),
        json!({ "authentication": { "basic": { "secretName": "x" } } }),
        json!({ "authentication": { "external": { "url": "http://auth.test/$odd" } } }),
    ]);
    let method = choices.pick(&["Random", "RoundRobin", "Odd"]);
    let mut spec = choices.pick(&[
        json!({ "timeouts": { "read": "5s" } }),
        json!({ "timeouts": { "connect": "1s" }, "slowStart": { "window": "10s" } }),
        json!({ "loadBalancing": { "type": method } }),
        json!({}),
    ]);
    for (field, value) in restriction.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    spec["targetRefs"] = json!(targets);
    spec
}

fn service(choices: &mut Choices) -> Value {
    json!({
        "spec": {
            "type": choices.pick(&["ClusterIP", "ClusterIP", "ClusterIP", "ExternalName"]),
            "clusterIP": choices.pick(&["10.0.0.1", "10.0.0.1", "10.0.0.2", "None"]),
            "ports": choices.pick(&[
                json!([{ "port": 80 }, { "name": "tls", "port": 443, "appProtocol": "HTTPS" }]),
                json!([{ "port": 80, "protocol": "UDP" }, { "port": 80, "appProtocol": "kubernetes.io/h2c" }]),
                json!([{ "name": "tls", "port": 80, "appProtocol": "http" }, { "name": "b", "port": 81 }]),
            ]),
        },
        "status": { "loadBalancer": { "ingress": choices.pick(&[
            json!([]), json!([{ "ip": "192.0.2.1" }]), json!([{ "ip": "192.0.2.2" }]),
        ]) } },
    })
}
