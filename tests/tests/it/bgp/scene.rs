//! The test network of all cases: served nodes that announce, a router, and a client whose gateway is the
//! router.
//!
//! In: names of nodes. Out: objects made and changed through the API, Events read from it.

use std::net::IpAddr;

use serde_json::{Value, json};
use testbed::net::objects::{self, service, slice};
use testbed::net::{Family, Mode, Node, Outside, Pod, Protocol, Served, eventually};

use super::router::{NODES, ROUTER, Router, RouterConfig};

pub(super) const PEERS: &str = "/apis/waypost.dev/v1/bgppeers";
pub(super) const POOLS: &str = "/apis/waypost.dev/v1/ippools";
pub(super) const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
/// The addresses of the Service `web`.
pub(super) const V4: &str = "203.0.113.7";
pub(super) const V6: &str = "2001:db8:f::7";
/// The port of every Service, and of the endpoints behind it.
pub(super) const PORT: u16 = 80;
const TARGET: u16 = 8080;
/// What nodes do here.
const ROLES: [&str; 2] = ["--roles", "proxy,announce"];
/// No agent sends heartbeats; nodes stay ready as long as a test may take.
const SERVER: [&str; 2] = ["--node-monitor-grace-period", "3600"];

pub(super) struct Scene {
    // Programs end before the machines they are on.
    pub(super) router: Router,
    pub(super) served: Served,
    pub(super) nodes: Vec<Node>,
    pub(super) client: Outside,
}

impl Scene {
    /// Nodes that announce, a pool, and a router that does not run yet.
    pub(super) fn new(names: &[&str]) -> Self {
        let served = Served::with_server(Mode::under_test(), &SERVER);
        let router = Router::new(served.cluster().outside("router"));
        let client = served.cluster().outside("client");
        for (family, range) in [(Family::V4, "203.0.113.0/24"), (Family::V6, "2001:db8:f::/64")] {
            client.ip(&format!("route add {range} via {}\n", router.host.address(family)));
        }
        let nodes: Vec<Node> = names.iter().map(|name| served.node(name)).collect();
        let scene = Self { router, served, nodes, client };
        let pool = json!({
            "apiVersion": "waypost.dev/v1", "kind": "IPPool", "metadata": {"name": "office"},
            "spec": {"addresses": ["203.0.113.0/28", "2001:db8:f::/120"], "announce": ["bgp"]},
        });
        scene.make(POOLS, &pool);
        for node in &scene.nodes {
            scene.serve(node);
        }
        scene
    }

    /// One whose router runs and has a session with every node.
    pub(super) fn with_sessions(names: &[&str], more: &Value) -> Self {
        let scene = Self::new(names);
        scene.run_router(&RouterConfig::default());
        scene.peer(more);
        scene.wait_for_sessions();
        scene
    }

    /// Starts a node.
    pub(super) fn serve(&self, node: &Node) {
        self.served.serve(node, &ROLES);
    }

    pub(super) fn run_router(&self, config: &RouterConfig) {
        self.router.start(&self.nodes.iter().collect::<Vec<_>>(), config);
    }

    #[track_caller]
    pub(super) fn wait_for_sessions(&self) {
        for node in &self.nodes {
            eventually(&format!("a session with {}", node.name()), || self.router.is_established(node));
        }
    }

    // === objects ===

    #[track_caller]
    pub(super) fn make(&self, collection: &str, object: &Value) {
        let _ = self.served.session(|session| session.post(collection, object)).success();
    }

    /// Changes an object by a merge patch.
    #[track_caller]
    pub(super) fn change(&self, path: &str, patch: &Value) {
        let _ = self.served.session(|session| session.merge(path, patch)).success();
    }

    #[track_caller]
    pub(super) fn delete(&self, path: &str) {
        let _ = self.served.session(|session| session.delete(path)).success();
    }

    /// Makes the BGPPeer `rack`, with this in its spec besides.
    #[track_caller]
    pub(super) fn peer(&self, more: &Value) {
        let mut spec = json!({
            "myASN": NODES, "peerASN": ROUTER, "peerAddress": self.router.host.v4().to_string(),
            "holdTimeSeconds": 9, "restartTimeSeconds": 60, "communities": ["64512:100", "no-export"],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let object =
            json!({"apiVersion": "waypost.dev/v1", "kind": "BGPPeer", "metadata": {"name": "rack"}, "spec": spec});
        self.make(PEERS, &object);
    }

    /// A pod on a node that returns its name.
    pub(super) fn backend(&self, node: usize, name: &str) -> Pod {
        let pod = self.nodes[node].pod(name);
        pod.echo(TARGET);
        pod
    }

    /// Creates or updates the Service `web` with this spec, and these pods as its endpoints.
    #[track_caller]
    pub(super) fn web(&self, change: impl FnOnce(objects::Service) -> objects::Service, pods: &[&Pod]) {
        let web = service("web").cluster_ip("10.96.0.50").cluster_ip("fd00:10:96::50").port(PORT).target(TARGET);
        self.served.put(&change(web.load_balancer(V4).load_balancer(V6)).json());
        self.endpoints("web", pods);
    }

    /// Makes these pods the endpoints of a Service.
    #[track_caller]
    pub(super) fn endpoints(&self, of: &str, pods: &[&Pod]) {
        for family in Family::BOTH {
            let all = pods.iter().fold(slice(of).family(family).port(TARGET), |slice, pod| slice.endpoint(pod));
            self.served.put(&all.json());
        }
    }

    // === what is seen ===

    /// The pod that responds to the client at an address.
    pub(super) fn ask(&self, address: &str) -> Option<String> {
        let address: IpAddr = address.parse().expect("an address");
        self.client.ask(Protocol::Tcp, address, PORT).ok().map(|answer| answer.name)
    }

    /// Waits for an Event of the BGPPeer with this reason and this text.
    #[track_caller]
    pub(super) fn wait_for_event(&self, reason: &str, words: &str) {
        let mut seen = Vec::new();
        let path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=BGPPeer";
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("an Event", || {
                seen = self.served.session(|session| session.items(path));
                let says =
                    |event: &Value, key: &str, part: &str| event[key].as_str().is_some_and(|text| text.contains(part));
                seen.iter().any(|event| says(event, "reason", reason) && says(event, "message", words))
            })
        }));
        let said: Vec<String> = seen.iter().map(|event| format!("{} {}", event["reason"], event["message"])).collect();
        assert!(found.is_ok(), "no Event {reason} with {words:?}, but:\n{}", said.join("\n"));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("BIRD:\n{}", self.router.log());
            for node in self.nodes.iter().filter(|node| self.served.serves(node)) {
                eprintln!("{}:\n{}", node.name(), self.served.with_proxy(node, |program| program.log()));
            }
        }
    }
}
