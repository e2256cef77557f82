//! A Service with two endpoints responds at its cluster IP to all clients.

use testbed::net::Protocol::Tcp;
use testbed::net::{Served, objects};

#[test]
fn s18_a_cluster_ip_leads_to_its_endpoints() {
    let served = Served::with_nodes(&["n1", "n2"]);
    let (near, far) = (served.cluster().node("n1"), served.cluster().node("n2"));
    let servers = [near.pod("web-1"), far.pod("web-2")];
    let client = near.pod("client");
    let mut slice = objects::slice("web").port(8080);
    for server in &servers {
        server.echo(8080);
        slice = slice.endpoint(server);
    }
    served.put(&objects::service("web").cluster_ip("10.96.0.10").port(80).target(8080).json());
    served.put(&slice.json());
    served.settle();
    let tally = client.ask_many(100, Tcp, "10.96.0.10", 80).all_answered();
    assert_eq!(tally.names(), ["web-1", "web-2"]);
    let sees_client = tally.clients.into_iter().collect::<Vec<_>>() == [std::net::IpAddr::from(client.v4())];
    assert_eq!(sees_client, served.mode().keeps_source);
}
