//! The network testbed itself: packets arrive, failures are distinguished, and nothing is left behind.

mod traces;
mod traffic;
mod translation;

use std::time::Duration;

use testbed::net::{Cluster, Family, Protocol, objects};

/// Long enough for a busy machine; waiters are woken by an event.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Every protocol with every family.
fn every_way() -> impl Iterator<Item = (Protocol, Family)> {
    Protocol::ALL.into_iter().flat_map(|protocol| Family::BOTH.map(|family| (protocol, family)))
}

#[test]
fn objects_are_what_the_api_calls_so() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let pod = node.pod("web-1");
    let service = objects::service("web")
        .cluster_ip("10.96.0.10")
        .cluster_ip("fd00:10:96::10")
        .port(80)
        .named("http")
        .target(8080)
        .node_port(30080)
        .port(53)
        .named("dns")
        .protocol(Protocol::Udp)
        .load_balancer("203.0.113.7")
        .policy_local()
        .health_port(31000)
        .affinity(60)
        .source_range("192.0.2.0/24")
        .json();
    let typed: k8s_openapi::api::core::v1::Service = serde_json::from_value(service).expect("a Service");
    let spec = typed.spec.expect("a spec");
    assert_eq!(spec.type_.as_deref(), Some("LoadBalancer"));
    assert_eq!(spec.ip_families, Some(vec!["IPv4".to_owned(), "IPv6".to_owned()]));
    assert_eq!(spec.external_traffic_policy.as_deref(), Some("Local"));
    let ports = spec.ports.expect("ports");
    assert_eq!((ports[0].node_port, ports[1].protocol.as_deref()), (Some(30080), Some("UDP")));

    let slice = objects::slice("web").v6().port(8080).named("http").endpoint(&pod).terminating().hint_zone("a").json();
    let typed: k8s_openapi::api::discovery::v1::EndpointSlice = serde_json::from_value(slice).expect("a slice");
    assert_eq!((typed.address_type.as_str(), typed.metadata.name.as_deref()), ("IPv6", Some("web-ipv6")));
    let endpoint = &typed.endpoints.expect("endpoints")[0];
    assert_eq!(endpoint.addresses, ["fd00:10:244:1::2"]);
    assert_eq!(endpoint.node_name.as_deref(), Some("n1"));
    assert_eq!(endpoint.conditions.as_ref().and_then(|conditions| conditions.serving), Some(true));

    let typed: k8s_openapi::api::core::v1::Node =
        serde_json::from_value(objects::node(&node).zone("a").json()).expect("a Node");
    let cidrs = typed.spec.and_then(|spec| spec.pod_cidrs).expect("ranges");
    assert_eq!(cidrs, ["10.244.1.0/24", "fd00:10:244:1::/64"]);
}
