//! Merged endpoints: names, groups, ports.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn slice(name: &str, port: u16, endpoints: &Value) -> Arc<Slice> {
    let object = json!({"metadata": {"name": name}, "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "P", "port": port}]});
    Arc::new(Slice::new(&serde_json::from_value(object).expect("a slice"), &Config::default(), |ports| ports))
}

fn labels(endpoints: &Endpoints) -> Vec<(String, Vec<String>)> {
    let label = |endpoint: &Endpoint| {
        let mut out = Vec::new();
        endpoints.write_label(endpoint, &mut out);
        String::from_utf8_lossy(&out[1..]).into_owned()
    };
    let group = |group: &[Endpoint]| (label(&group[0]), group.iter().map(|one| one.address.to_string()).collect());
    endpoints.groups().map(group).collect()
}

#[test]
fn endpoints_are_grouped_by_name() {
    let first = json!([{"addresses": ["10.0.0.2", "10.0.0.1"], "hostname": "B"}, {"addresses": ["10.0.0.9"]},
        {"addresses": ["10.0.0.8"], "conditions": {"ready": false}}, {"addresses": ["nonsense", "10.0.0.7"], "conditions": {"ready": null}}]);
    let second = json!([{"addresses": ["10.0.0.3"], "hostname": "b"}, {"addresses": ["10.0.0.9"]}, {"addresses": ["10.0.0.4"], "hostname": "10-0-0-7"}]);
    let endpoints = Endpoints::merged(&[slice("x", 1, &first), slice("y", 2, &second)]);
    let owned =
        |name: &str, all: &[&str]| (name.to_owned(), all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    let wanted = [
        owned("10-0-0-9", &["10.0.0.9", "10.0.0.9"]),
        owned("10-0-0-7", &["10.0.0.4", "10.0.0.7"]),
        owned("b", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
    ];
    assert_eq!(labels(&endpoints), wanted);
    assert_eq!(endpoints.named(b"b").len(), 3);
    assert_eq!(endpoints.named(b"10-0-0-7").len(), 2);
    assert_eq!(endpoints.named(b"10-0-0-9").len(), 2);
    assert!(
        endpoints.named(b"10-0-0-2").is_empty() && endpoints.named(b"a").is_empty() && endpoints.named(b"c").is_empty()
    );
    let ports: Vec<Option<u16>> = endpoints.named(b"b").iter().map(|one| endpoints.ports(one)[0].number).collect();
    assert_eq!(ports, [Some(1), Some(1), Some(2)]);
    assert_eq!(&*endpoints.ports(&endpoints.all()[0])[0].name, "p");
}

#[test]
fn an_external_name_that_is_an_address_has_no_records() {
    let kind = |text: &str| {
        ServiceFields::new(
            &serde_json::from_value(json!({"spec": {"type": "ExternalName", "externalName": text}}))
                .expect("a Service"),
        )
        .kind
    };
    assert_eq!(kind("1.2.3.4"), Kind::NoRecords);
    assert_eq!(kind("fd00::1"), Kind::NoRecords);
    assert_eq!(kind(""), Kind::NoRecords);
    assert_eq!(kind("1.2.3.4."), Kind::ExternalName(from_text("1.2.3.4").expect("a name").into()));
    assert_eq!(kind("Example.NET."), Kind::ExternalName(from_text("example.net").expect("a name").into()));
}

#[test]
fn endpoint_pod_names_name_endpoints_after_pods() {
    let object = json!({"metadata": {"name": "s"}, "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": {"name": "pod-1"}},
        {"addresses": ["10.0.0.2"], "targetRef": {"name": "x".repeat(64)}}, {"addresses": ["10.0.0.3"], "hostname": "h", "targetRef": {"name": "pod-3"}}]});
    let form = serde_json::from_value(object).expect("a slice");
    let with = |endpoint_pod_names| {
        let slice = Arc::new(Slice::new(&form, &Config { endpoint_pod_names, ..Config::default() }, |ports| ports));
        labels(&Endpoints::merged(&[slice])).into_iter().map(|(label, _)| label).collect::<Vec<_>>()
    };
    assert_eq!(with(false), ["10-0-0-1", "10-0-0-2", "h"]);
    assert_eq!(with(true), ["10-0-0-2", "h", "pod-1"]);
}

proptest! {
    /// Every endpoint is found by the label written for it, in any order of slices.
    #[test]
    fn endpoints_are_found_by_their_written_label(
        endpoints in prop::collection::vec((0u8..12, prop::option::of("[a-c]|10-0-0-[0-9]")), 0..20),
        split in 0usize..20,
    ) {
        let form = |(last, host): &(u8, Option<String>)| json!({"addresses": [format!("10.0.0.{last}")], "hostname": host});
        let split = split.min(endpoints.len());
        let [a, b] = [&endpoints[..split], &endpoints[split..]].map(|part| json!(part.iter().map(form).collect::<Vec<_>>()));
        let (a, b) = (slice("a", 1, &a), slice("b", 2, &b));
        let merged = Endpoints::merged(&[a.clone(), b.clone()]);
        prop_assert_eq!(merged.all().len(), endpoints.len());
        prop_assert_eq!(labels(&merged), labels(&Endpoints::merged(&[b, a])));
        let mut names = std::collections::BTreeSet::new();
        for group in merged.groups() {
            let mut label = Vec::new();
            merged.write_label(&group[0], &mut label);
            prop_assert_eq!(merged.named(&label[1..]), group);
            prop_assert!(names.insert(label), "one name, one group");
        }
    }
}
