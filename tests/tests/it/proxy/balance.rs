//! Which endpoint a connection gets: any, as likely as the others; and where ports lead.

use std::collections::BTreeMap;

use testbed::net::objects::{service, slice};
use testbed::net::{Family, Pod, Protocol, Tally};

use super::stage::{Frontend, PORT, Stage, TARGET, cluster_ip};

/// For so many endpoints: what the sum of squares exceeds once in a million runs.
const CRITICAL: [(usize, f64); 5] = [(1, 0.0), (2, 23.93), (3, 27.63), (7, 38.26), (20, 63.68)];
/// Connections per endpoint.
const EACH: usize = 20;

/// How far from even a tally is: Pearson's sum.
fn unevenness(tally: &Tally, servers: &[Pod]) -> f64 {
    let expected = tally.asked as f64 / servers.len() as f64;
    servers.iter().map(|server| (tally.of(server.name()) as f64 - expected).powi(2) / expected).sum()
}

#[test]
fn s24_every_endpoint_is_as_likely_as_the_others() {
    let stage = Stage::new();
    if !stage.served.mode().is_random {
        return;
    }
    let all: Vec<Pod> = (0..20).map(|i| stage.near.pod(&format!("web-{i}"))).collect();
    let client = stage.near.pod("pod");
    all.iter().for_each(|server| server.echo_on(&[Protocol::Tcp, Protocol::Udp], TARGET));
    stage.served.put(&stage.published("web", 1).json());
    for (count, critical) in CRITICAL {
        let servers = &all[..count];
        stage.endpoints("web", |slice| servers.iter().fold(slice, testbed::net::objects::Slice::endpoint));
        stage.served.settle();
        let ways = [
            (&*client, Frontend::ClusterIp, Protocol::Tcp, Family::V4),
            (&*client, Frontend::ClusterIp, Protocol::Udp, Family::V6),
            (&*stage.outside, Frontend::NodePort, Protocol::Tcp, Family::V4),
            (&*stage.outside, Frontend::LoadBalancer, Protocol::Udp, Family::V6),
        ];
        for (client, frontend, protocol, family) in ways {
            let (address, port) = frontend.at(1, family, &stage.near);
            let tally = client.ask_many(count * EACH, protocol, address, port).all_answered();
            let got = unevenness(&tally, servers);
            assert!(
                got <= critical,
                "{count} endpoints, {frontend:?} {protocol:?} {family:?}: {got} of {:?}",
                tally.answers
            );
            assert_eq!(tally.names().len(), count, "nobody else answers: {:?}", tally.answers);
        }
    }
}

#[test]
fn s05_ports_of_one_name_may_have_another_number_on_every_endpoint() {
    let stage = Stage::new();
    let (old, new, client) = (stage.near.pod("old"), stage.far.pod("new"), stage.near.pod("pod"));
    old.echo_on(&[Protocol::Tcp], 8080);
    old.echo_on(&[Protocol::Tcp], 9090);
    new.echo_on(&[Protocol::Tcp], 8081);
    new.echo_on(&[Protocol::Tcp], 9091);
    let web = service("web").cluster_ip(cluster_ip(1, Family::V4));
    let web = web.port(80).named("http").target("http").port(81).named("admin").target("admin");
    stage.served.put(&web.json());
    let of = |suffix: &str, pod: &Pod, http: u16, admin: u16| {
        slice("web").suffix(suffix).port(http).named("http").port(admin).named("admin").endpoint(pod).json()
    };
    stage.served.put(&of("a", &old, 8080, 9090));
    stage.served.put(&of("b", &new, 8081, 9091));
    stage.served.settle();
    for (port, numbers) in [(80, [("new", 8081), ("old", 8080)]), (81, [("new", 9091), ("old", 9090)])] {
        let mut seen = BTreeMap::new();
        for _ in 0..50 {
            let answer = client.ask(Protocol::Tcp, cluster_ip(1, Family::V4), port).expect("an answer");
            seen.insert(answer.name, answer.server.port());
        }
        let wanted = numbers.map(|(name, number)| (name.to_owned(), number)).into();
        assert_eq!(seen, wanted, "port {port}");
    }
}

#[test]
fn s40_one_number_serves_tcp_and_udp_and_leads_each_to_its_own() {
    let stage = Stage::new();
    let web = stage.near.pod("web");
    web.echo_on(&[Protocol::Tcp], 8080);
    web.echo_on(&[Protocol::Udp], 5353);
    let both = service("web").cluster_ip(cluster_ip(1, Family::V4)).cluster_ip(cluster_ip(1, Family::V6));
    let both = both.port(PORT).named("web").target(8080).node_port(30_050);
    let both = both.port(PORT).named("dns").protocol(Protocol::Udp).target(5353).node_port(30_050);
    stage.served.put(&both.json());
    for family in Family::BOTH {
        let slice = slice("web").family(family).port(8080).named("web").port(5353).named("dns").protocol(Protocol::Udp);
        stage.served.put(&slice.endpoint(&web).json());
    }
    stage.served.settle();
    for family in Family::BOTH {
        let node = stage.near.address(family);
        for (protocol, target) in [(Protocol::Tcp, 8080), (Protocol::Udp, 5353)] {
            let answer = stage.outside.ask(protocol, node, 30_050).expect("an answer");
            assert_eq!(answer.server.port(), target, "{protocol:?} {family:?}");
        }
        assert!(stage.outside.ask(Protocol::Sctp, node, 30_050).is_err(), "nobody serves that");
    }
}

#[test]
fn s39_a_service_changes_its_type_in_both_directions() {
    let stage = Stage::new();
    let (web, pod) = (stage.near.pod("web"), stage.near.pod("pod"));
    web.echo(TARGET);
    stage.endpoints("web", |slice| slice.endpoint(&web));
    let answers = |frontend: Frontend| {
        let (address, port) = frontend.at(1, Family::V4, &stage.near);
        let clients = [&*pod, &*stage.outside];
        clients.map(|client| client.ask(Protocol::Tcp, address, port).map_err(|failure| failure.kind).is_ok())
    };
    for _ in 0..2 {
        stage.served.put(&stage.internal("web", 1).json());
        stage.served.settle();
        assert_eq!(Frontend::ALL.map(answers), [[true; 2], [false; 2], [false; 2], [false; 2]]);
        stage.served.put(&stage.published("web", 1).json());
        stage.served.settle();
        assert_eq!(Frontend::ALL.map(answers), [[true; 2]; 4]);
    }
}
