//! A virtual IP made by hand with `nft`: what every proxy mode relies on works here for every protocol, with no help from
//! `bridge-nf-call-iptables`.

use testbed::net::{Cluster, Family, Node, Pod};

use super::every_way;

/// One virtual IP per family, port 80 for every protocol, to port 8080 of this pod.
fn virtual_ip(node: &Node, pod: &Pod, hairpin: bool) {
    let masquerade = if hairpin { "chain post { type nat hook postrouting priority 100; masquerade; }" } else { "" };
    let rule = |family: &str, address: &str, to: String| {
        format!("{family} daddr {address} meta l4proto {{ tcp, udp, sctp }} th dport 80 dnat {family} to {to}")
    };
    let v4 = rule("ip", "10.96.0.10", format!("{}:8080", pod.v4()));
    let v6 = rule("ip6", "fd00:10:96::10", format!("[{}]:8080", pod.v6()));
    let chain = |hook: &str| format!("chain {hook} {{ type nat hook {hook} priority -100; {v4}; {v6}; }}");
    node.nft(&format!("table inet t {{\n{}\n{}\n{masquerade}\n}}", chain("prerouting"), chain("output")));
}

const fn address(family: Family) -> &'static str {
    match family {
        Family::V4 => "10.96.0.10",
        Family::V6 => "fd00:10:96::10",
    }
}

#[test]
fn a_neighbour_behind_a_virtual_ip_answers_through_the_node() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let (server, client) = (node.pod("web-1"), node.pod("client"));
    let outside = cluster.outside("outside");
    server.echo(8080);
    virtual_ip(&node, &server, false);
    outside.route("10.96.0.0/16", &node);
    outside.route("fd00:10:96::/112", &node);
    for (protocol, family) in every_way() {
        let answer = client.ask(protocol, address(family), 80).expect("an answer");
        assert_eq!((answer.name.as_str(), answer.client.ip()), ("web-1", client.address(family)), "{protocol:?}");
        let answer = outside.ask(protocol, address(family), 80).expect("an answer");
        assert_eq!((answer.name.as_str(), answer.client.ip()), ("web-1", outside.address(family)), "{protocol:?}");
        let answer = node.ask(protocol, address(family), 80).expect("an answer");
        assert_eq!((answer.name.as_str(), answer.server.ip()), ("web-1", server.address(family)), "{protocol:?}");
    }
    assert!(node.ruleset().contains("dnat ip to 10.244.1.2:8080"), "{}", node.ruleset());
    for protocol in ["tcp", "udp", "sctp"] {
        let client = format!("src={}", client.v4());
        assert_eq!(node.conntrack_count(&["ipv4", protocol, "dport=80", &client]), 1, "{:#?}", node.conntrack());
    }
    assert!(node.conntrack_count(&["ipv6", "tcp", "dport=80"]) > 0, "{:#?}", node.conntrack());
}

#[test]
fn a_pod_reaches_itself_through_its_virtual_ip() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let pod = node.pod("web-1");
    pod.echo(8080);
    virtual_ip(&node, &pod, true);
    for (protocol, family) in every_way() {
        let answer = pod.ask(protocol, address(family), 80).expect("an answer");
        assert_eq!(answer.name, "web-1", "{protocol:?} {family:?}");
        assert_ne!(answer.client.ip(), pod.address(family), "the node stands between: {protocol:?} {family:?}");
    }
}
