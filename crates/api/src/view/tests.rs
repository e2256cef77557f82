//! Reading objects as servers send them: complete, sparse, with nulls, with values of later versions.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::condition;
use super::endpoint_slice::{Endpoint, EndpointPort, Hints, Named, TargetRef};
use super::endpoints::Subset;
use super::metadata::controller_of;
use super::service::TargetPort;
use super::{
    EndpointSlice, Endpoints, Lease, Node, Ownership, Pod, Protocol, Secret, Service, ServiceCidr, StringMap, parse,
};
use crate::ip::Family;

fn read<T: DeserializeOwned>(object: &Value) -> T {
    parse(object.to_string().as_bytes()).unwrap_or_else(|error| panic!("{object}: {error}"))
}

fn service(spec: &Value) -> Service {
    read(&json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": spec}))
}

#[test]
fn null_members_are_absent_members() {
    let all_null = |members: &[&str]| members.iter().map(|name| ((*name).to_owned(), Value::Null)).collect::<Value>();
    let metadata = all_null(&[
        "namespace",
        "name",
        "uid",
        "labels",
        "annotations",
        "creationTimestamp",
        "deletionTimestamp",
        "ownerReferences",
    ]);
    let empty = json!({"metadata": metadata, "spec": null, "status": null});
    assert_eq!(read::<Service>(&empty), Service::default());
    assert_eq!(read::<Node>(&empty), Node::default());
    assert_eq!(read::<Pod>(&empty), Pod::default());
    assert_eq!(read::<Lease>(&empty), Lease::default());
    assert_eq!(read::<ServiceCidr>(&empty), ServiceCidr::default());
    assert_eq!(read::<Secret>(&json!({"metadata": null, "type": null, "data": null})), Secret::default());
    assert_eq!(
        read::<EndpointSlice>(&json!({"metadata": null, "addressType": null, "endpoints": null, "ports": null})),
        EndpointSlice::default()
    );
    assert_eq!(read::<Endpoints>(&json!({"metadata": null, "subsets": null})), Endpoints::default());
    let spec = all_null(&[
        "type",
        "selector",
        "clusterIP",
        "clusterIPs",
        "ipFamilies",
        "ports",
        "externalName",
        "externalIPs",
        "loadBalancerClass",
        "loadBalancerSourceRanges",
        "sessionAffinity",
        "sessionAffinityConfig",
        "externalTrafficPolicy",
        "internalTrafficPolicy",
        "healthCheckNodePort",
        "publishNotReadyAddresses",
        "trafficDistribution",
    ]);
    assert_eq!(read::<Service>(&json!({"spec": spec})), Service::default());
}

#[test]
fn one_odd_member_does_not_hide_the_rest() {
    let odd = service(&json!({
        "type": "Sideways", "sessionAffinity": "Moon", "healthCheckNodePort": 70_000, "of a later version": {"x": []},
        "ports": [
            {"name": "a", "port": 70_000, "nodePort": -1, "protocol": "QUIC", "targetPort": 0},
            {"name": "b", "port": 80, "protocol": null, "targetPort": null},
        ],
    }));
    assert_eq!((&*odd.spec.kind, odd.spec.health_check_node_port, odd.affinity_timeout()), ("Sideways", 0, None));
    let [a, b] = &odd.spec.ports[..] else { panic!("{:?}", odd.spec.ports) };
    assert_eq!((a.port, a.node_port, a.protocol, a.target()), (0, 0, None, TargetPort::Number(0)));
    assert_eq!((b.port, b.protocol, b.target()), (80, Some(Protocol::Tcp), TargetPort::Number(80)));
    assert!(!a.is_tcp() && b.is_tcp());

    let slice: EndpointSlice = read(&json!({
        "addressType": "IPv9",
        "endpoints": [{"addresses": null, "conditions": null, "targetRef": {"name": null}, "hints": {"forZones": null}}],
        "ports": [{"name": null, "port": 70_000, "protocol": "QUIC"}, {}],
    }));
    assert_eq!((slice.family(), slice.endpoints.len()), (None, 1));
    let [odd, absent] = &slice.ports[..] else { panic!("{:?}", slice.ports) };
    assert_eq!((odd.name.as_deref(), odd.port, odd.number(), odd.protocol), (None, Some(70_000), None, None));
    assert_eq!((absent.port, absent.protocol), (None, Some(Protocol::Tcp)));
}

#[test]
fn bytes_that_are_no_object_are_refused() {
    assert!(parse::<Service>(b"{\"spec\":").is_err());
    assert!(parse::<Service>(b"[]").is_ok_and(|service| service == Service::default()));
    assert!(parse::<Service>(b"{\"spec\": 7}").is_err());
}

#[test]
fn cluster_ips_of_old_and_new_servers() {
    let ip = |text: &str| text.parse::<IpAddr>().ok();
    let both = service(&json!({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"]}));
    assert_eq!(both.cluster_ips().collect::<Vec<_>>(), ["10.96.0.1", "fd00::1"]);
    assert_eq!((both.cluster_ip(Family::V4), both.cluster_ip(Family::V6)), (ip("10.96.0.1"), ip("fd00::1")));
    let old = service(&json!({"clusterIP": "010.96.0.1"}));
    assert_eq!((old.cluster_ip(Family::V4), old.cluster_ip(Family::V6)), (ip("10.96.0.1"), None));
    let alias = service(&json!({"type": "ExternalName", "clusterIP": "10.96.0.1"}));
    assert_eq!((alias.is_external_name(), alias.cluster_ip(Family::V4)), (true, None));
    assert_eq!(service(&json!({"clusterIP": ""})).cluster_ips().count(), 0);
}

#[test]
fn headless_services_say_so() {
    assert!(service(&json!({"clusterIP": "None", "clusterIPs": ["None"]})).is_headless());
    assert!(service(&json!({"clusterIP": "None"})).is_headless());
    assert!(!service(&json!({"clusterIP": "10.96.0.1"})).is_headless());
    assert!(!service(&json!({})).is_headless(), "an address may still be allocated");
}

#[test]
fn types_and_traffic_policies() {
    for (kind, balancer, node_ports) in
        [("ClusterIP", false, false), ("NodePort", false, true), ("LoadBalancer", true, true), ("", false, false)]
    {
        let service = service(&json!({"type": kind}));
        assert_eq!((service.is_load_balancer(), service.has_node_ports()), (balancer, node_ports), "{kind}");
    }
    let local = service(&json!({"externalTrafficPolicy": "Local", "internalTrafficPolicy": "Cluster"}));
    assert!(local.is_external_local() && !local.is_internal_local());
    assert!(!service(&json!({})).is_external_local());
}

#[test]
fn affinity_lasts_as_long_as_it_may() {
    let of = |timeout: Value| {
        service(
            &json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": timeout}}}),
        )
        .affinity_timeout()
    };
    assert_eq!(
        [json!(60), json!(0), json!(-5), json!(1_000_000), json!(null)].map(of),
        [Some(60), Some(1), Some(1), Some(86_400), Some(10_800)]
    );
    assert_eq!(service(&json!({"sessionAffinity": "None"})).affinity_timeout(), None);
}

#[test]
fn only_vips_reach_nodes() {
    let service: Service = read(&json!({"status": {"loadBalancer": {"ingress": [
        {"ip": "192.0.2.1"}, {"ip": "192.0.2.2", "ipMode": "VIP"}, {"ip": "192.0.2.3", "ipMode": "Proxy"},
        {"hostname": "lb.example"}, {"ip": "192.0.2.4", "ipMode": null},
    ]}}}));
    assert_eq!(service.vips().collect::<Vec<_>>(), ["192.0.2.1", "192.0.2.2", "192.0.2.4"]);
}

#[test]
fn target_ports_are_numbers_or_names() {
    let target =
        |written: Value| service(&json!({"ports": [{"port": 80, "targetPort": written}]})).spec.ports[0].target();
    assert_eq!(target(json!(8080)), TargetPort::Number(8080));
    assert_eq!(target(json!("http")), TargetPort::Name("http".into()));
    for same in [json!(0), json!(""), json!(null), json!(70_000)] {
        assert_eq!(target(same), TargetPort::Number(80));
    }
}

#[test]
fn labels_name_the_service_of_a_slice_and_the_proxy_of_a_service() {
    let slice = |labels: Value| read::<EndpointSlice>(&json!({"metadata": {"namespace": "shop", "labels": labels}}));
    let web = slice(json!({"kubernetes.io/service-name": "web", "service.kubernetes.io/headless": ""}));
    assert_eq!(
        (web.service_name(), web.service().as_deref(), web.is_headless()),
        (Some("web"), Some("shop/web"), true)
    );
    assert_eq!(slice(json!({"kubernetes.io/service-name": ""})).service(), None);
    let other: Service = read(&json!({"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": "x"}}}));
    assert_eq!((other.proxy_name(), Service::default().proxy_name()), (Some("x"), None));
}

#[test]
fn annotations_are_trimmed() {
    let service: Service = read(&json!({"metadata": {"annotations": {"a": " x ", "b": "  "}}}));
    let meta = &service.metadata;
    assert_eq!(["a", "b", "c"].map(|key| meta.annotation(key)), [Some("x"), None, None]);
}

#[test]
fn all_ports_of_the_service_of_a_gateway_belong_to_the_gateway() {
    let ports = json!([{"name": "tcp-80", "port": 80}, {"name": "udp-53", "port": 53, "protocol": "UDP"},
                       {"name": "sctp", "port": 9, "protocol": "SCTP"}]);
    let used = |annotations: Value, class: Value| -> Vec<Box<str>> {
        let service: Service = read(&json!({
            "metadata": {"annotations": annotations},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": class, "ports": ports},
        }));
        let used = service.spec.ports.iter().filter(|port| service.uses_gateway(port));
        used.map(|port| port.name.clone()).collect()
    };
    let of_gateway = json!({"waypost.dev/gateway": "public"});
    assert_eq!(used(of_gateway.clone(), Value::Null), ["tcp-80".into(), "udp-53".into()]);
    let of_class = json!({"waypost.dev/ingress-class": "waypost"});
    assert_eq!(used(of_class, Value::Null), ["tcp-80".into(), "udp-53".into()]);
    assert!(used(of_gateway, json!("example.com/other")).is_empty(), "the load balancer of another implementation");
    assert!(used(json!({"waypost.dev/gateway": " "}), Value::Null).is_empty());
    assert!(used(json!({}), Value::Null).is_empty());
}

#[test]
fn absent_endpoint_conditions_mean_ready() {
    let conditions = |json: Value| read::<Endpoint>(&json!({"conditions": json})).conditions;
    let none = conditions(json!({}));
    assert!(none.is_ready() && none.is_serving() && !none.is_terminating());
    let leaving = conditions(json!({"ready": false, "serving": true, "terminating": true}));
    assert!(!leaving.is_ready() && leaving.is_serving() && leaving.is_terminating());
}

#[test]
fn endpoints_are_written_as_they_are_read() {
    let endpoint = Endpoint {
        addresses: vec!["10.244.0.2".into()],
        target_ref: Some(TargetRef { kind: "Pod".into(), name: "a".into(), ..TargetRef::default() }),
        hints: Some(Hints { for_zones: vec![Named { name: "z1".into() }], ..Hints::default() }),
        ..Endpoint::default()
    };
    let written = serde_json::to_value(&endpoint).expect("serialised");
    assert_eq!(
        written,
        json!({"addresses": ["10.244.0.2"], "conditions": {}, "targetRef": {"kind": "Pod", "name": "a"},
            "hints": {"forZones": [{"name": "z1"}]}})
    );
    assert_eq!(read::<Endpoint>(&written), endpoint);
    let port = EndpointPort {
        name: Some("".into()),
        protocol: Some(Protocol::Sctp),
        port: Some(80),
        app_protocol: Some("http".into()),
    };
    let written = serde_json::to_value(&port).expect("serialised");
    assert_eq!(written, json!({"name": "", "protocol": "SCTP", "port": 80, "appProtocol": "http"}));
    assert_eq!(read::<EndpointPort>(&written), port);
    let subset =
        json!({"addresses": [{"ip": "10.244.0.2", "nodeName": "n1"}], "ports": [{"port": 80, "protocol": "UDP"}]});
    assert_eq!(serde_json::to_value(read::<Subset>(&subset)).expect("serialised"), subset);
}

#[test]
fn nodes_have_addresses_zones_and_conditions() {
    let node: Node = read(&json!({
        "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z1"}},
        "spec": {"podCIDRs": ["10.244.0.0/24"], "unschedulable": true},
        "status": {
            "addresses": [
                {"type": "Hostname", "address": "n1"}, {"type": "ExternalIP", "address": "198.51.100.1"},
                {"type": "InternalIP", "address": "192.0.2.1"}, {"type": "InternalIP", "address": "192.0.2.1"},
            ],
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": null}],
            "allocatable": {"cpu": "4"},
        },
    }));
    assert_eq!(node.addresses(), [[192, 0, 2, 1], [198, 51, 100, 1]].map(IpAddr::from));
    assert_eq!((node.zone(), node.status.allocatable.get("cpu")), (Some("z1"), Some("4")));
    assert!(node.ready().is_some_and(super::Condition::is_true) && node.spec.unschedulable && node.is_eligible());
    for leaving in [
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]}}),
    ] {
        assert!(!read::<Node>(&leaving).is_eligible(), "{leaving}");
    }
}

#[test]
fn pods_have_addresses_ports_and_conditions() {
    let pod: Pod = read(&json!({
        "spec": {
            "nodeName": "n1",
            "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}],
            "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}, {}],
        },
        "status": {
            "phase": "Running", "podIP": "10.244.0.2", "podIPs": [{"ip": "10.244.0.2"}, {"ip": "fd00::2"}],
            "conditions": [{"type": "Ready", "status": "False", "reason": "Slow", "message": "wait"}],
            "containerStatuses": [{"name": "c", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
        },
    }));
    assert_eq!(pod.addresses().collect::<Vec<_>>(), ["10.244.0.2", "fd00::2"]);
    assert_eq!(pod.spec.running_containers().count(), 2);
    assert_eq!(pod.spec.containers[0].ports[0].protocol, Some(Protocol::Tcp));
    assert!(!pod.has_ended());
    let ready = pod.condition("Ready").expect("a condition");
    assert_eq!((ready.is_true(), &*ready.reason, ready.message.as_deref()), (false, "Slow", Some("wait")));
    assert_eq!(condition::find(&pod.status.conditions, "PodScheduled"), None);
    let status = &pod.status.container_statuses[0];
    assert_eq!((status.restart_count, &*status.state.waiting.reason), (3, "CrashLoopBackOff"));
    let old: Pod = read(&json!({"status": {"phase": "Failed", "podIP": "10.244.0.3"}}));
    assert_eq!((old.addresses().collect::<Vec<_>>(), old.has_ended()), (vec!["10.244.0.3"], true));
}

#[test]
fn secrets_do_not_show_their_data() {
    let secret: Secret = read(&json!({
        "metadata": {"namespace": "shop", "name": "key"}, "type": "kubernetes.io/tls", "data": {"tls.key": "aHVzaA=="},
    }));
    assert_eq!(secret.data.get("tls.key"), Some("aHVzaA=="));
    assert_eq!(format!("{secret:?}"), "Secret(shop/key)");
}

#[test]
fn ownership_names_owners_and_finalizers() {
    let metadata: Ownership = read(&json!({
        "uid": "u", "finalizers": ["f"], "deletionTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s"},
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r", "controller": true},
        ],
    }));
    assert!(metadata.is_deleting() && metadata.has_finalizer("f") && !metadata.has_finalizer("g"));
    assert_eq!(controller_of(&metadata.owner_references).map(|owner| &*owner.name), Some("web-1"));
}

#[test]
fn string_maps_are_sorted_and_keep_the_last_of_equal_keys() {
    let map: StringMap = parse(br#"{"b": "1", "a": "2", "b": "3", "c": null}"#).expect("a map");
    let pairs: Vec<(&str, &str)> = map.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(pairs, [("a", "2"), ("b", "3"), ("c", "")]);
    assert_eq!(["a", "b", "x"].map(|key| map.get(key)), [Some("2"), Some("3"), None]);
    assert!(map.contains_key("c") && !map.is_empty() && StringMap::default().is_empty());
    assert_eq!(map, [("c", ""), ("b", "3"), ("a", "2")].into_iter().collect());
}
