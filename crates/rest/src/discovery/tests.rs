use serde_json::{Value, json};

use super::fixture::KINDS;
use super::*;

fn entry<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    list.as_array().expect("a list").iter().find(|entry| entry[key] == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn the_core_group_is_only_below_api() {
    let api = core_versions(KINDS, "10.0.0.1:6443");
    assert_eq!(api["versions"], json!(["v1"]));
    assert_eq!(api["serverAddressByClientCIDRs"][0]["serverAddress"], "10.0.0.1:6443");
    let groups = group_list(KINDS);
    let names: Vec<_> = groups["groups"].as_array().expect("groups").iter().map(|group| &group["name"]).collect();
    assert_eq!(
        names,
        ["events.k8s.io", "authorization.k8s.io", "networking.k8s.io", "coordination.k8s.io", "discovery.k8s.io"]
    );
}

#[test]
fn a_group_names_its_versions() {
    assert_eq!(
        group(KINDS, "discovery.k8s.io"),
        Some(json!({
            "kind": "APIGroup",
            "apiVersion": "v1",
            "name": "discovery.k8s.io",
            "versions": [{ "groupVersion": "discovery.k8s.io/v1", "version": "v1" }],
            "preferredVersion": { "groupVersion": "discovery.k8s.io/v1", "version": "v1" },
        }))
    );
    assert_eq!(group(KINDS, ""), None);
    assert_eq!(group(KINDS, "none.example.com"), None);
}

#[test]
fn resources_are_sorted_with_their_parts_after_them() {
    let core = resources(KINDS, "", "v1").expect("a document");
    assert_eq!(core.get("apiVersion"), None, "the core document never had one");
    assert_eq!(core["groupVersion"], "v1");
    let names: Vec<&str> =
        core["resources"].as_array().expect("resources").iter().filter_map(|entry| entry["name"].as_str()).collect();
    assert!(names.is_sorted(), "{names:?}");
    let service = entry(&core["resources"], "name", "services");
    assert_eq!(service["shortNames"], json!(["svc"]));
    assert_eq!(service["storageVersionHash"], "0/CO1lhkEBI=");
    assert_eq!(
        entry(&core["resources"], "name", "services/status"),
        &json!({
            "name": "services/status",
            "singularName": "",
            "namespaced": true,
            "kind": "Service",
            "verbs": ["get", "patch", "update"],
        })
    );
    let eviction = entry(&core["resources"], "name", "pods/eviction");
    assert_eq!((&eviction["group"], &eviction["version"]), (&json!("policy"), &json!("v1")));
    assert_eq!(resources(KINDS, "discovery.k8s.io", "v9"), None);
    assert_eq!(resources(KINDS, "discovery.k8s.io", "v1").expect("a document")["apiVersion"], "v1");
}

#[test]
fn events_of_both_groups_are_stored_once() {
    let of = |group: &str| resources(KINDS, group, "v1").expect("a document")["resources"].clone();
    let (old, new) = (of(""), of("events.k8s.io"));
    assert_eq!(entry(&old, "name", "events")["storageVersionHash"], "r2yiGXH7wu8=");
    assert_eq!(entry(&new, "name", "events")["storageVersionHash"], "r2yiGXH7wu8=");
    let reviews = of("authorization.k8s.io");
    assert_eq!(reviews[0].get("storageVersionHash"), None, "what is not stored has no stored version");
}

#[test]
fn aggregated_discovery_equals_legacy_discovery() {
    let core = aggregated_core(KINDS);
    let document: Value = serde_json::from_slice(&core.body).expect("JSON");
    assert_eq!(document["items"][0]["metadata"], json!({}));
    let version = &document["items"][0]["versions"][0];
    assert_eq!(version["freshness"], "Current");
    let service = entry(&version["resources"], "resource", "services");
    assert_eq!(service["responseKind"], json!({ "group": "", "version": "", "kind": "Service" }));
    assert_eq!(service["scope"], "Namespaced");
    assert_eq!(service["subresources"][0]["responseKind"]["kind"], "ServiceProxyOptions");
    assert_eq!(entry(&version["resources"], "resource", "namespaces")["scope"], "Cluster");
    let pod = entry(&version["resources"], "resource", "pods");
    assert_eq!(entry(&pod["subresources"], "subresource", "eviction")["responseKind"]["group"], "policy");
    let groups: Value = serde_json::from_slice(&aggregated_groups(KINDS).body).expect("JSON");
    assert_eq!(groups["items"].as_array().map(Vec::len), Some(5));
    assert_eq!(groups["items"][4]["metadata"]["name"], "discovery.k8s.io");
}

#[test]
fn entity_tags_are_quoted_hashes_that_do_not_change() {
    let (first, second) = (aggregated_core(KINDS), aggregated_core(KINDS));
    assert_eq!(first.etag, second.etag);
    let inner = first.etag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).expect("quotes");
    assert_eq!(inner.len(), 128);
    assert!(inner.bytes().all(|byte| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte)));
    assert_ne!(first.etag, aggregated_groups(KINDS).etag);
}

#[test]
fn the_root_lists_paths_in_order() {
    let root = root(KINDS);
    let paths: Vec<&str> = root["paths"].as_array().expect("paths").iter().filter_map(Value::as_str).collect();
    assert!(paths.is_sorted());
    for path in ["/api/v1", "/apis/discovery.k8s.io", "/apis/discovery.k8s.io/v1", "/openapi/v3", "/version"] {
        assert!(paths.contains(&path), "{path}");
    }
}
