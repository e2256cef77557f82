//! Sessions that end: router down, link down, too many routes, or the peer is deleted.

use serde_json::json;
use testbed::net::eventually;

use super::router::RouterConfig;
use super::scene::{PEERS, Scene, V4};

#[test]
fn a_router_that_goes_and_comes_back_has_the_routes_again() {
    let scene = Scene::with_sessions(&["n1"], &json!({}));
    scene.web(|web| web, &[]);
    scene.router.wait_for_ways(V4, &["n1"]);
    scene.router.kill();
    scene.wait_for_event("SessionDown", "there is no session");
    scene.wait_for_event("SessionDown", "the connection was refused");
    scene.run_router(&RouterConfig::default());
    scene.router.wait_for_ways(V4, &["n1"]);
}

#[test]
fn a_cut_wire_is_noticed_by_the_hold_timer_and_healed() {
    let scene = Scene::with_sessions(&["n1"], &json!({"holdTimeSeconds": 3}));
    scene.web(|web| web, &[]);
    scene.router.wait_for_ways(V4, &["n1"]);
    // Packets are lost without an error, as when a remote link is cut.
    scene.router.host.nft(
        "table inet cut {
            chain heard { type filter hook input priority -300; tcp dport 179 drop; }
            chain said { type filter hook output priority -300; tcp sport 179 drop; }
        }",
    );
    scene.wait_for_event("SessionDown", "hold timer expired after 3 seconds");
    scene.router.host.nft("delete table inet cut");
    scene.wait_for_sessions();
    scene.router.wait_for_ways(V4, &["n1"]);
}

#[test]
fn a_router_that_says_too_much_is_not_listened_to() {
    let scene = Scene::new(&["n1"]);
    scene.run_router(&RouterConfig { networks: 5, ..RouterConfig::default() });
    scene.peer(&json!({"maxPrefixes": 3}));
    scene.wait_for_event("SessionDown", "the peer sent more than 3 prefixes (spec.maxPrefixes)");
    eventually("the router is told why", || scene.router.log().contains("Maximum number of prefixes reached"));
    assert!(!scene.router.is_established(&scene.nodes[0]));
    scene.change(&format!("{PEERS}/rack"), &json!({"spec": {"maxPrefixes": 5}}));
    scene.wait_for_sessions();
    let node = &scene.nodes[0];
    let figures = || node.page("127.0.0.1", 10249, "/metrics").map(|page| page.body).unwrap_or_default();
    eventually("figures", || figures().contains("waypost_bgp_prefixes_received{peer=\"rack\"} 5"));
    assert!(figures().contains("waypost_bgp_session_up{peer=\"rack\"} 1"), "{}", figures());
}

#[test]
fn a_peer_that_is_deleted_loses_its_routes_at_once() {
    let scene = Scene::with_sessions(&["n1"], &json!({}));
    scene.web(|web| web, &[]);
    scene.router.wait_for_ways(V4, &["n1"]);
    scene.delete(&format!("{PEERS}/rack"));
    scene.router.wait_for_ways(V4, &[]);
    assert!(scene.router.log().contains("Peer de-configured"), "the router is told why");
}

#[test]
fn a_wrong_number_of_a_system_is_named() {
    let scene = Scene::new(&["n1"]);
    scene.run_router(&RouterConfig::default());
    scene.peer(&json!({"peerASN": 64999}));
    scene.wait_for_event("SessionDown", "the peer has AS number 64513, not 64999; check spec.peerASN");
    scene.change(&format!("{PEERS}/rack"), &json!({"spec": {"peerASN": 64513, "myASN": 64998}}));
    scene.wait_for_event("SessionDown", "bad peer AS: myASN and peerASN must mirror the configuration of the peer");
    scene.change(&format!("{PEERS}/rack"), &json!({"spec": {"myASN": 64512}}));
    scene.wait_for_sessions();
}
