//! Every row of the table, port selection, invalid values.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn service(annotations: &Value) -> Service {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [
            {"name": "https", "port": 443, "protocol": "TCP"},
            {"name": "Admin", "port": 8443},
            {"name": "dns", "port": 53, "protocol": "UDP"},
        ]},
    }))
    .expect("a Service")
}

fn shape(annotations: &Value) -> Vec<(u16, ClientProtocol, Mode, BackendProtocol)> {
    let ports = gateway_spec(&service(annotations)).ports;
    ports.iter().map(|port| (port.number, port.front, port.mode, port.back)).collect()
}

#[test]
fn s48_certificate_and_backend_protocol_select_the_protocols() {
    let with = |protocol: &str| shape(&json!({SSL_CERT: "arn:x", BACKEND_PROTOCOL: protocol}));
    let both = |front, mode, back| vec![(443, front, mode, back), (8443, front, mode, back)];
    assert_eq!(with("http"), both(ClientProtocol::Tls, Mode::Http, BackendProtocol::Plain));
    assert_eq!(with("HTTPS"), both(ClientProtocol::Tls, Mode::Http, BackendProtocol::Tls));
    assert_eq!(with("ssl"), both(ClientProtocol::Tls, Mode::Tcp, BackendProtocol::Tls));
    assert_eq!(with("tcp"), both(ClientProtocol::Tls, Mode::Tcp, BackendProtocol::Plain));
    assert_eq!(shape(&json!({SSL_CERT: "arn:x"})), both(ClientProtocol::Tls, Mode::Tcp, BackendProtocol::Plain));
    assert_eq!(
        shape(&json!({BACKEND_PROTOCOL: "http"})),
        both(ClientProtocol::Plain, Mode::Http, BackendProtocol::Plain)
    );
    for protocol in ["https", "ssl", "tcp", "ftp"] {
        assert_eq!(shape(&json!({BACKEND_PROTOCOL: protocol})), [], "{protocol} without a certificate");
    }
    assert_eq!(shape(&json!({})), []);
}

#[test]
fn an_unknown_backend_protocol_disables_the_ports() {
    let gateway_spec = gateway_spec(&service(&json!({SSL_CERT: "arn:x", BACKEND_PROTOCOL: "ftp"})));
    let why = gateway_spec.refused.expect("a reason");
    assert!(
        why.contains(BACKEND_PROTOCOL) && why.contains("`ftp`") && why.contains("http, https, ssl or tcp"),
        "{why}"
    );
    assert_eq!(gateway_spec.ports.len(), 2, "the proxy must not lead their packets to pods by itself");
}

#[test]
fn ssl_ports_are_numbers_or_names_and_the_others_have_no_certificate() {
    let tls = |list: &str| -> Vec<u16> {
        let ports = shape(&json!({SSL_CERT: "arn:x", SSL_PORTS: list, BACKEND_PROTOCOL: "http"}));
        assert_eq!(ports.len(), 2, "without TLS they are http all the same");
        ports.iter().filter(|port| port.1 == ClientProtocol::Tls).map(|port| port.0).collect()
    };
    assert_eq!(tls("*"), [443, 8443]);
    assert_eq!(tls("443"), [443]);
    assert_eq!(tls(" https , admin"), [443, 8443]);
    assert_eq!(tls("ADMIN"), [8443]);
    assert!(tls("80,dns").is_empty());
    assert_eq!(shape(&json!({SSL_CERT: "arn:x", SSL_PORTS: "443"})).len(), 1, "the other is the proxy's");
}

#[test]
fn the_proxy_protocol_header_is_sent_on_tcp_ports_only() {
    let ports = gateway_spec(&service(&json!({PROXY_PROTOCOL: "*"}))).ports;
    assert!(
        ports.iter().all(|port| port.proxy_protocol && port.mode == Mode::Tcp && port.front == ClientProtocol::Plain)
    );
    assert_eq!(ports.len(), 2);
    let ports = gateway_spec(&service(&json!({PROXY_PROTOCOL: "*", BACKEND_PROTOCOL: "http"}))).ports;
    assert!(ports.iter().all(|port| !port.proxy_protocol && port.mode == Mode::Http));
    let some = gateway_spec(&service(&json!({PROXY_PROTOCOL: "443"})));
    assert!(some.ports.is_empty() && some.warnings[0].contains("only `*`"), "{some:?}");
}

#[test]
fn idle_timeouts_are_seconds_within_bounds() {
    let idle = |text: &str| {
        let gateway_spec = gateway_spec(&service(&json!({SSL_CERT: "arn:x", IDLE_TIMEOUT: text})));
        (gateway_spec.ports[0].idle, gateway_spec.warnings.len())
    };
    assert_eq!(idle("2"), (Some(Duration::from_secs(2)), 0));
    assert_eq!(idle("4000"), (Some(Duration::from_secs(4000)), 0));
    for bad in ["0", "4001", "-1", "1m", "1.5"] {
        assert_eq!(idle(bad), (None, 1), "{bad}");
    }
}

#[test]
fn only_our_load_balancers_are_read() {
    let mut service = service(&json!({SSL_CERT: "arn:x"}));
    for (class, is_ours) in [(None, true), (Some("waypost.dev/bgp"), true), (Some("service.k8s.aws/nlb"), false)] {
        service.spec.load_balancer_class = class.map(Into::into);
        assert_eq!(!gateway_spec(&service).ports.is_empty(), is_ours, "{class:?}");
    }
    service.spec.load_balancer_class = None;
    service.spec.kind = "NodePort".into();
    assert_eq!(gateway_spec(&service), GatewaySpec::default());
}

#[test]
fn app_protocol_selects_http_2() {
    let mut service = service(&json!({BACKEND_PROTOCOL: "http"}));
    service.spec.ports[0].app_protocol = Some("kubernetes.io/h2c".into());
    service.spec.ports[1].app_protocol = Some("http".into());
    let h2: Vec<bool> = gateway_spec(&service).ports.iter().map(|port| port.h2).collect();
    assert_eq!(h2, [true, false]);
}

proptest! {
    #[test]
    fn ports_with_a_certificate_always_use_tls(
        list in "[a-z0-9,* ]{0,12}", protocol in "(http|https|ssl|tcp|ftp|)", arn in "[a-z:/]{1,20}",
    ) {
        let asked = service(&json!({SSL_CERT: arn, SSL_PORTS: list, BACKEND_PROTOCOL: protocol}));
        let gateway_spec = gateway_spec(&asked);
        for port in asked.spec.ports.iter().filter(|port| port.is_tcp()) {
            let served = gateway_spec.ports.iter().find(|served| served.number == port.port);
            let named = asked.has_tls(port);
            prop_assert_eq!(served.is_some_and(|served| served.front == ClientProtocol::Tls), named);
            prop_assert!(served.is_none_or(|served| served.mode == Mode::Http || !served.proxy_protocol));
        }
        prop_assert!(gateway_spec.ports.iter().all(|port| port.number != 53));
    }
}
