use serde_json::json;

use super::*;
use crate::testing::Cluster;

fn cluster() -> Cluster {
    Cluster::new(&[&CONTROLLER])
}

fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "metadata": {"name": format!("{plural}.example.com"), "uid": plural, "generation": 1},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "conversion": {"strategy": "None"},
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

fn condition(cluster: &Cluster, plural: &str, kind: &str) -> Option<String> {
    let object = cluster.get(KIND.table, &format!("{plural}.example.com"))?;
    let found = api::crd::condition::find(&object, kind)?;
    Some(format!("{} {}", found.text("status"), found.text("reason")))
}

#[test]
fn a_definition_is_established_and_then_its_kind_is_known() {
    let mut cluster = cluster();
    cluster.put(KIND.table, definition("widgets", "Widget"));
    cluster.converge();
    assert_eq!(condition(&cluster, "widgets", "NamesAccepted").as_deref(), Some("True NoConflicts"));
    assert_eq!(condition(&cluster, "widgets", "Established").as_deref(), Some("True InitialNamesAccepted"));
    let kinds = cluster.cache.kinds.kinds();
    assert_eq!(kinds.find("example.com", "v1", "widgets").map(|kind| kind.kind), Some("Widget"));
    assert_eq!(kinds.by_table("example.com/widgets").map(|kind| kind.version), Some("v1"));
}

#[test]
fn a_name_that_is_given_up_is_free_for_the_next_definition() {
    let mut cluster = cluster();
    cluster.put(KIND.table, definition("widgets", "Widget"));
    cluster.converge();
    cluster.put(KIND.table, definition("gadgets", "Widget"));
    cluster.converge();
    assert_eq!(condition(&cluster, "gadgets", "NamesAccepted").as_deref(), Some("False ListKindConflict"));
    assert!(cluster.cache.kinds.kinds().find("example.com", "v1", "gadgets").is_none());
    cluster.remove(KIND.table, "widgets.example.com");
    cluster.converge();
    assert_eq!(condition(&cluster, "gadgets", "Established").as_deref(), Some("True InitialNamesAccepted"));
}

#[test]
fn objects_are_deleted_before_their_definition_and_finalizers_hold_both() {
    let mut cluster = cluster();
    cluster.put(KIND.table, definition("widgets", "Widget"));
    cluster.converge();
    let table = "example.com/widgets";
    cluster.put(table, json!({"metadata": {"name": "free", "namespace": "default", "uid": "1"}}));
    let held =
        json!({"metadata": {"name": "held", "namespace": "default", "uid": "2", "finalizers": ["example.com/f"]}});
    cluster.put(table, held);
    let mut deleted = cluster.get(KIND.table, "widgets.example.com").expect("a definition");
    deleted.put("metadata.deletionTimestamp", "1970-01-01T00:00:00Z");
    deleted.put("metadata.finalizers", json!([delete::FINALIZER]));
    cluster.put(KIND.table, deleted);
    cluster.converge();
    assert_eq!(condition(&cluster, "widgets", "Terminating").as_deref(), Some("True InstanceDeletionInProgress"));
    assert!(cluster.get(table, "default/free").is_none());
    let held = cluster.get(table, "default/held").expect("a held object");
    assert!(held.has("metadata.deletionTimestamp"));
    cluster.remove(table, "default/held");
    cluster.converge();
    assert!(cluster.get(KIND.table, "widgets.example.com").is_none());
    assert!(cluster.cache.kinds.kinds().find("example.com", "v1", "widgets").is_none());
}

#[test]
fn a_namespace_takes_objects_with_it_whose_definition_is_not_served() {
    let mut cluster = Cluster::new(&[&crate::namespaces::CONTROLLER]);
    cluster.put(KIND.table, definition("widgets", "Widget"));
    cluster.converge();
    assert!(cluster.cache.kinds.kinds().find("example.com", "v1", "widgets").is_none());
    cluster.put("example.com/widgets", json!({"metadata": {"name": "a", "namespace": "team", "uid": "1"}}));
    let deleting = json!({
        "metadata": {"name": "team", "deletionTimestamp": "1970-01-01T00:00:00Z"}, "spec": {"finalizers": ["kubernetes"]},
    });
    cluster.put("namespaces", deleting);
    cluster.converge();
    assert!(cluster.get("example.com/widgets", "team/a").is_none());
}
