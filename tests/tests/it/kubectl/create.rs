//! Making things without a manifest: `kubectl create …`, `expose` and `run`. These commands use typed clients, which
//! speak protobuf.

use serde_json::{Value, json};

use super::{Bed, cells, service};

#[test]
fn s39_create_service_makes_every_type() {
    let bed = Bed::start();
    assert_eq!(bed.ok("create service clusterip plain --tcp=80:8080 --tcp=443"), "service/plain created\n");
    assert_eq!(bed.ok("create service clusterip headless --clusterip=None"), "service/headless created\n");
    assert_eq!(bed.ok("create service nodeport node --tcp=80:http --node-port=30080"), "service/node created\n");
    assert_eq!(bed.ok("create service loadbalancer balanced --tcp=80"), "service/balanced created\n");
    assert_eq!(bed.ok("create service externalname outside --external-name=example.com"), "service/outside created\n");

    let plain = bed.json("service plain");
    assert_eq!(plain["spec"]["type"], "ClusterIP");
    assert_eq!(plain["spec"]["selector"], json!({"app": "plain"}));
    let ports = json!([{"name": "80-8080", "port": 80, "targetPort": 8080, "protocol": "TCP"},
                       {"name": "443", "port": 443, "targetPort": 443, "protocol": "TCP"}]);
    assert_eq!(plain["spec"]["ports"], ports);
    assert_eq!(bed.field("service/headless", ".spec.clusterIP"), "None");
    let node = bed.json("service node");
    assert_eq!(node["spec"]["ports"][0]["nodePort"], 30080);
    assert_eq!(node["spec"]["ports"][0]["targetPort"], "http");
    assert_eq!(bed.field("service/balanced", ".spec.allocateLoadBalancerNodePorts"), "true");
    let outside = bed.json("service outside")["spec"].clone();
    assert_eq!((&outside["externalName"], outside.get("clusterIP")), (&json!("example.com"), None));
}

#[test]
fn s01_what_exists_is_not_created_again() {
    let bed = Bed::start();
    let manifest = service("web", "{ports: [{port: 80}]}");
    bed.ok_with("create -f -", &manifest);
    let twice = bed.fails_with("create -f -", &manifest);
    assert!(twice.contains("(AlreadyExists)") && twice.contains(r#"services "web" already exists"#), "{twice}");
    let twice = bed.fails("create service clusterip web --tcp=80");
    assert!(twice.contains(r#"services "web" already exists"#), "{twice}");
}

#[test]
fn s01_a_dry_run_shows_what_would_be_made() {
    let bed = Bed::start();
    let out = bed.ok("create service nodeport web --tcp=80 --dry-run=server -o json");
    let web: Value = serde_json::from_str(&out).expect("JSON");
    assert!(web["metadata"]["uid"].is_string() && web["spec"]["clusterIP"].is_string(), "{web}");
    assert_eq!(web["metadata"].get("resourceVersion"), None, "it is not stored");
    let client = bed.ok("create service nodeport web --tcp=80 --dry-run=client -o yaml");
    assert!(!client.contains("clusterIP"), "{client}");
    // The manifest that the client made is one that the server takes.
    assert_eq!(bed.ok_with("apply -f -", &client), "service/web created\n");
    assert_eq!(bed.ok("get ipaddresses -o name").lines().count(), 2, "a dry run takes no address");
}

#[test]
fn s01_a_name_can_be_left_to_the_server() {
    let bed = Bed::start();
    let manifest = service("x", "{ports: [{port: 80}]}").replace("name: x", "generateName: web-");
    let mut names: Vec<_> = (0..2).map(|_| bed.ok_with("create -o name -f -", &manifest)).collect();
    names.dedup();
    assert_eq!(names.len(), 2);
    assert!(names.iter().all(|name| name.starts_with("service/web-") && name.trim().len() == "service/web-".len() + 5));
}

#[test]
fn s01_create_makes_namespaces_config_secrets_and_accounts() {
    let bed = Bed::start();
    assert_eq!(bed.ok("create namespace shop"), "namespace/shop created\n");
    let shop = bed.json("namespace shop");
    assert_eq!(shop["status"]["phase"], "Active");
    assert_eq!(shop["metadata"]["labels"]["kubernetes.io/metadata.name"], "shop");
    assert_eq!(shop["spec"]["finalizers"], json!(["kubernetes"]));

    let file = bed.server.home().join("motd");
    std::fs::write(&file, b"\xffbinary").expect("a file");
    bed.ok(&format!("create configmap settings -n shop --from-literal=a=1 --from-file={}", file.display()));
    let settings = bed.json("configmap settings -n shop");
    assert_eq!(settings["data"], json!({"a": "1"}));
    assert_eq!(settings["binaryData"], json!({"motd": "/2JpbmFyeQ=="}));

    bed.ok("create secret generic login -n shop --from-literal=password=hush");
    assert_eq!(bed.field("secret/login -n shop", ".data.password"), "aHVzaA==");
    bed.ok("create secret docker-registry pull --docker-server=r.example --docker-username=u --docker-password=p");
    assert_eq!(bed.field("secret/pull", ".type"), "kubernetes.io/dockerconfigjson");
    assert_eq!(bed.ok("create serviceaccount robot"), "serviceaccount/robot created\n");
    let refused = bed.fails("create configmap Settings");
    assert!(refused.contains("metadata.name") && refused.contains("RFC 1123 subdomain"), "{refused}");
}

#[test]
fn s01_expose_makes_a_service_for_a_pod_or_beside_a_service() {
    let bed = Bed::start();
    bed.ok("run web --image=example.com/web:1 --port=8080 --labels=app=web,tier=front");
    assert_eq!(bed.ok("expose pod web"), "service/web exposed\n");
    let web = bed.json("service web")["spec"].clone();
    assert_eq!(web["selector"], json!({"app": "web", "tier": "front"}));
    assert_eq!(web["ports"], json!([{"port": 8080, "targetPort": 8080, "protocol": "TCP"}]));

    bed.ok("expose pod web --name=node --type=NodePort --port=80 --target-port=8080 --selector=app=other");
    let node = bed.json("service node")["spec"].clone();
    assert_eq!((&node["type"], &node["selector"]), (&json!("NodePort"), &json!({"app": "other"})));
    bed.ok("expose service web --name=again --port=443 --target-port=8443 --protocol=UDP --session-affinity=ClientIP");
    let again = bed.json("service again")["spec"].clone();
    assert_eq!(again["selector"], web["selector"]);
    assert_eq!(again["ports"], json!([{"port": 443, "targetPort": 8443, "protocol": "UDP"}]));
    assert_eq!(again["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"], 10800);

    bed.ok("run api --image=example.com/api:1 --port=80 --expose");
    assert_eq!(bed.json("service api")["spec"]["selector"], bed.json("pod api")["metadata"]["labels"]);
}

#[test]
fn s49_expose_takes_an_external_address() {
    let bed = Bed::start();
    bed.ok("run web --image=example.com/web:1 --port=8080");
    let run = bed.run("expose pod web --external-ip=192.0.2.7 --load-balancer-ip=192.0.2.8 --type=LoadBalancer", "");
    assert!(run.err.contains("Warning: spec.externalIPs is deprecated"), "{run:?}");
    assert_eq!(run.success(), "service/web exposed\n");
    assert_eq!(cells(&bed.ok("get service web --no-headers"))[0][3], "192.0.2.7");
    assert_eq!(bed.field("service/web", ".spec.loadBalancerIP"), "192.0.2.8");
}

const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: web
    image: example.com/web
    ports: [{name: http, containerPort: 8080}]
    readinessProbe: {httpGet: {path: /ready, port: http}}
    resources: {requests: {cpu: 100m, memory: 64Mi}}
    env: [{name: A, value: b}]
";

#[test]
fn s01_a_pod_manifest_is_stored_with_its_defaults() {
    let bed = Bed::start();
    assert_eq!(bed.ok_with("apply -f -", POD), "pod/web created\n");
    assert_eq!(bed.ok_with("apply -f -", POD), "pod/web unchanged\n");
    let container = bed.json("pod web")["spec"]["containers"][0].clone();
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["readinessProbe"]["httpGet"]["scheme"], "HTTP");
    assert_eq!(container["readinessProbe"]["periodSeconds"], 10);
    assert_eq!(container["resources"]["requests"], json!({"cpu": "100m", "memory": "64Mi"}));
    let refused = bed.fails_with("create -f -", &POD.replace("- name: web", "- name: Web"));
    assert!(refused.contains("spec.containers[0].name"), "{refused}");
}
