//! A compromised Node claims another address for its agent: the server does not reveal what listens there.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use serde_json::json;
use testbed::net::Cluster;
use testbed::wire::Wire;
use testbed::{Home, Server};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const MERGE: (&str, &str) = ("Content-Type", "application/merge-patch+json");
const READER: (&str, &str) = ("Impersonate-User", "reader");
const LOG: &str = "/api/v1/namespaces/default/pods/p/log";
const GENERIC: &str = "error dialing backend: agent of node n1 is not reachable";

struct Bed {
    admin: Wire,
}

impl Bed {
    fn new(server: &Server) -> Self {
        let mut admin = Wire::admin(server);
        admin.bind("view", "reader");
        let node = json!({"metadata": {"name": "n1"}}).to_string();
        let _ = admin.ask("POST", "/api/v1/nodes", &[JSON], node.as_bytes()).success();
        let spec = json!({"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]});
        let pod = json!({"metadata": {"name": "p"}, "spec": spec}).to_string();
        let _ = admin.ask("POST", "/api/v1/namespaces/default/pods", &[JSON], pod.as_bytes()).success();
        Self { admin }
    }

    /// What a node may write into its own status.
    fn claim(&mut self, at: SocketAddr) {
        let status = json!({
            "addresses": [{"type": "InternalIP", "address": at.ip()}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": at.port()}},
        });
        let patch = json!({"status": status}).to_string();
        let _ = self.admin.ask("PATCH", "/api/v1/nodes/n1/status", &[MERGE], patch.as_bytes()).success();
    }

    /// The response to a user who may read logs, and how long it takes.
    fn read_log(&mut self) -> (String, Duration) {
        let begun = Instant::now();
        (self.admin.ask("GET", LOG, &[READER], b"").refused(500), begun.elapsed())
    }
}

#[test]
fn b03_logs_do_not_tell_which_ports_are_open() {
    let cluster = Cluster::new();
    let (host, elsewhere) = (cluster.node("api"), cluster.outside("elsewhere"));
    let listen = format!("{}:6443", host.v4());
    let home = Home::Own(testbed::folder());
    let server = host.in_namespace(|| Server::start_with(home, &["--listen", &listen]));
    let open_at = |at: SocketAddr| TcpListener::bind(at).expect("a port");
    let loopback = host.in_namespace(|| open_at(SocketAddr::from(([127, 0, 0, 1], 2379))));
    let other = elsewhere.in_namespace(|| open_at(SocketAddr::from((elsewhere.v4(), 2379))));

    host.in_namespace(|| {
        let mut bed = Bed::new(&server);
        // What the server reaches and the node does not.
        for at in ["127.0.0.1:2379", "127.0.0.1:2380", "10.96.0.1:2379", "169.254.169.254:8080", &listen] {
            bed.claim(at.parse().expect("an address"));
            assert_eq!(bed.read_log().0, GENERIC, "{at}");
        }
        loopback.set_nonblocking(true).expect("a listener");
        assert!(loopback.accept().is_err(), "nobody was sent there");

        // A possible machine address. A server at the first port accepts, sends nothing and closes; the second port is
        // closed.
        let serving = std::thread::spawn(move || drop(other.accept().expect("the server comes")));
        let (mut said, mut took) = (Vec::new(), Vec::new());
        for port in [2379, 2380] {
            bed.claim(SocketAddr::from((elsewhere.v4(), port)));
            let (words, time) = bed.read_log();
            said.push(words);
            took.push(time);
        }
        serving.join().expect("it was asked");
        assert_eq!(said, [GENERIC, GENERIC]);
        assert!(took.iter().all(|time| *time >= Duration::from_secs(5)), "time tells them apart: {took:?}");

        // A user who may use the agents of nodes anyway gets the reason.
        let reason = bed.admin.ask("GET", LOG, &[], b"").refused(500);
        assert!(reason.contains(&format!("dial tcp {}:2380: ", elsewhere.v4())), "{reason}");
    });
}
