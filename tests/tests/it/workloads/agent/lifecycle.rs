//! From a Pod to a Service that answers, and back to nothing.

use std::time::{Duration, Instant};

use serde_json::json;
use testbed::net::{Family, eventually};

use super::machine::{Machine, condition, container, script, web};

#[test]
fn s18_a_pod_runs_gets_addresses_and_is_reached_through_its_service() {
    let mut machine = Machine::new();
    machine.pod("web", json!({"containers": [web(8080)], "terminationGracePeriodSeconds": 2}));
    let pod = machine.until_ready("web");
    let ips: Vec<&str> =
        pod["status"]["podIPs"].as_array().expect("addresses").iter().filter_map(|ip| ip["ip"].as_str()).collect();
    assert!(matches!(ips[..], [v4, v6] if v4.starts_with("10.244.0.") && v6.starts_with("fd00:10:244:")), "{ips:?}");
    assert_eq!(pod["status"]["hostIP"], machine.node.address(Family::V4).to_string());
    assert_eq!((condition(&pod, "Initialized"), pod["status"]["phase"].as_str()), ("True", Some("Running")));
    let spec = json!({"selector": {"app": "web"}, "ipFamilyPolicy": "PreferDualStack", "ports": [{"port": 80, "targetPort": 8080}]});
    let service = machine.api(|session| session.create("web", spec));
    for ip in service["spec"]["clusterIPs"].as_array().expect("cluster IPs") {
        let ip = ip.as_str().expect("an address");
        let url = if ip.contains(':') { format!("http://[{ip}]/") } else { format!("http://{ip}/") };
        let ask = format!("curl --silent --show-error --fail --max-time 5 --output /dev/null {url}");
        eventually("the Service answers", || machine.node.run(ask.as_str()).ok);
    }
    let _ = machine.delete("web", "").success();
    machine.until_gone("web");
    let links = machine.node.run("ip -brief link").success();
    assert!(!links.contains("wp"), "{links}");
}

#[test]
fn a_pod_reaches_itself_and_its_neighbour_through_services() {
    let mut machine = Machine::new();
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]});
    let ip = machine.api(|session| session.create("web", spec))["spec"]["clusterIP"]
        .as_str()
        .expect("an address")
        .to_owned();
    machine.pod("web", json!({"containers": [web(8080)]}));
    machine.until_ready("web");
    let fetch =
        format!("until curl -sf -m 2 -o /dev/null http://{ip}/; do sleep 0.1; done; echo reached; exec sleep 1000");
    machine.pod("neighbour", json!({"containers": [script("c", &fetch)]}));
    let both = json!({"containers": [web(8080), script("c", &fetch)]});
    machine.pod("own", both);
    machine.until_ready("neighbour");
    machine.until_ready("own");
    eventually("the neighbour is reached", || machine.log("neighbour", "c", 0) == "reached\n");
    eventually("it is reached from beside", || machine.log("own", "c", 0) == "reached\n");
}

#[test]
fn init_containers_run_in_order_and_sidecars_stay() {
    let mut machine = Machine::new();
    let mount = json!([{"name": "shared", "mountPath": "/shared"}]);
    let with = |mut container: serde_json::Value| {
        container["volumeMounts"] = mount.clone();
        container
    };
    let mut side = with(script("side", "echo side >> /shared/order; trap 'exit 0' TERM; while :; do sleep 0.1; done"));
    side["restartPolicy"] = json!("Always");
    side["startupProbe"] = json!({"exec": {"command": ["grep", "side", "/shared/order"]}, "periodSeconds": 1});
    machine.pod("p", json!({
        "volumes": [{"name": "shared", "emptyDir": {}}],
        "initContainers": [with(script("one", "sleep 0.3; echo one >> /shared/order")), side, with(script("two", "echo two >> /shared/order"))],
        "containers": [with(script("main", "cat /shared/order; exec sleep 1000"))],
        "terminationGracePeriodSeconds": 3,
    }));
    let pod = machine.until_ready("p");
    assert_eq!(machine.log("p", "main", 0), "one\nside\ntwo\n");
    assert_eq!(container(&pod, "one")["state"]["terminated"]["reason"], "Completed");
    assert_eq!(container(&pod, "side")["started"], true);
}

#[test]
fn s25_a_deleted_pod_is_asked_to_end_and_has_its_time() {
    let mut machine = Machine::new();
    let polite = "trap 'echo asked; sleep 0.5; echo done; exit 0' TERM; echo begun; while :; do sleep 0.05; done";
    let mut hooked = script("c", polite);
    hooked["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["sh", "-c", "echo hook > /proc/1/fd/1 2>/dev/null; sleep 0.2"]}}});
    machine.pod("polite", json!({"containers": [hooked], "terminationGracePeriodSeconds": 20}));
    machine.pod("stubborn", json!({"containers": [script("c", "trap '' TERM; while :; do sleep 0.05; done")], "terminationGracePeriodSeconds": 2}));
    machine.until_ready("polite");
    machine.until_ready("stubborn");
    eventually("it has begun", || machine.log("polite", "c", 0).contains("begun"));
    let uid = machine.get("polite")["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let begun = Instant::now();
    let _ = machine.delete("polite", "").success();
    let pod = machine
        .until("polite", "ended", |pod| pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object());
    assert_eq!(container(&pod, "c")["state"]["terminated"]["exitCode"], 0);
    machine.until_gone("polite");
    assert!(begun.elapsed() < Duration::from_secs(15), "it ended by itself, not by its grace: {:?}", begun.elapsed());
    eventually("its folder is gone", || !machine.pod_folder(&uid).exists());
    let begun = Instant::now();
    let _ = machine.delete("stubborn", "").success();
    machine.until_gone("stubborn");
    assert!(begun.elapsed() >= Duration::from_secs(2), "it had its time: {:?}", begun.elapsed());
}

#[test]
fn a_pod_that_ends_is_not_begun_again_when_it_should_not() {
    let mut machine = Machine::new();
    machine
        .pod("good", json!({"restartPolicy": "Never", "containers": [script("c", "echo bye > /dev/termination-log")]}));
    machine.pod("bad", json!({"restartPolicy": "Never", "containers": [script("c", "exit 3")]}));
    let good = machine.until("good", "done", |pod| pod["status"]["phase"] == "Succeeded");
    assert_eq!(container(&good, "c")["state"]["terminated"]["message"], "bye\n");
    let bad = machine.until("bad", "failed", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(container(&bad, "c")["state"]["terminated"]["exitCode"], 3);
    assert_eq!(container(&bad, "c")["restartCount"], 0);
}

#[test]
fn a_last_message_of_ten_gigabytes_is_cut_and_takes_no_memory() {
    let mut machine = Machine::new();
    // A sparse file: it takes no room on the disk, but reading it as a whole needs the memory.
    let huge = script("c", "echo hello > /dev/termination-log; truncate -s 10G /dev/termination-log; exit 1");
    machine.pod("huge", json!({"restartPolicy": "Never", "containers": [huge]}));
    let mut noisy = script("c", "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i + 1)); done; exit 1");
    noisy["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    machine.pod("noisy", json!({"restartPolicy": "Never", "containers": [noisy]}));
    let said = |pod: &serde_json::Value| {
        container(pod, "c")["state"]["terminated"]["message"].as_str().expect("a message").to_owned()
    };
    let huge = said(&machine.until("huge", "failed", |pod| pod["status"]["phase"] == "Failed"));
    assert!(huge.starts_with("hello\n") && huge.len() == 4096, "{} bytes", huge.len());
    let noisy = said(&machine.until("noisy", "failed", |pod| pod["status"]["phase"] == "Failed"));
    assert_eq!((noisy.lines().count(), noisy.lines().last()), (80, Some("line 2999")));
    let peak = machine.peak_memory();
    assert!(peak < 1 << 30, "the agent needed {} MiB", peak >> 20);
}

#[test]
fn s25_a_pod_that_takes_its_time_to_end_is_hurried_by_a_second_deletion() {
    let mut machine = Machine::new();
    let stubborn = || script("c", "trap '' TERM; while :; do sleep 0.05; done");
    let mut hooked = stubborn();
    hooked["lifecycle"] = json!({"preStop": {"exec": {"command": ["sleep", "300"]}}});
    for (name, container) in [("shorter", stubborn()), ("hooked", hooked), ("forced", stubborn())] {
        machine.pod(name, json!({"containers": [container], "terminationGracePeriodSeconds": 300}));
        machine.until_ready(name);
    }
    for (name, again) in
        [("shorter", "?gracePeriodSeconds=1"), ("hooked", "?gracePeriodSeconds=1"), ("forced", "?gracePeriodSeconds=0")]
    {
        let uid = machine.get(name)["metadata"]["uid"].as_str().expect("a uid").to_owned();
        let folder = machine.pod_folder(&uid);
        let _ = machine.delete(name, "").success();
        let is_asked =
            |event: &serde_json::Value| event["reason"] == "Killing" && event["involvedObject"]["name"] == name;
        eventually("it is asked to end", || {
            machine.api(|session| session.items("/api/v1/namespaces/default/events")).iter().any(is_asked)
        });
        let begun = Instant::now();
        let _ = machine.delete(name, again).success();
        machine.until_gone(name);
        eventually("nothing is left of it", || !folder.exists());
        assert!(begun.elapsed() < Duration::from_secs(15), "{name} took {:?}", begun.elapsed());
    }
}
