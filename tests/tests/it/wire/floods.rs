//! Clients that only hold connections open do not lock out others.

use testbed::net::Cluster;
use testbed::session::SERVICES;
use testbed::wire::Wire;
use testbed::{Home, Server};

/// How many connections one address may have here.
const EACH: &str = "150";

#[test]
fn b06_two_thousand_idle_connections_of_one_address_keep_no_other_out() {
    let cluster = Cluster::new();
    let (host, attacker, client) = (cluster.node("api"), cluster.outside("attacker"), cluster.outside("client"));
    let listen = format!("{}:6443", host.v4());
    let home = Home::Own(testbed::folder());
    let arguments = ["--listen", &listen, "--max-connections", "400", "--max-connections-per-address", EACH];
    let server = host.in_namespace(|| Server::start_with(home, &arguments));

    // Each of them completes its handshake, if it is accepted, and then sends no request.
    let open = || Wire::open(&server, None, rustls::ALL_VERSIONS).ok();
    let held: Vec<Wire> = attacker.in_namespace(|| (0..2000).filter_map(|_| open()).collect());
    let answer = client.in_namespace(|| Wire::admin(&server).ask("GET", SERVICES, &[], b"").success());
    assert_eq!(answer["kind"], "ServiceList");
    // Connections without a request end after 30 seconds and make room, so that a slow machine may count some of them twice.
    assert!((150..1000).contains(&held.len()), "{} were let in", held.len());

    let metrics = client.in_namespace(|| Wire::admin(&server).ask("GET", "/metrics", &[], b"").text());
    let refused = format!("waypost_apiserver_connections_refused_total{{reason=\"source\"}} {}\n", 2000 - held.len());
    assert!(metrics.contains(&refused), "{refused} is not in {metrics}");
    // They come to their end without the client doing anything.
    let mut held = held;
    assert!(held.last_mut().expect("one").closed(), "an idle connection is closed");
}
