//! Graceful restart: the program of a node restarts, its rules stay in the kernel, and the router keeps its routes.

use std::time::Duration;

use serde_json::json;
use testbed::net::{Protocol, eventually};

use super::scene::{PORT, Scene, V4, V6};

/// BIRD's state of a session whose peer is restarting gracefully.
const AWAY: &str = "Neighbor graceful restart active";

#[test]
fn a_killed_program_leaves_its_routes_and_not_one_connection_fails() {
    let scene = Scene::with_sessions(&["n1"], &json!({}));
    let pod = scene.backend(0, "web-1");
    scene.web(|web| web, &[&pod]);
    scene.router.wait_for_ways(V4, &["n1"]);
    scene.router.wait_for_ways(V6, &["n1"]);
    eventually("packets follow", || scene.ask(V4).is_some() && scene.ask(V6).is_some());

    let pace = Duration::from_millis(5);
    let hammers = [V4, V6].map(|address| scene.client.caller().pace(pace).hammer(Protocol::Tcp, address, PORT));
    let node = &scene.nodes[0];
    scene.served.kill_proxy(node);
    eventually("the router expects it back", || scene.router.session(node).contains(AWAY));
    assert_eq!((scene.router.ways(V4), scene.router.ways(V6)), (vec!["n1".to_owned()], vec!["n1".to_owned()]));

    scene.serve(node);
    eventually("it is back", || scene.router.is_established(node));
    eventually("and all is told", || !scene.router.session(node).contains(AWAY));
    assert_eq!((scene.router.ways(V4), scene.router.ways(V6)), (vec!["n1".to_owned()], vec!["n1".to_owned()]));
    for hammer in hammers {
        let tally = hammer.stop();
        assert!(tally.failures.is_empty() && tally.asked > 10, "{tally:?}");
    }
}

#[test]
fn what_changed_while_a_program_was_away_is_withdrawn_when_it_is_back() {
    let scene = Scene::with_sessions(&["n1"], &json!({}));
    scene.web(|web| web, &[]);
    scene.router.wait_for_ways(V4, &["n1"]);
    scene.served.kill_proxy(&scene.nodes[0]);
    scene.served.remove(&testbed::net::objects::service("web").json());
    eventually("the router expects it back", || scene.router.session(&scene.nodes[0]).contains(AWAY));
    assert_eq!(scene.router.ways(V4), ["n1"]);
    scene.serve(&scene.nodes[0]);
    scene.router.wait_for_ways(V4, &[]);
}

#[test]
fn a_planned_stop_keeps_the_routes_too_unless_restarts_are_not_graceful() {
    let scene = Scene::with_sessions(&["n1"], &json!({}));
    scene.web(|web| web, &[]);
    scene.router.wait_for_ways(V4, &["n1"]);
    let node = &scene.nodes[0];
    let stop = || {
        scene.served.with_proxy(node, |program| assert!(program.terminate().success()));
        scene.served.kill_proxy(node);
    };
    stop();
    eventually("the router expects it back", || scene.router.session(node).contains(AWAY));
    assert_eq!(scene.router.ways(V4), ["n1"]);
    scene.serve(node);
    eventually("it is back", || scene.router.is_established(node));

    scene.change(&format!("{}/rack", super::scene::PEERS), &json!({"spec": {"gracefulRestart": false}}));
    // The capabilities of the peer are listed for established sessions.
    let graceful = || scene.router.session(node).contains("Restart time: 60");
    eventually("a new session", || scene.router.is_established(node) && !graceful());
    scene.router.wait_for_ways(V4, &["n1"]);
    stop();
    scene.router.wait_for_ways(V4, &[]);
    assert!(scene.router.log().contains("waypost stops on this node"), "the router is told why");
}
