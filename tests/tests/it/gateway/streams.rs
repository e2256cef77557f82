//! TCPRoutes and UDPRoutes: the kernel serves those with one Service, the gateway those that need it, and a change from one to the
//! other closes no connection.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Value, json};
use testbed::net::{
    Answer, Connection, Failure, Family, Mode, Node, Outside, Pod, Protocol, Served, eventually, objects,
};

/// The port of the listeners of the Gateway, by TCP and by UDP.
const PORT: u16 = 53;
/// Where pods listen.
const TARGET: u16 = 8080;
/// What listeners have.
const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];
/// How often the route is changed there and back.
const TURNS: usize = 12;
/// New connections that show where they go.
const SAMPLE: usize = 8;
/// The pause of a client between two connections.
const PACE: Duration = Duration::from_millis(1);
/// The first source port of questions: below those that the kernel chooses.
const FIRST: u16 = 10_000;
const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways";
const POLICIES: &str = "/apis/waypost.dev/v1/namespaces/default/trafficpolicies";

/// A server with pools, a node that serves, the pods `one` and `two` with a Service each, and a client outside.
struct Stage {
    served: Served,
    node: Node,
    outside: Outside,
    pods: [Pod; 2],
    addresses: [IpAddr; 2],
    /// The source port of the next question.
    next: AtomicU16,
}

impl Stage {
    fn new() -> Self {
        let (v4, v6) = ("203.0.113.0/28", "2001:db8:f::/124");
        let arguments = ["--load-balancer-pool", v4, "--load-balancer-pool", v6, "--gateway-class"];
        let served = Served::with_server(Mode::under_test(), &arguments);
        let node = served.node("n1");
        served.serve(&node, &["--roles", "proxy,announce"]);
        let outside = served.cluster().outside("outside");
        [v4, v6].iter().for_each(|range| outside.route(range, &node));
        let pods = ["one", "two"].map(|name| node.pod(name));
        let (addresses, next) = ([node.address(Family::V4); 2], AtomicU16::new(FIRST));
        let stage = Self { addresses, served, node, outside, pods, next };
        for pod in &stage.pods {
            pod.echo_on(&PROTOCOLS, TARGET);
            let service = PROTOCOLS.iter().fold(objects::service(pod.name()), |service, protocol| {
                service.port(PORT).named(protocol.port_name()).protocol(*protocol).target(TARGET)
            });
            stage.served.put(&service.json());
            stage.endpoints(pod.name(), &[pod]);
        }
        let listener =
            |protocol: &Protocol| json!({"name": protocol.port_name(), "port": PORT, "protocol": protocol.name()});
        let listeners: Vec<Value> = PROTOCOLS.iter().map(listener).collect();
        stage.put(GATEWAYS, "Gateway", "public", &json!({"gatewayClassName": "waypost", "listeners": listeners}));
        stage.route(&[("one", 1)]);
        Self { addresses: stage.assigned(), ..stage }
    }

    /// The addresses of the Gateway, as soon as it has both.
    fn assigned(&self) -> [IpAddr; 2] {
        let mut found = Vec::new();
        eventually("the Gateway has addresses", || {
            let gateway = self.served.session(|session| session.get(&format!("{GATEWAYS}/public")).success());
            let all = gateway["status"]["addresses"].as_array().cloned().unwrap_or_default();
            found = all.iter().filter_map(|one| one["value"].as_str()?.parse().ok()).collect();
            found.len() == 2
        });
        found.sort_unstable();
        [found[0], found[1]]
    }

    /// Makes these pods the endpoints of a Service.
    fn endpoints(&self, service: &str, pods: &[&Pod]) {
        for family in Family::BOTH {
            let slice = objects::slice(service).family(family);
            let slice = PROTOCOLS
                .iter()
                .fold(slice, |slice, protocol| slice.port(TARGET).named(protocol.port_name()).protocol(*protocol));
            self.served.put(&pods.iter().fold(slice, |slice, pod| slice.endpoint(pod)).json());
        }
    }

    /// Creates an object of the Gateway API, or replaces its spec.
    fn put(&self, collection: &str, kind: &str, name: &str, spec: &Value) {
        let version =
            collection.trim_start_matches("/apis/").split("/namespaces").next().expect("a group and a version");
        let object = json!({
            "apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        });
        self.served.session(|session| {
            let answer = session.merge(&format!("{collection}/{name}"), &object);
            let _ = if answer.code == 404 { session.post(collection, &object) } else { answer }.success();
        });
    }

    /// Both routes have these Services with these weights.
    fn route(&self, backends: &[(&str, u32)]) {
        for protocol in PROTOCOLS {
            let (kind, section) = (format!("{}Route", protocol.name()), protocol.port_name());
            let backend = |(name, weight): &(&str, u32)| json!({"name": name, "port": PORT, "weight": weight});
            let rule = json!({"backendRefs": backends.iter().map(backend).collect::<Vec<_>>()});
            let spec = json!({"parentRefs": [{"name": "public", "sectionName": section}], "rules": [rule]});
            let collection = format!("/apis/gateway.networking.k8s.io/v1/namespaces/default/{}s", kind.to_lowercase());
            self.put(&collection, &kind, "stream", &spec);
        }
    }

    /// A question from a port that was not used before, so that it belongs to no flow from before.
    fn ask(&self, protocol: Protocol, address: IpAddr) -> Result<Answer, Failure> {
        let caller = self.outside.caller().timeout(Duration::from_secs(1));
        caller.source_port(self.next.fetch_add(1, Relaxed)).ask(protocol, address, PORT)
    }

    /// Every address by every protocol.
    fn ways(&self) -> Vec<(Protocol, IpAddr)> {
        PROTOCOLS.iter().flat_map(|protocol| self.addresses.map(|address| (*protocol, address))).collect()
    }

    /// Waits until new connections reach these pods and no others.
    #[track_caller]
    fn until_served_by(&self, names: &[&str]) {
        for (protocol, address) in self.ways() {
            eventually(&format!("{names:?} serve {address} by {protocol:?}"), || {
                let answers: Result<BTreeSet<_>, _> =
                    (0..SAMPLE).map(|_| self.ask(protocol, address).map(|answer| answer.name)).collect();
                answers.is_ok_and(|found| found.iter().eq(names))
            });
        }
    }

    /// Whether a new connection leads from the address of the Gateway to a pod, without a listener between them: the gateway counts
    /// what it forwards, and the pod is where replies come from. The relay of the mode `userspace` is a listener itself.
    fn is_direct(&self, protocol: Protocol, address: IpAddr) -> bool {
        let before = self.forwarded();
        let Ok(answer) = self.ask(protocol, address) else { return false };
        // Lists of the kernel write IPv6 addresses in full.
        if !self.served.mode().outlives_program || address.is_ipv6() {
            return self.forwarded() == before;
        }
        let (to, port) = (format!("dst={address}"), format!("dport={PORT}"));
        let from = format!("src={}", answer.server.ip());
        let (client, word) =
            (format!("src={}", self.outside.address(Family::of(address))), protocol.name().to_lowercase());
        self.node.conntrack_count(&[&word, &client, &to, &port, &from]) > 0 && self.forwarded() == before
    }

    /// Connections and flows that the gateway has forwarded for routes.
    fn forwarded(&self) -> u64 {
        let page = self.node.page("127.0.0.1", 10_249, "/metrics").expect("a page").body;
        let of_routes = page.lines().filter(|line| line.starts_with("waypost_gateway_route_connections_total{"));
        of_routes
            .map(|line| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).expect("a number"))
            .sum()
    }

    #[track_caller]
    fn until_direct(&self) {
        for (protocol, address) in self.ways() {
            eventually(&format!("the kernel serves {address} by {protocol:?}"), || self.is_direct(protocol, address));
        }
    }
}

#[test]
fn s52_a_route_with_one_service_is_served_by_the_kernel() {
    let stage = Stage::new();
    stage.until_served_by(&["one"]);
    stage.until_direct();
    // A Service with weight 0 gets nothing, so it changes nothing.
    stage.route(&[("two", 0), ("one", 7)]);
    stage.route(&[("one", 0), ("two", 7)]);
    stage.until_served_by(&["two"]);
    stage.until_direct();
    stage.endpoints("two", &[&stage.pods[0], &stage.pods[1]]);
    stage.until_served_by(&["one", "two"]);
    stage.until_direct();
    // Without endpoints connections are closed, whoever does it, and datagrams have no answer.
    stage.endpoints("two", &[]);
    for (protocol, address) in stage.ways() {
        eventually(&format!("nothing serves {address} by {protocol:?}"), || stage.ask(protocol, address).is_err());
    }
    stage.endpoints("two", &[&stage.pods[1]]);
    stage.until_served_by(&["two"]);
    stage.until_direct();
    if stage.served.mode().outlives_program {
        stage.served.kill_proxy(&stage.node);
        for (protocol, address) in stage.ways() {
            let answer = stage.ask(protocol, address).expect("no program is needed");
            assert_eq!(answer.name, "two", "{protocol:?} {address}");
        }
    }
}

#[test]
fn s52_a_policy_takes_a_route_from_the_kernel() {
    let stage = Stage::new();
    stage.until_direct();
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public"});
    let ranges = Family::BOTH
        .map(|family| format!("{}/{}", stage.outside.address(family), if family == Family::V4 { 32 } else { 128 }));
    stage.put(POLICIES, "TrafficPolicy", "guard", &json!({"targetRefs": [target], "sourceRanges": {"deny": ranges}}));
    if stage.served.mode().keeps_source {
        for (protocol, address) in stage.ways() {
            eventually(&format!("{address} is closed by {protocol:?}"), || stage.ask(protocol, address).is_err());
        }
    }
    let _ = stage.served.session(|session| session.delete(&format!("{POLICIES}/guard"))).success();
    stage.until_served_by(&["one"]);
    stage.until_direct();
}

/// A connection that is used until the end, always by the same pod; the number of its answers.
fn hold(mut connection: Connection, is_over: &AtomicBool, asked: &AtomicUsize) -> usize {
    let first = connection.ask().expect("an answer").name;
    let mut count = 1;
    while !is_over.load(Relaxed) {
        let answer = connection.ask().expect("the connection stays open");
        assert_eq!(answer.name, first, "it stays with its pod");
        count += 1;
        asked.fetch_add(1, Relaxed);
    }
    count
}

/// Ends the clients of a test, also when it fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn s52_weights_move_streams_to_the_gateway_and_back_and_no_connection_is_lost() {
    let stage = Stage::new();
    stage.until_direct();
    // Sessions of UDP in the proxy mode userspace end with their endpoint, and the gateway is another one.
    let keeps_udp = stage.served.mode().outlives_program;
    let ways: Vec<_> =
        stage.ways().into_iter().filter(|(protocol, _)| keeps_udp || *protocol == Protocol::Tcp).collect();
    let new = ways
        .iter()
        .copied()
        .map(|(protocol, address)| stage.outside.caller().pace(PACE).hammer(protocol, address, PORT));
    let new: Vec<_> = new.collect();
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        let mut held = Vec::new();
        for turn in 0..TURNS {
            // Of the first turns connections are held, by the kernel and by the gateway.
            for (protocol, address) in ways.iter().copied().filter(|_| turn < 4) {
                let connection = stage.outside.connect(protocol, address, PORT).expect("a connection");
                let (is_over, asked) = (&is_over, &asked);
                held.push(scope.spawn(move || hold(connection, is_over, asked)));
            }
            if turn % 2 == 0 {
                stage.route(&[("one", 1), ("two", 1)]);
                stage.until_served_by(&["one", "two"]);
            } else {
                stage.route(&[("one", 1)]);
                stage.until_served_by(&["one"]);
                stage.until_direct();
            }
        }
        let before = asked.load(Relaxed);
        eventually("connections go on", || asked.load(Relaxed) > before + held.len());
        drop(over);
        for client in held {
            assert!(client.join().expect("no connection was closed") > 1);
        }
    });
    for clients in new {
        let tally = clients.stop().all_answered();
        assert!(tally.of("one") > 0 && tally.of("two") > 0, "{tally:?}");
    }
}
