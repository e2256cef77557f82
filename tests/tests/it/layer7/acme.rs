//! Certificates by ACME: a real ACME server, whose validations are connections from outside of the cluster.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use testbed::acme_server::{self, AcmeServer};
use testbed::net::eventually;

use super::stage::{ADDRESS, ROUTES, Stage, rule};

const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways";
const ANSWERS: &str = "/api/v1/namespaces/kube-system/configmaps/waypost-acme-challenges";
/// Time limit of a connection of the validation.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A stage with an ACME server at loopback of the API server's machine.
struct Issued {
    stage: Stage,
    acme: AcmeServer,
    _files: tempfile::TempDir,
}

impl Issued {
    /// Hosts that begin with `lost.` lead nowhere; all others to the first address of the pool.
    fn new() -> Self {
        let (acme, files) = (AcmeServer::new(), testbed::folder());
        let ca = files.path().join("ca.pem");
        std::fs::write(&ca, acme.ca_pem()).expect("written");
        let ca = ca.to_str().expect("a path");
        let directory = acme_server::DIRECTORY;
        let of_server = [
            "--acme-directory",
            directory,
            "--acme-email",
            "ops@example.com",
            "--acme-ca-file",
            ca,
            "--acme-retry-period",
            "1",
        ];
        let stage = Stage::with(&of_server);
        let listener = stage.served.api().in_namespace(|| TcpListener::bind(acme_server::ADDRESS)).expect("a port");
        let outside = stage.outside.clone();
        acme.serve(listener, move |host, port| {
            let address = if host.starts_with("lost.") { "203.0.113.15" } else { ADDRESS };
            let at = SocketAddr::new(address.parse().expect("an address"), port);
            outside.in_namespace(|| TcpStream::connect_timeout(&at, TIMEOUT))
        });
        Self { stage, acme, _files: files }
    }

    fn get(&self, path: &str) -> Option<Value> {
        self.stage.served.session(|session| {
            let answer = session.get(path);
            (answer.code == 200).then(|| answer.success())
        })
    }

    /// A member of a Secret of namespace `default`.
    fn secret(&self, name: &str) -> Option<Value> {
        self.get(&format!("/api/v1/namespaces/default/secrets/{name}"))
    }

    /// Waits until the ACME server has done this so often.
    #[track_caller]
    fn until(&self, event: &str, times: usize) {
        let found = || self.acme.count(event) >= times;
        let log = || self.acme.log();
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| eventually(event, found))).is_err() {
            panic!("not {times} times `{event}`: {:#?}\n{:#?}", log(), self.events());
        }
    }

    /// Reasons and messages of Events of namespace `default`.
    fn events(&self) -> Vec<(String, String)> {
        let all = self.stage.served.session(|session| session.items("/api/v1/namespaces/default/events"));
        let text = |event: &Value, member: &str| event[member].as_str().unwrap_or_default().to_owned();
        all.iter().map(|event| (text(event, "reason"), text(event, "message"))).collect()
    }

    #[track_caller]
    fn until_event(&self, reason: &str, words: &str) {
        let is = |(of, message): &(String, String)| of == reason && message.contains(words);
        let found = || self.events().iter().any(is);
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| eventually("an Event", found))).is_err() {
            panic!("no Event {reason} with `{words}`: {:#?}", self.events());
        }
    }

    /// Waits until a host is served with a certificate of the ACME server.
    #[track_caller]
    fn until_trusted(&self, host: &str) {
        let root = self.stage.file("acme-root.pem");
        std::fs::write(&root, self.acme.root()).expect("written");
        let (root, url) = (root.to_str().expect("a path").to_owned(), format!("https://{host}/"));
        let trusted = |arguments: &[&str]| self.stage.curl(ADDRESS, arguments).out.starts_with("HTTP/");
        eventually(&format!("{host} has a certificate of the CA"), || trusted(&["--cacert", &root, &url]));
    }

    /// Whether no answer to a challenge is published.
    fn has_no_answers(&self) -> bool {
        self.get(ANSWERS).is_none_or(|map| map["data"].as_object().is_none_or(serde_json::Map::is_empty))
    }
}

fn listener(name: &str, port: u16, protocol: &str, host: &str, secret: &str) -> Value {
    let mut listener = json!({"name": name, "port": port, "protocol": protocol});
    if !host.is_empty() {
        listener["hostname"] = host.into();
    }
    if !secret.is_empty() {
        listener["tls"] = json!({"certificateRefs": [{"name": secret}]});
    }
    listener
}

fn gateway(name: &str, challenge: &str, listeners: &[Value]) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": name, "namespace": "default", "annotations": {"waypost.dev/acme": challenge}},
        "spec": {"gatewayClassName": "waypost", "listeners": listeners},
    })
}

/// A route that redirects everything to HTTPS.
fn redirect() -> Value {
    let filter = json!({"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}});
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "redirect", "namespace": "default"},
        "spec": {"parentRefs": [{"name": "public", "sectionName": "http"}], "rules": [{"filters": [filter]}]},
    })
}

#[test]
fn s52_a_gateway_gets_and_renews_certificates_by_http_challenges() {
    let issued = Issued::new();
    issued.acme.set_lifetime(Duration::from_secs(60));
    issued.stage.put(ROUTES, &redirect());
    let listeners = [
        listener("http", 80, "HTTP", "", ""),
        listener("a", 443, "HTTPS", "a.test", "a"),
        listener("wild", 443, "HTTPS", "*.wild.test", "wild"),
        listener("users", 443, "HTTPS", "users.test", "users"),
    ];
    issued.stage.certificate("users", "users.test");
    let before = issued.secret("users").expect("the Secret of a user");
    issued.stage.put(GATEWAYS, &gateway("public", "http-01", &listeners));
    issued.until("issued a.test", 1);
    issued.until_trusted("a.test");
    issued.until_event("CertificateIssued", "default/a");
    issued.until_event("CertificateRefused", "wildcard");
    issued.until_event("CertificateRefused", "default/users exists");
    eventually("the answers are removed", || issued.has_no_answers());
    let first = issued.secret("a").expect("a Secret")["data"]["tls.crt"].clone();
    // Two thirds of a lifetime of a minute later.
    issued.until("issued a.test", 2);
    eventually("the Secret has the new certificate", || {
        issued.secret("a").is_some_and(|now| now["data"]["tls.crt"] != first)
    });
    assert_eq!(issued.acme.count("account"), 1);
    assert!(issued.acme.count("deactivated a.test") >= 1, "validations are used once");
    assert_eq!(issued.secret("users"), Some(before), "the Secret of a user is not touched");
    assert!(!issued.acme.log().iter().any(|line| line.contains("wild") || line.contains("users")));
}

#[test]
fn s52_a_gateway_without_http_gets_certificates_by_tls_challenges() {
    let issued = Issued::new();
    let listeners = [listener("a", 443, "HTTPS", "a.test", "a"), listener("lost", 443, "HTTPS", "lost.test", "lost")];
    issued.stage.put(GATEWAYS, &gateway("public", "tls-alpn-01", &listeners));
    issued.until("valid a.test tls-alpn-01", 1);
    issued.until_trusted("a.test");
    let label = |secret: &Value| secret["metadata"]["labels"]["waypost.dev/acme"].clone();
    assert_eq!(label(&issued.secret("a").expect("a Secret")), "issued");
    eventually("the answers are removed", || issued.has_no_answers());
}

#[test]
fn s52_no_gateway_gets_a_certificate_for_a_host_that_leads_to_another() {
    let issued = Issued::new();
    let host = |name: &str, secret: &str| {
        gateway(name, "http-01", &[listener("http", 80, "HTTP", "", ""), listener("a", 443, "HTTPS", "a.test", secret)])
    };
    issued.stage.put(GATEWAYS, &host("public", "a"));
    issued.until("issued a.test", 1);
    // It has the second address of the pool; `a.test` leads to the first.
    issued.stage.put(GATEWAYS, &host("thief", "stolen"));
    issued.until("invalid a.test http-01", 1);
    issued.until_event("CertificateFailed", "default/stolen");
    assert_eq!(issued.acme.count("issued a.test"), 1);
    assert_eq!(issued.secret("stolen"), None);
}

#[test]
fn s51_ingresses_get_certificates_for_hosts_of_their_namespace() {
    let issued = Issued::new();
    issued.stage.served.session(|session| {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
        let _ = session.post("/api/v1/namespaces", &namespace).success();
    });
    let tls = |host: &str, secret: &str| json!({"rules": [rule(host, "/", "Prefix", "web")], "tls": [{"hosts": [host], "secretName": secret}]});
    let ingress = |namespace: &str, name: &str, challenge: &str, spec: Value| {
        let mut spec = spec;
        spec["ingressClassName"] = "waypost".into();
        let object = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": spec,
            "metadata": {"name": name, "namespace": namespace, "annotations": {"waypost.dev/acme": challenge}},
        });
        issued.stage.put(&format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses"), &object);
    };
    ingress("default", "web", "http-01", tls("a.test", "a"));
    issued.until("valid a.test http-01", 1);
    issued.until_trusted("a.test");
    ingress("default", "alpn", "tls-alpn-01", tls("b.test", "b"));
    issued.until("valid b.test tls-alpn-01", 1);
    issued.until_trusted("b.test");
    ingress("other", "thief", "http-01", tls("a.test", "stolen"));
    ingress("other", "own", "http-01", tls("c.test", "c"));
    issued.until_trusted("c.test");
    assert_eq!(issued.acme.count("order a.test"), 1, "nothing is ordered for the host of another namespace");
    assert_eq!(issued.get("/api/v1/namespaces/other/secrets/stolen"), None);
}

#[test]
fn s52_orders_continue_after_a_kill_and_failures() {
    let issued = Issued::new();
    let listeners = |host: &str| [listener("http", 80, "HTTP", "", ""), listener("a", 443, "HTTPS", host, "a")];
    issued.stage.put(GATEWAYS, &gateway("public", "http-01", &listeners("lost.test")));
    issued.until("invalid lost.test http-01", 1);
    issued.until_event(
        "CertificateFailed",
        "no certificate for lost.test (Secret default/a): connecting to lost.test:80",
    );
    issued.stage.served.kill_server();
    issued.stage.served.start_server();
    issued.until("invalid lost.test http-01", 2);
    let attempts = issued.acme.count("order lost.test");
    issued.stage.put(GATEWAYS, &gateway("public", "http-01", &listeners("found.test")));
    issued.until_trusted("found.test");
    assert_eq!(issued.acme.count("account"), 1, "the account survives");
    assert!(attempts <= 4, "attempts are limited also after the restart: {:?}", issued.acme.log());
}

#[test]
fn s51_objects_for_cert_manager_are_left_to_it() {
    let issued = Issued::new();
    issued.stage.backend("solver");
    let mut spec =
        json!({"rules": [rule("a.test", "/", "Prefix", "solver")], "tls": [{"hosts": ["a.test"], "secretName": "a"}]});
    let object = |name: &str, annotations: Value, spec: &Value| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": spec,
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        })
    };
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    spec["ingressClassName"] = "waypost".into();
    let annotations = json!({"cert-manager.io/cluster-issuer": "letsencrypt"});
    issued.stage.put(ingresses, &object("web", annotations, &spec));
    // As cert-manager's solver writes it, for an issuer with `class`.
    let path = "/.well-known/acme-challenge/theirs";
    let solver = json!({"rules": [rule("a.test", path, "ImplementationSpecific", "solver")]});
    let annotations = json!({
        "kubernetes.io/ingress.class": "waypost", "nginx.ingress.kubernetes.io/whitelist-source-range": "0.0.0.0/0,::/0",
    });
    issued.stage.put(ingresses, &object("cm-acme-http-solver-x", annotations, &solver));
    issued.stage.certificate("a", "a.test");
    let _ = issued.stage.until("the host is redirected", &["http://a.test/"], |page| page.code == 308);
    let page = issued.stage.until("the solver answers", &[&format!("http://a.test{path}")], |page| page.code == 200);
    assert_eq!(page.target(), path);
    issued.stage.put(GATEWAYS, &gateway("gw", "http-01", &[listener("http", 80, "HTTP", "", "")]));
    assert_eq!(issued.acme.log(), Vec::<String>::new(), "nothing is ordered");
}
