//! Plans as functions of Job, Pods and time.

use std::time::Duration;

use jiff::Timestamp;

use super::super::plan::{NewPod, Plan, plan};
use super::*;
use crate::workloads::testing::stored_pod;

/// Seconds after the start of the Job.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("a time")
}

fn text(seconds: i64) -> String {
    api::lifecycle::seconds(at(seconds))
}

fn running(changes: &[(&str, Value)]) -> Value {
    let mut job = stored(changes);
    job.put("status.startTime", text(0));
    job
}

/// The plan, without references into the Pods: names of those released and deleted.
fn planned(job: &Value, pods: &[Value], seconds: i64) -> (Value, [Vec<String>; 2], Vec<NewPod>, Option<Duration>) {
    let pods: Vec<_> = pods.iter().map(stored_pod).collect();
    let own: Vec<_> = pods.iter().collect();
    let Plan { status, released, deleted, created, requeue_after, .. } = plan(job, &own, at(seconds));
    let names = |pods: Vec<&Arc<Pod>>| pods.iter().map(|pod| pod.name().to_owned()).collect();
    (status, [names(released), names(deleted)], created, requeue_after)
}

fn ended(job: &Value, name: &str, code: i64, seconds: i64) -> Value {
    let mut pod = pod_of(job, name);
    end(&mut pod, code, &text(seconds));
    pod
}

#[test]
fn a_replacement_waits_for_the_backoff() {
    let job = running(&[]);
    let failed = [ended(&job, "a", 1, 100)];
    let (status, [released, _], created, wait) = planned(&job, &failed, 104);
    assert_eq!((status.int("failed"), released), (1, vec!["a".to_owned()]));
    assert_eq!((created.len(), wait), (0, Some(Duration::from_secs(6))));
    assert_eq!(planned(&job, &failed, 110).2.len(), 1);
    // Failures add up, also those that are counted already; a success resets them.
    let mut pods = vec![ended(&job, "a", 1, 50), ended(&job, "b", 1, 60), ended(&job, "c", 1, 100)];
    pods[0].drop_path("metadata.finalizers");
    assert_eq!(planned(&job, &pods, 100).3, Some(Duration::from_secs(40)));
    let job = running(&[("spec.completions", json!(2))]);
    pods.push(ended(&job, "d", 0, 70));
    assert_eq!(planned(&job, &pods, 100).3, Some(Duration::from_secs(10)));
    pods.push(ended(&job, "e", 0, 101));
    assert_eq!(planned(&running(&[("spec.completions", json!(3))]), &pods, 101).2.len(), 1);
}

#[test]
fn an_index_waits_for_its_own_backoff() {
    let mut changes = indexed(2, 2);
    changes.push(("spec.backoffLimitPerIndex", json!(9)));
    let job = running(&changes);
    let mut failed = ended(&job, "a", 1, 100);
    failed.put(
        "metadata.annotations",
        json!({
            "batch.kubernetes.io/job-completion-index": "0", "batch.kubernetes.io/job-index-failure-count": "2",
        }),
    );
    let (status, [released, _], created, wait) = planned(&job, std::slice::from_ref(&failed), 110);
    assert_eq!(created, [NewPod { index: Some(1), failures: Some((0, 0)) }]);
    assert_eq!(wait, Some(Duration::from_secs(30)));
    assert_eq!((released.len(), status.has("failed")), (0, false), "it is kept until it is replaced");
    let (.., created, _) = planned(&job, &[failed], 140);
    assert!(created.contains(&NewPod { index: Some(0), failures: Some((3, 0)) }), "{created:?}");
}

#[test]
fn the_deadline_ends_a_job() {
    let job = running(&[("spec.activeDeadlineSeconds", json!(30))]);
    let pods = [pod_of(&job, "a")];
    let (status, .., wait) = planned(&job, &pods, 10);
    assert_eq!((status.has("conditions"), wait), (false, Some(Duration::from_secs(20))));
    let (status, [released, deleted], ..) = planned(&job, &pods, 30);
    assert_eq!((released.len(), deleted), (0, vec!["a".to_owned()]));
    let conditions: Vec<&str> = status.items("conditions").iter().map(|one| one.text("type")).collect();
    assert_eq!(conditions, ["FailureTarget"]);
    assert_eq!(status.items("conditions")[0].text("reason"), "DeadlineExceeded");
    assert_eq!((status.int("failed"), status.int("terminating"), status.has("active")), (1, 1, false));
    let forever = running(&[("spec.activeDeadlineSeconds", json!(i64::MAX))]);
    assert_eq!(planned(&forever, &pods, 10).3, Some(Duration::from_secs(86_400)));
    let suspended = running(&[("spec.activeDeadlineSeconds", json!(30)), ("spec.suspend", json!(true))]);
    assert_eq!(planned(&suspended, &[], 999).0.items("conditions")[0].text("type"), "Suspended");
}

#[test]
fn restarts_of_containers_count_towards_the_limit() {
    let restarted = |limit: i64, restarts: i64| {
        let changes = [("spec.backoffLimit", json!(limit)), ("spec.template.spec.restartPolicy", json!("OnFailure"))];
        let job = running(&changes);
        let mut pod = pod_of(&job, "a");
        pod.put("status.containerStatuses", json!([{"name": "c", "restartCount": restarts}]));
        planned(&job, &[pod], 1).0.items("conditions").iter().any(|one| one.text("reason") == "BackoffLimitExceeded")
    };
    assert_eq!(
        [(0, 0), (0, 1), (2, 1), (2, 2)].map(|(limit, restarts)| restarted(limit, restarts)),
        [false, true, false, true]
    );
}

#[test]
fn terminating_pods_are_replaced_as_the_policy_says() {
    let terminating = |policy: &str| {
        let job = running(&[("spec.podReplacementPolicy", json!(policy))]);
        let mut pod = pod_of(&job, "a");
        pod.put("metadata.deletionTimestamp", text(30));
        pod.put("metadata.deletionGracePeriodSeconds", 30);
        let (status, [released, _], created, _) = planned(&job, &[pod], 20);
        (status.int("failed"), status.int("terminating"), released.len(), created.len())
    };
    assert_eq!(terminating("TerminatingOrFailed"), (1, 1, 1, 1));
    assert_eq!(terminating("Failed"), (0, 1, 0, 0));
}

#[test]
fn of_two_pods_of_an_index_the_more_useful_stays() {
    let job = running(&indexed(2, 2));
    let pod = |name: &str, index: &str, phase: &str| {
        let mut pod = pod_of(&job, name);
        pod.put("metadata.annotations", json!({"batch.kubernetes.io/job-completion-index": index}));
        pod.put("status.phase", phase);
        pod
    };
    let pods = [pod("a", "0", "Pending"), pod("b", "0", "Running"), pod("c", "x", "Running"), pod("d", "7", "Running")];
    let (status, [_, mut deleted], created, _) = planned(&job, &pods, 1);
    deleted.sort_unstable();
    assert_eq!((deleted, created.len()), (vec!["a".to_owned(), "c".to_owned(), "d".to_owned()], 0));
    assert_eq!((status.int("active"), status.has("failed")), (1, false));
}

#[test]
fn a_deleted_job_creates_nothing_and_releases_its_pods() {
    let mut job = running(&[("spec.parallelism", json!(2)), ("spec.completions", json!(2))]);
    job.put("metadata.deletionTimestamp", text(0));
    let pods = [pod_of(&job, "a"), ended(&job, "b", 0, 1)];
    let (status, [released, deleted], created, _) = planned(&job, &pods, 1);
    assert_eq!((released.len(), deleted.len(), created.len()), (2, 0, 0));
    assert_eq!((status.int("succeeded"), status.int("active"), status.has("conditions")), (1, 1, false));
}
