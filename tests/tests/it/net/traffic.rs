//! Which destinations are reachable, which source address the servers see, and the errors when there is no response.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use testbed::net::Protocol::{Sctp, Tcp, Udp};
use testbed::net::{Cluster, Family, Kind, Protocol};

use super::{TIMEOUT, every_way};

/// How soon a refusal must be known, whatever else this machine does.
const AT_ONCE: Duration = Duration::from_millis(200);
/// How long silence is waited for where it is expected.
const SILENCE: Duration = Duration::from_secs(3);

#[test]
fn pods_reach_pods_on_every_node_and_are_seen_as_they_are() {
    let cluster = Cluster::new();
    let (here, there) = (cluster.node("n1"), cluster.node("n2"));
    let client = here.pod("client");
    let servers = [here.pod("near"), there.pod("far")];
    for server in &servers {
        server.echo(8080);
    }
    for (protocol, family) in every_way() {
        for server in &servers {
            let answer = client.ask(protocol, server.address(family), 8080).expect("an answer");
            assert_eq!(answer.name, server.name(), "{protocol:?} {family:?}");
            assert_eq!(answer.client.ip(), client.address(family), "{protocol:?} {family:?}");
            assert_eq!((answer.server.ip(), answer.server.port()), (server.address(family), 8080));
        }
        let own = servers[0].ask(protocol, servers[0].address(family), 8080).expect("an answer from itself");
        assert_eq!(own.name, "near");
    }
}

#[test]
fn the_outside_reaches_nodes_and_what_it_has_routes_for() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let pod = node.pod("web-1");
    let outside = cluster.outside("client");
    node.echo(9000);
    pod.echo(8080);
    for (protocol, family) in every_way() {
        let answer = outside.ask(protocol, node.address(family), 9000).expect("an answer");
        assert_eq!((answer.name.as_str(), answer.client.ip()), ("n1", outside.address(family)));
        let unknown = outside.ask(protocol, pod.address(family), 8080).expect_err("there is no route");
        assert_eq!(unknown.kind, Kind::Unreachable, "{protocol:?} {family:?}: {unknown}");
        let out = pod.ask(protocol, node.address(family), 9000).expect("a pod reaches its node");
        assert_eq!(out.client.ip(), pod.address(family));
    }
    for range in node.pod_cidrs() {
        outside.route(&range, &node);
    }
    for (protocol, family) in every_way() {
        let answer = outside.ask(protocol, pod.address(family), 8080).expect("an answer");
        assert_eq!((answer.name.as_str(), answer.client.ip()), ("web-1", outside.address(family)));
    }
}

// TCP is refused by a reset. An ICMP error arrives while the sender is still inside `connect`, for between namespaces a
// packet and its response travel in one system call, and Linux handles it only at the next SYN, a second later.
#[test]
fn a_refusal_is_told_from_silence() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let pod = node.pod("web-1");
    let outside = cluster.outside("client");
    pod.echo(8080);
    node.nft(
        "table inet t { chain c { type filter hook input priority 0;
           meta l4proto { tcp, udp, sctp } th dport 1 drop
           tcp dport 2 reject with tcp reset
           meta l4proto { udp, sctp } th dport 2 reject
           meta l4proto { tcp, udp, sctp } th dport 3 reject with icmpx host-unreachable
         }\n}",
    );
    let timeout = Duration::from_millis(300);
    let short = outside.caller().timeout(timeout);
    for (protocol, family) in every_way() {
        let dropped = short.ask(protocol, node.address(family), 1).expect_err("dropped");
        assert_eq!(dropped.kind, Kind::TimedOut, "{protocol:?} {family:?}: {dropped}");
        assert!(dropped.took >= timeout, "{dropped}");
        let refused = outside.ask(protocol, node.address(family), 2).expect_err("rejected");
        assert_eq!(refused.kind, Kind::Refused, "{protocol:?} {family:?}: {refused}");
        let unreachable = outside.ask(protocol, node.address(family), 3).expect_err("unreachable");
        assert_eq!(unreachable.kind, Kind::Unreachable, "{protocol:?} {family:?}: {unreachable}");
        let nobody = node.ask(protocol, pod.address(family), 8081).expect_err("nobody serves there");
        assert_eq!(nobody.kind, Kind::Refused, "{protocol:?} {family:?}: {nobody}");
        // The quickest of a few: one may have had to wait for the machine.
        let again = outside.ask_many(20, protocol, node.address(family), 2);
        let quickest = again.failures.iter().map(|failure| failure.took).min().expect("failures");
        assert!(again.failures.iter().all(|failure| failure.kind == Kind::Refused), "{again:?}");
        assert!(again.failures.len() == 20 && quickest < AT_ONCE, "{again:?}");
    }
}

#[test]
fn local_rules_refuse_and_drop_as_remote_ones_do() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let pod = node.pod("web-1");
    node.nft(
        "table inet t { chain c { type filter hook output priority 0;
           meta l4proto { tcp, udp, sctp } th dport 1 drop
           tcp dport 2 reject with tcp reset
           meta l4proto { udp, sctp } th dport 2 reject
         }\n}",
    );
    let short = node.caller().timeout(Duration::from_millis(300));
    for (protocol, family) in every_way() {
        let dropped = short.ask(protocol, pod.address(family), 1).expect_err("dropped");
        assert_eq!(dropped.kind, Kind::TimedOut, "{protocol:?} {family:?}: {dropped}");
        let refused = node.ask(protocol, pod.address(family), 2).expect_err("rejected");
        assert_eq!(refused.kind, Kind::Refused, "{protocol:?} {family:?}: {refused}");
    }
}

#[test]
fn long_connections_answer_until_their_server_ends() {
    let cluster = Cluster::new();
    let pod = cluster.node("n1").pod("web-1");
    let client = cluster.node("n2").pod("client");
    for (protocol, family) in every_way() {
        pod.echo(8080);
        let mut connection = client.connect(protocol, pod.address(family), 8080).expect("a connection");
        let first = connection.ask().expect("an answer");
        assert_eq!(first.client, connection.local());
        assert_eq!(connection.ask().expect("a second answer").client, first.client);
        pod.silence(8080);
        let ended = connection.ask().expect_err("the server has ended");
        assert!(matches!(ended.kind, Kind::Closed | Kind::Reset | Kind::Refused), "{protocol:?} {family:?}: {ended}");
        let refused = client.ask(protocol, pod.address(family), 8080).expect_err("nobody is there");
        assert_eq!(refused.kind, Kind::Refused, "{protocol:?} {family:?}: {refused}");
    }
}

#[test]
fn callers_speak_from_where_they_are_told() {
    let cluster = Cluster::new();
    let server = cluster.outside("server");
    let client = cluster.outside("client");
    server.echo(80);
    client.ip("addr add 192.0.2.200/24 dev eth0\naddr add 2001:db8::200/64 dev eth0 nodad\n");
    for (protocol, family) in every_way() {
        let source: IpAddr = if family == Family::V4 { "192.0.2.200" } else { "2001:db8::200" }.parse().expect("one");
        let caller = client.caller().source(source).source_port(4321);
        // Twice: hanging up frees the port.
        for _ in 0..2 {
            let answer = caller.ask(protocol, server.address(family), 80).expect("an answer");
            assert_eq!((answer.client.ip(), answer.client.port()), (source, 4321), "{protocol:?} {family:?}");
        }
    }
}

#[test]
fn a_hammer_sees_every_failure_and_its_time() {
    let cluster = Cluster::new();
    let pod = cluster.node("n1").pod("web-1");
    let client = cluster.outside("client");
    client.route("10.244.1.0/24", &cluster.node("n1"));
    for protocol in Protocol::ALL {
        pod.echo(8080);
        let hammer = client.caller().timeout(SILENCE).hammer(protocol, pod.v4(), 8080);
        assert!(hammer.wait_until(TIMEOUT, |tally| tally.of("web-1") >= 100), "{:?}", hammer.so_far());
        assert!(hammer.so_far().failures.is_empty(), "{:?}", hammer.so_far());
        pod.silence(8080);
        assert!(hammer.wait_until(TIMEOUT, |tally| !tally.failures.is_empty()), "{:?}", hammer.so_far());
        pod.echo(8080);
        let answered = hammer.so_far().of("web-1");
        assert!(hammer.wait_until(TIMEOUT, |tally| tally.of("web-1") > answered), "{:?}", hammer.so_far());
        let tally = hammer.stop();
        assert_eq!(tally.asked, tally.of("web-1") + tally.failures.len());
        assert!(tally.failures.iter().all(|failure| failure.kind != Kind::Other), "{tally:?}");
        assert!(tally.failures.is_sorted_by_key(|failure| failure.at), "{tally:?}");
        assert_eq!(tally.clients.into_iter().collect::<Vec<_>>(), [client.address(Family::V4)]);
        pod.silence(8080);
    }
}

#[test]
fn many_questions_do_not_run_out_of_ports() {
    let cluster = Cluster::new();
    let server = cluster.outside("server");
    let client = cluster.outside("client");
    server.echo(80);
    client.sysctl("net/ipv4/ip_local_port_range", "40000 40099");
    for protocol in [Tcp, Udp] {
        let tally = client.ask_many(500, protocol, server.v4(), 80).all_answered();
        assert_eq!((tally.of("server"), tally.names()), (500, vec!["server"]));
    }
    let tally = client.ask_many(100, Sctp, server.v6(), 80).all_answered();
    assert_eq!(tally.of("server"), 100);
}

#[test]
fn a_deleted_pod_is_gone_at_once() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let pod = node.pod("web-1");
    pod.echo(8080);
    assert_eq!(node.ask(Tcp, pod.v4(), 8080).expect("an answer").name, "web-1");
    pod.delete();
    assert!(!node.run("ip -o link").success().contains("web-1"));
    let short = node.caller().timeout(Duration::from_millis(200));
    let gone = short.ask(Tcp, pod.v4(), 8080).expect_err("nobody is there");
    assert!(matches!(gone.kind, Kind::TimedOut | Kind::Unreachable), "{gone}");
    let next = node.pod("web-1");
    assert_ne!(next.v4(), pod.v4(), "an address is not given twice");
}

#[test]
fn a_cluster_is_built_quickly() {
    let begun = Instant::now();
    let cluster = Cluster::new();
    let mut pods = Vec::new();
    for node in ["n1", "n2", "n3"].map(|name| cluster.node(name)) {
        pods.extend(["a", "b", "c"].map(|name| node.pod(&format!("{}-{name}", node.name()))));
    }
    let built = begun.elapsed();
    pods.iter().for_each(|pod| pod.echo(8080));
    let serving = begun.elapsed();
    let answer = pods[0].ask(Udp, pods[8].v6(), 8080).expect("an answer");
    assert_eq!(answer.name, "n3-c");
    drop((pods, cluster));
    eprintln!("3 nodes and 9 pods: built after {built:?}, serving after {serving:?}, gone after {:?}", begun.elapsed());
}
