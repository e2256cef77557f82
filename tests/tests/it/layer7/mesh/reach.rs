//! Only clients of the node reach a listener, and only cluster IPs lead to it.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use testbed::net::{Family, Node, eventually};

use super::super::stage::TARGET;
use super::stage::{Mesh, PORT, Spoken, marked};

const NODE_PORT: u16 = 30_080;

/// The TCP sockets of a node that accept connections.
fn listening(node: &Node) -> BTreeSet<SocketAddr> {
    let printed = node.run("ss --tcp --listening --numeric --no-header").success();
    // State, two queues, the local address.
    let address = |line: &str| line.split_whitespace().nth(3).map(|text| text.replace('*', "[::]"));
    printed
        .lines()
        .filter_map(address)
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{text} in\n{printed}")))
        .collect()
}

#[test]
fn s54_node_ports_and_pods_stay_at_layer_4() {
    let mesh = Mesh::new();
    mesh.service("web", |service| service.node_port(NODE_PORT));
    let pod = mesh.backend("web", Spoken::Http1);
    mesh.endpoints("web", std::slice::from_ref(&pod));
    let client = mesh.client("client", "default");
    mesh.route("default", "web", "web", &marked("producer", "web"));
    let _ = mesh.until("the route is in force", &client, "web", |page| page.header("x-route") == Some("producer"));
    let node = &mesh.stage.node;
    for family in Family::BOTH {
        let page = mesh.stage.outside.page(node.address(family), NODE_PORT, "/").expect("a response");
        assert_eq!(
            (page.code, page.header("x-pod"), page.header("x-route")),
            (200, Some("web"), None),
            "the node port"
        );
        let page = client.page(pod.address(family), TARGET, "/").expect("a response");
        assert_eq!((page.code, page.header("x-route")), (200, None), "the address of the Pod");
        let page = node.page(mesh.address("web", family).ip(), PORT, "/").expect("a response");
        assert_eq!(page.header("x-route"), Some("producer"), "programs of the node are clients");
    }
}

#[test]
fn s54_the_listener_of_a_service_refuses_clients_from_outside() {
    let mesh = Mesh::new();
    mesh.single("web");
    let client = mesh.client("client", "default");
    let node = &mesh.stage.node;
    let before = listening(node);
    mesh.route("default", "web", "web", &marked("producer", "web"));
    let _ = mesh.until("the route is in force", &client, "web", |page| page.header("x-route") == Some("producer"));
    let new: Vec<SocketAddr> = listening(node).difference(&before).copied().collect();
    assert!(!new.is_empty(), "the route has a listener: {before:?}");
    let foreign = mesh.stage.served.cluster().node("n2").pod("foreign");
    for at in new {
        for family in Family::BOTH {
            let address = if at.ip().is_unspecified() { node.address(family) } else { at.ip() };
            assert_eq!(mesh.stage.outside.page(address, at.port(), "/"), None, "{at} from outside");
            assert_eq!(foreign.page(address, at.port(), "/"), None, "{at} from a Pod of another node");
        }
    }
    mesh.remove_route("default", "web");
    eventually("the listener is closed", || listening(node).is_subset(&before));
}
