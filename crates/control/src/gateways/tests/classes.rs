//! The class that is created, statuses of classes, and their finalizer.

use super::*;

const FINALIZERS: &str = "metadata.finalizers";

fn class(cluster: &Cluster, name: &str) -> Value {
    cluster.get(CLASSES, name).expect("a class")
}

#[test]
fn s52_the_class_is_created_and_accepted() {
    let mut cluster = cluster();
    converge(&mut cluster);
    let made = class(&cluster, "waypost");
    assert_eq!(made.text("spec.controllerName"), "waypost.dev/gateway-controller");
    assert_condition(made.at("status"), "Accepted=True/Accepted");
    assert_condition(made.at("status"), "SupportedVersion=True/SupportedVersion");
    let features: Vec<&str> = made.items("status.supportedFeatures").iter().map(|one| one.text("name")).collect();
    assert!(features.contains(&"Gateway") && features.is_sorted(), "{features:?}");
}

#[test]
fn s52_no_class_is_created_unless_it_is_asked_for() {
    let mut cluster = without_pool();
    cluster.settings.gateway_class = false;
    cluster.restart();
    converge(&mut cluster);
    assert_eq!(cluster.all(CLASSES), Vec::<Value>::new());
}

#[test]
fn s52_a_class_of_another_controller_is_not_touched() {
    let mut cluster = cluster();
    put(&mut cluster, CLASSES, "other", json!({"controllerName": "example.com/controller"}));
    put(
        &mut cluster,
        GATEWAYS,
        "theirs",
        json!({"gatewayClassName": "other", "listeners": [listener("http", 80, "HTTP")]}),
    );
    converge(&mut cluster);
    assert!(!class(&cluster, "other").has("status") && !class(&cluster, "other").has(FINALIZERS));
    assert!(!cluster.get(GATEWAYS, "default/theirs").expect("a Gateway").has("status"));
    assert_eq!(cluster.writes_to(service::TABLE), 0);
}

#[test]
fn s52_a_class_that_a_gateway_names_has_a_finalizer() {
    let mut cluster = cluster();
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    converge(&mut cluster);
    let expected = "gateway-exists-finalizer.gateway.networking.k8s.io";
    assert_eq!(class(&cluster, "waypost").texts(FINALIZERS), [expected]);
    // It was deleted: it goes when its last Gateway does.
    let mut deleted = class(&cluster, "waypost");
    deleted.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
    cluster.put(CLASSES, deleted);
    converge(&mut cluster);
    assert!(cluster.get(CLASSES, "waypost").is_some());
    cluster.remove(GATEWAYS, "default/public");
    converge(&mut cluster);
    assert!(cluster.get(CLASSES, "waypost").is_none());
}
