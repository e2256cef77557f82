//! Jobs whose Pods really run.

use std::process::Command;

use serde_json::{Value, json};

use super::machine::{Machine, script};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// What kubectl printed; the line is split at spaces.
#[track_caller]
fn kubectl(machine: &Machine, line: &str) -> String {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(machine.data_dir().join("kubeconfig"));
    command.arg("--cache-dir").arg(machine.data_dir().join("kubectl-cache")).args(line.split_whitespace());
    machine.node.run(command).success()
}

fn make(machine: &mut Machine, name: &str, restart: &str, line: &str, mut spec: Value) {
    let containers = [script("main", line)];
    spec["template"] =
        json!({"spec": {"restartPolicy": restart, "containers": containers, "terminationGracePeriodSeconds": 1}});
    machine.post(JOBS, &json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}));
}

#[test]
fn jobs_run_to_completion_or_fail() {
    let mut machine = Machine::new();
    make(&mut machine, "good", "Never", "echo done", json!({}));
    kubectl(&machine, "wait --for=condition=complete job/good --timeout=60s");
    assert_eq!(kubectl(&machine, "logs job/good"), "done\n");
    make(&mut machine, "bad", "Never", "exit 3", json!({"backoffLimit": 0}));
    kubectl(&machine, "wait --for=condition=failed job/bad --timeout=60s");
    // The container is restarted in its Pod, which then succeeds.
    let second = "test -e /scratch/tried && exit 0; touch /scratch/tried; exit 1";
    let mut spec = json!({"backoffLimit": 3});
    spec["template"] = json!({"spec": {
        "restartPolicy": "OnFailure", "volumes": [{"name": "scratch", "emptyDir": {}}],
        "containers": [{"name": "main", "image": "host", "command": ["sh", "-c", second],
                        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}],
    }});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "again"}, "spec": spec});
    machine.post(JOBS, &job);
    kubectl(&machine, "wait --for=condition=complete job/again --timeout=60s");
    let indexed = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2});
    make(&mut machine, "many", "Never", "test \"$(uname -n)\" = \"many-$JOB_COMPLETION_INDEX\"", indexed);
    kubectl(&machine, "wait --for=condition=complete job/many --timeout=60s");
}

#[test]
fn a_job_that_runs_too_long_is_ended() {
    let mut machine = Machine::new();
    let spec = json!({"activeDeadlineSeconds": 1, "podReplacementPolicy": "Failed"});
    make(&mut machine, "slow", "Never", "exec sleep 1000", spec);
    kubectl(&machine, "wait --for=condition=failed job/slow --timeout=90s");
    let job = machine.api(|session| session.get(&format!("{JOBS}/slow"))).success();
    assert_eq!((job["status"]["failed"].as_i64(), job["status"]["terminating"].as_i64()), (Some(1), Some(0)), "{job}");
    assert_eq!(job["status"]["conditions"][0]["reason"], "DeadlineExceeded");
}
