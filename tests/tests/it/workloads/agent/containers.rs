//! What a container finds: its environment, its names, its rights; and what happens when it fails or takes too much.

use serde_json::json;
use testbed::net::Protocol::Tcp;
use testbed::net::eventually;

use super::machine::{Machine, container, script};

#[test]
fn a_container_finds_its_environment_and_names() {
    let mut machine = Machine::new();
    machine
        .post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "c"}, "data": {"colour": "red"}}));
    machine.post(
        "/api/v1/namespaces/default/secrets",
        &json!({"metadata": {"name": "s"}, "stringData": {"pw": "hunter"}}),
    );
    let mut show = script(
        "show",
        "env | sort; hostname; cat /etc/hosts /etc/resolv.conf; id -u; pwd; echo that is all; exec sleep 1000",
    );
    show["env"] = json!([
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)-$(KUBERNETES_SERVICE_PORT)"},
        {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "s", "key": "pw"}}},
        {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]);
    show["envFrom"] = json!([{"configMapRef": {"name": "c"}, "prefix": "CFG_"}]);
    show["workingDir"] = json!("/usr");
    show["securityContext"] = json!({"runAsUser": 1234});
    machine.pod(
        "p",
        json!({
            "containers": [show], "hostname": "host", "subdomain": "sub",
            "hostAliases": [{"ip": "192.0.2.9", "hostnames": ["friend"]}],
        }),
    );
    let pod = machine.until_ready("p");
    eventually("all is said", || machine.log("p", "show", 0).contains("that is all\n"));
    let log = machine.log("p", "show", 0);
    let ip = pod["status"]["podIP"].as_str().expect("an address");
    for line in [
        "A=1",
        "B=1-443",
        "PW=hunter",
        "ME=p",
        &format!("IP={ip}"),
        "CFG_colour=red",
        "host",
        "1234",
        "/usr",
        &format!("{ip}\thost.sub.default.svc.cluster.local\thost"),
        "192.0.2.9\tfriend",
        "nameserver 10.96.0.10",
        "search default.svc.cluster.local svc.cluster.local cluster.local",
    ] {
        assert!(log.lines().any(|own| own.starts_with(line)), "{line} is missing:\n{log}");
    }
}

#[test]
fn what_is_missing_is_said_and_waited_for() {
    let mut machine = Machine::new();
    let mut needy = script("c", "echo $COLOUR; exec sleep 1000");
    needy["env"] = json!([{"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "colour"}}}]);
    machine.pod("needy", json!({"containers": [needy]}));
    let waiting =
        |pod: &serde_json::Value| container(pod, "c")["state"]["waiting"]["reason"] == "CreateContainerConfigError";
    let pod = machine.until("needy", "waiting", waiting);
    assert_eq!(container(&pod, "c")["state"]["waiting"]["message"], "configmap \"late\" not found");
    machine.post(
        "/api/v1/namespaces/default/configmaps",
        &json!({"metadata": {"name": "late"}, "data": {"colour": "blue"}}),
    );
    machine.until_ready("needy");
    eventually("it knows", || machine.log("needy", "c", 0) == "blue\n");
    machine.pod("nothing", json!({"containers": [{"name": "c", "image": "host", "command": ["/nowhere/program"]}]}));
    let failed = |pod: &serde_json::Value| container(pod, "c")["lastState"]["terminated"]["reason"] == "StartError";
    machine.until("nothing", "refused", failed);
}

#[test]
fn a_container_that_fails_is_begun_again_at_once_and_then_waits() {
    let mut machine = Machine::new();
    machine.pod("p", json!({"containers": [script("c", "echo once; exit 7")]}));
    let loops = |pod: &serde_json::Value| container(pod, "c")["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    let pod = machine.until("p", "waiting", loops);
    let status = container(&pod, "c");
    assert_eq!(
        (status["restartCount"].as_u64(), status["lastState"]["terminated"]["exitCode"].as_i64()),
        (Some(1), Some(7))
    );
    let message = status["state"]["waiting"]["message"].as_str().expect("a message");
    assert!(message.starts_with("back-off 10s restarting failed container=c pod=p_default("), "{message}");
    assert_eq!((machine.log("p", "c", 0), machine.log("p", "c", 1)), ("once\n".to_owned(), "once\n".to_owned()));
}

#[test]
fn who_takes_too_much_hits_its_own_limit() {
    let mut machine = Machine::with(&["--container-pids-limit", "40"]);
    let mut hog = script("hog", "exec python3 -c 'x = []\nwhile True: x.append(bytearray(1 << 20))'");
    hog["resources"] = json!({"limits": {"memory": "48Mi"}});
    let bomb = r#"exec python3 -c '
import os, time
n = 0
try:
    while n < 500:
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)
        n += 1
except OSError:
    print("full", n, flush=True)
time.sleep(1000)'"#;
    let bomb = script("bomb", bomb);
    let calm = json!({"name": "web", "image": "host", "command": [testbed::backend(), "8080"]});
    machine.pod("calm", json!({"containers": [calm]}));
    let address = machine.until_ready("calm")["status"]["podIP"].as_str().expect("an address").to_owned();
    let node = machine.node.clone();
    eventually("the neighbour answers", || node.ask(Tcp, address.as_str(), 8080).is_ok());
    machine.pod("hog", json!({"containers": [hog]}));
    machine.pod("bomb", json!({"restartPolicy": "Never", "containers": [bomb]}));
    let starved = |pod: &serde_json::Value| {
        ["state", "lastState"].iter().any(|state| container(pod, "hog")[state]["terminated"]["reason"] == "OOMKilled")
    };
    machine.until("hog", "starved", starved);
    machine.until_ready("bomb");
    eventually("it has no more processes", || machine.log("bomb", "bomb", 0).starts_with("full "));
    let many: u32 = machine.log("bomb", "bomb", 0).trim().trim_start_matches("full ").parse().expect("a number");
    assert!((30..40).contains(&many), "{many} processes");
    let _ = node.ask_many(10, Tcp, address.as_str(), 8080).all_answered();
    assert_eq!(container(&machine.get("calm"), "web")["restartCount"], 0);
}

#[test]
fn the_process_runtime_shows_neither_other_processes_nor_the_data_directory() {
    let mut machine = Machine::new();
    let folder = machine.data_dir().display().to_string();
    let look =
        format!("ls -A {folder}; ls /proc | grep -c '^[0-9]'; touch /usr/new 2>&1; echo that is all; exec sleep 1000");
    let mut spy = script("c", &look);
    spy["securityContext"] = json!({"readOnlyRootFilesystem": true});
    machine.pod("p", json!({"containers": [spy]}));
    machine.until_ready("p");
    eventually("it has looked", || machine.log("p", "c", 0).contains("that is all\n"));
    let log = machine.log("p", "c", 0);
    let mut lines = log.lines();
    let few =
        lines.next().and_then(|line| line.parse::<u32>().ok()).unwrap_or_else(|| panic!("it saw the directory: {log}"));
    assert!(few < 8, "{log}");
    assert!(log.contains("Read-only file system"), "{log}");
}
