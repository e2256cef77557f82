//! The controllers against a store: what is written, and that it converges.

use super::*;
use crate::workloads::testing::edit;

#[test]
fn a_pod_succeeds_and_the_job_is_complete() {
    let mut cluster = cluster(stored(&[]));
    let pod = active(&cluster).remove(0);
    assert!(is_tracked(&pod) && pod.text("metadata.generateName") == "pi-");
    assert_eq!(pod.items("metadata.ownerReferences")[0], KIND.reference(&now(&cluster)));
    assert_eq!(pod.at("metadata.labels"), now(&cluster).at("spec.template.metadata.labels"));
    let status = now(&cluster).at("status").clone();
    assert_eq!((status.int("active"), status.int("ready"), status.has("startTime")), (1, 0, true));
    let name = finish(&mut cluster, 0, 0);
    let job = now(&cluster);
    let zero = ["active", "failed"].iter().all(|field| !job.at("status").has(field));
    assert!(zero && job.int("status.succeeded") == 1 && job.has("status.completionTime"), "{job}");
    assert_eq!(job.at("status.uncountedTerminatedPods"), &json!({}));
    for kind in ["SuccessCriteriaMet", "Complete"] {
        assert_eq!(is(&job, kind).as_deref(), Some("True CompletionsReached"));
    }
    assert!(!is_tracked(&cluster.get("pods", &format!("default/{name}")).expect("it stays to be looked at")));
    assert_eq!(reasons(&cluster), ["SuccessfulCreate", "Completed"]);
    cluster.written.clear();
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.written, [], "nothing to do after a restart");
}

#[test]
fn a_pod_is_counted_in_the_transaction_that_releases_it() {
    let mut cluster = cluster(stored(&[("spec.completions", json!(2))]));
    let mut pod = active(&cluster).remove(0);
    end(&mut pod, 0, "1969-01-01T00:00:00Z");
    cluster.put("pods", pod);
    cluster.deliver_all();
    let outcome = cluster.reconcile(&CONTROLLER, "default/pi");
    let tables: Vec<&str> = outcome.transactions[0]
        .iter()
        .map(|write| match write {
            Write::Object { table, .. } | Write::Subresource { table, .. } => *table,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(tables, ["jobs", "pods"]);
    // A change of the Pod in between refuses all of it.
    let mut touched = cluster.all("pods").remove(0);
    touched.put("metadata.annotations", json!({"a": "b"}));
    cluster.put("pods", touched);
    assert!(!cluster.try_commit(&outcome.transactions[0]));
    cluster.converge();
    assert_eq!(now(&cluster).int("status.succeeded"), 1);
}

#[test]
fn pods_that_another_controller_began_to_count_are_counted_once() {
    let job = stored(&[
        ("spec.completions", json!(9)),
        (
            "status",
            json!({"startTime": "1970-01-01T00:00:00Z", "failed": 1,
                          "uncountedTerminatedPods": {"failed": ["tracked", "gone"]}}),
        ),
    ]);
    let mut pod = pod_of(&job, "tracked");
    end(&mut pod, 1, "1969-01-01T00:00:00Z");
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    cluster.put("pods", pod);
    cluster.put("jobs", job);
    cluster.converge();
    assert_eq!(now(&cluster).int("status.failed"), 3);
    assert_eq!(now(&cluster).at("status.uncountedTerminatedPods"), &json!({}));
}

#[test]
fn pods_of_an_indexed_job_know_their_index() {
    let mut cluster = cluster(stored(&indexed(3, 2)));
    let pods = active(&cluster);
    let indexes: Vec<&str> = pods
        .iter()
        .map(|pod| {
            pod.at("metadata.annotations")["batch.kubernetes.io/job-completion-index"].as_str().expect("an index")
        })
        .collect();
    assert_eq!(indexes, ["0", "1"]);
    let first = &pods[0];
    assert_eq!(first.at("metadata.labels")["batch.kubernetes.io/job-completion-index"], "0");
    assert_eq!((first.text("spec.hostname"), first.text("metadata.generateName")), ("pi-0", "pi-0-"));
    let variable = &first.items("spec.containers")[0].items("env")[0];
    assert_eq!(variable.text("name"), "JOB_COMPLETION_INDEX");
    let path = "metadata.labels['batch.kubernetes.io/job-completion-index']";
    assert_eq!(variable.text("valueFrom.fieldRef.fieldPath"), path);
    finish(&mut cluster, 1, 0);
    assert_eq!(now(&cluster).text("status.completedIndexes"), "1");
    finish(&mut cluster, 0, 0);
    assert_eq!(active(&cluster)[0].text("spec.hostname"), "pi-2");
    finish(&mut cluster, 0, 0);
    let job = now(&cluster);
    assert_eq!((job.text("status.completedIndexes"), job.int("status.succeeded")), ("0-2", 3));
    assert_eq!(is(&job, "Complete").as_deref(), Some("True CompletionsReached"));
}

#[test]
fn a_suspended_job_has_no_pods_and_starts_anew() {
    let mut cluster = cluster(stored(&[("spec.parallelism", json!(2)), ("spec.completions", json!(4))]));
    edit(&mut cluster, "jobs", "default/pi", |job| job.put("spec.suspend", true));
    cluster.converge();
    let job = now(&cluster);
    assert_eq!(cluster.all("pods"), Vec::<Value>::new(), "they had no node");
    assert_eq!(is(&job, "Suspended").as_deref(), Some("True JobSuspended"));
    assert!(!job.has("status.startTime") && job.int("status.failed") == 0, "{job}");
    edit(&mut cluster, "jobs", "default/pi", |job| job.put("spec.suspend", false));
    cluster.converge();
    let job = now(&cluster);
    assert_eq!(is(&job, "Suspended").as_deref(), Some("False JobResumed"));
    assert_eq!((active(&cluster).len(), job.has("status.startTime")), (2, true));
    assert!(reasons(&cluster).contains(&"Suspended") && reasons(&cluster).contains(&"Resumed"));
}

#[test]
fn less_parallelism_deletes_pods_without_counting_them() {
    let mut cluster = cluster(stored(&indexed(3, 3)));
    edit(&mut cluster, "jobs", "default/pi", |job| {
        job.put("spec.completions", 2);
        job.put("spec.parallelism", 2);
    });
    cluster.converge();
    let hosts: Vec<String> = active(&cluster).iter().map(|pod| pod.text("spec.hostname").to_owned()).collect();
    assert_eq!(hosts, ["pi-0", "pi-1"], "the index that does not exist any more");
    edit(&mut cluster, "jobs", "default/pi", |job| job.put("spec.parallelism", 1));
    cluster.converge();
    let job = now(&cluster);
    assert_eq!((active(&cluster).len(), job.int("status.active"), job.int("status.failed")), (1, 1, 0));
}

#[test]
fn deleting_the_job_deletes_its_pods_and_orphaning_keeps_them() {
    let mut first = cluster(stored(&[("spec.parallelism", json!(2))]));
    first.remove("jobs", "default/pi");
    first.converge();
    assert_eq!(first.all("pods"), Vec::<Value>::new());
    let mut second = cluster(stored(&[]));
    edit(&mut second, "jobs", "default/pi", |job| {
        job.put("metadata.finalizers", json!(["orphan"]));
        job.put("metadata.deletionTimestamp", "1970-01-01T00:00:00Z");
    });
    second.converge();
    let pod = second.all("pods").remove(0);
    assert!(!is_tracked(&pod) && !pod.has("metadata.ownerReferences"), "{pod}");
    assert!(second.get("jobs", "default/pi").is_none());
}

#[test]
fn adopted_pods_are_tracked_and_released_ones_are_not() {
    let job = stored(&[
        ("spec.manualSelector", json!(true)),
        ("spec.selector", json!({"matchLabels": {"app": "pi"}})),
        ("spec.template.metadata", json!({"labels": {"app": "pi"}})),
    ]);
    let mut stranger = pod_of(&job, "stranger");
    for field in ["metadata.ownerReferences", "metadata.finalizers"] {
        stranger.drop_path(field);
    }
    let mut cluster = Cluster::new(&[&CONTROLLER, &ORPHANS]);
    cluster.put("pods", stranger);
    cluster.put("jobs", job);
    cluster.converge();
    let mut adopted = cluster.all("pods").remove(0);
    assert_eq!(cluster.all("pods").len(), 1);
    assert!(is_tracked(&adopted) && adopted.items("metadata.ownerReferences").len() == 1);
    adopted.put("metadata.labels", json!({"app": "other"}));
    cluster.put("pods", adopted);
    cluster.converge();
    let released = cluster.get("pods", "default/stranger").expect("it stays");
    assert!(!is_tracked(&released) && !released.has("metadata.ownerReferences"));
    assert_eq!(cluster.all("pods").len(), 2, "and was replaced");
}

#[test]
fn a_finalizer_without_a_job_is_removed() {
    let job = stored(&[]);
    let mut forged = pod_of(&job, "forged");
    forged["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    let mut foreign = pod_of(&job, "foreign");
    foreign["metadata"]["ownerReferences"][0]["kind"] = json!("CloneSet");
    let mut cluster = Cluster::new(&[&ORPHANS]);
    cluster.put("jobs", job);
    cluster.put("pods", forged);
    cluster.put("pods", foreign);
    cluster.converge();
    assert!(!is_tracked(&cluster.get("pods", "default/forged").expect("a Pod")));
    assert!(is_tracked(&cluster.get("pods", "default/foreign").expect("a Pod")), "it may mean something to its owner");
}

#[test]
fn a_job_of_another_manager_is_left_alone() {
    let mut cluster = cluster(stored(&[("spec.managedBy", json!("example.com/queue"))]));
    assert_eq!((cluster.all("pods").len(), now(&cluster).at("status")), (0, &json!({})));
    edit(&mut cluster, "jobs", "default/pi", |job| job.put("spec.managedBy", job::CONTROLLER));
    cluster.converge();
    assert_eq!(active(&cluster).len(), 1);
}

#[test]
fn a_finished_job_is_deleted_after_its_ttl() {
    let finished = |at: &str, status: &str| json!({"conditions": [{"type": "Complete", "status": status, "lastTransitionTime": at}]});
    let ttl = ("spec.ttlSecondsAfterFinished", json!(60));
    let wait = |at: &str, status: &str| {
        let mut cluster = Cluster::new(&[]);
        cluster.put("jobs", stored(&[ttl.clone(), ("status", finished(at, status))]));
        cluster.deliver_all();
        let outcome = cluster.reconcile(&TTL, "default/pi");
        (outcome.requeue_after.map(|wait| wait.as_secs()), outcome.transactions.concat().len())
    };
    assert_eq!(wait("1969-12-31T23:59:30Z", "True"), (Some(30), 0));
    assert_eq!(wait("1969-12-31T23:59:00Z", "True"), (None, 1));
    assert_eq!(wait("1969-12-31T23:00:00Z", "False"), (None, 0));
    let mut cluster = cluster(stored(&[("spec.ttlSecondsAfterFinished", json!(0))]));
    finish(&mut cluster, 0, 0);
    assert_eq!((cluster.all("jobs").len(), cluster.all("pods").len()), (0, 0), "and its Pods with it");
}

#[test]
fn many_pods_are_counted_in_steps() {
    let job = stored(&[("spec.parallelism", json!(450)), ("spec.completions", json!(450))]);
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    for number in 0..450 {
        let mut pod = pod_of(&job, &format!("p{number}"));
        end(&mut pod, 0, "1969-01-01T00:00:00Z");
        cluster.put("pods", pod);
    }
    cluster.put("jobs", job);
    cluster.converge();
    let job = now(&cluster);
    assert_eq!((job.int("status.succeeded"), is(&job, "Complete").is_some()), (450, true));
    assert!(cluster.all("pods").iter().all(|pod| !is_tracked(pod)));
}
