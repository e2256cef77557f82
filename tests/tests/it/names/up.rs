//! `waypost up`: names by way of the Service that clusters find their DNS at.

use client::http::Client;
use serde_json::json;
use tempfile::TempDir;
use testbed::net::{Cluster, Node, Pod, Process, eventually};
use testbed::session::{SERVICES, Session};

use super::{dig, with_resolv_conf};

/// A machine on which `waypost up` runs, and a Pod on it.
pub(super) struct Machine {
    session: Session,
    process: Process,
    pub(super) pod: Pod,
    node: Node,
    _home: TempDir,
    _cluster: Cluster,
}

impl Machine {
    pub(super) fn new() -> Self {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let home = testbed::folder();
        let mut command = std::process::Command::new(testbed::binary());
        command.args(["up", "--node-name", "n1", "--dns-upstream", "none", "--data-dir"]).arg(home.path());
        let process = node.spawn(command);
        process.wait_for_line("ready", crate::proxy::TIMEOUT);
        let session = node.in_namespace(|| {
            let client = Client::from_kubeconfig(&home.path().join("kubeconfig"));
            Session::new(client.expect("a kubeconfig that can be used"))
        });
        let pod = node.pod("pod");
        Self { session, process, pod, node, _home: home, _cluster: cluster }
    }

    pub(super) fn post(&mut self, path: &str, object: &serde_json::Value) {
        let (node, session) = (&self.node, &mut self.session);
        let _ = node.in_namespace(|| session.post(path, object)).success();
    }
}

pub(super) const VIP: &str = "10.96.0.10";

#[test]
fn s34_services_have_names_at_the_address_that_clusters_expect() {
    let mut machine = Machine::new();
    machine.process.wait_for_line("published Service kube-system/kube-dns", crate::proxy::TIMEOUT);
    for host in [&*machine.pod, &*machine.node] {
        eventually("the Service of the DNS leads here", || {
            host.run(&*format!("dig +short +tries=1 +time=1 @{VIP} kubernetes.default.svc.cluster.local")).out.trim()
                == "10.96.0.1"
        });
    }
    let web = json!({
        "metadata": {"name": "web"},
        "spec": {"clusterIP": "10.96.7.7", "ports": [{"name": "http", "port": 80}]},
    });
    machine.post(SERVICES, &web);
    let pod = &machine.pod;
    eventually("a new name", || dig(pod, VIP, "web.default.svc.cluster.local").trim() == "10.96.7.7");
    let srv = dig(pod, VIP, "_http._tcp.web.default.svc.cluster.local SRV");
    assert_eq!(srv.trim(), "0 100 80 web.default.svc.cluster.local.");
    assert_eq!(dig(pod, VIP, "-x 10.96.7.7").trim(), "web.default.svc.cluster.local.");
    assert_eq!(dig(pod, VIP, "+tcp web.default.svc.cluster.local").trim(), "10.96.7.7");
    assert_eq!(dig(pod, VIP, "+short other.default.svc.cluster.local"), "");
}

#[test]
fn s34_the_c_library_walks_the_search_path() {
    let mut machine = Machine::new();
    let web = json!({"metadata": {"name": "web"}, "spec": {"clusterIP": "10.96.7.7", "ports": [{"port": 80}]}});
    machine.post(SERVICES, &web);
    let conf = format!(
        "nameserver {VIP}\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
    );
    eventually("the name is known", || dig(&machine.pod, VIP, "web.default.svc.cluster.local").trim() == "10.96.7.7");
    for name in ["web", "web.default", "web.default.svc", "web.default.svc.cluster.local"] {
        let run = with_resolv_conf(&machine.pod, &conf, &format!("getent ahostsv4 {name}"));
        assert!(run.ok && run.out.contains("10.96.7.7"), "{name}: {} {}", run.out, run.err);
    }
    let run = with_resolv_conf(&machine.pod, &conf, "getent ahostsv4 nobody");
    assert!(!run.ok, "{}", run.out);
}
