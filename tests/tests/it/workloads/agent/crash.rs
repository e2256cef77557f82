//! An agent that is killed and restarted: containers continue or restart.

use serde_json::{Value, json};
use testbed::net::eventually;

use super::machine::{Machine, container, script, web};

fn pid_of(machine: &Machine, uid: &str, name: &str) -> i64 {
    let file = machine.pod_folder(uid).join(format!("containers/{name}/0/begun.json"));
    let begun: Value = serde_json::from_slice(&std::fs::read(&file).expect("it began")).expect("JSON");
    begun["process"][0].as_i64().expect("a number")
}

#[test]
fn s25_after_a_crash_of_the_agent_the_same_process_serves_at_the_same_address() {
    let mut machine = Machine::new();
    let mut serving = web(8080);
    serving["readinessProbe"] = json!({"httpGet": {"port": 8080}, "periodSeconds": 1});
    machine.pod("web", json!({"containers": [serving]}));
    let before = machine.until_ready("web");
    let uid = before["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let (pid, address) = (pid_of(&machine, &uid, "web"), before["status"]["podIP"].clone());
    let ask = format!(
        "curl --silent --fail --max-time 5 --output /dev/null http://{}:8080/",
        address.as_str().expect("an address")
    );
    machine.kill();
    assert!(machine.node.run(ask.as_str()).ok, "it serves while nobody looks after it");
    machine.start();
    let after = machine.get("web");
    assert_eq!((pid_of(&machine, &uid, "web"), &after["status"]["podIP"]), (pid, &address));
    assert_eq!(container(&after, "web")["restartCount"], 0);
    // Its readiness was never revoked.
    let since = |pod: &Value| {
        let all = pod["status"]["conditions"].as_array().expect("conditions").iter();
        all.filter(|one| one["type"] == "Ready").map(|one| one["lastTransitionTime"].clone()).next()
    };
    assert_eq!(since(&after), since(&before));
    // It is managed again: what ends is restarted.
    let process = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a number")).expect("a process");
    rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("killed");
    let again = machine
        .until("web", "begun again", |pod| container(pod, "web")["restartCount"] == 1 && super::machine::is_ready(pod));
    assert_eq!(again["status"]["podIP"], address);
}

#[test]
fn what_was_lost_while_the_agent_was_away_begins_again() {
    let mut machine = Machine::new();
    machine.pod("p", json!({"containers": [script("c", "exec sleep 1000")]}));
    let pod = machine.until_ready("p");
    let uid = pod["metadata"]["uid"].as_str().expect("a uid").to_owned();
    machine.kill();
    let begun = std::fs::read(machine.pod_folder(&uid).join("containers/c/0/begun.json")).expect("it began");
    let begun: Value = serde_json::from_slice(&begun).expect("JSON");
    let shim = i32::try_from(begun["shim"][0].as_i64().expect("a number")).expect("a number");
    let shim = rustix::process::Pid::from_raw(shim).expect("a process");
    rustix::process::kill_process(shim, rustix::process::Signal::KILL).expect("killed");
    machine.start();
    let pod = machine
        .until("p", "begun again", |pod| container(pod, "c")["restartCount"] == 1 && super::machine::is_ready(pod));
    assert_eq!(container(&pod, "c")["lastState"]["terminated"]["reason"], "ContainerStatusUnknown");
}

#[test]
fn a_pod_that_was_deleted_while_the_agent_was_away_goes() {
    let mut machine = Machine::new();
    machine.pod("p", json!({"containers": [script("c", "exec sleep 1000")], "terminationGracePeriodSeconds": 1}));
    let uid = machine.until_ready("p")["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let pid = pid_of(&machine, &uid, "c");
    let _ = machine.delete("p", "?gracePeriodSeconds=0").success();
    machine.kill();
    machine.start();
    eventually("nothing is left of it", || {
        !machine.pod_folder(&uid).exists() && !std::path::Path::new(&format!("/proc/{pid}")).exists()
    });
}
