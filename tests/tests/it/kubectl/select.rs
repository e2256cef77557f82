//! Which objects: namespaces, label selectors, field selectors, pages.

use super::{Bed, service};

/// The names that `get services` finds.
#[track_caller]
fn names(bed: &Bed, arguments: &str) -> String {
    let out = bed.ok(&format!("get services -o name {arguments}"));
    out.lines().map(|line| line.trim_start_matches("service/")).collect::<Vec<_>>().join(" ")
}

/// A Service with labels.
fn labelled(name: &str, labels: &str) -> String {
    service(&format!("{name}\n  labels: {{{labels}}}"), "{ports: [{port: 80}]}")
}

#[test]
fn s01_namespaces_keep_services_apart_and_all_of_them_can_be_seen_at_once() {
    let bed = Bed::start();
    for namespace in ["blue", "green"] {
        bed.ok(&format!("create namespace {namespace}"));
        bed.ok_with(&format!("apply -n {namespace} -f -"), &labelled("web", "app: web"));
    }
    assert_eq!(names(&bed, ""), "kubernetes");
    assert_eq!(names(&bed, "-n blue"), "web");
    assert_eq!(names(&bed, "-A"), "web kubernetes web");
    let out = bed.ok("get services -A -l app=web");
    let rows = super::cells(&out);
    assert_eq!(rows[0][..2], ["NAMESPACE", "NAME"]);
    assert_eq!([&rows[1][..2], &rows[2][..2]], [["blue", "web"], ["green", "web"]]);
    let addresses = bed.ok("get services -A -o 'jsonpath={.items[*].spec.clusterIP}'");
    let mut addresses: Vec<_> = addresses.split_whitespace().collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 3, "no address twice");
    assert!(
        bed.fails_with("apply -n nowhere -f -", &labelled("web", "")).contains(r#"namespaces "nowhere" not found"#)
    );
}

#[test]
fn s01_label_selectors_choose_by_every_operator() {
    let bed = Bed::start();
    let web = labelled("web", "app: web, tier: front");
    let api = labelled("api", "app: api, tier: back");
    let old = labelled("old", "app: web, retired: ''");
    bed.ok_with("apply -f -", &[web, api, old].join("---\n"));
    for (selector, wanted) in [
        ("app=web", "old web"),
        ("app==web,tier=front", "web"),
        ("app!=web", "api kubernetes"),
        ("app in (web, api)", "api old web"),
        ("app,app notin (web)", "api"),
        ("retired", "old"),
        ("retired=", "old"),
        ("app,!retired", "api web"),
        ("app=nothing", ""),
    ] {
        assert_eq!(names(&bed, &format!("-l '{selector}'")), wanted, "{selector}");
    }
    assert!(bed.fails("get services -l a=b=c").contains("found '=', expected: ',' or 'end of string'"));
}

#[test]
fn s01_field_selectors_choose_services() {
    let bed = Bed::start();
    bed.service("cluster", "{clusterIP: 10.96.0.20, ports: [{port: 80}]}");
    bed.service("headless", "{clusterIP: None, ports: [{port: 80}]}");
    bed.service("node", "{type: NodePort, ports: [{port: 80}]}");
    for (selector, wanted) in [
        ("metadata.name=node", "node"),
        ("metadata.name!=node", "cluster headless kubernetes"),
        ("metadata.namespace=default,metadata.name!=kubernetes", "cluster headless node"),
        ("spec.type=NodePort", "node"),
        ("spec.type==ClusterIP,spec.clusterIP!=None", "cluster kubernetes"),
        ("spec.clusterIP=10.96.0.20", "cluster"),
    ] {
        assert_eq!(names(&bed, &format!("--field-selector {selector}")), wanted, "{selector}");
    }
    let refused = bed.fails("get services --field-selector spec.ports=80");
    assert!(refused.contains("field label not supported: spec.ports"), "{refused}");
    let refused = bed.fails("get configmaps --field-selector data=x");
    assert!(
        refused.contains("field label not supported: data") || refused.contains("is not a known field selector"),
        "{refused}"
    );
}

#[test]
fn s01_long_lists_come_in_pages_and_complete() {
    let bed = Bed::start();
    let many: Vec<_> = (0..25).map(|i| labelled(&format!("web-{i:02}"), "app: web")).collect();
    bed.ok_with("create -f -", &many.join("---\n"));
    let wanted: Vec<_> = (0..25).map(|i| format!("web-{i:02}")).collect();
    for size in [0, 1, 7, 25, 500] {
        assert_eq!(names(&bed, &format!("--chunk-size={size} -l app=web")), wanted.join(" "), "pages of {size}");
    }
    // As a table the pages are one table, with one header.
    let out = bed.ok("get services --chunk-size=7 -l app=web");
    assert_eq!(out.lines().count(), 26, "{out}");
}
