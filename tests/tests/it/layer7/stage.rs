//! A server with a pool of addresses, one node that serves it, pods on that node, and a client outside.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::net::{Family, Mode, Node, Outside, Pod, Served, eventually, objects};
use testbed::{Run, run};

use crate::gateway::pods;

/// The first address of the pool, which the first Ingress or Gateway gets.
pub(super) const ADDRESS: &str = "203.0.113.0";
/// Where pods listen.
pub(super) const TARGET: u16 = 8080;
/// The collections that are used here.
pub(super) const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
pub(super) const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways";
pub(super) const ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes";
pub(super) const POLICIES: &str = "/apis/waypost.dev/v1/namespaces/default/trafficpolicies";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const NGINX: &str = "nginx.ingress.kubernetes.io/";
/// The address of the Gateway of [`Stage::settle_policies`].
const SETTLED: &str = "203.0.113.14";
/// More than the calls of it in a test.
const TURNS: usize = 100;

/// See the module.
pub(super) struct Stage {
    pub(super) served: Served,
    pub(super) node: Node,
    pub(super) outside: Outside,
    pods: Mutex<Vec<Pod>>,
    turns: Mutex<usize>,
    files: TempDir,
}

/// Ends the clients of a test, also when it fails.
pub(super) struct Over<'a>(pub(super) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// An answer of a gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Page {
    pub(super) code: u16,
    /// The head, in lower case.
    pub(super) head: String,
    /// What the pod received, as it was sent; or the page of the gateway.
    pub(super) body: String,
}

impl Page {
    /// What curl prints; none if that is no response. An interim response (100) is skipped.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let code = head.split(' ').nth(1)?.parse().ok()?;
        if code == 100 {
            return Self::parse(body);
        }
        Some(Self { code, head: head.to_lowercase(), body: body.to_owned() })
    }

    /// The value of a header of the response.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        value(&self.head, name)
    }

    /// The value of a header of the request that the pod received.
    pub(super) fn heard(&self, name: &str) -> Option<&str> {
        self.body.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The pod that answered.
    pub(super) fn pod(&self) -> Option<&str> {
        self.header("x-pod")
    }

    /// The request target that the pod received.
    pub(super) fn target(&self) -> &str {
        self.body.split(' ').nth(1).unwrap_or_default()
    }
}

fn value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

impl Stage {
    pub(super) fn new() -> Self {
        Self::with(&[])
    }

    /// One whose server has these arguments besides.
    pub(super) fn with(of_server: &[&str]) -> Self {
        Self::start(of_server, &[])
    }

    /// One whose node has these arguments besides.
    pub(super) fn with_node(of_node: &[&str]) -> Self {
        Self::start(&[], of_node)
    }

    fn start(of_server: &[&str], of_node: &[&str]) -> Self {
        let pool = format!("{ADDRESS}/28");
        let arguments = ["--load-balancer-pool", &pool, "--ingress-class", "--gateway-class"];
        let served = Served::with_server(Mode::under_test(), &[&arguments[..], of_server].concat());
        let node = served.node("n1");
        served.serve(&node, &[&["--roles", "proxy,announce"][..], of_node].concat());
        let outside = served.cluster().outside("outside");
        outside.route(&pool, &node);
        Self { served, node, outside, pods: Mutex::default(), turns: Mutex::default(), files: testbed::folder() }
    }

    /// A Service with one pod that answers.
    pub(super) fn backend(&self, name: &str) {
        self.backend_with(name, |pod| drop(pods::serve(pod, TARGET, None)));
    }

    /// A Service with one pod, in which this serves the port [`TARGET`].
    pub(super) fn backend_with(&self, name: &str, serve: impl FnOnce(&Pod)) {
        let pod = self.node.pod(name);
        serve(&pod);
        self.served.put(&objects::service(name).port(80).named("http").target(TARGET).json());
        self.served.put(&objects::slice(name).port(TARGET).named("http").endpoint(&pod).json());
        self.pods.lock().push(pod);
    }

    /// The pod of a backend.
    pub(super) fn pod(&self, name: &str) -> Pod {
        self.pods.lock().iter().find(|pod| pod.name() == name).expect("the pod").clone()
    }

    /// Creates an Ingress of the class `waypost`, or changes it. Annotations are without their prefix.
    pub(super) fn ingress(&self, name: &str, annotations: &[(&str, &str)], spec: &Value) {
        let annotations: serde_json::Map<_, _> =
            annotations.iter().map(|(key, value)| (format!("{NGINX}{key}"), Value::from(*value))).collect();
        let mut spec = spec.clone();
        spec.as_object_mut().expect("an object").entry("ingressClassName").or_insert_with(|| "waypost".into());
        self.put(
            INGRESSES,
            &json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": spec,
                "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            }),
        );
    }

    /// Creates the Gateway `public`, or changes it.
    pub(super) fn gateway(&self, listeners: &Value) {
        let spec = json!({"gatewayClassName": "waypost", "listeners": listeners});
        self.put(GATEWAYS, &object("gateway.networking.k8s.io/v1", "Gateway", "public", &spec));
    }

    /// Creates an HTTPRoute of the Gateway `public` for a host, or changes it.
    pub(super) fn route(&self, name: &str, host: &str, rules: &Value) {
        let spec = json!({"parentRefs": [{"name": "public"}], "hostnames": [host], "rules": rules});
        self.put(ROUTES, &object("gateway.networking.k8s.io/v1", "HTTPRoute", name, &spec));
    }

    /// Creates a TrafficPolicy for a target, `KIND/NAME` or `KIND/NAME/SECTION`, or changes it.
    pub(super) fn policy(&self, name: &str, target: &str, fields: &Value) {
        let mut words = target.split('/');
        let mut target = json!({"kind": words.next(), "name": words.next()});
        if let Some(section) = words.next() {
            target["sectionName"] = section.into();
        }
        let mut spec = fields.clone();
        spec["targetRefs"] = json!([target]);
        self.put(POLICIES, &object("waypost.dev/v1", "TrafficPolicy", name, &spec));
    }

    /// Waits until the first ancestor of a TrafficPolicy has a condition, `Type=Status/Reason`, and returns its message.
    #[track_caller]
    pub(super) fn verdict(&self, name: &str, condition: &str) -> String {
        let path = format!("{POLICIES}/{name}");
        let mut found = None;
        eventually(&format!("TrafficPolicy {name} is {condition}"), || {
            let policy = self.served.session(|session| session.get(&path).success());
            let all = policy["status"]["ancestors"][0]["conditions"].as_array().cloned().unwrap_or_default();
            let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
            let is_it = |one: &&Value| {
                let named = format!("{}={}/{}", text(one, "type"), text(one, "status"), text(one, "reason"));
                named == condition && one["observedGeneration"] == policy["metadata"]["generation"]
            };
            found = all.iter().find(is_it).map(|one| text(one, "message"));
            found.is_some()
        });
        found.expect("it was found")
    }

    /// Waits until all TrafficPolicies that were put are in force: one more, which is watched after them, limits the requests
    /// of a Gateway of its own.
    #[track_caller]
    pub(super) fn settle_policies(&self) {
        let turn = {
            let mut turns = self.turns.lock();
            *turns += 1;
            *turns
        };
        let spec = json!({
            "gatewayClassName": "waypost", "listeners": [listener("http", 80)],
            "addresses": [{"type": "IPAddress", "value": SETTLED}],
        });
        self.put(GATEWAYS, &object("gateway.networking.k8s.io/v1", "Gateway", "settled", &spec));
        let rules = json!([{"backendRefs": [{"name": "settled", "port": 80}]}]);
        let spec = json!({"parentRefs": [{"name": "settled"}], "rules": rules});
        self.put(ROUTES, &object("gateway.networking.k8s.io/v1", "HTTPRoute", "settled", &spec));
        // Each turn the limit is one byte less than the body that is sent.
        let size = TURNS - turn;
        self.policy("settled", "HTTPRoute/settled", &json!({"requestBody": {"maxSize": size.to_string()}}));
        let body = "x".repeat(size + 1);
        eventually("the last policy is in force", || {
            let got = self.curl(SETTLED, &["--data", &body, "http://settled.test/"]);
            Page::parse(&got.out).is_some_and(|page| page.code == 413)
        });
    }

    /// Removes an object.
    #[track_caller]
    pub(super) fn remove(&self, collection: &str, name: &str) {
        let _ = self.served.session(|session| session.delete(&format!("{collection}/{name}"))).success();
    }

    /// Creates an object, or changes one: lists are replaced, members that are absent stay.
    pub(super) fn put(&self, collection: &str, object: &Value) {
        let path = format!("{collection}/{}", object["metadata"]["name"].as_str().expect("a name"));
        self.served.session(|session| {
            let answer = session.merge(&path, object);
            let _ = if answer.code == 404 { session.post(collection, object) } else { answer }.success();
        });
    }

    /// A Secret with these texts.
    pub(super) fn secret(&self, name: &str, kind: &str, texts: &Value) {
        self.put(
            SECRETS,
            &json!({
                "apiVersion": "v1", "kind": "Secret", "type": kind,
                "metadata": {"name": name, "namespace": "default"}, "stringData": texts,
            }),
        );
    }

    /// Makes a certificate for a host, and a Secret of it.
    pub(super) fn certificate(&self, secret: &str, host: &str) {
        let (key, certificate) = (self.file(&format!("{secret}.key")), self.file(&format!("{secret}.crt")));
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7"]);
        command.args(["-subj", &format!("/CN={secret}"), "-addext", &format!("subjectAltName=DNS:{host}")]);
        command.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
        let _ = run(&mut command, "").success();
        let [key, certificate] = [key, certificate].map(|path| std::fs::read_to_string(path).expect("a file"));
        self.secret(secret, "kubernetes.io/tls", &json!({"tls.crt": certificate, "tls.key": key}));
    }

    /// A file of this stage.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// curl from outside with these arguments, the last of which is a URL; every name leads to this address.
    pub(super) fn curl(&self, address: &str, arguments: &[&str]) -> Run {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--include", "--max-time", "20", "--path-as-is"]);
        command.arg("--connect-to").arg(format!("::{address}:"));
        command.args(arguments);
        self.outside.run(command)
    }

    /// The answer to curl with these arguments, from the first address of the pool.
    #[track_caller]
    pub(super) fn get(&self, arguments: &[&str]) -> Page {
        let got = self.curl(ADDRESS, arguments);
        Page::parse(&got.out).unwrap_or_else(|| panic!("{arguments:?}: {got:?}"))
    }

    /// Waits until the answer is as wanted, and returns it.
    #[track_caller]
    pub(super) fn until(&self, what: &str, arguments: &[&str], wanted: impl Fn(&Page) -> bool) -> Page {
        let mut found = None;
        eventually(what, || {
            found = Page::parse(&self.curl(ADDRESS, arguments).out).filter(|page| wanted(page));
            found.is_some()
        });
        found.expect("it was found")
    }

    /// Waits until everything that was put is in force: an Ingress of its own, with a host of its own, is served last.
    #[track_caller]
    pub(super) fn settle(&self, turn: &str) {
        let host = format!("settled-{turn}.test");
        self.ingress("settled", &[], &json!({"rules": [rule(&host, "/", "Prefix", "settled")]}));
        // Watches of Ingresses are in order; the Service does not exist.
        let url = format!("http://{host}/");
        let _ = self.until("the last Ingress is served", &[&url], |page| page.code == 500);
        self.served.settle();
    }

    /// The address by which pods see the client.
    pub(super) fn client(&self) -> String {
        let keeps = self.served.mode().keeps_source;
        if keeps { self.outside.address(Family::V4) } else { self.node.address(Family::V4) }.to_string()
    }
}

/// An object of the namespace `default`.
fn object(version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

/// A listener for HTTP.
pub(super) fn listener(name: &str, port: u16) -> Value {
    json!({"name": name, "port": port, "protocol": "HTTP"})
}

/// A rule of an HTTPRoute for a path prefix, that leads to a Service.
pub(super) fn to(name: &str, path: &str, service: &str) -> Value {
    json!({
        "name": name, "matches": [{"path": {"type": "PathPrefix", "value": path}}],
        "backendRefs": [{"name": service, "port": 80}],
    })
}

/// A rule of an Ingress with one path.
pub(super) fn rule(host: &str, path: &str, kind: &str, service: &str) -> Value {
    let mut rule = json!({"http": {"paths": [{"path": path, "pathType": kind, "backend": backend(service)}]}});
    if !host.is_empty() {
        rule["host"] = host.into();
    }
    rule
}

/// The port `http` of a Service as a backend of an Ingress.
pub(super) fn backend(service: &str) -> Value {
    json!({"service": {"name": service, "port": {"name": "http"}}})
}
