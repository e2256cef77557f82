//! Passwords: only a peer with the same password is accepted, and on a mismatch the Event names what to check.

use serde_json::{Value, json};
use testbed::net::eventually;

use super::router::RouterConfig;
use super::scene::{SECRETS, Scene, V4};

fn named(key: &str) -> Value {
    json!({"password": {"secretRef": {"namespace": "kube-system", "name": "rack", "key": key}}})
}

fn secret(password: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "rack"}, "stringData": {"password": password}})
}

#[test]
fn only_the_right_password_makes_a_session() {
    let scene = Scene::new(&["n1"]);
    scene.run_router(&RouterConfig { password: Some("open sesame"), ..RouterConfig::default() });
    scene.peer(&named("password"));
    scene.web(|web| web, &[]);
    scene.wait_for_event("SessionDown", "names the Secret kube-system/rack, which does not exist");

    scene.make(SECRETS, &secret("open barley"));
    scene.wait_for_event("SessionDown", "connection timed out; if a password is set, both sides must have the same");
    assert!(!scene.router.is_established(&scene.nodes[0]));

    scene.change(&format!("{SECRETS}/rack"), &json!({"stringData": {"password": "open sesame"}}));
    scene.router.wait_for_ways(V4, &["n1"]);
    scene.wait_for_event("SessionUp", "the session is up");

    // Another password ends an established session; the router keeps its routes for a while, as after any
    // loss.
    scene.change(&format!("{SECRETS}/rack"), &json!({"stringData": {"password": "open barley"}}));
    eventually("the session is gone", || !scene.router.is_established(&scene.nodes[0]));
    scene.change(&format!("{SECRETS}/rack"), &json!({"stringData": {"password": "open sesame"}}));
    eventually("and back", || scene.router.is_established(&scene.nodes[0]));
}

#[test]
fn a_router_without_a_password_does_not_hear_a_node_with_one() {
    let scene = Scene::new(&["n1"]);
    scene.run_router(&RouterConfig::default());
    scene.make(SECRETS, &secret("open sesame"));
    scene.peer(&named("other"));
    scene.wait_for_event("SessionDown", "the Secret kube-system/rack of spec.password has no key other");
    scene.change(&format!("{}/rack", super::scene::PEERS), &json!({"spec": named("password")}));
    scene.wait_for_event("SessionDown", "connection timed out; if a password is set");
    scene.change(&format!("{}/rack", super::scene::PEERS), &json!({"spec": {"password": null}}));
    eventually("a session", || scene.router.is_established(&scene.nodes[0]));
}
