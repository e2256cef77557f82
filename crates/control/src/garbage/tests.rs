//! Owners and dependents in a simulated cluster.

use serde_json::{Value, json};

use super::*;
use crate::testing::{Cluster, service};

const SLICES: &str = "endpointslices";
const SERVICES: &str = "services/specs";
const MAPS: &str = "configmaps";

fn cluster() -> Cluster {
    Cluster::new(&[&CONTROLLER])
}

/// A reference to a ConfigMap of the namespace `default`, or to a Service.
fn owned_by(kind: &str, name: &str, blocks: bool) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": format!("uid of default/{name}"),
           "blockOwnerDeletion": blocks})
}

fn map(name: &str, owners: &[Value]) -> Value {
    let mut metadata = json!({"name": name, "namespace": "default"});
    if !owners.is_empty() {
        metadata.put("ownerReferences", owners.to_vec());
    }
    json!({"metadata": metadata})
}

fn slice(name: &str, owners: &[Value]) -> Value {
    let mut slice = map(name, owners);
    slice.put("addressType", "IPv4");
    slice.put("endpoints", json!([]));
    slice
}

/// The object as it is after a deletion that left it with a finalizer.
fn deleted(mut object: Value, finalizers: &[&str]) -> Value {
    object.put("metadata.deletionTimestamp", "2026-01-02T00:00:00Z");
    object.put("metadata.deletionGracePeriodSeconds", 0);
    object.put("metadata.finalizers", finalizers.to_vec());
    object
}

fn names(cluster: &Cluster, table: &'static str) -> Vec<String> {
    cluster.all(table).iter().map(|object| object.text("metadata.name").to_owned()).collect()
}

/// The removed objects, in order.
fn removed(cluster: &Cluster) -> Vec<&str> {
    let removed = cluster.written.iter().filter(|(.., removed)| *removed);
    removed.map(|(_, key, _)| key.as_str()).collect()
}

#[test]
fn objects_without_owners_are_deleted_with_their_dependents() {
    let mut cluster = cluster();
    cluster.put(SERVICES, service("web", "web"));
    cluster.put(SLICES, slice("a", &[owned_by("Service", "web", true)]));
    cluster.put(
        MAPS,
        map(
            "below",
            &[json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "name": "a",
                                           "uid": "uid of default/a"})],
        ),
    );
    cluster.put(MAPS, map("free", &[]));
    cluster.converge();
    assert!(cluster.written.is_empty(), "nothing is to be done: {:?}", cluster.written);

    cluster.remove(SERVICES, "default/web");
    cluster.converge();
    assert_eq!(removed(&cluster), ["default/a", "default/below"]);
    assert_eq!(names(&cluster, MAPS), ["free"]);
}

#[test]
fn owners_are_identified_by_uid_and_unknown_kinds_exist() {
    let mut cluster = cluster();
    cluster.put(MAPS, map("owner", &[]));
    let mut stranger = owned_by("ConfigMap", "owner", false);
    stranger.put("uid", "another uid");
    cluster.put(MAPS, map("of-a-stranger", &[stranger]));
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "none", "uid": "1"});
    cluster.put(MAPS, map("of-a-widget", &[unknown]));
    cluster.put(MAPS, map("of-nothing", &[owned_by("ConfigMap", "none", false)]));
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "name": "none", "uid": "1"});
    cluster.put(MAPS, map("of-a-review", &[review]));
    cluster.converge();
    assert_eq!(names(&cluster, MAPS), ["of-a-review", "of-a-widget", "owner"]);
}

#[test]
fn an_owner_without_namespace_is_found_without_one() {
    let mut cluster = cluster();
    cluster.put("minions", json!({"metadata": {"name": "one", "uid": "1"}}));
    let node = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid});
    cluster.put(MAPS, map("kept", &[node("one", "1")]));
    cluster.put(MAPS, map("lost", &[node("two", "2")]));
    cluster.converge();
    assert_eq!(names(&cluster, MAPS), ["kept"]);
    cluster.remove("minions", "one");
    cluster.converge();
    assert_eq!(names(&cluster, MAPS), Vec::<String>::new());
}

#[test]
fn one_owner_keeps_an_object_and_dangling_references_are_removed() {
    let mut cluster = cluster();
    cluster.put(MAPS, map("there", &[]));
    let waiting = deleted(map("waiting", &[]), &[FOREGROUND]);
    let owners = [
        owned_by("ConfigMap", "gone", true),
        owned_by("ConfigMap", "there", true),
        owned_by("ConfigMap", "waiting", true),
    ];
    cluster.put(MAPS, map("child", &owners));
    cluster.put(MAPS, waiting);
    cluster.converge();
    assert_eq!(names(&cluster, MAPS), ["child", "there"], "the owner that waited for the child does so no longer");
    let child = cluster.get(MAPS, "default/child").expect("it is there");
    assert_eq!(*child.at("metadata.ownerReferences"), json!([owned_by("ConfigMap", "there", true)]));
    assert!(!child.has("metadata.deletionTimestamp"));
}

#[test]
fn foreground_deletion_deletes_dependents_first() {
    let mut cluster = cluster();
    cluster.put(MAPS, map("b", &[owned_by("ConfigMap", "a", true)]));
    cluster.put(MAPS, map("c", &[owned_by("ConfigMap", "b", true)]));
    cluster.put(MAPS, map("a", &[]));
    cluster.converge();
    cluster.put(MAPS, deleted(map("a", &[]), &[FOREGROUND]));
    cluster.converge();
    assert_eq!(removed(&cluster), ["default/c", "default/b", "default/a"]);
}

#[test]
fn non_blocking_dependents_are_not_waited_for() {
    let mut cluster = cluster();
    cluster.put(MAPS, map("b", &[owned_by("ConfigMap", "a", false)]));
    cluster.put(MAPS, deleted(map("a", &[]), &[FOREGROUND]));
    cluster.converge();
    assert_eq!(removed(&cluster), ["default/a", "default/b"]);
}

#[test]
fn an_owner_waits_for_dependents_with_finalizers() {
    let mut cluster = cluster();
    let mut held = map("held", &[owned_by("ConfigMap", "a", true)]);
    held.put("metadata.finalizers", json!(["example.com/hold"]));
    cluster.put(MAPS, held);
    cluster.put(MAPS, deleted(map("a", &[]), &[FOREGROUND]));
    cluster.converge();
    assert_eq!(names(&cluster, MAPS), ["a", "held"]);
    assert!(cluster.get(MAPS, "default/held").is_some_and(|held| held.has("metadata.deletionTimestamp")));
    cluster.remove(MAPS, "default/held");
    cluster.converge();
    assert_eq!(names(&cluster, MAPS), Vec::<String>::new());
}

#[test]
fn a_cycle_of_owners_is_deleted() {
    for finalizers in [&[FOREGROUND][..], &[]] {
        let mut cluster = cluster();
        let second = map("b", &[owned_by("ConfigMap", "a", true)]);
        // Either only the first is deleted, or both are.
        cluster.put(MAPS, if finalizers.is_empty() { second } else { deleted(second, finalizers) });
        cluster.put(MAPS, deleted(map("a", &[owned_by("ConfigMap", "b", true)]), &[FOREGROUND]));
        cluster.converge();
        assert_eq!(names(&cluster, MAPS), Vec::<String>::new(), "{finalizers:?}");
    }
    let mut cluster = cluster();
    cluster.put(MAPS, deleted(map("a", &[owned_by("ConfigMap", "a", true)]), &[FOREGROUND]));
    cluster.converge();
    assert_eq!(names(&cluster, MAPS), Vec::<String>::new());
}

#[test]
fn orphans_lose_the_reference_before_the_owner_is_deleted() {
    let mut cluster = cluster();
    let owners = [owned_by("ConfigMap", "web", true), owned_by("ConfigMap", "other", false)];
    cluster.put(MAPS, map("other", &[]));
    for number in 0..450 {
        cluster.put(SLICES, slice(&format!("s{number:03}"), &owners[..1 + number % 2]));
    }
    cluster.put(MAPS, map("web", &[]));
    cluster.converge();
    assert!(cluster.written.is_empty());
    cluster.put(MAPS, deleted(map("web", &[]), &[ORPHAN]));
    cluster.deliver_all();
    let outcome = cluster.reconcile(&CONTROLLER, "configmaps|default/web");
    let sizes: Vec<usize> = outcome.transactions.iter().map(Vec::len).collect();
    assert_eq!(sizes, [200, 200, 50, 1]);

    cluster.converge();
    assert_eq!(removed(&cluster), ["default/web"]);
    let references = |index: usize| cluster.all(SLICES)[index].at("metadata.ownerReferences").clone();
    assert_eq!(cluster.all(SLICES).len(), 450);
    assert_eq!(references(0), Value::Null);
    assert_eq!(references(1), json!([owned_by("ConfigMap", "other", false)]));
}

#[test]
fn finalizers_of_a_dependent_are_respected() {
    let cluster = {
        let mut cluster = cluster();
        for finalizer in [FOREGROUND, ORPHAN, "example.com/hold"] {
            let name = finalizer.split('.').next().unwrap_or_default().to_lowercase();
            let mut child = map(&name, &[owned_by("ConfigMap", "gone", true)]);
            child.put("metadata.finalizers", json!([finalizer]));
            cluster.put(MAPS, child);
        }
        cluster
    };
    let propagation = |name: &str| {
        let outcome = cluster.reconcile(&CONTROLLER, &format!("configmaps|default/{name}"));
        match &outcome.transactions[..] {
            [writes] => match &writes[..] {
                [Write::Delete { propagation, .. }] => *propagation,
                _ => None,
            },
            _ => None,
        }
    };
    assert_eq!(propagation("foregrounddeletion"), Some(Propagation::Foreground));
    assert_eq!(propagation("orphan"), Some(Propagation::Orphan));
    assert_eq!(propagation("example"), Some(Propagation::Background));
}

#[test]
fn references_across_namespaces_are_reported() {
    let mut cluster = cluster();
    cluster.put("namespaces", json!({"metadata": {"name": "shop"}, "spec": {"finalizers": ["kubernetes"]}}));
    cluster.put(MAPS, map("owner", &[]));
    let mut child = map("child", &[owned_by("ConfigMap", "owner", false)]);
    child.put("metadata.namespace", "shop");
    cluster.put(MAPS, child);
    let mut node = json!({"metadata": {"name": "one"}});
    node.put("metadata.ownerReferences", json!([owned_by("ConfigMap", "owner", false)]));
    cluster.put("minions", node);
    cluster.converge();

    let reasons: Vec<&str> = cluster.events.iter().map(|(reason, _)| reason.as_str()).collect();
    assert_eq!(reasons, ["OwnerRefInvalidNamespace"; 2]);
    let said = "ownerRef [v1/ConfigMap, namespace: shop, name: owner, uid: uid of default/owner] does not exist in \
                namespace \"shop\"";
    assert!(cluster.events.iter().any(|(_, message)| message == said), "{:?}", cluster.events);
    assert_eq!(names(&cluster, "minions"), ["one"], "in doubt nothing is deleted");
    assert_eq!(names(&cluster, MAPS), ["owner"], "an owner in another namespace counts as none");
}

#[test]
fn only_relevant_changes_queue_keys() {
    let mut cluster = cluster();
    cluster.put(MAPS, map("free", &[]));
    cluster.put(MAPS, map("owner", &[]));
    cluster.put(MAPS, map("child", &[owned_by("ConfigMap", "owner", true)]));
    cluster.deliver_all();
    assert_eq!(cluster.queued.len(), 1, "{:?}", cluster.queued);
    cluster.converge();

    for name in ["free", "owner", "child"] {
        let mut changed = cluster.get(MAPS, &format!("default/{name}")).expect("it is there");
        changed.put("data", json!({"a": "b"}));
        cluster.put(MAPS, changed);
    }
    cluster.deliver_all();
    assert!(cluster.queued.is_empty(), "{:?}", cluster.queued);
}

#[test]
fn a_restart_continues_deletions() {
    let mut cluster = cluster();
    cluster.put(MAPS, map("lost", &[owned_by("ConfigMap", "gone", true)]));
    cluster.put(MAPS, map("b", &[owned_by("ConfigMap", "a", true)]));
    cluster.put(MAPS, deleted(map("a", &[]), &[FOREGROUND]));
    cluster.put(MAPS, map("orphan", &[owned_by("ConfigMap", "c", true)]));
    cluster.put(MAPS, deleted(map("c", &[]), &[ORPHAN]));
    cluster.restart();
    cluster.converge();
    assert_eq!(names(&cluster, MAPS), ["orphan"]);
}
