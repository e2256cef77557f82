//! The class that is created.

use super::*;

const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";

fn with(setting: ClassCreation) -> Cluster {
    let mut cluster = Cluster::new(&[&class::CONTROLLER]);
    cluster.settings.ingress_class = setting;
    cluster
}

fn is_default(cluster: &Cluster) -> bool {
    let class = cluster.get(CLASSES, "waypost").expect("a class");
    class.at("metadata.annotations").get(DEFAULT).is_some()
}

#[test]
fn s51_the_class_is_created_on_request() {
    for (setting, default) in [(ClassCreation::On, false), (ClassCreation::Default, true)] {
        let mut cluster = with(setting);
        cluster.restart();
        converge(&mut cluster);
        let made = cluster.get(CLASSES, "waypost").expect("a class");
        assert_eq!(made.text("spec.controller"), CONTROLLER);
        assert_eq!(is_default(&cluster), default);
        // It stays deleted until the next start.
        cluster.remove(CLASSES, "waypost");
        converge(&mut cluster);
        assert_eq!(cluster.all(CLASSES), Vec::<Value>::new());
        cluster.restart();
        converge(&mut cluster);
        assert_eq!(cluster.all(CLASSES).len(), 1);
    }
    let mut cluster = with(ClassCreation::Off);
    cluster.restart();
    converge(&mut cluster);
    assert_eq!(cluster.all(CLASSES), Vec::<Value>::new());
}

#[test]
fn s51_a_default_class_stays_the_only_one() {
    let mut cluster = with(ClassCreation::Default);
    put_class(&mut cluster, "theirs", "example.com/edge", &json!({DEFAULT: "true"}));
    cluster.restart();
    converge(&mut cluster);
    assert!(!is_default(&cluster));
}

#[test]
fn s51_a_class_of_that_name_is_kept() {
    let mut cluster = with(ClassCreation::Default);
    put_class(&mut cluster, "waypost", "example.com/edge", &json!({}));
    cluster.restart();
    converge(&mut cluster);
    let kept = cluster.get(CLASSES, "waypost").expect("a class");
    assert_eq!(kept.text("spec.controller"), "example.com/edge");
    assert!(!is_default(&cluster));
}

#[test]
fn s51_ingresses_without_class_belong_to_the_default_class() {
    let mut cluster = cluster();
    let mut ingress = with_class("shop", "");
    ingress.drop_path("spec.ingressClassName");
    put(&mut cluster, ingress);
    converge(&mut cluster);
    assert!(addresses(&cluster, "shop").is_null());
    put_class(&mut cluster, "waypost", CONTROLLER, &json!({DEFAULT: "true"}));
    converge(&mut cluster);
    assert_eq!(addresses(&cluster, "shop"), at("192.0.2.0"));
}
