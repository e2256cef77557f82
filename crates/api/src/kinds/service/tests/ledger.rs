//! Whatever clients do, the pool holds exactly what the stored Services hold.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Cluster;
use crate::ip::parse_lenient;
use crate::value::ValueExt as _;

fn spec() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec!["", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "Foo"]);
    let policy = prop::sample::select(vec!["", "SingleStack", "PreferDualStack", "RequireDualStack"]);
    let ip = prop::sample::select(vec!["", "", "None", "10.96.0.5", "10.96.0.6", "fd00:10:96::5", "1.2.3.4", "x"]);
    let families = prop::sample::select(vec![json!([]), json!(["IPv4"]), json!(["IPv6"]), json!(["IPv6", "IPv4"])]);
    let traffic = prop::sample::select(vec!["", "Local", "Cluster"]);
    let port = (1..3i64, prop::sample::select(vec![0i64, 0, 30001, 30002, 99]), any::<bool>());
    let health = prop::sample::select(vec![0i64, 0, 30002, 30003]);
    let ports = prop::collection::vec(port, 0..4);
    (kind, policy, ip, families, traffic, ports, health, any::<Option<bool>>()).prop_map(
        |(kind, policy, ip, families, traffic, ports, health, allocate)| {
            let mut spec = json!({"externalName": "a.b"});
            for (field, text) in
                [("type", kind), ("ipFamilyPolicy", policy), ("clusterIP", ip), ("externalTrafficPolicy", traffic)]
            {
                if !text.is_empty() {
                    spec.put(field, text);
                }
            }
            if families != json!([]) {
                spec.put("ipFamilies", families);
            }
            if health != 0 {
                spec.put("healthCheckNodePort", health);
            }
            if let Some(allocate) = allocate.filter(|_| kind == "LoadBalancer") {
                spec.put("allocateLoadBalancerNodePorts", allocate);
            }
            let ports = ports.into_iter().enumerate().map(|(index, (number, node, udp))| {
                let mut port =
                    json!({"name": format!("p{index}"), "port": number, "protocol": if udp { "UDP" } else { "TCP" }});
                if node != 0 {
                    port.put("nodePort", node);
                }
                port
            });
            spec.put("ports", ports.collect::<Vec<_>>());
            spec
        },
    )
}

fn held(cluster: &Cluster) -> (BTreeSet<IpAddr>, BTreeSet<u16>) {
    let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for service in cluster.services.values() {
        for address in service.texts("spec.clusterIPs").into_iter().filter_map(parse_lenient) {
            assert!(addresses.insert(address), "{address} twice");
        }
        if matches!(service.text("spec.type"), "NodePort" | "LoadBalancer") {
            let list = service.items("spec.ports").iter().map(|port| port.int("nodePort"));
            let own: BTreeSet<i64> =
                list.chain([service.int("spec.healthCheckNodePort")]).filter(|port| *port != 0).collect();
            for port in own {
                let port = u16::try_from(port).expect("in range");
                assert!(ports.insert(port), "{port} twice");
            }
        }
    }
    (addresses, ports)
}

proptest! {
    #[test]
    fn the_pool_and_the_services_agree(steps in prop::collection::vec((0..3usize, 0..4usize, spec()), 1..12)) {
        let mut cluster = Cluster::dual();
        for (which, action, spec) in steps {
            let name = ["a", "b", "c"][which];
            let object = json!({"metadata": {"name": name}, "spec": spec});
            let exists = cluster.services.contains_key(name);
            match action {
                0 => cluster.delete(name),
                1 if exists => { let _ = cluster.update(object); }
                2 if exists => { let _ = cluster.patch(name, &json!({"spec": object.at("spec")})); }
                _ if exists => {}
                _ => { let _ = cluster.create(object); }
            }
            prop_assert_eq!(held(&cluster), (cluster.pool.addresses.clone(), cluster.pool.ports.clone()));
        }
    }
}
