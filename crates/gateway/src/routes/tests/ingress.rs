//! From Ingresses to responses: a gateway that watches a server.

#![expect(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use api::kinds;
use client::memory::Memory;
use routing::ingress::Options;

use super::cluster::{Watching, service};
use super::tls::{Ca, Identity, Tls, ask, over, secret_of};
use super::*;
use crate::tests::{eventually, next_answer};

/// The gateway of a node with the class `waypost`, and the Services `one` to `three`.
struct Node {
    watching: Watching,
    memory: Arc<Memory>,
}

fn class(memory: &Memory, name: &str, controller: &str) {
    memory.put(&kinds::ingressclass::KIND, json!({"metadata": {"name": name}, "spec": {"controller": controller}}));
}

/// A rule `host path type service`, with `-` for no host.
fn rule_of(text: &str) -> Value {
    let [host, path, kind, service] = text.split(' ').collect::<Vec<_>>().try_into().expect("four words");
    let backend = json!({"service": {"name": service, "port": {"number": 80}}});
    let paths = json!([{"path": path, "pathType": kind, "backend": backend}]);
    json!({"host": host.trim_matches('-'), "http": {"paths": paths}})
}

impl Node {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(ingress: Options) -> Self {
        let memory = Arc::new(Memory::default());
        class(&memory, "waypost", "waypost.dev/ingress-controller");
        for name in ["one", "two", "three"] {
            service(&memory, name, named(name));
        }
        memory.put(
            &kinds::service::KIND,
            json!({
                "metadata": {"namespace": "waypost-system", "name": "ingress-waypost",
                             "annotations": {"waypost.dev/gateway": "ingress-waypost"}},
                "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.2",
                         "ports": [{"name": "tcp-80", "port": 80}, {"name": "tcp-443", "port": 443}]},
                "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}},
            }),
        );
        let watching = Watching::start(Arc::clone(&memory) as _, |settings| settings.ingress = ingress);
        Self { watching, memory }
    }

    /// Sets an Ingress of the class `waypost`; annotations are without the prefix of ingress-nginx.
    fn ingress(&self, name: &str, annotations: &[(&str, &str)], rules: &[&str], more: Value) {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(key, value)| (format!("nginx.ingress.kubernetes.io/{key}"), Value::from(*value)))
            .collect();
        let rules: Vec<Value> = rules.iter().map(|rule| rule_of(rule)).collect();
        let mut spec = json!({"ingressClassName": "waypost", "rules": rules});
        let members = spec.as_object_mut().expect("an object");
        members.extend(more.as_object().cloned().unwrap_or_default());
        // Names are in the order of age.
        let metadata = json!({
            "namespace": "shop", "name": name, "annotations": annotations,
            "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", name.bytes().next().map_or(0, |byte| byte - b'a')),
        });
        self.memory.put(&kinds::ingress::KIND, json!({"metadata": metadata, "spec": spec}));
    }

    fn plain(&self, name: &str, rules: &[&str]) {
        self.ingress(name, &[], rules, json!({}));
    }

    fn tls(&self, name: &str, rules: &[&str], host: &str, secret: &str) {
        self.ingress(name, &[], rules, json!({"tls": [{"hosts": [host], "secretName": secret}]}));
    }

    fn secret(&self, name: &str, identity: &Identity) {
        self.memory.put(&kinds::secret::KIND, secret_of(name, identity));
    }

    /// Where connections to a port of the class lead.
    fn address(&self, port: u16) -> SocketAddr {
        let name = format!("tcp-{port}");
        let of_port = |redirect: &plan::Redirect| {
            *redirect.service == *"waypost-system/ingress-waypost" && *redirect.port == *name
        };
        self.watching.redirect(of_port).listener
    }

    fn connect(&self, port: u16) -> TcpStream {
        let stream = TcpStream::connect(self.address(port)).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        stream
    }

    /// Head in lower case and body of the response to a GET.
    fn get(&self, host: &str, path: &str) -> (String, String) {
        get_over(&mut self.connect(80), host, path, "")
    }

    /// The first word of the body, or the status.
    fn who(&self, host: &str, path: &str) -> String {
        who(&self.get(host, path))
    }

    #[track_caller]
    fn eventually(&self, host: &str, path: &str, expected: &str) {
        eventually(&format!("{host}{path} is answered by {expected}"), || self.who(host, path) == expected);
    }

    fn secure(&self, ca: &Ca, server_name: &str) -> Tls {
        over(self.connect(443), ca, server_name, None)
    }

    /// Whether a handshake for a server name succeeds with this CA.
    fn is_trusted(&self, ca: &Ca, server_name: &str) -> bool {
        let request = format!("GET / HTTP/1.1\r\nHost: {server_name}\r\nConnection: close\r\n\r\n");
        ask(self.secure(ca, server_name), &request).is_ok()
    }
}

fn get_over(stream: &mut TcpStream, host: &str, path: &str, headers: &str) -> (String, String) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n").expect("sent");
    next_answer(stream)
}

fn who((head, body): &(String, String)) -> String {
    let word = body.split(' ').next().unwrap_or_default();
    if head.starts_with("http/1.1 200") { word.to_owned() } else { head[9..12].to_owned() }
}

#[test]
fn host_and_path_select_the_backend() {
    let node = Node::new();
    let default = json!({"defaultBackend": {"service": {"name": "three", "port": {"number": 80}}}});
    node.ingress("a", &[], &["a.example /exact Exact one", "a.example /pre Prefix two"], default);
    node.plain("b", &["*.b.example / Prefix two", "x.b.example /x Prefix one", "a.example / Prefix one"]);
    for (host, path, expected) in [
        ("a.example", "/exact", "one"),
        ("A.example:80", "/exact", "one"),
        ("a.example", "/pre", "two"),
        ("a.example", "/pre/", "two"),
        ("a.example", "/pre/x?y", "two"),
        ("a.example", "/prefix", "one"),
        ("a.example", "/exact/", "one"),
        ("y.b.example", "/", "two"),
        ("x.b.example", "/x", "one"),
        ("x.b.example", "/y", "404"),
        ("z.y.b.example", "/", "404"),
        ("b.example", "/", "404"),
        ("other.example", "/", "404"),
    ] {
        node.eventually(host, path, expected);
    }
    node.memory.delete(&kinds::ingress::KIND, "shop", "b");
    node.eventually("a.example", "/prefix", "three");
    node.ingress("c", &[], &[], json!({"defaultBackend": {"service": {"name": "two", "port": {"number": 80}}}}));
    node.eventually("other.example", "/anything", "two");
}

#[test]
fn requests_and_responses_have_the_headers_of_ingress_nginx() {
    let node = Node::new();
    node.plain("a", &["a.example / Prefix one"]);
    node.eventually("a.example", "/", "one");
    let (head, body) = get_over(&mut node.connect(80), "a.example:80", "/", "X-Forwarded-For: 10.9.9.9\r\n");
    let body = body.to_lowercase();
    for line in [
        "host: a.example:80",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: a.example:80",
        "x-forwarded-port: 80",
        "x-forwarded-proto: http",
        "x-forwarded-scheme: http",
        "x-original-forwarded-for: 10.9.9.9",
        "x-real-ip: 127.0.0.1",
        "x-scheme: http",
    ] {
        assert!(body.lines().any(|one| one == line), "{line}: {body}");
    }
    assert!(body.lines().any(|line| line.strip_prefix("x-request-id: ").is_some_and(|id| id.len() == 32)), "{body}");
    let missing = node.get("other.example", "/").0;
    for head in [head, missing] {
        assert!(head.contains("\r\nserver: waypost\r\n") && head.contains("\r\ndate: "), "{head}");
    }
}

#[test]
fn a_client_cannot_remove_headers_that_backends_trust_by_naming_them_in_connection() {
    let node = Node::new();
    node.plain("a", &["a.example / Prefix one"]);
    node.eventually("a.example", "/", "one");
    let lines =
        "Connection: X-Real-IP, X-Forwarded-Host, X-Scheme, X-Forwarded-Scheme, X-Request-ID, X-Own\r\nX-Own: 1\r\n";
    let (_, body) = get_over(&mut node.connect(80), "a.example", "/", lines);
    let body = body.to_lowercase();
    for line in ["x-forwarded-host: a.example", "x-forwarded-scheme: http", "x-real-ip: 127.0.0.1", "x-scheme: http"] {
        assert!(body.lines().any(|one| one == line), "{line}: {body}");
    }
    assert!(body.contains("\r\nx-request-id: ") && !body.contains("x-own"), "{body}");
}

#[test]
fn headers_with_underscores_are_dropped() {
    let node = Node::new();
    node.plain("a", &["a.example / Prefix one"]);
    node.eventually("a.example", "/", "one");
    let lines = "X_Real_IP: 192.0.2.1\r\nX_User: root\r\nX-User: ann\r\n";
    let body = get_over(&mut node.connect(80), "a.example", "/", lines).1.to_lowercase();
    assert!(body.contains("\r\nx-user: ann\r\n") && !body.contains("x_"), "{body}");
}

#[test]
fn a_class_of_another_controller_is_served_only_if_it_is_taken_over() {
    let node = Node::new();
    class(&node.memory, "nginx", "k8s.io/ingress-nginx");
    node.plain("a", &["a.example / Prefix one"]);
    node.ingress("b", &[], &["b.example / Prefix two"], json!({"ingressClassName": "nginx"}));
    node.eventually("a.example", "/", "one");
    assert_eq!(node.who("b.example", "/"), "404");
    node.plain("b", &["b.example / Prefix two"]);
    node.eventually("b.example", "/", "two");
    node.ingress("b", &[], &["b.example / Prefix two"], json!({"ingressClassName": "nginx"}));
    node.eventually("b.example", "/", "404");
    class(&node.memory, "waypost", "example.com/other");
    let mut redirects = node.watching.gateway.redirects();
    let none = async { redirects.wait_for(|all| all.is_empty()).await.map(drop) };
    node.watching.runtime.block_on(none).expect("no redirect");

    let controllers = vec!["k8s.io/ingress-nginx".into()];
    let node = Node::with(Options { controllers, ..Options::default() });
    class(&node.memory, "waypost", "k8s.io/ingress-nginx");
    node.plain("a", &["a.example / Prefix one"]);
    node.eventually("a.example", "/", "one");
}

#[test]
fn ingresses_of_a_host_are_merged_and_the_oldest_has_a_path() {
    let node = Node::new();
    node.plain("b", &["a.example / Prefix two", "a.example /two Prefix two"]);
    node.eventually("a.example", "/", "two");
    node.plain("a", &["a.example / Prefix one", "a.example /one Prefix one"]);
    node.eventually("a.example", "/", "one");
    node.eventually("a.example", "/one/x", "one");
    node.eventually("a.example", "/two/x", "two");
    node.memory.delete(&kinds::ingress::KIND, "shop", "a");
    node.eventually("a.example", "/one/x", "two");
}

#[test]
fn canaries_take_requests_by_header_and_by_weight() {
    let node = Node::new();
    node.plain("a", &["a.example / Prefix one"]);
    let canary = |settings: &[(&str, &str)]| {
        let all: Vec<_> = [("canary", "true")].into_iter().chain(settings.iter().copied()).collect();
        node.ingress("b", &all, &["a.example / Prefix two"], json!({}));
    };
    canary(&[("canary-by-header", "X-New")]);
    node.eventually("a.example", "/", "one");
    let with = |header: &str| who(&get_over(&mut node.connect(80), "a.example", "/", header));
    eventually("the header leads to the canary", || with("X-New: always\r\n") == "two");
    for header in ["X-New: never\r\n", "X-New: maybe\r\n", ""] {
        assert_eq!(with(header), "one", "{header}");
    }
    canary(&[("canary-by-header", "X-New"), ("canary-weight", "25")]);
    let mut stream = node.connect(80);
    let mut share = || (0..40).filter(|_| who(&get_over(&mut stream, "a.example", "/", "")) == "two").count();
    eventually("a quarter of the requests", || share() == 10);
    assert_eq!(share(), 10, "exact over a few requests");
    for (header, expected) in [("X-New: always\r\n", "two"), ("X-New: never\r\n", "one")] {
        assert!((0..8).all(|_| with(header) == expected), "{header}");
    }
}

#[test]
fn endpoints_change_without_closing_a_connection() {
    let node = Node::new();
    node.plain("a", &["a.example / Prefix one"]);
    node.eventually("a.example", "/", "one");
    let mut stream = node.connect(80);
    for change in 0..20 {
        let name = ["moved", "again"][change % 2];
        service(&node.memory, "one", named(name));
        eventually("the new pod answers", || who(&get_over(&mut stream, "a.example", "/", "")) == name);
    }
    node.memory.delete(&kinds::endpointslice::KIND, "shop", "one");
    eventually("no endpoint is left", || who(&get_over(&mut stream, "a.example", "/", "")) == "503");
    node.memory.delete(&kinds::service::KIND, "shop", "one");
    eventually("no Service is left", || who(&get_over(&mut stream, "a.example", "/", "")) == "500");
}

#[test]
fn the_server_name_selects_the_certificate() {
    let (one, two, wild) = (Ca::new(), Ca::new(), Ca::new());
    let node = Node::new();
    node.secret("one", &one.sign(&["a.example"]));
    node.secret("two", &two.sign(&["b.example"]));
    node.secret("wild", &wild.sign(&["*.c.example"]));
    node.tls("a", &["a.example / Prefix one"], "a.example", "one");
    node.tls("b", &["b.example / Prefix two"], "b.example", "two");
    node.tls("c", &["*.c.example / Prefix three"], "*.c.example", "wild");
    eventually("all certificates are shown", || {
        node.is_trusted(&one, "a.example")
            && node.is_trusted(&two, "B.example")
            && node.is_trusted(&wild, "x.c.example")
    });
    assert!(!node.is_trusted(&one, "b.example") && !node.is_trusted(&wild, "y.x.c.example"));
    assert!(!node.is_trusted(&one, "other.example"), "no certificate, no handshake");
    // Hosts of one class share connections.
    let request = "GET / HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n";
    let answer = ask(node.secure(&one, "a.example"), request).expect("an answer");
    assert!(answer.contains("\r\n\r\ntwo ") && answer.to_lowercase().contains("x-forwarded-proto: https"), "{answer}");
    node.memory.delete(&kinds::secret::KIND, "shop", "two");
    eventually("no certificate is left", || !node.is_trusted(&two, "b.example"));
    assert!(node.is_trusted(&one, "a.example"));
}

#[test]
fn the_default_certificate_is_shown_for_hosts_without_one() {
    let (default, own) = (Ca::new(), Ca::new());
    let node = Node::with(Options { default_certificate: Some("shop/default".into()), ..Options::default() });
    node.secret("default", &default.sign(&["a.example", "b.example"]));
    node.secret("own", &own.sign(&["b.example"]));
    node.plain("a", &["a.example / Prefix one"]);
    eventually("the default certificate is shown", || node.is_trusted(&default, "a.example"));
    node.tls("b", &["b.example / Prefix one"], "b.example", "own");
    eventually("the host has its own", || node.is_trusted(&own, "b.example"));
    node.tls("b", &["b.example / Prefix one"], "b.example", "missing");
    eventually("its Secret is missing", || node.is_trusted(&default, "b.example"));
}

/// Certificate that is shown for `a.example`.
fn shown(node: &Node, ca: &Ca) -> Vec<u8> {
    let mut tls = node.secure(ca, "a.example");
    tls.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").expect("a handshake");
    let mut all = Vec::new();
    let _ = tls.read_to_end(&mut all);
    assert!(all.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&all));
    tls.conn.peer_certificates().expect("certificates")[0].to_vec()
}

#[test]
fn certificates_are_exchanged_without_a_failed_handshake() {
    let ca = Ca::new();
    let identities = [ca.sign(&["a.example"]), ca.sign(&["a.example"])];
    let node = Node::new();
    node.secret("one", &identities[0]);
    node.tls("a", &["a.example / Prefix one"], "a.example", "one");
    eventually("the certificate is shown", || node.is_trusted(&ca, "a.example"));
    let (is_over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    // A failed handshake or request panics.
                    shown(&node, &ca);
                    count.fetch_add(1, Relaxed);
                }
            });
        }
        let flows = || {
            let before = count.load(Relaxed);
            eventually("handshakes succeed", || count.load(Relaxed) > before + 2);
        };
        let exchanged = |before: &[u8]| eventually("the certificate is exchanged", || shown(&node, &ca) != before);
        for change in 1..20 {
            let before = shown(&node, &ca);
            node.secret("one", &identities[change % 2]);
            exchanged(&before);
            flows();
        }
        // By reference: the other Secret is read after the Ingress that refers to it.
        node.secret("two", &identities[0]);
        for change in 0..20 {
            let before = shown(&node, &ca);
            node.tls("a", &["a.example / Prefix one"], "a.example", ["two", "one"][change % 2]);
            exchanged(&before);
            flows();
        }
        is_over.store(true, Relaxed);
    });
}
