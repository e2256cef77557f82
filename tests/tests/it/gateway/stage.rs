//! One served node, a pod or two on it, a client outside that goes by it, and the Service of AWS's examples.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::net::{Family, Node, Outside, Served, eventually, objects};
use testbed::{Run, run};

/// The certificate of the examples.
pub(super) const ARN: &str = "arn:aws:acm:us-east-1:123456789012:certificate/12345678-1234-1234-1234-123456789012";
/// What the annotations begin with.
pub(super) const AWS: &str = "service.beta.kubernetes.io/aws-load-balancer-";
/// The name for which certificates are.
pub(super) const HOST: &str = "web.example";
/// Where pods listen.
pub(super) const TARGET: u16 = 8080;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// The address of the load balancer.
pub(super) fn vip(family: Family) -> IpAddr {
    let text = if family == Family::V4 { "203.0.113.1" } else { "2001:db8:f::1" };
    text.parse().expect("an address")
}

/// See the module.
pub(super) struct Stage {
    pub(super) served: Served,
    pub(super) node: Node,
    pub(super) outside: Outside,
    pub(super) files: TempDir,
}

impl Stage {
    pub(super) fn new() -> Self {
        let served = Served::new();
        let node = served.node("n1");
        served.serve(&node, &["--roles", "proxy,announce"]);
        let outside = served.cluster().outside("outside");
        for range in ["203.0.113.0/24", "2001:db8:f::/64"] {
            outside.route(range, &node);
        }
        let stage = Self { served, node, outside, files: testbed::folder() };
        stage.certificate("web");
        stage
    }

    /// Makes a certificate for the host and its key: `NAME.crt` and `NAME.key` in the files.
    pub(super) fn certificate(&self, name: &str) {
        let path = |ending: &str| self.files.path().join(format!("{name}.{ending}"));
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7"]);
        command.args(["-subj", &format!("/CN={name}"), "-addext", &format!("subjectAltName=DNS:{HOST}")]);
        command.arg("-keyout").arg(path("key")).arg("-out").arg(path("crt"));
        let _ = run(&mut command, "").success();
    }

    /// Makes a Secret hold a certificate that was made, with these annotations; whether it is there already or not.
    pub(super) fn secret(&self, name: &str, certificate: &str, annotations: &Value) {
        let read = |ending: &str| {
            let path = self.files.path().join(format!("{certificate}.{ending}"));
            std::fs::read_to_string(path).expect("a file")
        };
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "stringData": {"tls.crt": read("crt"), "tls.key": read("key")},
        });
        self.served.session(|session| {
            let answer = session.put(&format!("{SECRETS}/{name}"), &secret);
            let _ = if answer.code == 404 { session.post(SECRETS, &secret) } else { answer }.success();
        });
    }

    /// The Service of the examples, with ports 443 and 80, and these annotations besides (`ssl-cert` for the whole name).
    pub(super) fn service(annotations: &[(&str, &str)]) -> objects::Service {
        let service = objects::service("my-service").cluster_ip("10.96.0.70").cluster_ip("fd00:10:96::70");
        let service = service.port(443).named("https").target(TARGET).port(80).named("http").target(TARGET);
        let service = service.load_balancer(vip(Family::V4)).load_balancer(vip(Family::V6));
        annotations.iter().fold(service, |service, (name, value)| service.annotation(&format!("{AWS}{name}"), value))
    }

    /// Puts the Service, and these pods behind it.
    pub(super) fn publish(&self, annotations: &[(&str, &str)], pods: &[&testbed::net::Pod]) {
        self.served.put(&Self::service(annotations).json());
        for family in Family::BOTH {
            let slice = objects::slice("my-service").family(family);
            let slice = slice.port(TARGET).named("https").port(TARGET).named("http");
            self.served.put(&pods.iter().fold(slice, |slice, pod| slice.endpoint(pod)).json());
        }
        self.served.settle();
    }

    /// curl from outside, with these arguments and a path; it trusts this certificate and resolves the host to the load balancer.
    pub(super) fn curl(&self, believes: &str, family: Family, arguments: &[&str]) -> Run {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "20", "--cacert"]);
        command.arg(self.files.path().join(format!("{believes}.crt")));
        for port in [443, 80] {
            command.args(["--resolve", &format!("{HOST}:{port}:{}", bracketed(vip(family)))]);
        }
        command.args(arguments);
        self.outside.run(command)
    }

    /// Waits until a page comes, and answers it: its head and its body.
    #[track_caller]
    pub(super) fn page(&self, family: Family, arguments: &[&str]) -> String {
        let mut page = String::new();
        eventually("the load balancer answers", || {
            let got = self.curl("web", family, &[&["--include"], arguments].concat());
            page = got.out;
            got.ok && page.contains(" 200")
        });
        page.to_lowercase()
    }

    /// The client address that pods see for requests from outside: the client's, unless the proxy itself relays connections to the
    /// gateway.
    pub(super) fn client(&self, family: Family) -> IpAddr {
        if self.served.mode().keeps_source { self.outside.address(family) } else { self.node.address(family) }
    }

    /// The messages of Events of the Service with this reason.
    pub(super) fn events(&self, reason: &str) -> Vec<String> {
        let items = self.served.session(|session| session.items("/api/v1/namespaces/default/events"));
        let fits =
            items.iter().filter(|event| event["reason"] == reason && event["involvedObject"]["name"] == "my-service");
        fits.filter_map(|event| event["message"].as_str().map(str::to_owned)).collect()
    }

    pub(super) fn files(&self) -> &Path {
        self.files.path()
    }
}

fn bracketed(ip: IpAddr) -> String {
    if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() }
}
