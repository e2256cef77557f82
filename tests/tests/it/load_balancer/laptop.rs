//! One machine without any configuration: `waypost up` and a Service of type LoadBalancer.

use std::process::Command;
use std::time::Duration;

use client::http::Client;
use serde_json::Value;
use tempfile::TempDir;
use testbed::net::{Cluster, Family, Node, Outside, Process, Protocol, eventually, objects};
use testbed::session::{SERVICES, Session, text};

use super::desk::{addresses, condition};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const TARGET: u16 = 8080;
const TIMEOUT: Duration = Duration::from_secs(60);

struct Laptop {
    session: Session,
    _process: Process,
    _home: TempDir,
    node: Node,
    outside: Outside,
    _cluster: Cluster,
}

impl Laptop {
    fn new(arguments: &[&str]) -> Self {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let outside = cluster.outside("outside");
        let home = testbed::folder();
        let mut command = Command::new(testbed::binary());
        command.args(["up", "--node-name", "n1", "--data-dir"]).arg(home.path()).args(arguments);
        let process = node.spawn(command);
        process.wait_for_line(" ready ", TIMEOUT);
        let session = node.in_namespace(|| {
            let client = Client::from_kubeconfig(&home.path().join("kubeconfig"));
            Session::new(client.expect("a kubeconfig that can be used"))
        });
        Self { session, _process: process, _home: home, node, outside, _cluster: cluster }
    }

    fn api<T: Send>(&mut self, work: impl FnOnce(&mut Session) -> T + Send) -> T {
        let (node, session) = (&self.node, &mut self.session);
        node.in_namespace(|| work(session))
    }

    /// A Service of type LoadBalancer at a port, which leads to a program of this machine.
    fn balancer(&mut self, name: &str, port: u16) {
        let service = objects::service(name).spec("type", "LoadBalancer").port(port).target(TARGET).json();
        let slice = objects::slice(name).port(TARGET).address(self.node.v4()).json();
        self.api(|session| {
            let _ = session.post(SERVICES, &service).success();
            let _ = session.post(SLICES, &slice).success();
        });
    }

    #[track_caller]
    fn until(&mut self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool + Sync) -> Value {
        let mut found = Value::Null;
        eventually(&format!("{name}: {what}"), || {
            found = self.api(|session| session.get(&format!("{SERVICES}/{name}")).body);
            wanted(&found)
        });
        found
    }
}

#[test]
fn a_laptop_needs_no_configuration_and_ports_of_programs_are_left_to_them() {
    let mut laptop = Laptop::new(&[]);
    laptop.node.echo(TARGET);
    laptop.balancer("web", 80);
    let own = laptop.node.v4().to_string();
    let service = laptop.until("web", "it has the machine's own address", |service| addresses(service) == own);
    assert_eq!(text(condition(&service), "/reason"), "Assigned");
    let address = laptop.node.address(Family::V4);
    eventually("outsiders are served", || {
        laptop.outside.ask(Protocol::Tcp, address, 80).is_ok_and(|answer| answer.server.port() == TARGET)
    });
    assert!(laptop.outside.ask(Protocol::Tcp, address, 22).is_err(), "nothing else of the machine is opened");

    // A port that a program has stays its own until it ends.
    laptop.node.echo_on(&[Protocol::Tcp], 81);
    laptop.balancer("busy", 81);
    let refused = |service: &Value| text(condition(service), "/reason") == "PortInUse";
    let service = laptop.until("busy", "it is told who has the port", refused);
    let message = text(condition(&service), "/message");
    assert!(message.contains("port 81 (TCP)") && message.contains("ss -ltnp"), "{message}");
    let answer = laptop.outside.ask(Protocol::Tcp, address, 81).expect("the program answers");
    assert_eq!(answer.server.port(), 81);
    laptop.node.silence(81);
    laptop.until("busy", "the port is free", |service| addresses(service) == own);
    eventually("outsiders are served", || {
        laptop.outside.ask(Protocol::Tcp, address, 81).is_ok_and(|answer| answer.server.port() == TARGET)
    });

    // The same port twice is one too many.
    laptop.balancer("again", 80);
    let service = laptop.until("again", "it is told who has the port", refused);
    assert!(text(condition(&service), "/message").contains("is used by Service default/web on port TCP/80"));
    let _ = laptop.api(|session| session.delete(&format!("{SERVICES}/web"))).success();
    laptop.until("again", "it is next", |service| addresses(service) == own);
}

#[test]
fn switched_off_a_laptop_leaves_load_balancers_to_others() {
    let mut laptop = Laptop::new(&["--load-balancer=off"]);
    laptop.balancer("web", 80);
    let told = |service: &Value| {
        let conditions = service.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|one| one["type"] == "AddressAssigned")
    };
    let service = laptop.until("web", "controllers have looked at it", told);
    assert_eq!((addresses(&service).as_str(), condition(&service)), ("", &Value::Null));
}
