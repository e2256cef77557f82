//! Property test: after any changes in any order of delivery, addresses and Services equal those that are computed from the stored objects at once.

use proptest::prelude::*;

use super::*;

const CLASS_NAMES: [&str; 3] = ["waypost", "internal", "theirs"];

/// A step of a test run.
#[derive(Clone, Debug)]
enum Step {
    Class {
        number: usize,
        default: bool,
    },
    DeleteClass {
        number: usize,
    },
    Ingress {
        number: usize,
        class: Option<usize>,
        tls: bool,
    },
    DeleteIngress {
        number: usize,
    },
    /// Another controller writes addresses.
    Foreign {
        number: usize,
    },
    Backend {
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
    prop_oneof![
        3 => (0..3usize, any::<bool>()).prop_map(|(number, default)| Step::Class { number, default }),
        1 => (0..3usize).prop_map(|number| Step::DeleteClass { number }),
        5 => (0..4usize, prop::option::weighted(0.8, 0..3usize), any::<bool>())
            .prop_map(|(number, class, tls)| Step::Ingress { number, class, tls }),
        2 => (0..4usize).prop_map(|number| Step::DeleteIngress { number }),
        1 => (0..4usize).prop_map(|number| Step::Foreign { number }),
        1 => any::<bool>().prop_map(|exists| Step::Backend { exists }),
        1 => prop::option::of(any::<bool>()).prop_map(|good| Step::Secret { good }),
        8 => (0..8usize).prop_map(|pick| Step::Deliver { pick }),
        6 => (0..8usize).prop_map(|pick| Step::Run { pick }),
        1 => Just(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

fn happen(cluster: &mut Cluster, step: &Step) {
    match step {
        Step::Class { number, default } => {
            let controller = if *number == 2 { "example.com/edge" } else { CONTROLLER };
            let annotations = json!({"ingressclass.kubernetes.io/is-default-class": default.to_string()});
            put_class(cluster, CLASS_NAMES[*number], controller, &annotations);
        }
        Step::DeleteClass { number } => cluster.remove(CLASSES, CLASS_NAMES[*number]),
        Step::Ingress { number, class, tls } => {
            let mut ingress = with_class(&format!("i{number}"), class.map_or("", |class| CLASS_NAMES[class]));
            if class.is_none() {
                ingress.drop_path("spec.ingressClassName");
            }
            if *tls {
                ingress.put("spec.tls", json!([{"secretName": "cert"}]));
            }
            put(cluster, ingress);
        }
        Step::DeleteIngress { number } => cluster.remove(INGRESSES, &format!("default/i{number}")),
        Step::Foreign { number } => {
            if cluster.get(INGRESSES, &format!("default/i{number}")).is_some() {
                put_foreign_address(cluster, &format!("i{number}"), "203.0.113.7");
            }
        }
        Step::Backend { exists: true } => put_backend(cluster),
        Step::Backend { .. } => cluster.remove(SERVICES, "default/web"),
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

/// Removes the Services of classes that do not exist any more, as the garbage collector would.
fn collect_garbage(cluster: &mut Cluster) {
    let uids: Vec<String> = cluster.all(CLASSES).iter().map(|one| one.text("metadata.uid").to_owned()).collect();
    for service in cluster.all(SERVICES) {
        let owners = service.items("metadata.ownerReferences");
        if !owners.is_empty() && owners.iter().all(|owner| !uids.contains(&owner.text("uid").to_owned())) {
            cluster.remove(SERVICES, &format!("waypost-system/{}", service.text("metadata.name")));
        }
    }
}

/// The class of an Ingress, read naively: the one it names, or the default class; all are equally old.
fn class_of(cluster: &Cluster, ingress: &Value) -> Option<String> {
    let default = "ingressclass.kubernetes.io/is-default-class";
    let is_default = |class: &Value| class.at("metadata.annotations").get(default) == Some(&json!("true"));
    let named = ingress.at("spec.ingressClassName").as_str();
    let classes = cluster.all(CLASSES);
    let mut found = classes.iter().filter(|class| match named {
        Some(name) => class.text("metadata.name") == name,
        None => is_default(class),
    });
    let class = found.next().filter(|class| class.text("spec.controller") == CONTROLLER)?;
    Some(class.text("metadata.name").to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn s51_addresses_and_services_equal_a_recomputation(steps in prop::collection::vec(step(), 1..60)) {
        let mut cluster = without_pool();
        cluster.settings.ingress_class = ClassCreation::Off;
        pool(&mut cluster);
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
        let mut used = Vec::new();
        for ingress in cluster.all(INGRESSES) {
            let addresses = ingress.at("status.loadBalancer.ingress").clone();
            let Some(class) = class_of(&cluster, &ingress) else {
                let is_foreign = addresses == json!([{"ip": "203.0.113.7"}]);
                prop_assert!(addresses.is_null() || is_foreign, "{}", ingress);
                continue;
            };
            let key = format!("waypost-system/ingress-{class}");
            let service = cluster.get(SERVICES, &key);
            prop_assert!(service.is_some(), "{}", key);
            let service = service.unwrap_or_default();
            let ip = service.items("status.loadBalancer.ingress")[0].text("ip").to_owned();
            prop_assert_eq!(addresses, at(&ip));
            used.push(key);
        }
        for service in cluster.all(SERVICES) {
            let (namespace, name) = (service.text("metadata.namespace"), service.text("metadata.name"));
            let is_used = used.contains(&format!("{namespace}/{name}"));
            prop_assert!(namespace != "waypost-system" || is_used, "{}", service);
        }
    }
}
