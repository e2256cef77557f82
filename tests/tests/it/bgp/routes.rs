//! Routes come into the router's table and leave it, as Services, endpoints and nodes do; packets follow them.

use serde_json::json;
use testbed::net::objects::service;
use testbed::net::{Family, Protocol, eventually};

use super::router::{NODES, RouterConfig};
use super::scene::{PEERS, PORT, Scene, V4, V6};

#[test]
fn s43_routes_appear_at_the_router_carry_packets_and_vanish() {
    let scene = Scene::with_sessions(&["n1"], &json!({}));
    let pod = scene.backend(0, "web-1");
    assert_eq!(scene.router.ways(V4), [""; 0], "nothing is announced yet");
    scene.web(|web| web, &[&pod]);
    for (family, address) in [(Family::V4, V4), (Family::V6, V6)] {
        scene.router.wait_for_ways(address, &["n1"]);
        let details = scene.router.details(address);
        let hop = format!("via {} on eth0", scene.nodes[0].address(family));
        for part in [hop.as_str(), "BGP.as_path: 64512", "BGP.community: (64512,100) (65535,65281)", "BGP.origin: IGP"]
        {
            assert!(details.contains(part), "{part}: {details}");
        }
        eventually("the router's kernel forwards", || scene.ask(address).as_deref() == Some("web-1"));
    }
    scene.wait_for_event("SessionUp", "node n1");

    // An address that is in no pool is not announced, whatever the status of a Service contains.
    let foreign = service("foreign").cluster_ip("10.96.0.51").port(PORT).load_balancer("203.0.113.99");
    scene.served.put(&foreign.json());
    scene.served.remove(&service("web").json());
    scene.router.wait_for_ways(V4, &[]);
    scene.router.wait_for_ways(V6, &[]);
    assert_eq!(scene.router.ways("203.0.113.99"), [""; 0]);
    assert!(scene.router.is_established(&scene.nodes[0]), "routes go, the session stays");
}

#[test]
fn s43_every_node_is_a_way_and_the_router_uses_all_of_them() {
    let scene = Scene::with_sessions(&["n1", "n2"], &json!({}));
    let (one, two) = (scene.backend(0, "web-1"), scene.backend(1, "web-2"));
    // With the policy Local each node serves its own pods alone: the responding pod shows the path.
    scene.web(|web| web.policy_local().health_port(30_080), &[&one, &two]);
    for address in [V4, V6] {
        scene.router.wait_for_ways(address, &["n1", "n2"]);
        for name in ["web-1", "web-2"] {
            eventually("both ways are used", || scene.ask(address).as_deref() == Some(name));
        }
    }
    // A node without a local endpoint is no next hop any more.
    scene.endpoints("web", &[&two]);
    scene.router.wait_for_ways(V4, &["n2"]);
    scene.router.wait_for_ways(V6, &["n2"]);
    eventually("only n2 answers", || scene.ask(V4).as_deref() == Some("web-2"));
    let tally = scene.client.ask_many(20, Protocol::Tcp, V4, PORT);
    assert_eq!(tally.failures.len(), 0, "{tally:?}");
    // Without endpoints, no node announces; with the policy Cluster all do: a refusal is clearer than a
    // timeout.
    scene.endpoints("web", &[]);
    scene.router.wait_for_ways(V4, &[]);
    scene.web(|web| web, &[]);
    scene.router.wait_for_ways(V4, &["n1", "n2"]);
}

#[test]
fn a_node_that_is_excluded_or_not_ready_withdraws_its_routes() {
    let scene = Scene::with_sessions(&["n1", "n2"], &json!({}));
    let pod = scene.backend(1, "web-2");
    scene.web(|web| web, &[&pod]);
    scene.router.wait_for_ways(V4, &["n1", "n2"]);
    let labels =
        |value| json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": value}}});
    scene.change("/api/v1/nodes/n1", &labels(json!("true")));
    scene.router.wait_for_ways(V4, &["n2"]);
    scene.change("/api/v1/nodes/n1", &labels(json!(null)));
    scene.router.wait_for_ways(V4, &["n1", "n2"]);
    let ready = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    scene.change("/api/v1/nodes/n2/status", &ready("False"));
    scene.router.wait_for_ways(V4, &["n1"]);
    scene.change("/api/v1/nodes/n2/status", &ready("True"));
    scene.router.wait_for_ways(V4, &["n1", "n2"]);
}

#[test]
fn classes_and_pools_say_what_is_announced_by_bgp() {
    let scene = Scene::with_sessions(&["n1"], &json!({}));
    let with = |name: &str, last: u8, class: Option<&str>| {
        let plain = service(name).cluster_ip(format!("10.96.0.{}", 60 + last)).port(PORT);
        let plain = plain.load_balancer(format!("203.0.113.{last}"));
        scene.served.put(&class.into_iter().fold(plain, |plain, class| plain.spec("loadBalancerClass", class)).json());
    };
    with("neighbours", 1, Some("waypost.dev/l2"));
    with("foreign", 2, Some("example.com/other"));
    with("routers", 3, Some("waypost.dev/bgp"));
    with("any", 4, None);
    scene.router.wait_for_ways("203.0.113.4", &["n1"]);
    scene.router.wait_for_ways("203.0.113.3", &["n1"]);
    for address in ["203.0.113.1", "203.0.113.2"] {
        assert_eq!(scene.router.ways(address), [""; 0], "{address}");
    }
    let pool = "/apis/waypost.dev/v1/ippools/office";
    scene.change(pool, &json!({"spec": {"announce": ["l2"]}}));
    scene.router.wait_for_ways("203.0.113.4", &[]);
    assert_eq!(scene.router.ways("203.0.113.3"), ["n1"], "its class says so itself");
    scene.delete(pool);
    scene.router.wait_for_ways("203.0.113.3", &[]);
}

#[test]
fn a_router_of_the_same_system_and_over_ipv6_hears_of_both_families() {
    let scene = Scene::new(&["n1"]);
    scene.run_router(&RouterConfig { internal: true, over_v6: true, ..RouterConfig::default() });
    let at = scene.router.host.v6().to_string();
    scene.peer(&json!({"peerASN": NODES, "peerAddress": at, "localPref": 250}));
    scene.wait_for_sessions();
    let pod = scene.backend(0, "web-1");
    scene.web(|web| web, &[&pod]);
    for address in [V4, V6] {
        scene.router.wait_for_ways(address, &["n1"]);
        let details = scene.router.details(address);
        assert!(details.contains("BGP.local_pref: 250") && !details.contains("BGP.as_path: 6"), "{details}");
        eventually("packets follow", || scene.ask(address).as_deref() == Some("web-1"));
    }
}

#[test]
fn a_selector_says_which_nodes_speak() {
    let scene = Scene::new(&["n1", "n2"]);
    scene.run_router(&RouterConfig::default());
    scene.peer(&json!({"nodeSelector": {"matchLabels": {"rack": "a"}}}));
    scene.web(|web| web, &[]);
    let label = |value| json!({"metadata": {"labels": {"rack": value}}});
    scene.change("/api/v1/nodes/n2", &label(json!("a")));
    scene.router.wait_for_ways(V4, &["n2"]);
    assert!(!scene.router.is_established(&scene.nodes[0]));
    scene.change(&format!("{PEERS}/rack"), &json!({"spec": {"nodeSelector": null}}));
    scene.router.wait_for_ways(V4, &["n1", "n2"]);
    scene.change(&format!("{PEERS}/rack"), &json!({"spec": {"communities": ["64512:7"]}}));
    eventually("the new community", || scene.router.details(V4).contains("BGP.community: (64512,7)"));
}
