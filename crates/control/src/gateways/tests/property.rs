//! Property test: after any changes in any order of delivery, statuses and Services equal those that are computed from the stored objects at once.

use proptest::prelude::*;

use super::*;
use crate::testing::service as backend;

/// A step of a test run.
#[derive(Clone, Debug)]
enum Step {
    Gateway {
        number: usize,
        listeners: Vec<usize>,
        class: bool,
    },
    DeleteGateway {
        number: usize,
    },
    Route {
        number: usize,
        kind: usize,
        gateway: usize,
        section: Option<usize>,
        backend: usize,
    },
    DeleteRoute {
        number: usize,
        kind: usize,
    },
    Backend {
        number: usize,
        exists: bool,
    },
    Secret {
        good: Option<bool>,
    },
    /// Delivers a change of one table.
    Deliver {
        pick: usize,
    },
    /// Reconciles one of the queued keys.
    Run {
        pick: usize,
    },
    Wait,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let gateway = (0..2usize, prop::collection::btree_set(0..5usize, 1..4), prop::bool::weighted(0.8)).prop_map(
        |(number, listeners, class)| Step::Gateway { number, listeners: listeners.into_iter().collect(), class },
    );
    let route = (0..4usize, 0..5usize, 0..2usize, prop::option::of(0..5usize), 0..2usize)
        .prop_map(|(number, kind, gateway, section, backend)| Step::Route { number, kind, gateway, section, backend });
    prop_oneof![
        3 => gateway,
        1 => (0..2usize).prop_map(|number| Step::DeleteGateway { number }),
        5 => route,
        1 => (0..4usize, 0..5usize).prop_map(|(number, kind)| Step::DeleteRoute { number, kind }),
        2 => (0..2usize, any::<bool>()).prop_map(|(number, exists)| Step::Backend { number, exists }),
        1 => prop::option::of(any::<bool>()).prop_map(|good| Step::Secret { good }),
        8 => (0..8usize).prop_map(|pick| Step::Deliver { pick }),
        6 => (0..8usize).prop_map(|pick| Step::Run { pick }),
        1 => Just(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

fn listener_of(number: usize) -> Value {
    match number {
        0 => listener("l0", 80, "HTTP"),
        1 => json!({"name": "l1", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "cert"}]}}),
        2 => json!({"name": "l2", "port": 8443, "protocol": "TLS", "tls": {"mode": "Passthrough"}}),
        3 => listener("l3", 5432, "TCP"),
        _ => listener("l4", 53, "UDP"),
    }
}

fn happen(cluster: &mut Cluster, step: &Step) {
    match step {
        Step::Gateway { number, listeners, class } => {
            let listeners: Vec<Value> = listeners.iter().map(|one| listener_of(*one)).collect();
            let class = if *class { "waypost" } else { "other" };
            put(cluster, GATEWAYS, &format!("g{number}"), json!({"gatewayClassName": class, "listeners": listeners}));
        }
        Step::DeleteGateway { number } => cluster.remove(GATEWAYS, &format!("default/g{number}")),
        Step::Route { number, kind, gateway, section, backend } => {
            let mut parent = json!({"name": format!("g{gateway}")});
            if let Some(section) = section {
                parent.put("sectionName", format!("l{section}"));
            }
            let rules = json!([{"backendRefs": [{"name": format!("b{backend}"), "port": 80}]}]);
            let mut spec = json!({"parentRefs": [parent], "rules": rules});
            if *kind == 2 {
                spec.put("hostnames", json!(["a.example.com"]));
            }
            put(cluster, ROUTES[*kind].0, &format!("r{number}"), spec);
        }
        Step::DeleteRoute { number, kind } => cluster.remove(ROUTES[*kind].0, &format!("default/r{number}")),
        Step::Backend { number, exists: true } => cluster.put(service::TABLE, backend(&format!("b{number}"), "web")),
        Step::Backend { number, .. } => cluster.remove(service::TABLE, &format!("default/b{number}")),
        Step::Secret { good: None } => cluster.remove("secrets", "default/cert"),
        Step::Secret { good: Some(good) } => {
            let text = if *good { "good" } else { "bad" };
            let metadata = json!({"name": "cert", "namespace": "default"});
            cluster
                .put("secrets", json!({"metadata": metadata, "type": "kubernetes.io/tls", "data": {"tls.crt": text}}));
        }
        Step::Deliver { pick } => {
            let tables = cluster.undelivered();
            if !tables.is_empty() {
                cluster.deliver(tables[pick % tables.len()]);
            }
        }
        Step::Run { pick } => {
            let queued: Vec<(usize, String)> = cluster.queued.iter().cloned().collect();
            if !queued.is_empty() {
                let (index, key) = &queued[pick % queued.len()];
                cluster.run(*index, key);
            }
        }
        Step::Wait => cluster.wait(),
        Step::Restart => cluster.restart(),
    }
}

/// The stored Services of Gateways that do not exist any more: the garbage collector would delete them.
fn collect_garbage(cluster: &mut Cluster) {
    let uids: Vec<String> = cluster.all(GATEWAYS).iter().map(|one| one.text("metadata.uid").to_owned()).collect();
    for service in cluster.all(service::TABLE) {
        let owners = service.items("metadata.ownerReferences");
        if !owners.is_empty() && owners.iter().all(|owner| !uids.contains(&owner.text("uid").to_owned())) {
            cluster.remove(service::TABLE, &format!("default/{}", service.text("metadata.name")));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn s52_statuses_equal_a_recomputation(steps in prop::collection::vec(step(), 1..60)) {
        let mut cluster = cluster();
        converge(&mut cluster);
        for step in &steps {
            happen(&mut cluster, step);
        }
        converge(&mut cluster);
        collect_garbage(&mut cluster);
        converge(&mut cluster);
        // From here on everything is computed from the stored objects, in another order.
        cluster.written.clear();
        cluster.restart();
        converge(&mut cluster);
        prop_assert_eq!(&cluster.written, &vec![]);
        for gateway in cluster.all(GATEWAYS) {
            let is_ours = gateway.text("spec.gatewayClassName") == "waypost";
            let key = format!("default/{}-waypost", gateway.text("metadata.name"));
            let service = cluster.get(service::TABLE, &key);
            if is_ours {
                let names = |items: &[Value]| -> Vec<String> { items.iter().map(|one| one.text("name").to_owned()).collect() };
                let (spec, status) = (names(gateway.items("spec.listeners")), names(gateway.items("status.listeners")));
                prop_assert_eq!(spec, status);
            } else {
                prop_assert!(service.is_none(), "{:?}", service);
            }
        }
    }
}
