//! Pods and the networks around them: the machine's own, its ports, the world beyond the cluster, and the API.

use serde_json::{Value, json};
use testbed::net::{Family, Protocol, eventually};

use super::machine::{Machine, container, script, web};

fn address(pod: &Value) -> String {
    pod["status"]["podIP"].as_str().expect("an address").to_owned()
}

#[test]
fn a_pod_in_the_network_of_the_machine_has_its_addresses_and_its_names() {
    let mut machine = Machine::new();
    let mut serving = web(8088);
    serving["readinessProbe"] = json!({"httpGet": {"port": 8088}, "periodSeconds": 1});
    let look = script("look", "cat /proc/net/dev | grep -c 'eth0\\|waypost0'; cat /etc/resolv.conf; exec sleep 1000");
    machine.pod("p", json!({"hostNetwork": true, "containers": [serving, look]}));
    let pod = machine.until_ready("p");
    assert_eq!(address(&pod), machine.node.address(Family::V4).to_string());
    assert_eq!(pod["status"]["podIPs"].as_array().map(Vec::len), Some(2));
    let ask = format!("curl -sf -m 5 -o /dev/null http://{}:8088/", machine.node.address(Family::V4));
    assert!(machine.node.run(ask.as_str()).ok);
    eventually("it has looked", || machine.log("p", "look", 0).lines().count() > 1);
    // It sees the links of the machine, and uses the machine's name servers.
    let log = machine.log("p", "look", 0);
    assert!(log.starts_with("2\n") && !log.contains("nameserver 10.96.0.10"), "{log}");
}

#[test]
fn s18_a_host_port_leads_into_a_pod_from_outside_and_from_the_machine() {
    let mut machine = Machine::new();
    let outside = machine.outside("client");
    let mut serving = web(8080);
    serving["ports"] = json!([{"containerPort": 8080, "hostPort": 9080}]);
    machine.pod("p", json!({"containers": [serving]}));
    machine.until_ready("p");
    for family in [Family::V4, Family::V6] {
        let at = machine.node.address(family);
        let at = if at.is_ipv6() { format!("[{at}]") } else { at.to_string() };
        let ask = format!("curl -sf -m 3 -o /dev/null http://{at}:9080/");
        eventually("it answers outside", || outside.run(ask.as_str()).ok);
        assert!(machine.node.run(ask.as_str()).ok, "it answers on the machine, too: {at}");
    }
    let _ = machine.delete("p", "?gracePeriodSeconds=0").success();
    let ask = format!("curl -s -m 2 -o /dev/null http://{}:9080/", machine.node.address(Family::V4));
    eventually("the door is shut", || outside.run(ask.as_str()).code == Some(7));
}

#[test]
fn s18_a_host_port_does_not_take_the_port_of_a_program_of_the_machine() {
    let mut machine = Machine::new();
    let mut greedy = web(8080);
    // The port of the agent.
    greedy["ports"] = json!([{"containerPort": 8080, "hostPort": 10250}]);
    machine.pod("greedy", json!({"containers": [greedy]}));
    let refused = |event: &Value| {
        let message = event["message"].as_str().unwrap_or_default();
        event["reason"] == "FailedCreatePodSandBox" && message.contains("hostPort 10250 is used by another program")
    };
    eventually("an Event says why", || {
        machine.api(|session| session.items("/api/v1/namespaces/default/events")).iter().any(refused)
    });
    machine.pod("p", json!({"containers": [script("c", "exec sleep 1000")]}));
    machine.until_ready("p");
    assert_eq!(machine.exec("p", "c", "echo reached").trim(), "reached", "the agent has its port");
    let _ = machine.delete("greedy", "?gracePeriodSeconds=0").success();
}

#[test]
fn b08_one_host_port_of_two_addresses_leads_to_two_pods() {
    let mut machine = Machine::new();
    let outside = machine.outside("client");
    let node = machine.node.address(Family::V4).to_string();
    for (name, at, port) in [("local", "127.0.0.1", 8081), ("open", node.as_str(), 8082)] {
        let mut serving = web(port);
        serving["ports"] = json!([{"containerPort": port, "hostPort": 9080, "hostIP": at}]);
        serving["readinessProbe"] = json!({"tcpSocket": {"port": port}, "periodSeconds": 1});
        machine.pod(name, json!({"containers": [serving]}));
        machine.until_ready(name);
    }
    let ask = format!("curl -sf -m 3 -o /dev/null http://{node}:9080/");
    eventually("the address of the node answers outside", || outside.run(ask.as_str()).ok);
    let local = format!("curl -sf -m 3 -o /dev/null --interface {node} http://127.0.0.1:9080/");
    assert!(machine.node.run(local.as_str()).ok, "loopback answers on the machine");
    let _ = machine.delete("open", "?gracePeriodSeconds=0").success();
    eventually("the address of the node is closed", || outside.run(ask.as_str()).code == Some(7));
    assert!(machine.node.run(local.as_str()).ok, "loopback still answers");
}

#[test]
fn pods_speak_to_the_world_with_the_address_of_the_machine_and_to_each_other_with_their_own() {
    let mut machine = Machine::new();
    let outside = machine.outside("world");
    outside.echo_on(&[Protocol::Tcp], 7000);
    machine.pod("p", json!({"containers": [script("c", "exec sleep 1000")]}));
    machine.pod("neighbour", json!({"containers": [seen()]}));
    let pod = machine.until_ready("p");
    let neighbour = address(&machine.until_ready("neighbour"));
    for family in [Family::V4, Family::V6] {
        let text = machine.exec("p", "c", &ask_line(&outside.address(family).to_string(), 7000));
        let wanted = match family {
            Family::V4 => format!("client={}:", machine.node.address(family)),
            Family::V6 => format!("client=[{}]:", machine.node.address(family)),
        };
        assert!(text.contains(&wanted), "{wanted} is not in {text}");
    }
    let text = machine.exec("p", "c", &ask_line(&neighbour, 7000));
    assert_eq!(text.trim(), address(&pod));
}

/// A container that sends its address to each client.
fn seen() -> Value {
    let program = "import socket\ns = socket.create_server(('', 7000))\nwhile True:\n c, a = s.accept()\n c.recv(9)\n c.sendall((a[0] + chr(10)).encode())\n c.close()";
    json!({"name": "c", "image": "host", "command": ["python3", "-c", program], "readinessProbe": {"tcpSocket": {"port": 7000}, "periodSeconds": 1}})
}

fn ask_line(host: &str, port: u16) -> String {
    let program = format!(
        "import socket; s = socket.create_connection(('{host}', {port}), 5); s.sendall(b'who?\\n'); print(s.recv(200).decode())"
    );
    format!("python3 -c \"{program}\"")
}

#[test]
fn s19_a_pod_asks_the_api_with_its_token_through_the_service() {
    let mut machine = Machine::new();
    let folder = "/var/run/secrets/kubernetes.io/serviceaccount";
    let ask = format!(
        "ask() {{ curl -s -m 5 --cacert {folder}/ca.crt -o /tmp/answer -w '%{{http_code}}' \"$@\"; echo; }}; \
         base=https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT; token=$(cat {folder}/token); \
         echo $base; ask $base/api/v1/namespaces/default/pods; \
         ask -H \"Authorization: Bearer $token\" $base/apis/authentication.k8s.io/v1/selfsubjectreviews -H 'Content-Type: application/json' \
           -d '{{\"apiVersion\": \"authentication.k8s.io/v1\", \"kind\": \"SelfSubjectReview\"}}'; cat /tmp/answer; \
         cat {folder}/namespace; echo; echo that is all; exec sleep 1000"
    );
    let authority = std::fs::read_to_string(machine.data_dir().join("pki/ca.crt")).expect("the authority");
    machine.post(
        "/api/v1/namespaces/default/configmaps",
        &json!({"metadata": {"name": "ca"}, "data": {"ca.crt": authority}}),
    );
    machine.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "robot"}}));
    let mut c = script("c", &ask);
    c["volumeMounts"] =
        json!([{"name": "tmp", "mountPath": "/tmp"}, {"name": "account", "mountPath": folder, "readOnly": true}]);
    let account = json!({"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
        {"configMap": {"name": "ca"}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]});
    machine.pod(
        "p",
        json!({
            "serviceAccountName": "robot", "containers": [c],
            "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "account", "projected": account}],
        }),
    );
    let pod = machine.until_ready("p");
    assert_eq!(container(&pod, "c")["restartCount"], 0);
    eventually("it has asked", || machine.log("p", "c", 0).contains("that is all\n"));
    let log = machine.log("p", "c", 0);
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[0], "https://10.96.0.1:443");
    assert!(matches!(lines[1], "401" | "403"), "without a token nothing is to be had: {log}");
    assert_eq!(lines[2], "201", "{log}");
    assert!(log.contains("system:serviceaccount:default:robot") && log.contains("default\nthat is all"), "{log}");
    assert!(log.contains(r#""authentication.kubernetes.io/pod-name":["p"]"#), "the token is bound to its Pod: {log}");
}
