//! Each scheduler does what its name implies, with real connections: three servers behind one address of a node.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use kernel::ipvs::{Change, Ipvs as _, Scheduler, Server, linux};
use testbed::net::{Cluster, Connection, Family, Host, Node, Pod, Protocol::Tcp};

/// The port of the servers.
const TARGET: u16 = 8080;
/// The port of the address behind which they are.
const PORT: u16 = 80;

/// A node that balances.
struct Scene {
    node: Node,
    servers: Vec<Pod>,
    client: Pod,
    family: Family,
    _cluster: Cluster,
}

impl Scene {
    /// With servers of these weights.
    fn new(scheduler: Scheduler, weights: &[u32], family: Family) -> Self {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let servers: Vec<Pod> = (1..=weights.len()).map(|number| node.pod(&format!("web-{number}"))).collect();
        let client = node.pod("client");
        servers.iter().for_each(|server| server.echo_on(&[Tcp], TARGET));
        let server = Server { ip: node.gateway(family), protocol: 6, port: PORT };
        let mut changes = vec![Change::NewServer(server, scheduler.settings(None))];
        for (pod, weight) in servers.iter().zip(weights) {
            changes.push(Change::NewDestination(server, SocketAddr::new(pod.address(family), TARGET), *weight));
        }
        node.in_namespace(|| linux::Linux::open().expect("IPVS").apply(&changes)).expect("carried out");
        Self { node, servers, client, family, _cluster: cluster }
    }

    /// A connection of the client, and the server that responds.
    fn connect(&self) -> (Connection, String) {
        self.connect_from(&self.client)
    }

    fn connect_from(&self, client: &Host) -> (Connection, String) {
        let mut connection = client.connect(Tcp, self.node.gateway(self.family), PORT).expect("a connection");
        let name = connection.ask().expect("an answer").name;
        (connection, name)
    }

    /// The servers that respond to this number of connections in turn, which all stay open.
    fn names(&self, count: usize) -> Vec<String> {
        let open: Vec<(Connection, String)> = (0..count).map(|_| self.connect()).collect();
        open.into_iter().map(|(_, name)| name).collect()
    }
}

fn distinct(names: &[String]) -> usize {
    names.iter().collect::<BTreeSet<_>>().len()
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn rr_goes_round() {
    for scheduler in [Scheduler::Rr, Scheduler::Wrr] {
        let names = Scene::new(scheduler, &[1, 1, 1], Family::V6).names(9);
        assert_eq!(distinct(&names[..3]), 3, "{scheduler:?} {names:?}");
        assert!(names[..3] == names[3..6] && names[..3] == names[6..], "{scheduler:?} {names:?}");
    }
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn lc_prefers_who_has_the_fewest() {
    for scheduler in [Scheduler::Lc, Scheduler::Wlc] {
        let scene = Scene::new(scheduler, &[1, 1, 1], Family::V4);
        let mut open: Vec<(Connection, String)> = (0..6).map(|_| scene.connect()).collect();
        let names: Vec<String> = open.iter().map(|(_, name)| name.clone()).collect();
        assert_eq!(distinct(&names[..3]), 3, "each gets one before anybody gets two: {names:?}");
        // All but the last hold two; the one that ends both has the fewest.
        let idle = names[1].clone();
        open.retain(|(_, name)| *name != idle);
        assert_eq!(scene.connect().1, idle, "{scheduler:?}");
    }
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn sh_keeps_a_client_and_spreads_clients() {
    for scheduler in [Scheduler::Sh, Scheduler::Mh] {
        let scene = Scene::new(scheduler, &[1, 1, 1], Family::V4);
        let clients: Vec<Pod> = (0..16).map(|number| scene.node.pod(&format!("client-{number}"))).collect();
        let firsts: Vec<String> = clients.iter().map(|client| scene.connect_from(client).1).collect();
        assert!(distinct(&firsts) > 1, "{scheduler:?} {firsts:?}");
        if scheduler == Scheduler::Sh {
            let again: Vec<String> = clients.iter().map(|client| scene.connect_from(client).1).collect();
            assert_eq!(firsts, again, "each stays where it was");
        }
    }
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn sh_looks_past_a_server_that_takes_no_more() {
    let scene = Scene::new(Scheduler::Sh, &[1, 0, 1], Family::V4);
    let clients: Vec<Pod> = (0..16).map(|number| scene.node.pod(&format!("client-{number}"))).collect();
    let names: BTreeSet<String> = clients.iter().map(|client| scene.connect_from(client).1).collect();
    assert_eq!(names, ["web-1".to_owned(), "web-3".to_owned()].into());
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn dh_keeps_a_destination() {
    let scene = Scene::new(Scheduler::Dh, &[1, 1, 1], Family::V4);
    let clients: Vec<Pod> = (0..8).map(|number| scene.node.pod(&format!("client-{number}"))).collect();
    let names: Vec<String> = clients.iter().map(|client| scene.connect_from(client).1).collect();
    assert_eq!(distinct(&names), 1, "all ask the same address: {names:?}");
    assert!(scene.servers.iter().any(|server| server.name() == names[0]));
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn sed_fills_the_strong_first_and_nq_nobody_twice_while_one_is_idle() {
    // The first can do four times what the second can, so its second connection is done before the other's first.
    let sed = Scene::new(Scheduler::Sed, &[4, 1], Family::V4).names(5);
    assert_eq!(sed[..3], ["web-1", "web-1", "web-1"], "{sed:?}");
    let nq = Scene::new(Scheduler::Nq, &[4, 1], Family::V4).names(5);
    assert_eq!(distinct(&nq[..2]), 2, "{nq:?}");
    assert_eq!(nq[2..4], ["web-1", "web-1"], "when nobody is idle it is as before: {nq:?}");
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn lblc_stays_with_who_served_the_address() {
    let scene = Scene::new(Scheduler::Lblc, &[1, 1, 1], Family::V4);
    // Each connection is closed before the next: an overloaded server is relieved.
    let names: Vec<String> = (0..6).map(|_| scene.connect().1).collect();
    assert_eq!(distinct(&names), 1, "{names:?}");
}
