//! `waypost up`: one process on one machine, API and proxy; and what it does where it may not write rules.

use std::process::Command;

use client::http::Client;
use serde_json::Value;
use tempfile::TempDir;
use testbed::net::{Cluster, Family, Node, Process, Protocol, eventually, objects};
use testbed::session::{SERVICES, Session};

use super::stage::{PORT, TARGET, cluster_ip, node_port};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// A machine on which `waypost up` runs.
struct Machine {
    session: Session,
    process: Process,
    _home: TempDir,
    node: Node,
    cluster: Cluster,
}

impl Machine {
    /// The arguments before the program set up its environment.
    fn new(before: &[&str]) -> Self {
        Self::with(before, &[])
    }

    /// With these arguments besides.
    fn with(before: &[&str], arguments: &[&str]) -> Self {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let home = testbed::folder();
        let mut words = before.iter().copied();
        let mut command = match words.next() {
            Some(program) => {
                let mut command = Command::new(program);
                command.args(words).arg(testbed::binary());
                command
            }
            None => Command::new(testbed::binary()),
        };
        command.args(["up", "--node-name", "n1", "--data-dir"]).arg(home.path()).args(arguments);
        let process = node.spawn(command);
        process.wait_for_line("ready", super::TIMEOUT);
        let session = node.in_namespace(|| {
            let client = Client::from_kubeconfig(&home.path().join("kubeconfig"));
            Session::new(client.expect("a kubeconfig that can be used"))
        });
        Self { session, process, _home: home, node, cluster }
    }

    #[track_caller]
    fn post(&mut self, path: &str, object: &Value) {
        let (node, session) = (&self.node, &mut self.session);
        let _ = node.in_namespace(|| session.post(path, object)).success();
    }
}

#[test]
fn s20_one_machine_serves_its_services_and_goes_on_when_the_program_ends() {
    let mut machine = Machine::new(&[]);
    let (web, client) = (machine.node.pod("web"), machine.node.pod("pod"));
    let outside = machine.cluster.outside("outside");
    web.echo(TARGET);
    let web_service =
        objects::service("web").cluster_ip(cluster_ip(1, Family::V4)).cluster_ip(cluster_ip(1, Family::V6));
    machine.post(SERVICES, &web_service.port(PORT).target(TARGET).node_port(node_port(1)).json());
    for family in Family::BOTH {
        machine.post(SLICES, &objects::slice("web").family(family).port(TARGET).endpoint(&web).json());
    }
    // Only `node` is probed by load balancers from elsewhere.
    assert_eq!(machine.node.page("127.0.0.1", 10_256, "/healthz").expect("a page").code, 200);
    assert!(outside.page(machine.node.v4(), 10_256, "/healthz").is_none());
    let check = || {
        for family in Family::BOTH {
            eventually("a pod is served", || client.ask(Protocol::Tcp, cluster_ip(1, family), PORT).is_ok());
            let answer = client.ask(Protocol::Tcp, cluster_ip(1, family), PORT).expect("an answer");
            assert_eq!((answer.name.as_str(), answer.client.ip()), ("web", client.address(family)));
            let node = machine.node.address(family);
            eventually("a node port is served", || outside.ask(Protocol::Tcp, node, node_port(1)).is_ok());
        }
    };
    check();
    let status = machine.process.terminate();
    assert!(status.success(), "{status:?}: {}", machine.process.log());
    check();
}

#[test]
fn where_rules_may_not_be_written_the_api_works_and_it_is_said() {
    let mut machine = Machine::new(&["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]);
    machine.process.wait_for_line("Services are not served", super::TIMEOUT);
    machine.post(SERVICES, &objects::service("web").cluster_ip(cluster_ip(1, Family::V4)).port(PORT).json());
    assert_eq!(machine.node.ruleset(), "");
}

#[test]
fn s21_without_any_right_services_are_served_on_loopback() {
    let powerless = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs"];
    let mut machine = Machine::with(&powerless, &["--service-cluster-ip-range", "127.96.0.0/16"]);
    machine.node.echo(TARGET);
    let service = |name: &str, ip: &str, port: u16| objects::service(name).cluster_ip(ip).port(port).target(TARGET);
    let endpoint = machine.node.v4();
    machine.post(SERVICES, &service("web", "127.96.1.1", 8080).node_port(node_port(1)).json());
    machine.post(SERVICES, &service("low", "127.96.1.2", 80).json());
    for name in ["web", "low"] {
        machine.post(SLICES, &objects::slice(name).port(TARGET).address(endpoint).json());
    }
    eventually("it is served", || machine.node.ask(Protocol::Tcp, "127.96.1.1", 8080).is_ok());
    let answer = machine.node.ask(Protocol::Tcp, "127.0.0.1", node_port(1)).expect("its node port too");
    assert_eq!(answer.server.port(), TARGET);
    machine.process.wait_for_line("ports below 1024 need root", super::TIMEOUT);
    assert_eq!(machine.node.ruleset(), "", "no rule at all");
    let status = machine.process.terminate();
    assert!(status.success(), "{status:?}: {}", machine.process.log());
}
