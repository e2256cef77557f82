//! Probes: which Pods are ready, and which containers are restarted.

use serde_json::json;
use testbed::net::eventually;

use super::grpc::Health;
use super::machine::{Machine, container, is_ready, script, web};

#[test]
fn s18_a_pod_is_ready_while_its_probe_says_so() {
    let mut machine = Machine::new();
    let folder = testbed::folder();
    let path = folder.path().display().to_string();
    let mut c = script("c", "exec sleep 1000");
    c["volumeMounts"] = json!([{"name": "host", "mountPath": "/flag"}]);
    c["readinessProbe"] =
        json!({"exec": {"command": ["test", "-e", "/flag/up"]}, "periodSeconds": 1, "failureThreshold": 1});
    machine.pod("p", json!({"containers": [c], "volumes": [{"name": "host", "hostPath": {"path": path}}]}));
    machine.until("p", "running", |pod| container(pod, "c")["started"] == true);
    assert!(!is_ready(&machine.get("p")));
    std::fs::write(folder.path().join("up"), "").expect("written");
    machine.until_ready("p");
    std::fs::remove_file(folder.path().join("up")).expect("removed");
    let pod = machine.until("p", "unready", |pod| !is_ready(pod));
    assert_eq!(container(&pod, "c")["restartCount"], 0);
}

#[test]
fn a_container_that_hangs_is_begun_again_and_one_that_starts_slowly_is_not() {
    let mut machine = Machine::new();
    let mut hanging = script("c", "exec sleep 1000");
    hanging["livenessProbe"] = json!({"tcpSocket": {"port": 9}, "periodSeconds": 1, "failureThreshold": 2});
    let mut slow = web(8080);
    slow["command"] = json!(["sh", "-c", "sleep 3; exec python3 -m http.server 8080 --bind :: --directory /tmp"]);
    slow["livenessProbe"] = json!({"httpGet": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 1});
    slow["startupProbe"] = json!({"httpGet": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 30});
    machine.pod("hanging", json!({"containers": [hanging], "terminationGracePeriodSeconds": 1}));
    machine.pod("slow", json!({"containers": [slow]}));
    machine.until("hanging", "begun again", |pod| container(pod, "c")["restartCount"] == 1);
    let slow = machine.until_ready("slow");
    assert_eq!(container(&slow, "web")["restartCount"], 0);
}

#[test]
fn s18_a_grpc_server_is_asked_for_its_health() {
    let mut machine = Machine::new();
    let health = Health::serve(&machine.node, 7070, "web");
    let probe =
        |service: &str| json!({"grpc": {"port": 7070, "service": service}, "periodSeconds": 1, "failureThreshold": 1});
    for (name, service) in [("known", "web"), ("unknown", "other")] {
        let mut c = script("c", "exec sleep 1000");
        c["readinessProbe"] = probe(service);
        machine.pod(name, json!({"hostNetwork": true, "containers": [c]}));
    }
    machine.until_ready("known");
    health.set_well(false);
    machine.until("known", "unready", |pod| !is_ready(pod));
    health.set_well(true);
    machine.until_ready("known");
    eventually("the other is said to be unknown", || unhealthy(&mut machine, "unknown", "gRPC status 5"));
    assert!(!is_ready(&machine.get("unknown")));
}

/// Whether an Event reports that a probe of a Pod failed like this.
fn unhealthy(machine: &mut Machine, pod: &str, why: &str) -> bool {
    let events = machine.api(|session| session.items("/api/v1/namespaces/default/events"));
    let mut own =
        events.iter().filter(|event| event["involvedObject"]["name"] == pod && event["reason"] == "Unhealthy");
    own.any(|event| event["message"].as_str().is_some_and(|message| message.contains(why)))
}

#[test]
fn s18_https_is_asked_whatever_the_certificate() {
    let mut machine = Machine::new();
    let mut c = script("c", "exec sleep 1000");
    // The API of this machine: its certificate is of a CA that probes do not trust.
    let probe = |path: &str| json!({"httpGet": {"scheme": "HTTPS", "port": 6443, "path": path}, "periodSeconds": 1});
    c["readinessProbe"] = probe("/readyz");
    machine.pod("well", json!({"hostNetwork": true, "containers": [c]}));
    machine.until_ready("well");
    c["readinessProbe"] = probe("/api/v1/secrets");
    machine.pod("refused", json!({"hostNetwork": true, "containers": [c]}));
    eventually("what is refused is no success", || {
        unhealthy(&mut machine, "refused", "HTTP probe failed with statuscode: 40")
    });
    assert!(!is_ready(&machine.get("refused")));
}

#[test]
fn s05_ports_are_found_by_their_names_in_each_pod() {
    let mut machine = Machine::new();
    let spec = json!({"selector": {"set": "web"}, "ports": [{"port": 80, "targetPort": "http"}]});
    let ip = machine.api(|session| session.create("web", spec))["spec"]["clusterIP"].as_str().expect("one").to_owned();
    for (name, port) in [("old", 8080), ("new", 9090)] {
        let mut c = web(port);
        c["ports"] = json!([{"name": "http", "containerPort": port}]);
        c["readinessProbe"] = json!({"httpGet": {"port": "http"}, "periodSeconds": 1});
        machine.pod_labelled(name, "web", json!({"containers": [c]}));
        machine.until_ready(name);
    }
    let ask = format!("curl -sf -m 3 -o /dev/null http://{ip}/");
    eventually("both ports are known", || {
        let slices =
            machine.api(|session| session.items("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"));
        let own = slices.iter().filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == "web");
        let mut ports: Vec<u64> = own.filter_map(|slice| slice["ports"][0]["port"].as_u64()).collect();
        ports.sort_unstable();
        ports == [8080, 9090]
    });
    eventually("it answers", || machine.node.run(ask.as_str()).ok);
    let _ = machine.delete("old", "?gracePeriodSeconds=0").success();
    // Only the other number is left.
    eventually("the old number is forgotten", || {
        let slices =
            machine.api(|session| session.items("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"));
        !slices.iter().any(|slice| {
            slice["ports"][0]["port"] == 8080 && slice["endpoints"].as_array().is_some_and(|all| !all.is_empty())
        })
    });
    for _ in 0..20 {
        eventually("it answers by the new number", || machine.node.run(ask.as_str()).ok);
    }
}
