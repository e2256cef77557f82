//! Jobs with the real kubectl. The kubelets that the test plays run Pods for ever; here the test ends them.

use serde_json::{Value, json};
use testbed::session::text;

use super::{PODS, Stage, cells};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// A Job in YAML; the extra lines are fields of its spec.
fn manifest(name: &str, extra: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n{extra}  template:\n    spec:\n      \
         restartPolicy: Never\n      containers: [{{name: main, image: 'image:1'}}]\n"
    )
}

impl Stage {
    /// Waits until this number of Pods of a Job run.
    #[track_caller]
    fn running(&self, job: &str, count: usize) -> Vec<Value> {
        let is_running =
            |pod: &&Value| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
        let pods = self.pods_until(&format!("job-name={job}"), |pods| pods.iter().filter(is_running).count() == count);
        pods.iter().filter(is_running).cloned().collect()
    }

    /// The container of a Pod ends with an exit code.
    #[track_caller]
    fn end(&self, pod: &Value, code: u8) {
        let terminated = json!({
            "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
            "startedAt": "2020-01-01T00:00:00Z", "finishedAt": "2020-01-01T00:00:01Z",
        });
        let status = json!({
            "phase": if code == 0 { "Succeeded" } else { "Failed" },
            "containerStatuses": [{
                "name": pod["spec"]["containers"][0]["name"], "image": "image:1", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": terminated},
            }],
        });
        let path = format!("{PODS}/{}/status", text(pod, "/metadata/name"));
        let _ = self.server.session().merge(&path, &json!({"status": status})).success();
    }
}

fn is_tracked(pod: &Value) -> bool {
    pod["metadata"]["finalizers"].as_array().into_iter().flatten().any(|have| have == FINALIZER)
}

#[test]
fn a_job_is_made_waited_for_and_shown() {
    let stage = Stage::start();
    stage.ok("create job pi --image=image:1");
    let pod = stage.running("pi", 1).remove(0);
    assert!(is_tracked(&pod), "{pod}");
    let out = stage.ok("get jobs");
    assert_eq!(cells(&out)[0], ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]);
    assert_eq!(cells(&out)[1][..3], ["pi", "Running", "0/1"]);
    stage.end(&pod, 0);
    stage.ok("wait --for=condition=complete job/pi --timeout=60s");
    let out = stage.ok("get jobs -o wide");
    assert_eq!(cells(&out)[0][5..], ["CONTAINERS", "IMAGES", "SELECTOR"]);
    assert_eq!(cells(&out)[1][..3], ["pi", "Complete", "1/1"]);
    let job = stage.json("job pi");
    let selector = format!("batch.kubernetes.io/controller-uid={}", text(&job, "/metadata/uid"));
    assert_eq!(cells(&out)[1][5..], ["pi", "image:1", selector.as_str()]);
    assert_eq!(job["status"]["uncountedTerminatedPods"], json!({}));
    assert_eq!((job["status"]["succeeded"].as_i64(), job["status"]["ready"].as_i64()), (Some(1), Some(0)));
    let described = stage.ok("describe job pi");
    for wanted in ["1 Succeeded", "SuccessfulCreate", "Completed"] {
        assert!(described.contains(wanted), "{wanted} in\n{described}");
    }
    let ended = stage.json("pods -l job-name=pi")["items"][0].clone();
    assert!(!is_tracked(&ended), "{ended}");
    assert_eq!(stage.ok("get jobs --field-selector status.successful=1 -o name"), "job.batch/pi\n");
    assert_eq!(stage.ok("get jobs --field-selector status.successful=0 -o name"), "");
    assert!(stage.ok("get all").contains("job.batch/pi"));
    assert!(stage.ok("explain job.spec.podFailurePolicy").contains("rules"));
    let resources = stage.ok("api-resources --api-group=batch");
    assert!(cells(&resources).iter().any(|row| *row == ["jobs", "batch/v1", "true", "Job"]), "{resources}");
    stage.ok("delete job pi");
    stage.pods_until("job-name=pi", <[Value]>::is_empty);
}

#[test]
fn a_job_fails_after_its_backoff_limit() {
    let stage = Stage::start();
    stage.ok_with("apply -f -", &manifest("bad", "  backoffLimit: 1\n"));
    for _ in 0..2 {
        stage.end(&stage.running("bad", 1)[0], 3);
    }
    stage.ok("wait --for=condition=failed job/bad --timeout=60s");
    let job = stage.json("job bad");
    assert_eq!((job["status"]["failed"].as_i64(), &job["status"]["active"]), (Some(2), &Value::Null), "{job}");
    let kinds: Vec<&str> = job["status"]["conditions"]
        .as_array()
        .expect("conditions")
        .iter()
        .inspect(|condition| assert_eq!(condition["reason"], "BackoffLimitExceeded"))
        .map(|condition| text(condition, "/type"))
        .collect();
    assert_eq!(kinds, ["FailureTarget", "Failed"]);
    assert_eq!(cells(&stage.ok("get jobs"))[1][1..3], ["Failed", "0/1"]);
}

#[test]
fn pods_of_an_indexed_job_have_their_index() {
    let stage = Stage::start();
    stage.ok_with("apply -f -", &manifest("many", "  completionMode: Indexed\n  completions: 3\n  parallelism: 3\n"));
    let mut pods = stage.running("many", 3);
    pods.sort_by_key(|pod| text(pod, "/spec/hostname").to_owned());
    let hosts: Vec<&str> = pods.iter().map(|pod| text(pod, "/spec/hostname")).collect();
    assert_eq!(hosts, ["many-0", "many-1", "many-2"]);
    assert_eq!(pods[1]["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"], "1");
    assert_eq!(pods[1]["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
    stage.end(&pods[0], 0);
    stage.end(&pods[2], 0);
    stage.ok("wait --for=jsonpath={.status.completedIndexes}=0,2 job/many --timeout=60s");
    let said = stage.fails("scale job many --replicas=1");
    assert!(!said.is_empty());
    stage.end(&pods[1], 0);
    stage.ok("wait --for=condition=complete job/many --timeout=60s");
    assert_eq!(stage.ok("get job many -o jsonpath={.status.completedIndexes}"), "0-2");
}

#[test]
fn a_suspended_job_waits_until_it_is_resumed() {
    let stage = Stage::start();
    stage.ok_with("apply -f -", &manifest("later", "  suspend: true\n"));
    stage.ok("wait --for=condition=suspended job/later --timeout=60s");
    assert!(stage.server.session().items(&format!("{PODS}?labelSelector=job-name=later")).is_empty());
    assert_eq!(cells(&stage.ok("get jobs"))[1][1], "Suspended");
    // Where its Pods go can be changed as long as there are none.
    let patch = r#"{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":"two"}}}}}"#;
    stage.ok(&format!("patch job later --type=merge -p {patch}"));
    stage.ok("patch job later --type=merge -p {\"spec\":{\"suspend\":false}}");
    let pod = stage.running("later", 1).remove(0);
    assert_eq!(text(&pod, "/spec/nodeName"), "two");
    stage.ok("wait --for=condition=suspended=false job/later --timeout=60s");
    let said = stage.fails(&format!("patch job later --type=merge -p {}", patch.replace("two", "one")));
    assert!(said.contains("spec.template: Invalid value:") && said.contains("field is immutable"), "{said}");
    stage.ok("patch job later --type=merge -p {\"spec\":{\"suspend\":true}}");
    stage.pods_until("job-name=later", <[Value]>::is_empty);
    assert_eq!(stage.json("job later")["status"]["failed"], Value::Null, "that was no failure");
}

#[test]
fn a_finished_job_goes_after_its_time_to_live() {
    let stage = Stage::start();
    stage.ok_with("apply -f -", &manifest("short", "  ttlSecondsAfterFinished: 1\n"));
    stage.end(&stage.running("short", 1)[0], 0);
    stage.ok("wait --for=delete job/short --timeout=60s");
    assert!(stage.server.session().items(&format!("{PODS}?labelSelector=job-name=short")).is_empty());
}

#[test]
fn pods_survive_a_job_that_is_deleted_without_saying_what_becomes_of_them() {
    let stage = Stage::start();
    stage.ok_with("apply -f -", &manifest("gone", ""));
    let uid = text(&stage.running("gone", 1)[0], "/metadata/uid").to_owned();
    let mut session = stage.server.session();
    let _ = session.delete(&format!("{JOBS}/gone")).success();
    // Two controllers release it: one its finalizer, one its owner.
    let is_released = |pod: &Value| !is_tracked(pod) && pod["metadata"]["ownerReferences"].is_null();
    let pods = stage.pods_until("job-name=gone", |pods| pods.iter().all(is_released));
    assert_eq!(text(&pods[0], "/metadata/uid"), uid);
    stage.ok("wait --for=delete job/gone --timeout=60s");
}
