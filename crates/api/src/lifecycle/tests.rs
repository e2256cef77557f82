use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::kinds::{configmap, endpointslice, ingress, job, namespace, pod, replicaset, replicationcontroller};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn running_pod() -> Value {
    json!({"metadata": {"generation": 3}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}})
}

#[test]
fn times_have_whole_seconds() {
    assert_eq!(seconds(Timestamp::from_millisecond(1_800_000_000_999).unwrap()), "2027-01-15T08:00:00Z");
}

#[test]
fn generated_names_end_in_what_was_picked() {
    let mut picks = [0, 1, 26, 2, 25].into_iter();
    let name = generate_name("web-", |count| {
        assert_eq!(count, 27);
        picks.next().unwrap()
    });
    assert_eq!(name, "web-bc9d8");
    assert_eq!(generate_name("", |_| 0), "bbbbb");
    assert_eq!(generate_name(&"x".repeat(80), |_| 0), format!("{}bbbbb", "x".repeat(58)));
    // The cut falls into the last letter.
    assert_eq!(generate_name(&format!("{}é", "x".repeat(57)), |_| 0), format!("{}bbbbb", "x".repeat(57)));
}

proptest! {
    #[test]
    fn generated_names_fit_into_a_label(base in ".{0,80}", luck: usize) {
        let name = generate_name(&base, |_| luck);
        prop_assert!(name.len() <= 63);
        prop_assert!(base.starts_with(&name[..name.len() - 5]));
    }
}

#[test]
fn a_new_generation_is_one_more() {
    let old = json!({"metadata": {"generation": 4}, "spec": {"rules": []}});
    let mut new = json!({"metadata": {"generation": 9}, "spec": {"rules": [{}]}});
    set_generation(&ingress::KIND, &mut new, &old);
    assert_eq!(new["metadata"]["generation"], 5);
    let mut same = json!({"metadata": {"generation": 9}, "spec": {"rules": []}});
    set_generation(&ingress::KIND, &mut same, &old);
    assert_eq!(same["metadata"]["generation"], 4);
    // What makes a generation is a rule of the kind.
    let mut slice = json!({"metadata": {}, "endpoints": [{"addresses": ["10.0.0.1"]}]});
    set_generation(&endpointslice::KIND, &mut slice, &json!({"metadata": {"generation": 1}, "endpoints": []}));
    assert_eq!(slice["metadata"]["generation"], 2);
}

#[test]
fn a_kind_without_generations_keeps_what_was_there() {
    let mut new = json!({"metadata": {"generation": 9}, "data": {"a": "b"}});
    set_generation(&configmap::KIND, &mut new, &json!({"metadata": {}}));
    assert_eq!(new["metadata"], json!({}));
    set_generation(&configmap::KIND, &mut new, &json!({"metadata": {"generation": 2}}));
    assert_eq!(new["metadata"]["generation"], 2);
}

#[test]
fn an_object_that_nothing_holds_is_released_at_once() {
    let mut object = json!({"metadata": {"name": "a"}});
    mark_deleted(&configmap::KIND, &mut object, Some(60), None, now());
    let marked = json!({"metadata": {
        "name": "a", "deletionTimestamp": "2027-01-15T08:00:00Z", "deletionGracePeriodSeconds": 0,
    }});
    assert_eq!(object, marked);
    assert!(is_released(&configmap::KIND, &object));
}

#[test]
fn the_last_propagation_counts() {
    let mut object = json!({"metadata": {"finalizers": ["example.com/keep", "orphan"]}});
    mark_deleted(&configmap::KIND, &mut object, None, Some(Propagation::Foreground), now());
    assert_eq!(object["metadata"]["finalizers"], json!(["example.com/keep", "foregroundDeletion"]));
    mark_deleted(&configmap::KIND, &mut object, None, Some(Propagation::Background), now());
    assert_eq!(object["metadata"]["finalizers"], json!(["example.com/keep", "foregroundDeletion"]));
    for _ in 0..2 {
        mark_deleted(&configmap::KIND, &mut object, None, Some(Propagation::Orphan), now());
        assert_eq!(object["metadata"]["finalizers"], json!(["example.com/keep", "orphan"]));
    }
    assert!(!is_released(&configmap::KIND, &object));
    object["metadata"]["finalizers"] = json!([]);
    assert!(is_released(&configmap::KIND, &object));
}

#[test]
fn some_kinds_orphan_their_dependents_by_default() {
    let object = json!({"metadata": {"finalizers": ["example.com/keep"]}});
    for (kind, orphans) in [(&job::KIND, true), (&replicationcontroller::KIND, true), (&replicaset::KIND, false)] {
        let expected = orphans.then_some(Propagation::Orphan);
        assert_eq!(default_propagation(kind, &object), expected, "{}", kind.kind);
    }
    let foreground = json!({"metadata": {"finalizers": ["foregroundDeletion"]}});
    assert_eq!(default_propagation(&replicationcontroller::KIND, &foreground), None);
    assert_eq!(replicationcontroller::KIND.rules.orphan_warning(), None, "kube-apiserver warns only of Jobs");
}

#[test]
fn time_to_go_only_gets_shorter() {
    let mut pod = running_pod();
    mark_deleted(&pod::KIND, &mut pod, None, None, now());
    assert_eq!(pod.text("metadata.deletionTimestamp"), "2027-01-15T08:00:30Z");
    assert_eq!((pod.int("metadata.deletionGracePeriodSeconds"), pod.int("metadata.generation")), (30, 4));
    assert!(!is_released(&pod::KIND, &pod));

    let before = pod.clone();
    mark_deleted(&pod::KIND, &mut pod, Some(40), None, now());
    assert_eq!(pod, before);

    mark_deleted(&pod::KIND, &mut pod, Some(5), None, now());
    assert_eq!(pod.text("metadata.deletionTimestamp"), "2027-01-15T08:00:05Z");
    assert_eq!(pod.int("metadata.generation"), 4, "one deletion is one generation");
    mark_deleted(&pod::KIND, &mut pod, Some(0), None, now());
    assert!(is_released(&pod::KIND, &pod));
}

#[test]
fn a_deadline_beyond_all_time_is_now() {
    let mut pod = running_pod();
    mark_deleted(&pod::KIND, &mut pod, Some(i64::MAX), None, now());
    assert_eq!(pod.text("metadata.deletionTimestamp"), "2027-01-15T08:00:00Z");
}

#[test]
fn a_kind_may_hold_its_objects_and_say_so() {
    let mut object = json!({"metadata": {}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
    mark_deleted(&namespace::KIND, &mut object, None, None, now());
    assert_eq!(object["metadata"], json!({"deletionTimestamp": "2027-01-15T08:00:00Z"}));
    assert_eq!(object.text("status.phase"), "Terminating");
    assert!(!is_released(&namespace::KIND, &object));
    object["spec"] = json!({});
    assert!(is_released(&namespace::KIND, &object));
}
