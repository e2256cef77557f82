//! How Jobs end.

use super::*;

#[test]
fn failed_pods_are_replaced_up_to_the_backoff_limit() {
    let mut cluster = cluster(stored(&[("spec.backoffLimit", json!(1))]));
    finish(&mut cluster, 0, 1);
    assert_eq!((now(&cluster).int("status.failed"), active(&cluster).len()), (1, 1));
    finish(&mut cluster, 0, 1);
    let job = now(&cluster);
    for kind in ["FailureTarget", "Failed"] {
        assert_eq!(is(&job, kind).as_deref(), Some("True BackoffLimitExceeded"));
    }
    assert_eq!((job.int("status.failed"), active(&cluster).len(), job.has("status.completionTime")), (2, 0, false));
    let event = ("BackoffLimitExceeded".to_owned(), "Job has reached the specified backoff limit".to_owned());
    assert!(cluster.events.contains(&event), "{:?}", cluster.events);
}

#[test]
fn a_job_that_failed_waits_for_its_pods_to_terminate() {
    let mut cluster = cluster(stored(&[
        ("spec.backoffLimit", json!(0)),
        ("spec.parallelism", json!(2)),
        ("spec.completions", json!(2)),
    ]));
    let mut running = active(&cluster).remove(1);
    running.put("spec.nodeName", "node");
    running.put("status.phase", "Running");
    let key = format!("default/{}", running.text("metadata.name"));
    cluster.put("pods", running);
    finish(&mut cluster, 0, 1);
    let job = now(&cluster);
    assert_eq!((is(&job, "FailureTarget").is_some(), is(&job, "Failed")), (true, None));
    let counts = ["failed", "terminating", "active"].map(|field| job.at("status").int(field));
    assert_eq!(counts, [2, 1, 0], "the one that was ended counts as failed");
    let going = cluster.get("pods", &key).expect("it has time to end");
    assert!(going.has("metadata.deletionTimestamp") && !is_tracked(&going));
    cluster.remove("pods", &key);
    cluster.converge();
    let job = now(&cluster);
    assert_eq!(is(&job, "Failed").as_deref(), Some("True BackoffLimitExceeded"));
    assert_eq!((job.int("status.failed"), job.int("status.terminating")), (2, 0));
}

#[test]
fn a_failure_policy_ends_the_job_or_ignores_the_failure() {
    let rules = json!({"rules": [
        {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    ]});
    let mut cluster = cluster(stored(&[("spec.podFailurePolicy", rules), ("spec.backoffLimit", json!(0))]));
    let mut disrupted = active(&cluster).remove(0);
    end(&mut disrupted, 137, "1969-01-01T00:00:00Z");
    disrupted.put("status.conditions", json!([{"type": "DisruptionTarget", "status": "True"}]));
    let key = format!("default/{}", disrupted.text("metadata.name"));
    cluster.put("pods", disrupted);
    cluster.converge();
    assert_eq!((now(&cluster).int("status.failed"), active(&cluster).len()), (0, 1), "ignored and replaced");
    assert!(!is_tracked(&cluster.get("pods", &key).expect("the Pod")));
    let name = finish(&mut cluster, 0, 42);
    let job = now(&cluster);
    assert_eq!(is(&job, "Failed").as_deref(), Some("True PodFailurePolicy"));
    let message =
        format!("Container c for pod default/{name} failed with exit code 42 matching FailJob rule at index 0");
    assert!(cluster.events.contains(&("PodFailurePolicy".to_owned(), message)), "{:?}", cluster.events);
}

#[test]
fn indexes_fail_by_themselves() {
    let mut changes = indexed(2, 2);
    changes.push(("spec.backoffLimitPerIndex", json!(1)));
    let mut cluster = cluster(stored(&changes));
    let count = |pod: &Value| pod.at("metadata.annotations")["batch.kubernetes.io/job-index-failure-count"].clone();
    assert_eq!(active(&cluster).iter().map(count).collect::<Vec<_>>(), ["0", "0"]);
    let first = finish(&mut cluster, 0, 1);
    assert_eq!(active(&cluster).iter().map(count).collect::<Vec<_>>(), ["1", "0"]);
    let first = cluster.get("pods", &format!("default/{first}")).expect("the Pod");
    assert!(!is_tracked(&first), "its count was handed on");
    assert_eq!((now(&cluster).int("status.failed"), now(&cluster).text("status.failedIndexes")), (1, ""));
    finish(&mut cluster, 0, 1);
    let job = now(&cluster);
    assert_eq!((job.text("status.failedIndexes"), is(&job, "Failed")), ("0", None), "the other index goes on");
    finish(&mut cluster, 0, 0);
    let job = now(&cluster);
    assert_eq!(is(&job, "Failed").as_deref(), Some("True FailedIndexes"));
    assert_eq!((job.text("status.completedIndexes"), job.int("status.failed")), ("1", 2));
}

#[test]
fn too_many_failed_indexes_and_fail_index_rules_end_the_job() {
    let mut changes = indexed(3, 3);
    changes.extend([
        ("spec.backoffLimitPerIndex", json!(5)),
        ("spec.maxFailedIndexes", json!(0)),
        (
            "spec.podFailurePolicy",
            json!({"rules": [
                {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1]}},
            ]}),
        ),
    ]);
    let mut cluster = cluster(stored(&changes));
    finish(&mut cluster, 2, 1);
    assert_eq!(now(&cluster).text("status.failedIndexes"), "");
    finish(&mut cluster, 0, 3);
    let job = now(&cluster);
    assert_eq!(job.text("status.failedIndexes"), "0");
    assert_eq!(is(&job, "Failed").as_deref(), Some("True MaxFailedIndexesExceeded"));
}

#[test]
fn a_success_policy_ends_the_job_early() {
    let mut changes = indexed(4, 4);
    let rules = json!({"rules": [{"succeededIndexes": "1"}, {"succeededIndexes": "0,2-3", "succeededCount": 2}]});
    changes.push(("spec.successPolicy", rules));
    let mut cluster = cluster(stored(&changes));
    finish(&mut cluster, 3, 0);
    assert_eq!(is(&now(&cluster), "SuccessCriteriaMet"), None);
    finish(&mut cluster, 0, 0);
    let job = now(&cluster);
    for kind in ["SuccessCriteriaMet", "Complete"] {
        assert_eq!(is(&job, kind).as_deref(), Some("True SuccessPolicy"));
    }
    let counts = (job.text("status.completedIndexes"), job.int("status.failed"), active(&cluster).len());
    assert_eq!(counts, ("0,3", 0, 0), "the others were deleted and did not fail");
}

#[test]
fn a_queue_is_complete_when_one_has_succeeded_and_all_have_ended() {
    let mut cluster = cluster(stored(&[("spec.parallelism", json!(2))]));
    assert_eq!(active(&cluster).len(), 2);
    finish(&mut cluster, 0, 0);
    assert_eq!((is(&now(&cluster), "Complete"), active(&cluster).len()), (None, 1), "no new Pod");
    finish(&mut cluster, 0, 0);
    assert_eq!(is(&now(&cluster), "Complete").as_deref(), Some("True CompletionsReached"));
    assert_eq!(now(&cluster).int("status.succeeded"), 2);
}

#[test]
fn a_suspended_job_without_completions_is_complete() {
    let changes = [("spec.suspend", json!(true)), ("spec.completions", json!(0)), ("spec.parallelism", json!(1))];
    let job = now(&cluster(stored(&changes)));
    assert_eq!(is(&job, "Complete").as_deref(), Some("True CompletionsReached"));
    assert!(!job.has("status.startTime"));
}
