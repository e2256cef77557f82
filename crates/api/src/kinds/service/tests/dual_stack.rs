//! One family or two, for each way a cluster may be configured.

use serde_json::{Value, json};

use super::{Cluster, complaint, object, service};
use crate::ip::Family::{self, V4, V6};
use crate::value::ValueExt as _;

const CLUSTERS: [&[Family]; 4] = [&[V4], &[V6], &[V4, V6], &[V6, V4]];

/// `SingleStack 4`, or the field that is complained about first.
fn outcome(families: &[Family], spec: &Value) -> String {
    let answer = Cluster::new(families).create(service(spec));
    let Ok((object, _)) = &answer else {
        let message = complaint(&answer);
        return message.trim_start_matches('[').split(": ").next().unwrap_or_default().to_owned();
    };
    let list: String = object.texts("spec.ipFamilies").iter().map(|family| &family[3..]).collect();
    let ips = object.items("spec.clusterIPs");
    if ips[0] != "None" {
        let kinds: String =
            object.texts("spec.clusterIPs").iter().map(|ip| if ip.contains(':') { '6' } else { '4' }).collect();
        assert_eq!(kinds, list, "addresses follow the families");
    }
    assert_eq!(&ips[0], object.at("spec.clusterIP"));
    format!("{} {list}", object.text("spec.ipFamilyPolicy"))
}

#[test]
fn the_matrix_of_policies_and_families() {
    let (single, prefer, require) = ("SingleStack", "PreferDualStack", "RequireDualStack");
    let policy = "spec.ipFamilyPolicy";
    let first = "spec.ipFamilies[0]";
    let s = |list: &str| format!("{single} {list}");
    let p = |list: &str| format!("{prefer} {list}");
    let r = |list: &str| format!("{require} {list}");
    let e = str::to_owned;
    let rows: Vec<(Value, [String; 4])> = vec![
        (json!({}), [s("4"), s("6"), s("4"), s("6")]),
        (json!({"ipFamilies": ["IPv6"]}), [e(first), s("6"), s("6"), s("6")]),
        (json!({"ipFamilies": ["IPv4", "IPv6"]}), [e(policy), e(policy), e(policy), e(policy)]),
        (json!({"ipFamilyPolicy": single, "ipFamilies": ["IPv4"]}), [s("4"), e(first), s("4"), s("4")]),
        (json!({"ipFamilyPolicy": prefer}), [p("4"), p("6"), p("46"), p("64")]),
        (json!({"ipFamilyPolicy": prefer, "ipFamilies": ["IPv6"]}), [e(first), p("6"), p("64"), p("64")]),
        (
            json!({"ipFamilyPolicy": prefer, "ipFamilies": ["IPv6", "IPv4"]}),
            [e(first), e("spec.ipFamilies[1]"), p("64"), p("64")],
        ),
        (json!({"ipFamilyPolicy": require}), [e(policy), e(policy), r("46"), r("64")]),
        (json!({"clusterIP": "None"}), [r("46"), r("64"), r("46"), r("64")]),
        (json!({"clusterIP": "None", "ipFamilyPolicy": single}), [s("4"), s("6"), s("4"), s("6")]),
        (json!({"clusterIP": "None", "selector": {"a": "b"}}), [s("4"), s("6"), s("4"), s("6")]),
        (json!({"clusterIP": "fd00:10:96::5"}), [e("spec.clusterIPs[0]"), s("6"), s("6"), s("6")]),
    ];
    for (mut spec, wanted) in rows {
        spec.put("ports", json!([{"port": 80}]));
        for (families, want) in CLUSTERS.iter().zip(wanted) {
            assert_eq!(outcome(families, &spec), want, "{spec} on {families:?}");
        }
    }
}

#[test]
fn two_addresses_need_a_policy_that_allows_them() {
    let ports = json!([{"port": 80}]);
    let both = json!(["10.96.0.9", "fd00:10:96::9"]);
    let spec = json!({"ports": ports, "clusterIP": "10.96.0.9", "clusterIPs": both});
    assert_eq!(
        complaint(&Cluster::dual().create(service(&spec))),
        "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when \
         multiple cluster IPs are specified"
    );
    let mut spec = spec;
    spec.put("ipFamilyPolicy", "RequireDualStack");
    let got = object(Cluster::dual().create(service(&spec)));
    assert_eq!(got.at("spec.ipFamilies"), &json!(["IPv4", "IPv6"]));
    assert_eq!(got.at("spec.clusterIPs"), &both);
}

#[test]
fn a_second_address_comes_and_goes() {
    let mut cluster = Cluster::dual();
    let first = object(cluster.create(service(&json!({"ports": [{"port": 80}]}))));
    let up = object(cluster.patch("web", &json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}})));
    assert_eq!(up.items("spec.clusterIPs")[0], *first.at("spec.clusterIP"));
    assert_eq!(up.items("spec.clusterIPs").len(), 2);
    assert_eq!(cluster.pool.addresses.len(), 2);
    let only = json!({"spec": {"clusterIPs": [first.text("spec.clusterIP")]}});
    assert_eq!(
        complaint(&cluster.patch("web", &only)),
        "spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be 'SingleStack' to release the secondary cluster IP"
    );
    let down = object(cluster.patch("web", &json!({"spec": {"ipFamilyPolicy": "SingleStack"}})));
    assert_eq!(down.at("spec.ipFamilies"), &json!(["IPv4"]));
    assert_eq!(cluster.pool.addresses.len(), 1);
}

#[test]
fn a_preference_is_never_upgraded_behind_the_back() {
    let mut cluster = Cluster::new(&[V4]);
    object(cluster.create(service(&json!({"ports": [{"port": 80}], "ipFamilyPolicy": "PreferDualStack"}))));
    let mut grown = Cluster::dual();
    grown.pool.addresses = cluster.pool.addresses.clone();
    grown.services = cluster.services.clone();
    let same = object(grown.patch("web", &json!({"metadata": {"labels": {"a": "b"}}})));
    assert_eq!(same.items("spec.clusterIPs").len(), 1);
    let asked = object(grown.patch("web", &json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}})));
    assert_eq!(asked.items("spec.clusterIPs").len(), 2);
}

#[test]
fn a_changed_family_contradicts_the_address() {
    let mut cluster = Cluster::dual();
    object(cluster.create(service(&json!({"ports": [{"port": 80}], "clusterIP": "10.96.0.4"}))));
    assert_eq!(
        complaint(&cluster.patch("web", &json!({"spec": {"ipFamilies": ["IPv6"]}}))),
        "spec.clusterIPs[0]: Invalid value: \"10.96.0.4\": expected an IPv6 value as indicated by `ipFamilies[0]`"
    );
}
