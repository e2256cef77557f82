//! Lifecycles of Pods step by step, and invariants for any order of events.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::facts::{Health, StorageUsage, Termination};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("a time")
}

fn pod(policy: &str, init: &[(&str, bool)], main: &[&str]) -> Value {
    let init: Vec<Value> = init
        .iter()
        .map(|(name, sidecar)| {
            let mut container = json!({"name": name, "image": "host"});
            if *sidecar {
                container["restartPolicy"] = json!("Always");
            }
            container
        })
        .collect();
    let main: Vec<Value> = main.iter().map(|name| json!({"name": name, "image": "host"})).collect();
    json!({
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "generation": 1},
        "spec": {"restartPolicy": policy, "initContainers": init, "containers": main, "terminationGracePeriodSeconds": 7},
        "status": {"phase": "Pending"},
    })
}

fn ready() -> Facts {
    Facts {
        sandbox: Sandbox::Ready { addresses: vec![[10, 0, 0, 2].into()] },
        started: Some(at(0)),
        ..Facts::default()
    }
}

fn running(facts: &mut Facts, name: &str) {
    let health = Health { post_start_done: true, started: true, ready: true, kill_reason: None };
    let container = facts.containers.entry(name.to_owned()).or_default();
    container.state = State::Running { since: at(1), stopping: None };
    container.health = health;
}

fn ended(facts: &mut Facts, name: &str, code: i32, finished: i64) {
    let ending = Termination {
        code,
        reason: "Error".to_owned(),
        message: String::new(),
        started: Some(at(1)),
        finished: at(finished),
        id: String::new(),
    };
    facts.containers.entry(name.to_owned()).or_default().state = State::Terminated(ending);
}

fn start(names: &[&str]) -> Vec<Step> {
    names.iter().map(|name| Step::Start((*name).to_owned())).collect()
}

fn phase(decision: &Decision) -> &str {
    decision.status.text("phase")
}

fn condition(decision: &Decision, kind: &str) -> String {
    let all = decision.status.items("conditions").iter();
    all.filter(|one| one.text("type") == kind).map(|one| one.text("status").to_owned()).collect()
}

#[test]
fn a_pod_starts_with_its_network_and_its_init_containers_in_order() {
    let pod = pod("Always", &[("first", false), ("side", true), ("second", false)], &["a", "b"]);
    let mut facts = Facts::default();
    assert_eq!(decide(&pod, &facts, at(0)).steps, [Step::CreateSandbox]);
    facts = ready();
    assert_eq!(decide(&pod, &facts, at(0)).steps, start(&["first"]));
    running(&mut facts, "first");
    assert_eq!(decide(&pod, &facts, at(1)).steps, []);
    ended(&mut facts, "first", 0, 2);
    assert_eq!(decide(&pod, &facts, at(2)).steps, start(&["side"]));
    running(&mut facts, "side");
    let decision = decide(&pod, &facts, at(2));
    assert_eq!((decision.steps.clone(), phase(&decision)), (start(&["second"]), "Pending"));
    assert_eq!(condition(&decision, "Initialized"), "False");
    ended(&mut facts, "second", 0, 3);
    assert_eq!(decide(&pod, &facts, at(3)).steps, start(&["a", "b"]));
    running(&mut facts, "a");
    running(&mut facts, "b");
    let decision = decide(&pod, &facts, at(4));
    assert_eq!((decision.steps.clone(), phase(&decision)), (vec![], "Running"));
    for kind in ["Initialized", "ContainersReady", "Ready", "PodScheduled", "PodReadyToStartContainers"] {
        assert_eq!(condition(&decision, kind), "True", "{kind}");
    }
    // What prepared the Pod is not done again when its containers begin again.
    facts.containers.remove("first");
    ended(&mut facts, "a", 1, 5);
    assert_eq!(decide(&pod, &facts, at(5)).steps, start(&["a"]));
}

#[test]
fn containers_are_restarted_by_policy() {
    for (policy, code, requeue_at) in [
        ("Always", 0, true),
        ("Always", 1, true),
        ("OnFailure", 0, false),
        ("OnFailure", 1, true),
        ("Never", 1, false),
        ("Never", 0, false),
    ] {
        let pod = pod(policy, &[], &["a", "b"]);
        let mut facts = ready();
        running(&mut facts, "b");
        ended(&mut facts, "a", code, 2);
        let steps = decide(&pod, &facts, at(3)).steps;
        assert_eq!(!steps.is_empty(), requeue_at, "{policy} {code}");
    }
}

#[test]
fn repeated_failures_back_off() {
    let pod = pod("Always", &[], &["a"]);
    let mut facts = ready();
    ended(&mut facts, "a", 1, 10);
    facts.containers.get_mut("a").expect("a").backoff = 20;
    let decision = decide(&pod, &facts, at(12));
    assert_eq!((decision.steps.len(), decision.requeue_at), (0, Some(at(30))));
    let status = &decision.status["containerStatuses"][0];
    assert_eq!(status.text("state.waiting.reason"), "CrashLoopBackOff");
    assert_eq!(status.text("state.waiting.message"), "back-off 20s restarting failed container=a pod=p_d(u)");
    assert_eq!(status.at("lastState.terminated.exitCode"), &json!(1));
    assert_eq!((phase(&decision), condition(&decision, "Ready").as_str()), ("Running", "False"));
    assert_eq!(decide(&pod, &facts, at(30)).steps, start(&["a"]));
}

#[test]
fn a_finished_pod_releases_its_network() {
    let pod = pod("Never", &[("side", true)], &["a", "b"]);
    let mut facts = ready();
    running(&mut facts, "side");
    ended(&mut facts, "a", 0, 2);
    running(&mut facts, "b");
    assert_eq!(phase(&decide(&pod, &facts, at(3))), "Running");
    ended(&mut facts, "b", 0, 4);
    let decision = decide(&pod, &facts, at(4));
    assert!(matches!(&decision.steps[..], [Step::Stop { name, grace: 7, .. }] if name == "side"), "{decision:?}");
    assert_eq!((phase(&decision), condition(&decision, "Ready").as_str()), ("Succeeded", "False"));
    ended(&mut facts, "side", 143, 5);
    assert_eq!(decide(&pod, &facts, at(5)).steps, [Step::RemoveSandbox]);
    facts.sandbox = Sandbox::Removed;
    assert_eq!(decide(&pod, &facts, at(6)).steps, []);
    ended(&mut facts, "b", 3, 4);
    assert_eq!(phase(&decide(&pod, &facts, at(6))), "Failed");
}

#[test]
fn a_failed_init_container_fails_the_pod() {
    let pod = pod("Never", &[("first", false)], &["a"]);
    let mut facts = ready();
    ended(&mut facts, "first", 1, 2);
    let decision = decide(&pod, &facts, at(3));
    assert_eq!((phase(&decision), decision.steps.clone()), ("Failed", vec![Step::RemoveSandbox]));
}

#[test]
fn a_deleted_pod_that_never_started_has_failed() {
    let mut pod = pod("Never", &[], &["a"]);
    pod.put("metadata.deletionTimestamp", "2027-01-15T08:00:00Z");
    let mut facts = ready();
    assert_eq!(phase(&decide(&pod, &facts, at(5))), "Pending");
    facts.sandbox = Sandbox::Removed;
    let decision = decide(&pod, &facts, at(5));
    assert_eq!((phase(&decision), &decision.steps[..]), ("Failed", &[Step::DeletePod][..]));
}

#[test]
fn s25_a_deleted_pod_stops_containers_then_sidecars_then_is_removed() {
    let mut pod = pod("Always", &[("one", true), ("two", true)], &["a", "b"]);
    pod.put("metadata.deletionTimestamp", "2027-01-15T08:00:00Z");
    pod.put("metadata.deletionGracePeriodSeconds", 3);
    let mut facts = ready();
    for name in ["one", "two", "a", "b"] {
        running(&mut facts, name);
    }
    let stopped = |facts: &Facts| -> Vec<(String, u32)> {
        let steps = decide(&pod, facts, at(5)).steps.into_iter();
        let stop = |step| match step {
            Step::Stop { name, grace, .. } => (name, grace),
            other => panic!("{other:?}"),
        };
        steps.map(stop).collect()
    };
    assert_eq!(stopped(&facts), [("a".to_owned(), 3), ("b".to_owned(), 3)]);
    ended(&mut facts, "a", 0, 6);
    facts.containers.get_mut("b").expect("b").state = State::Running { since: at(1), stopping: Some(3) };
    assert_eq!(stopped(&facts), []);
    ended(&mut facts, "b", 0, 6);
    assert_eq!(stopped(&facts), [("two".to_owned(), 3)]);
    ended(&mut facts, "two", 0, 7);
    assert_eq!(stopped(&facts), [("one".to_owned(), 3)]);
    ended(&mut facts, "one", 0, 7);
    assert_eq!(decide(&pod, &facts, at(8)).steps, [Step::RemoveSandbox]);
    facts.sandbox = Sandbox::Removed;
    assert_eq!(decide(&pod, &facts, at(8)).steps, [Step::DeletePod]);
}

#[test]
fn s25_a_second_deletion_can_only_shorten_the_grace_period() {
    let mut pod = pod("Always", &[], &["a"]);
    pod.put("metadata.deletionTimestamp", "2027-01-15T08:00:00Z");
    pod.put("metadata.deletionGracePeriodSeconds", 600);
    let mut facts = ready();
    running(&mut facts, "a");
    let grace = |pod: &Value, facts: &Facts| match &decide(pod, facts, at(5)).steps[..] {
        [] => None,
        [Step::Stop { grace, .. }] => Some(*grace),
        other => panic!("{other:?}"),
    };
    assert_eq!(grace(&pod, &facts), Some(600));
    let asked = |facts: &mut Facts, grace| {
        facts.containers.get_mut("a").expect("a").state = State::Running { since: at(1), stopping: Some(grace) };
    };
    asked(&mut facts, 600);
    assert_eq!(grace(&pod, &facts), None);
    pod.put("metadata.deletionGracePeriodSeconds", 1);
    assert_eq!(grace(&pod, &facts), Some(1));
    asked(&mut facts, 1);
    pod.put("metadata.deletionGracePeriodSeconds", 600);
    assert_eq!(grace(&pod, &facts), None);
    asked(&mut facts, 600);
    facts.deleted = true;
    assert_eq!(grace(&pod, &facts), Some(2));
}

#[test]
fn a_pod_that_exceeds_its_storage_is_evicted() {
    let mut pod = pod("Always", &[], &["a"]);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"ephemeral-storage": "1Mi"}});
    let mut facts = ready();
    running(&mut facts, "a");
    facts.storage.containers.insert("a".to_owned(), 1 << 20);
    let decision = decide(&pod, &facts, at(5));
    assert_eq!((decision.steps.len(), phase(&decision), &decision.evicted), (0, "Running", &None));
    facts.storage.containers.insert("a".to_owned(), (1 << 20) + 1);
    let decision = decide(&pod, &facts, at(5));
    assert!(matches!(&decision.steps[..], [Step::Stop { name, grace: 1, .. }] if name == "a"), "{decision:?}");
    let message = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ";
    let status = &decision.status;
    assert_eq!((phase(&decision), status.text("reason"), status.text("message")), ("Failed", "Evicted", message));
    assert_eq!(decision.evicted.as_deref(), Some(message));

    // The status was not written yet, and usage decreased: the eviction is final.
    facts.evicted = decision.evicted;
    facts.storage = StorageUsage::default();
    ended(&mut facts, "a", 137, 6);
    let decision = decide(&pod, &facts, at(7));
    assert_eq!((&decision.steps[..], phase(&decision)), (&[Step::RemoveSandbox][..], "Failed"));
    pod["status"] = decision.status;
    facts.sandbox = Sandbox::Removed;
    let decision = decide(&pod, &facts, at(8));
    assert_eq!((decision.steps.len(), decision.status.text("reason")), (0, "Evicted"));

    // After a restart of the agent, the status says so.
    facts.evicted = None;
    pod["spec"]["activeDeadlineSeconds"] = json!(1);
    let decision = decide(&pod, &facts, at(9));
    assert_eq!((phase(&decision), decision.status.text("reason")), ("Failed", "Evicted"));
}

#[test]
fn a_finished_pod_is_not_evicted() {
    let mut pod = pod("Never", &[], &["a"]);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"ephemeral-storage": "1Mi"}});
    let mut facts = ready();
    ended(&mut facts, "a", 0, 2);
    facts.storage.containers.insert("a".to_owned(), 2 << 20);
    let decision = decide(&pod, &facts, at(5));
    assert_eq!((phase(&decision), &decision.evicted), ("Succeeded", &None));
}

#[test]
fn a_container_that_fails_its_probe_is_restarted() {
    let mut pod = pod("Always", &[], &["a"]);
    pod["spec"]["containers"][0]["livenessProbe"] = json!({"terminationGracePeriodSeconds": 2});
    let mut facts = ready();
    running(&mut facts, "a");
    facts.containers.get_mut("a").expect("a").health.kill_reason = Some("it hangs".to_owned());
    let wanted = Step::Stop { name: "a".to_owned(), grace: 2, why: "it hangs".to_owned() };
    assert_eq!(decide(&pod, &facts, at(5)).steps, [wanted]);
}

#[test]
fn active_deadline_fails_the_pod() {
    let mut pod = pod("Always", &[], &["a"]);
    pod.put("spec.activeDeadlineSeconds", 10);
    let mut facts = ready();
    running(&mut facts, "a");
    assert_eq!(decide(&pod, &facts, at(9)).requeue_at, Some(at(10)));
    let decision = decide(&pod, &facts, at(10));
    assert!(matches!(&decision.steps[..], [Step::Stop { .. }]));
    assert_eq!((phase(&decision), decision.status.text("reason")), ("Failed", "DeadlineExceeded"));
}

#[test]
fn foreign_conditions_are_kept_and_transition_times_change_with_the_status() {
    let mut pod = pod("Always", &[], &["a"]);
    pod["spec"]["readinessGates"] = json!([{"conditionType": "example.com/gate"}]);
    let mut facts = ready();
    running(&mut facts, "a");
    let first = decide(&pod, &facts, at(5));
    assert_eq!(
        (condition(&first, "ContainersReady"), condition(&first, "Ready")),
        ("True".to_owned(), "False".to_owned())
    );
    pod["status"] = first.status.clone();
    let gate = json!({"type": "example.com/gate", "status": "True", "lastTransitionTime": "2027-01-15T08:00:07Z"});
    pod["status"]["conditions"].as_array_mut().expect("a list").push(gate);
    let second = decide(&pod, &facts, at(9));
    assert_eq!(
        (condition(&second, "Ready").as_str(), condition(&second, "example.com/gate").as_str()),
        ("True", "True")
    );
    let time = |decision: &Decision, kind: &str| {
        let all = decision.status.items("conditions").iter();
        all.filter(|one| one.text("type") == kind)
            .map(|one| one.text("lastTransitionTime").to_owned())
            .collect::<String>()
    };
    assert_eq!(time(&first, "ContainersReady"), time(&second, "ContainersReady"));
    assert_ne!(time(&first, "Ready"), time(&second, "Ready"));
    let change = patch(&pod, &second.status).expect("a change");
    let kinds: Vec<&str> = change.items("status.conditions").iter().map(|one| one.text("type")).collect();
    assert_eq!(kinds, ["Ready"]);
    // A merge keeps what the patch does not name.
    let ready = &change["status"]["conditions"][0];
    assert_eq!((ready.get("reason"), ready.get("message")), (Some(&Value::Null), Some(&Value::Null)));
    pod["status"] = second.status;
    assert_eq!(patch(&pod, &decide(&pod, &facts, at(20)).status), None);
}

/// What may happen to a Pod, however unlikely.
fn any_facts() -> impl Strategy<Value = Facts> {
    let state = prop_oneof![
        Just(State::New),
        Just(State::Starting),
        prop::option::of(0..60u32).prop_map(|stopping| State::Running { since: at(1), stopping }),
        (0..3i32, 0..400i64).prop_map(|(code, second)| {
            State::Terminated(Termination {
                code,
                reason: "Error".to_owned(),
                message: String::new(),
                started: Some(at(1)),
                finished: at(second),
                id: String::new(),
            })
        }),
        (0..400i64).prop_map(|second| State::StartFailed {
            reason: "X".into(),
            message: "x".into(),
            until: at(second)
        }),
    ];
    let container = (state, 0..5u32, 0..301u32, any::<bool>(), any::<bool>()).prop_map(
        |(state, restarts, backoff, started, ready)| {
            let health = Health {
                post_start_done: true,
                started,
                ready,
                kill_reason: (restarts == 4).then(|| "bad".to_owned()),
            };
            Container { state, restarts, backoff, health, ..Container::default() }
        },
    );
    let sandbox = prop_oneof![
        Just(Sandbox::Absent),
        Just(Sandbox::Creating),
        Just(ready().sandbox),
        Just(Sandbox::Removing),
        Just(Sandbox::Removed),
        (0..400i64).prop_map(|second| Sandbox::Failed { why: "x".into(), until: at(second) }),
    ];
    let names = prop::sample::select(vec!["first", "side", "a", "b"]);
    (sandbox, prop::collection::btree_map(names.prop_map(str::to_owned), container, 0..5), any::<bool>()).prop_map(
        |(sandbox, containers, deleted)| Facts {
            sandbox,
            containers,
            deleted,
            started: Some(at(0)),
            ..Facts::default()
        },
    )
}

proptest! {
    #[test]
    fn no_container_is_started_twice_or_left_pending(
        facts in any_facts(),
        policy in prop::sample::select(vec!["Always", "OnFailure", "Never"]),
        deleted in any::<bool>(),
        second in 0..500i64,
    ) {
        let mut pod = pod(policy, &[("first", false), ("side", true)], &["a", "b"]);
        if deleted {
            pod.put("metadata.deletionTimestamp", "2027-01-15T08:00:00Z");
        }
        let now = at(second);
        let decision = decide(&pod, &facts, now);
        let mut touched = BTreeSet::new();
        for step in &decision.steps {
            match step {
                Step::Start(name) => {
                    prop_assert!(!deleted && !facts.deleted, "nothing begins in a Pod that goes");
                    prop_assert!(facts.containers.get(name).is_none_or(|found| !found.is_alive()), "{name} runs already");
                    prop_assert!(touched.insert(name.clone()));
                }
                Step::Stop { name, grace, .. } => {
                    let found = facts.containers.get(name).map(|found| &found.state);
                    let due = match found {
                        Some(State::Running { stopping, .. }) => stopping.is_none_or(|given| *grace < given),
                        _ => false,
                    };
                    prop_assert!(due, "{name} is asked to end once, and again only when there is less time");
                    prop_assert!(touched.insert(name.clone()));
                }
                Step::RemoveSandbox | Step::DeletePod => {
                    prop_assert!(facts.containers.values().all(|found| !found.is_alive()), "nothing runs without a network");
                }
                Step::CreateSandbox => prop_assert!(!deleted && !facts.deleted),
            }
        }
        // The time of a requeue is in the future.
        prop_assert!(decision.requeue_at.is_none_or(|requeue_at| requeue_at > now - SignedDuration::from_secs(1)));
        // The same facts give the same decision, and a written status is not written again.
        prop_assert_eq!(&decide(&pod, &facts, now), &decision);
        pod["status"] = decision.status;
        let requeue_at = decide(&pod, &facts, now);
        prop_assert_eq!(patch(&pod, &requeue_at.status), None);
    }
}
