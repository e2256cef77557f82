//! For any plan: the endpoints that rules and relay offer to a packet are those of the oracle.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use kernel::conntrack::{Conntrack as _, Direction, Flow};
use kernel::nft::Family;
use kernel::nft::fake::{End, Fake, Packet as KernelPacket};
use parking_lot::Mutex;
use plan::oracle::{Outcome, RejectReason, judge};
use plan::{Backend as Endpoint, DataPlane, Loopback, Options, Plan, Planner, PortKey, Protocol, Update};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::loopback::{LoopbackPorts, WithLoopback};
use super::relay::{Relay, Settings};
use super::rootless::Rootless;
use super::{TABLE, Userspace, cleanup};
use crate::testing::{
    self, NODE_IPS, follow, history, layer7_service, node_ips, options, packets, redirects, service_spec, updates,
};
use crate::{Backend as _, SyncScope};

fn kernel() -> Fake {
    let kernel = Fake::default();
    kernel.set_local(node_ips());
    kernel
}

fn backend(kernel: &Fake) -> Userspace<Fake> {
    Userspace::new(kernel.clone(), &relay())
}

/// Fate of the first packet of a connection.
enum Fate {
    Ended(End),
    Passed,
    /// Redirected to a relay port with these endpoints.
    Relayed(BTreeSet<Endpoint>),
}

fn send(kernel: &Fake, backend: &Userspace<Fake>, packet: &KernelPacket, owner: Option<&PortKey>) -> Fate {
    let fate = kernel.evaluate(packet, &mut |_| 0);
    assert!(!fate.masqueraded && fate.mark == packet.mark, "{packet:?} {fate:?}");
    match (fate.end, fate.translated) {
        (End::Accepted, None) => Fate::Passed,
        (End::Accepted, Some((_, port))) => {
            let behind = owner.and_then(|key| backend.listeners.behind(key, port));
            let behind =
                behind.unwrap_or_else(|| panic!("{packet:?} reaches a relay port of another Service: {fate:?}"));
            Fate::Relayed(behind.iter().map(|at| Endpoint { ip: at.ip(), port: at.port() }).collect())
        }
        (end, _) => Fate::Ended(end),
    }
}

fn planner(options: Options) -> Planner {
    testing::planner(Options { data_plane: DataPlane::Userspace, ..options })
}

/// Compares rules and relay with the oracle.
fn check(kernel: &Fake, backend: &Userspace<Fake>, plan: &Plan) {
    for packet in packets(plan) {
        let number = packet.protocol.number();
        let sent =
            KernelPacket::first(packet.source, packet.destination, number, packet.port, packet.interface.as_deref());
        let verdict = judge(plan, &packet);
        let owner = if let Outcome::Forward(forward) = &verdict { Some(&forward.port) } else { None };
        let fate = send(kernel, backend, &sent, owner);
        match (&verdict, fate) {
            (Outcome::Pass, Fate::Passed)
            | (Outcome::Refuse(_), Fate::Ended(End::Rejected))
            | (Outcome::Drop(_), Fate::Ended(End::Dropped)) => {}
            // Unsupported protocols are rejected.
            (Outcome::Forward(_) | Outcome::Drop(RejectReason::NoLocalEndpoints(_)), Fate::Ended(End::Rejected))
                if packet.protocol == Protocol::Sctp => {}
            (Outcome::Forward(forward), Fate::Relayed(behind)) => {
                assert_eq!(behind, forward.backends.iter().copied().collect(), "{packet:?} {forward:?}");
            }
            (verdict, Fate::Ended(end)) => panic!("{packet:?}: {end:?} instead of {verdict:?}"),
            (verdict, Fate::Passed) => panic!("{packet:?}: passed instead of {verdict:?}"),
            (verdict, Fate::Relayed(behind)) => panic!("{packet:?}: to {behind:?} instead of {verdict:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s21_rules_and_relay_do_what_the_oracle_says(
        specs in prop::collection::vec(service_spec(), 1..4),
        local in 0..4usize,
    ) {
        let mut planner = planner(options(local, false));
        for update in specs.iter().flat_map(updates) {
            planner.update(update);
        }
        let kernel = kernel();
        let mut backend = backend(&kernel);
        backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        check(&kernel, &backend, planner.plan());
    }

    #[test]
    fn incremental_syncs_equal_a_full_resync(
        history in history(10),
    ) {
        let mut planner = planner(options(1, false));
        let kernel = kernel();
        let mut backend = backend(&kernel);
        backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        follow(&mut backend, &mut planner, history.into_iter().flatten());
        check(&kernel, &backend, planner.plan());
        let (written, ports) = (kernel.changes(), backend.listeners.keys().count());
        backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        prop_assert_eq!(kernel.changes(), written, "a correct state is not rewritten");
        prop_assert_eq!(backend.listeners.keys().count(), ports, "unused listeners were closed before");
    }
}

#[test]
fn s54_the_relay_of_a_cluster_ip_at_layer_7_leads_to_the_listener() {
    let mut planner = planner(options(1, false));
    let kernel = kernel();
    let mut backend = backend(&kernel);
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    follow(&mut backend, &mut planner, updates(&layer7_service()));
    for is_at_layer7 in [true, false, true] {
        follow(&mut backend, &mut planner, [redirects(true, is_at_layer7)]);
        let parts = planner.plan().ports.keys().filter(|key| key.redirected.is_some()).count();
        assert_eq!(parts, if is_at_layer7 { 2 } else { 0 }, "one for each family");
        check(&kernel, &backend, planner.plan());
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of ours")
}

/// A Service with one port and one endpoint.
fn served(name: &str, spec: &Value, protocol: &str, endpoint: SocketAddr) -> [Update; 2] {
    let service = json!({"metadata": {"namespace": "default", "name": name, "uid": "u"}, "spec": spec});
    let slice = json!({
        "metadata": {"namespace": "default", "name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4", "endpoints": [{"addresses": [endpoint.ip()]}],
        "ports": [{"name": "", "port": endpoint.port(), "protocol": protocol}],
    });
    [Update::Service(Box::new(read(service))), Update::Slice(read(slice))]
}

fn simple(name: &str, ip: &str, protocol: &str) -> [Update; 2] {
    let spec = json!({"clusterIP": ip, "ports": [{"port": 80, "protocol": protocol}]});
    served(name, &spec, protocol, ([10, 244, 0, 9], 8080).into())
}

fn planned(options: Options, all: impl IntoIterator<Item = [Update; 2]>) -> Planner {
    let mut planner = planner(options);
    for update in all.into_iter().flatten() {
        planner.update(update);
    }
    planner
}

fn packet(to: &str, protocol: u8, port: u16) -> KernelPacket {
    let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
    KernelPacket::first(ip("203.0.113.7"), ip(to), protocol, port, Some("eth0"))
}

#[test]
fn relay_ports_reject_direct_connections_and_close_with_the_backend() {
    let planner = planned(options(1, false), [simple("a", "10.96.0.1", "TCP")]);
    let mut kernel = kernel();
    let mut backend = backend(&kernel);
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    let to_service = packet("10.96.0.1", 6, 80);
    let port = kernel.evaluate(&to_service, &mut |_| 0).translated.expect("redirected").1;
    let connect = |port| kernel.evaluate(&packet(NODE_IPS[0], 6, port), &mut |_| 0).end;
    assert_eq!(connect(port), End::Rejected);
    assert_eq!(connect(port ^ 1), End::Accepted, "other ports are not our business");
    // Packets of the relay are not redirected again, whatever their destination.
    let own = KernelPacket { interface: None, source: NODE_IPS[0].parse().expect("an address"), ..to_service };
    assert!(kernel.evaluate(&own, &mut |_| 0).translated.is_some());
    let own = KernelPacket { mark: crate::nft::redirect::RELAY_MARK, ..own };
    assert_eq!(kernel.evaluate(&own, &mut |_| 0).translated, None);
    drop(backend);
    let fate = kernel.evaluate(&to_service, &mut |_| 0);
    assert_eq!((fate.end, fate.translated), (End::Rejected, None), "nobody else gets what is for the Service");
    assert!(cleanup(&mut kernel).expect("cleaned up"));
    assert_eq!(kernel.table(Family::Ip, TABLE), None);
    assert!(!cleanup(&mut kernel).expect("cleaned up"));
}

#[test]
fn a_failed_sync_changes_nothing_and_is_retried() {
    let mut planner = planned(options(1, false), [simple("a", "10.96.0.1", "TCP")]);
    let kernel = kernel();
    let mut backend = backend(&kernel);
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    let mut touched = plan::Touched::default();
    for update in simple("b", "10.96.0.2", "UDP") {
        touched.absorb(planner.update(update));
    }
    let [_, moved] = served("a", &json!({}), "TCP", ([10, 244, 0, 3], 8080).into());
    touched.absorb(planner.update(moved));
    let before = kernel.table(Family::Ip, TABLE);
    let behind = |backend: &Userspace<Fake>| {
        let port = kernel.evaluate(&packet("10.96.0.1", 6, 80), &mut |_| 0).translated.expect("redirected").1;
        let key = planner.plan().ports.keys().find(|key| &*key.service == "default/a").expect("planned");
        backend.listeners.behind(key, port)
    };
    let endpoints = behind(&backend);
    kernel.fail_next(kernel::Errno::NOMEM);
    let error = backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect_err("refused");
    assert!(error.message.contains("applying"), "{error}");
    assert_eq!(kernel.table(Family::Ip, TABLE), before);
    assert_eq!(behind(&backend), endpoints, "nor has the relay changed anything");
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    assert_ne!(behind(&backend), endpoints);
    check(&kernel, &backend, planner.plan());
    kernel.flush_ruleset();
    backend.sync(planner.plan(), &SyncScope::Tampered).expect("accepted");
    check(&kernel, &backend, planner.plan());
}

#[test]
fn sctp_is_reported_while_the_service_exists() {
    let mut planner = planned(options(1, false), [simple("a", "10.96.0.1", "SCTP"), simple("b", "10.96.0.2", "TCP")]);
    let mut backend = backend(&kernel());
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    let problems = backend.problems();
    assert!(
        matches!(&problems[..], [one] if &*one.service == "default/a" && one.what.contains("SCTP")),
        "{problems:?}"
    );
    let touched = planner.update(Update::ServiceGone("default/a".to_owned()));
    backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect("accepted");
    assert_eq!(backend.problems(), []);
}

#[test]
fn flows_to_relay_ports_are_not_stale_and_others_are() {
    let planner = planned(options(1, false), [simple("a", "10.96.0.1", "UDP")]);
    let kernel = kernel();
    let mut backend = backend(&kernel);
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    let port = kernel.evaluate(&packet("10.96.0.1", 17, 80), &mut |_| 0).translated.expect("redirected").1;
    let all = kernel::conntrack::fake::Fake::default();
    let flow = |answering: (IpAddr, u16)| {
        let (client, service) = (([203, 0, 113, 7].into(), 4000), ([10, 96, 0, 1].into(), 80));
        let (original, reply) = (Direction::new(client, service), Direction::new(answering, client));
        Flow { family: Family::Ip, protocol: 17, zone: 0, original, reply, translated: answering != service }
    };
    let node: IpAddr = NODE_IPS[0].parse().expect("an address");
    // Never translated; to a relay port of an earlier run; to the right relay port through an address that the Service
    // does not have.
    let elsewhere = Direction::new(([203, 0, 113, 7].into(), 4001), ([10, 96, 0, 9].into(), 80));
    let other_frontend = Flow { original: elsewhere, ..flow((node, port)) };
    let stale = [flow(([10, 96, 0, 1].into(), 80)), flow((node, port ^ 1)), other_frontend];
    stale.into_iter().chain([flow((node, port))]).for_each(|flow| all.insert(flow));
    let mut shown = backend.conntrack(all).udp_flows(Family::Ip).expect("listed");
    shown.sort_unstable();
    let mut stale = stale.to_vec();
    stale.sort_unstable();
    assert_eq!(shown, stale);
}

// === without rules ===

/// A server that sends a word to every client.
fn greeter(word: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a server");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            // The client may have closed the connection.
            let _ = client.write_all(word.as_bytes());
        }
    });
    address
}

fn greeting(from: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(from)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut heard = String::new();
    stream.read_to_string(&mut heard)?;
    Ok(heard)
}

/// A port that is free on all loopback addresses.
fn free_port() -> u16 {
    TcpListener::bind("0.0.0.0:0").and_then(|gone| gone.local_addr()).expect("a port").port()
}

fn relay() -> Relay {
    Relay::new(Settings::default())
}

#[test]
fn s21_services_on_loopback_need_no_rules() {
    let (port, node_port) = (free_port(), free_port());
    let spec = |ip: &str| json!({"type": "NodePort", "clusterIP": ip, "ports": [{"port": port, "nodePort": node_port, "protocol": "TCP"}]});
    let rootless = Options { rootless: true, ..options(0, false) };
    let mut planner = planned(rootless, [served("a", &spec("127.96.0.1"), "TCP", greeter("hello"))]);
    let mut backend = Rootless::new(relay());
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("brought");
    assert_eq!(backend.problems(), []);
    let (at, node) = (SocketAddr::from(([127, 96, 0, 1], port)), SocketAddr::from(([127, 0, 0, 1], node_port)));
    for address in [at, node] {
        assert_eq!(greeting(address).expect("served"), "hello", "{address}");
    }
    // Its addresses move to another Service in one step.
    let mut touched = planner.update(Update::ServiceGone("default/a".to_owned()));
    for update in served("b", &spec("127.96.0.1"), "TCP", greeter("good day")) {
        touched.absorb(planner.update(update));
    }
    backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect("brought");
    assert_eq!(backend.problems(), []);
    for address in [at, node] {
        assert_eq!(greeting(address).expect("served"), "good day", "{address}");
    }
    let touched = planner.update(Update::SliceGone("default/b".to_owned()));
    backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect("brought");
    assert!(greeting(at).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused));
}

#[test]
fn ports_that_need_rules_are_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let number = taken.local_addr().expect("bound").port();
    let spec = |ip: &str, node_port: u16| {
        json!({"type": "NodePort", "clusterIP": ip,
               "ports": [{"port": free_port(), "nodePort": node_port, "protocol": "TCP"}]})
    };
    let endpoint = SocketAddr::from(([127, 0, 0, 1], 9));
    let all = [
        served("outside", &spec("10.96.0.7", free_port()), "TCP", endpoint),
        served("taken", &spec("127.96.0.2", number), "TCP", endpoint),
        served(
            "sctp",
            &json!({"clusterIP": "127.96.0.3", "ports": [{"port": 9, "protocol": "SCTP"}]}),
            "SCTP",
            endpoint,
        ),
    ];
    let planner = planned(Options { rootless: true, ..options(0, false) }, all);
    let mut backend = Rootless::new(relay());
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("brought");
    let problems = backend.problems();
    let of = |service: &str| -> Vec<&str> {
        let ours = problems.iter().filter(|problem| &*problem.service == service);
        ours.map(|problem| &*problem.what).collect()
    };
    assert!(matches!(of("default/outside")[..], [what] if what.contains("--service-cluster-ip-range")), "{problems:?}");
    assert!(matches!(of("default/taken")[..], [what] if what.contains("another program")), "{problems:?}");
    assert!(matches!(of("default/sctp")[..], [what] if what.contains("SCTP")), "{problems:?}");
    assert_eq!(problems.len(), 3);
    // A freed address is opened at the next change.
    drop(taken);
    backend.sync(planner.plan(), &SyncScope::Changed(plan::Touched::default())).expect("brought");
    assert_eq!(backend.problems().len(), 2);
}

#[test]
fn node_ports_on_loopback_are_served_in_any_mode() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a server");
    let (node_port, udp_node_port) = (free_port(), free_port());
    let spec = |ip: &str, node_port: u16, protocol: &str| {
        json!({"type": "NodePort", "clusterIP": ip, "externalTrafficPolicy": "Local",
               "ports": [{"port": 80, "nodePort": node_port, "protocol": protocol}]})
    };
    let loopback = Options { loopback: Loopback::named(&["localhost"]), rootless: true, ..options(0, false) };
    let planner = planned(
        loopback,
        [
            served("tcp", &spec("10.96.0.1", node_port, "TCP"), "TCP", greeter("hello")),
            served("udp", &spec("10.96.0.2", udp_node_port, "UDP"), "UDP", udp.local_addr().expect("bound")),
        ],
    );
    let kernel = kernel();
    let ports = Arc::new(Mutex::new(LoopbackPorts::new(relay())));
    let mut backend = WithLoopback::new(Box::new(backend(&kernel)), ports);
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("brought");
    assert_eq!((backend.mode(), backend.problems()), ("userspace", Vec::new()));
    assert_eq!(greeting(([127, 0, 0, 1], node_port).into()).expect("served"), "hello");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a client");
    client.connect(("127.0.0.1", udp_node_port)).expect("connected");
    for socket in [&client, &udp] {
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    }
    client.send(b"hello").expect("sent");
    let mut buffer = [0; 16];
    let (length, from) = udp.recv_from(&mut buffer).expect("heard");
    udp.send_to(&buffer[..length], from).expect("answered");
    assert_eq!(client.recv(&mut buffer).expect("heard"), 5);
}
