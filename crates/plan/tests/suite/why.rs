//! Explanations agree with the oracle: endpoints reported with traffic get it, and every other one has a reason.

use std::collections::BTreeMap;

use api::view::{EndpointSlice, Node, Pod, Service, ServiceCidr};
use plan::oracle::{Outcome, judge};
use plan::why::owners::{AddressQuery, Objects, owners};
use plan::why::trace::{Stage, trace};
use plan::why::{EndpointTraffic, ExclusionReason, Explanation, Sender, Subject};
use plan::{LocalDetector, Options, Planner, Role, Update};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::properties::{Said, Thing, any_options, any_packet, anything, say};
use crate::world::{HERE, endpoint, ip, node, options};

/// A node with a Service `default/web`, its slices and its Pods.
fn explain(spec: Value, status: Value, slices: &[Value], pods: &[Value]) -> Explanation {
    let mut object = json!({"metadata": {"namespace": "default", "name": "web"}});
    (object["spec"], object["status"]) = (spec, status);
    let service: Service = serde_json::from_value(object).expect("a Service");
    let slices: Vec<EndpointSlice> =
        slices.iter().map(|one| serde_json::from_value(one.clone()).expect("a slice")).collect();
    let pods: Vec<Pod> = pods.iter().map(|one| serde_json::from_value(one.clone()).expect("a Pod")).collect();
    let local = LocalDetector::Ranges(vec!["10.244.0.0/16".parse().expect("a range")]);
    let mut planner = Planner::new(Options { local, ..options() });
    planner.update(node("192.0.2.1", Some("a")));
    planner.update(Update::Service(Box::new(service.clone())));
    planner.update_all(slices.iter().cloned().map(Update::Slice));
    planner.why(&Subject { service: &service, slices: &slices, pods: &pods })
}

fn slice(name: &str, port: &str, endpoints: &str) -> Value {
    let endpoints: Vec<Value> = endpoints.split_whitespace().map(endpoint).collect();
    json!({
        "metadata": {"namespace": "default", "name": name, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": if name.contains('6') { "IPv6" } else { "IPv4" },
        "ports": [{"name": port, "port": 8080}], "endpoints": endpoints,
    })
}

fn simple() -> Value {
    json!({"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
        "ports": [{"name": "http", "port": 80}]})
}

/// Traffic of an endpoint from Pods through the cluster IP.
fn traffic(told: &Explanation, address: &str) -> EndpointTraffic {
    traffic_on(told, address, Role::Cluster, Sender::Pod)
}

fn traffic_on(told: &Explanation, address: &str, role: Role, sender: Sender) -> EndpointTraffic {
    let port = &told.ports[0];
    let candidate = port.candidates.iter().find(|one| one.address == address).expect("a candidate");
    let path = port.paths.iter().position(|path| path.role == role && path.sender == sender).expect("a path");
    candidate.traffic[path].clone()
}

const IN: fn(usize) -> EndpointTraffic = |of| EndpointTraffic::Receives { share: 1, of, last_resort: false };

#[test]
fn readiness_and_termination_are_distinguished() {
    let told = explain(simple(), json!({}), &[slice("s", "http", "1=rs 2= 3=st 4=t 5=s")], &[]);
    assert_eq!(traffic(&told, "10.244.0.1"), IN(1));
    assert_eq!(traffic(&told, "10.244.0.2"), EndpointTraffic::Excluded(ExclusionReason::NotReady));
    assert_eq!(traffic(&told, "10.244.0.3"), EndpointTraffic::Excluded(ExclusionReason::Terminating));
    assert_eq!(traffic(&told, "10.244.0.4"), EndpointTraffic::Excluded(ExclusionReason::Ended));
    assert_eq!(traffic(&told, "10.244.0.5"), EndpointTraffic::Excluded(ExclusionReason::NotReady));
    let summary = told.summary();
    assert!(summary.contains("1 of 5 endpoints get traffic; 10.244.0.2:8080 does not: it is not ready;"), "{summary}");
    assert!(summary.ends_with("nor do 1 more."), "{summary}");
}

#[test]
fn terminating_endpoints_are_the_last_resort() {
    let told = explain(simple(), json!({}), &[slice("s", "http", "1=st 2=")], &[]);
    assert_eq!(traffic(&told, "10.244.0.1"), EndpointTraffic::Receives { share: 1, of: 1, last_resort: true });
    assert_eq!(traffic(&told, "10.244.0.2"), EndpointTraffic::Excluded(ExclusionReason::NotReady));
}

#[test]
fn hints_exclude_endpoints() {
    let told = explain(simple(), json!({}), &[slice("s", "http", "1=rs/a 2=rs/b")], &[]);
    assert_eq!(traffic(&told, "10.244.0.1"), IN(1));
    assert_eq!(
        traffic(&told, "10.244.0.2"),
        EndpointTraffic::Excluded(ExclusionReason::ZoneHints(Box::new(["b".into()])))
    );
    let told = explain(simple(), json!({}), &[slice("s", "http", "1=rs/a@here 2=rs/a@there")], &[]);
    assert_eq!(
        traffic(&told, "10.244.0.2"),
        EndpointTraffic::Excluded(ExclusionReason::NodeHints(Box::new(["there".into()])))
    );
}

#[test]
fn wrong_ports_families_and_addresses_are_named() {
    let slices = [
        slice("s", "http", "1=rs 10.96.0.1=rs 127.0.0.1=rs"),
        slice("t", "web", "2=rs 1=rs"),
        slice("v6", "http", "fd00:10:244::1=rs"),
    ];
    let told = explain(simple(), json!({}), &slices, &[]);
    assert_eq!(traffic(&told, "10.244.0.1"), IN(1), "another slice has its port");
    assert_eq!(
        traffic(&told, "10.244.0.2"),
        EndpointTraffic::Excluded(ExclusionReason::NoSuchPort(vec!["`web` 8080/TCP".to_owned()]))
    );
    assert_eq!(traffic(&told, "10.96.0.1"), EndpointTraffic::Excluded(ExclusionReason::ClusterIp));
    let left: Vec<(&str, String)> =
        told.unassigned.iter().map(|one| (one.what.as_str(), one.out.to_string())).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(left[0].0, "127.0.0.1");
    assert!(left[0].1.contains("loopback"), "{left:?}");
    assert_eq!(left[1], ("fd00:10:244::1", "its address is IPv6, and the Service has no IPv6 address".to_owned()));
}

fn balanced(policy: &str, ranges: &[&str]) -> (Value, Value) {
    let mut spec = simple();
    spec["type"] = json!("LoadBalancer");
    spec["externalTrafficPolicy"] = json!(policy);
    spec["loadBalancerSourceRanges"] = json!(ranges);
    spec["ports"] = json!([{"name": "http", "port": 80, "nodePort": 30080}]);
    (spec, json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}}))
}

#[test]
fn the_local_policy_excludes_remote_endpoints() {
    let (spec, status) = balanced("Local", &[]);
    let told = explain(spec, status, &[slice("s", "http", "1=rsl 2=rs")], &[]);
    assert_eq!(traffic(&told, "10.244.0.2"), IN(2), "traffic from inside goes anywhere");
    for role in [Role::LoadBalancer, Role::NodePort] {
        assert_eq!(traffic_on(&told, "10.244.0.2", role, Sender::Pod), IN(2), "as if it left and came back");
        let elsewhere = EndpointTraffic::Excluded(ExclusionReason::OtherNode(Some("there".into())));
        assert_eq!(traffic_on(&told, "10.244.0.2", role, Sender::Outside), elsewhere);
        assert_eq!(traffic_on(&told, "10.244.0.1", role, Sender::Outside), IN(1));
    }
}

#[test]
fn the_local_policy_without_local_endpoints_is_summarised() {
    let (spec, status) = balanced("Local", &[]);
    let summary = explain(spec, status, &[slice("s", "http", "2=rs")], &[]).summary();
    let but = "the one endpoint gets traffic; but traffic from outside to its load-balancer address is dropped";
    assert!(summary.contains(but), "{summary}");
}

#[test]
fn source_ranges_exclude_senders() {
    let (spec, status) = balanced("Cluster", &["203.0.113.0/24"]);
    let told = explain(spec, status, &[slice("s", "http", "1=rsl 2=")], &[]);
    let by = |address, sender| traffic_on(&told, address, Role::LoadBalancer, sender);
    assert_eq!(by("10.244.0.1", Sender::Outside), IN(1));
    assert_eq!(by("10.244.0.1", Sender::Unlisted), EndpointTraffic::Excluded(ExclusionReason::SourceRanges));
    assert_eq!(by("10.244.0.1", Sender::Node), EndpointTraffic::Excluded(ExclusionReason::SourceRanges));
    assert_eq!(
        by("10.244.0.2", Sender::Unlisted),
        EndpointTraffic::Excluded(ExclusionReason::NotReady),
        "its own reason comes first"
    );
}

#[test]
fn pods_without_a_slice_are_listed() {
    let pod = |name: &str, node: &str, phase: &str, ips: &[&str]| {
        let ips: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        json!({"metadata": {"namespace": "default", "name": name}, "spec": {"nodeName": node},
            "status": {"phase": phase, "podIPs": ips}})
    };
    let pods = [
        pod("in", HERE, "Running", &["10.244.0.1"]),
        pod("unplaced", "", "Pending", &[]),
        pod("done", HERE, "Succeeded", &["10.244.0.1"]),
        pod("unheard", HERE, "Running", &["10.244.0.9"]),
    ];
    let told = explain(simple(), json!({}), &[slice("s", "http", "1=rsl")], &pods);
    assert_eq!(told.ports[0].candidates[0].pod.as_deref(), Some("default/in"));
    let left: Vec<(Option<&str>, &ExclusionReason)> =
        told.unassigned.iter().map(|one| (one.pod.as_deref(), &one.out)).collect();
    let waits = ExclusionReason::PodPending("for a node".to_owned());
    let want = [
        (Some("default/unplaced"), &waits),
        (Some("default/done"), &ExclusionReason::PodEnded("Succeeded".into())),
        (Some("default/unheard"), &ExclusionReason::NotInSlice),
    ];
    assert_eq!(left, want);
}

#[test]
fn services_without_addresses_are_explained() {
    let of = |spec: Value| explain(spec, json!({}), &[], &[]).summary();
    assert!(of(json!({"type": "ExternalName"})).contains("another name"));
    assert!(of(json!({"clusterIP": "None"})).contains("headless"));
    assert!(of(json!({})).contains("no address"));
    assert!(of(simple()).contains("there is no endpoint, so connections are refused"));
}

#[test]
fn an_address_names_its_owners() {
    let service: Service = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
            "externalIPs": ["198.51.100.8"], "healthCheckNodePort": 31000,
            "ports": [{"name": "http", "port": 80, "nodePort": 30080}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}},
    }))
    .expect("a Service");
    let slice: EndpointSlice = serde_json::from_value(slice("s", "http", "1=rs")).expect("a slice");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "web-1"}, "spec": {"nodeName": HERE},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.244.0.1"}]},
    }))
    .expect("a Pod");
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": HERE}, "spec": {"podCIDRs": ["10.244.0.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
    }))
    .expect("a Node");
    let cidr = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]}});
    let cidr: ServiceCidr = serde_json::from_value(cidr).expect("a ServiceCIDR");
    let objects = Objects { services: &[service], slices: &[slice], pods: &[pod], nodes: &[node], cidrs: &[cidr] };
    let ask = |address: Option<&str>, port: Option<u16>| -> Vec<String> {
        let found = owners(&objects, AddressQuery { ip: address.map(ip), port });
        found.iter().map(|one| format!("{} {}: {} ({})", one.kind, one.name, one.role, one.says)).collect()
    };
    let range = "ServiceCIDR kubernetes: Service range (10.96.0.0/16 is kept for cluster IPs)";
    assert_eq!(ask(Some("10.96.0.1"), None), ["Service default/web: cluster IP (port 80/TCP http)", range]);
    let wrong = "Service default/web: cluster IP (has no port 81; it has port 80/TCP http)";
    assert_eq!(ask(Some("10.96.0.1"), Some(81)), [wrong, range]);
    assert_eq!(ask(Some("10.96.0.9"), None), [range]);
    let balanced = "Service default/web: load-balancer address (port 80/TCP http)";
    assert_eq!(ask(Some("198.51.100.7"), Some(80)), [balanced]);
    assert_eq!(ask(Some("198.51.100.8"), Some(80)), ["Service default/web: external IP (port 80/TCP http)"]);
    let node_port = "Service default/web: node port (port 80/TCP http)";
    assert_eq!(ask(Some("192.0.2.1"), Some(30080)), [node_port, "Node here: node address (InternalIP)"]);
    assert_eq!(ask(None, Some(30080)), [node_port]);
    assert!(ask(None, Some(31000))[0].contains("health-check node port"));
    let pod = ask(Some("10.244.0.1"), Some(8080));
    assert_eq!(pod[0], "Pod default/web-1: Pod address (on node here)");
    assert_eq!(pod[1], "EndpointSlice default/s: endpoint (of Service default/web, port 8080/TCP http, ready)");
    assert_eq!(pod[2], "Node here: Pod range (10.244.0.0/24 is for the Pods of this node)");
    assert!(ask(Some("10.244.0.1"), Some(9))[1].contains("not at this port"));
    assert_eq!(ask(Some("203.0.113.1"), None), Vec::<String>::new());
}

/// The last state of each object.
fn last(said: Vec<Said>) -> (BTreeMap<Thing, Option<Value>>, Vec<Service>, Vec<EndpointSlice>) {
    let last: BTreeMap<Thing, Option<Value>> = said.into_iter().collect();
    let objects = |wanted: fn(&Thing) -> bool| {
        last.iter().filter(move |(thing, _)| wanted(thing)).filter_map(|(_, object)| object.clone())
    };
    let services = objects(|thing| matches!(thing, Thing::Service(_)))
        .map(|object| serde_json::from_value(object).expect("a Service"))
        .collect();
    let slices = objects(|thing| matches!(thing, Thing::Slice(_)))
        .map(|object| serde_json::from_value(object).expect("a slice"))
        .collect();
    (last, services, slices)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    /// Endpoints reported with traffic are exactly those of the oracle; every endpoint is accounted for.
    #[test]
    fn explanations_are_what_the_oracle_does(said in vec(anything(), 10..40), options in any_options()) {
        let (last, services, slices) = last(said);
        let mut planner = Planner::new(options);
        planner.update_all(last.into_iter().map(|one| say(&one)));
        for service in &services {
            let name = format!("ns/{}", service.metadata.name);
            let own: Vec<EndpointSlice> = slices.iter().filter(|one| one.service().as_deref() == Some(&*name)).cloned().collect();
            let told = planner.why(&Subject { service, slices: &own, pods: &[] });
            let planned = planner.plan().ports.keys().filter(|key| *key.service == *name).count();
            prop_assert_eq!(told.ports.len(), planned);
            for port in &told.ports {
                for (index, path) in port.paths.iter().enumerate() {
                    let forwarded = match path.packet.as_ref().map(|packet| judge(planner.plan(), packet)) {
                        Some(Outcome::Forward(forward)) if forward.port == port.planned.key => forward.backends,
                        _ => Vec::new(),
                    };
                    let inside: Vec<_> = port.candidates.iter()
                        .filter(|one| matches!(one.traffic[index], EndpointTraffic::Receives { .. }))
                        .map(|one| (one.address.clone(), one.port))
                        .collect();
                    let want: Vec<_> = forwarded.iter().map(|one| (one.ip.to_string(), Some(one.port))).collect();
                    prop_assert_eq!(inside, want, "{:?}", path);
                }
                for candidate in &port.candidates {
                    prop_assert_eq!(candidate.traffic.len(), port.paths.len());
                }
            }
            let named = |text: &str| {
                told.ports.iter().flat_map(|port| &port.candidates).any(|one| one.address == text)
                    || told.unassigned.iter().any(|one| one.what == text)
            };
            for address in own.iter().flat_map(|slice| &slice.endpoints).filter_map(|one| one.addresses.first()) {
                prop_assert!(told.ports.is_empty() || named(address), "{} is not accounted for", address);
            }
            prop_assert!(!told.summary().is_empty());
        }
    }

    /// Traces end with the outcome of the oracle.
    #[test]
    fn traces_end_with_the_verdict_of_the_oracle(
        said in vec(anything(), 10..40), options in any_options(), packets in vec(any_packet(), 40)
    ) {
        let mut planner = Planner::new(options);
        planner.update_all(said.iter().map(say));
        for packet in packets {
            let told = trace(planner.plan(), &packet);
            prop_assert_eq!(&told.outcome, &judge(planner.plan(), &packet));
            let at = |at: Stage| told.steps.iter().find(|step| step.at == at);
            prop_assert_eq!(told.steps.last().map(|step| step.at), Some(Stage::Verdict));
            if let Outcome::Forward(forward) = &told.outcome {
                let source = at(Stage::Source).map(|step| step.says.as_str()).unwrap_or_default();
                prop_assert_eq!(source.starts_with("the endpoint sees the node"), forward.masquerade, "{}", source);
                prop_assert_eq!(at(Stage::Affinity).is_some(), forward.affinity.is_some());
                prop_assert!(at(Stage::Policy).is_some() && at(Stage::Candidates).is_some());
            } else {
                prop_assert!(at(Stage::Source).is_none());
            }
        }
    }
}
