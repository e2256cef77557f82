//! From objects to a QUIC listener: the UDP ports of a Service decide, and a UDP listener has its port for itself.

use api::gateway_api::watched;
use api::kinds;
use client::memory::Memory;
use plan::Protocol;

use super::super::cluster::service;
use super::super::tls::secret_of;
use super::*;
use crate::controller::{Gateway, Settings};

fn metadata(name: &str) -> Value {
    json!({"namespace": "shop", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1})
}

/// The Service of the Gateway, with a TCP port 443, and the UDP port if so.
fn frontend(memory: &Memory, has_udp: bool) {
    let mut ports = vec![json!({"name": "tcp-443", "port": 443, "protocol": "TCP"})];
    ports.extend(has_udp.then(|| json!({"name": "udp-443", "port": 443, "protocol": "UDP"})));
    memory.put(&kinds::service::KIND, json!({
        "metadata": {"namespace": "shop", "name": "public-waypost", "annotations": {"waypost.dev/gateway": "public"}},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.2", "ports": ports},
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}},
    }));
}

fn gateway(memory: &Memory, has_udp_listener: bool) {
    let tls = json!({"mode": "Terminate", "certificateRefs": [{"name": "https"}]});
    let mut listeners = vec![json!({"name": "https", "port": 443, "protocol": "HTTPS", "tls": tls})];
    listeners.extend(has_udp_listener.then(|| json!({"name": "udp", "port": 443, "protocol": "UDP"})));
    let spec = json!({"gatewayClassName": "waypost", "listeners": listeners});
    memory.put(&watched::GATEWAY, json!({"metadata": metadata("public"), "spec": spec}));
}

#[test]
fn udp_ports_of_the_service_are_served_over_quic() {
    let ca = Ca::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let memory = Arc::new(Memory::default());
    memory.put(&kinds::namespace::KIND, json!({"metadata": {"name": "shop"}}));
    let controller = json!({"controllerName": "waypost.dev/gateway-controller"});
    memory.put(&watched::GATEWAY_CLASS, json!({"metadata": {"name": "waypost"}, "spec": controller}));
    memory.put(&kinds::secret::KIND, secret_of("https", &ca.sign(&["web.example"])));
    service(&memory, "one", named("one"));
    let rules = json!([{"backendRefs": [{"name": "one", "port": 80}]}]);
    let spec = json!({"parentRefs": [{"name": "public"}], "rules": rules});
    memory.put(&watched::HTTP_ROUTE, json!({"metadata": metadata("web"), "spec": spec}));
    gateway(&memory, false);
    frontend(&memory, false);
    let inside = runtime.enter();
    let settings = Settings {
        node: "n1".to_owned(),
        addresses: Arc::new(|| vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
        limits: Limits::default(),
        ingress: routing::ingress::Options::default(),
        access_log: None,
        events: Arc::new(|_| {}),
    };
    let served = Gateway::start(Arc::clone(&memory) as _, settings).expect("a gateway");
    drop(inside);
    let mut redirects = served.redirects();
    let mut ports = |expected: &[(&str, Protocol)]| {
        runtime.block_on(async {
            let is_it = |all: &Arc<std::collections::BTreeSet<plan::Redirect>>| {
                all.iter().map(|one| (&*one.port, one.protocol)).eq(expected.iter().copied())
            };
            let all = timeout(TIMEOUT, redirects.wait_for(is_it)).await.expect("in time").expect("redirects").clone();
            all.iter().map(|one| one.listener).collect::<Vec<_>>()
        })
    };
    let only_tcp = ports(&[("tcp-443", Protocol::Tcp)]);
    frontend(&memory, true);
    let with_udp = ports(&[("tcp-443", Protocol::Tcp), ("udp-443", Protocol::Udp)]);
    assert_eq!(only_tcp[0], with_udp[0], "the TCP listener stays");
    let client = Client::impatient(&ca, millis(500));
    let mut session = client.runtime.block_on(client.open(with_udp[1], "web.example")).expect("a connection");
    let answer = client.get(&mut session, "https://web.example/");
    assert!(answer.text().starts_with("one "), "{answer:?}");
    assert_eq!(answer.header("alt-svc"), Some("h3=\":443\"; ma=3600"));
    // A route to nothing is one more change: the connection stays.
    memory.put(
        &watched::HTTP_ROUTE,
        json!({"metadata": metadata("other"), "spec": {"parentRefs": [{"name": "public"}]}}),
    );
    assert_eq!(client.get(&mut session, "https://web.example/").status, 200);
    gateway(&memory, true);
    let error = client.closed(&session);
    assert!(is_closed_with(&error, Code::H3_NO_ERROR), "{error:?}");
    let of_route = ports(&[("tcp-443", Protocol::Tcp), ("udp-443", Protocol::Udp)]);
    assert_ne!(of_route[1], with_udp[1], "it is the UDP listener");
    gateway(&memory, false);
    let _ = ports(&[("tcp-443", Protocol::Tcp), ("udp-443", Protocol::Udp)]);
    frontend(&memory, false);
    let _ = ports(&[("tcp-443", Protocol::Tcp)]);
}
