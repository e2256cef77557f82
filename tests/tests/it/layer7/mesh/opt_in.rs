//! A Service is served at layer 7 when it asks for that, and goes back to layer 4 without a failed request.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use testbed::net::{Family, Pod};

use super::super::stage::{Over, Page};
use super::stage::{Connection, LAYER_7, Mesh, Spoken, marked, pods_of_one_connection};

/// Two Pods for a Service.
fn two(mesh: &Mesh, name: &str) -> Vec<Pod> {
    ["a", "b"].iter().map(|suffix| mesh.backend(&format!("{name}-{suffix}"), Spoken::Http1)).collect()
}

#[test]
fn s54_layer_7_is_opted_into_and_never_a_surprise() {
    let mesh = Mesh::new();
    let client = mesh.client("client", "default");
    mesh.service("plain", |service| service.app_protocol("http"));
    mesh.service("refused", |service| service.app_protocol("http").annotation(LAYER_7, "false"));
    mesh.service("untyped", |service| service.annotation(LAYER_7, "true"));
    mesh.service("secure", |service| service.app_protocol("https").annotation(LAYER_7, "true"));
    mesh.service("other", |service| service.app_protocol("example.com/other").annotation(LAYER_7, "true"));
    let at_layer_4 = ["plain", "refused", "untyped", "secure", "other"];
    for name in at_layer_4 {
        mesh.endpoints(name, &two(&mesh, name));
    }
    // Services are watched in order: when the last ones are at layer 7, the decision about the others has been made.
    for protocol in ["http", "kubernetes.io/ws"] {
        let name = protocol.rsplit('/').next().unwrap_or(protocol);
        mesh.opted_in(name, protocol);
        mesh.endpoints(name, &two(&mesh, name));
        mesh.until_balanced(&client, name, Spoken::Http1);
    }
    for name in at_layer_4 {
        for family in Family::BOTH {
            let pods = pods_of_one_connection(&client, mesh.address(name, family)).expect("responses");
            assert_eq!(pods.len(), 1, "{name}: a connection has one Pod: {pods:?}");
        }
        let page = mesh.ask(&client, name, "/", &[]).expect("a response");
        assert_eq!(page.heard("x-forwarded-for"), None, "{name}: the request is as it was sent: {page:?}");
    }
    let page = mesh.ask(&client, "http", "/", &[]).expect("a response");
    assert_eq!(page.heard("x-forwarded-for"), Some(client.v4().to_string().as_str()), "{page:?}");
}

/// What changes while a client asks on one connection, which is opened anew only where a response says so.
#[track_caller]
fn no_request_fails(mesh: &Mesh, client: &Pod, service: &str, change: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let at = mesh.address(service, Family::V4);
    std::thread::scope(|scope| {
        let staying = scope.spawn(|| {
            let mut connection = Connection::open(client, at).expect("a connection");
            let mut asked = 0;
            while !is_over.load(Relaxed) {
                let page = connection.exchange("/").expect("a response");
                assert_eq!(page.code, 200, "{page:?}");
                asked += 1;
                if page.header("connection") == Some("close") {
                    connection = Connection::open(client, at).expect("a connection");
                }
            }
            asked
        });
        let fresh = scope.spawn(|| {
            let mut asked = 0;
            while !is_over.load(Relaxed) {
                let page = Connection::open(client, at).expect("a connection").exchange("/").expect("a response");
                assert_eq!(page.code, 200, "{page:?}");
                asked += 1;
            }
            asked
        });
        let over = Over(&is_over);
        change();
        drop(over);
        let asked: usize = staying.join().expect("no request failed") + fresh.join().expect("no request failed");
        assert!(asked > 20, "there was load: {asked}");
    });
}

#[test]
fn s54_a_service_returns_to_layer_4_without_a_failed_request() {
    let mesh = Mesh::new();
    let client = mesh.client("client", "default");
    mesh.service("web", |service| service);
    mesh.endpoints("web", &two(&mesh, "web"));
    let _ = mesh.until("the Service is served", &client, "web", |page| page.code == 200);
    let has_route = |page: &Page| page.header("x-route") == Some("producer");
    no_request_fails(&mesh, &client, "web", || {
        for _ in 0..5 {
            mesh.route("default", "web", "web", &marked("producer", "web"));
            let _ = mesh.until("the route is in force", &client, "web", has_route);
            mesh.remove_route("default", "web");
            let _ = mesh.until("the Service is at layer 4", &client, "web", |page| {
                !has_route(page) && page.heard("x-forwarded-for").is_none()
            });
        }
    });
    let pods = pods_of_one_connection(&client, mesh.address("web", Family::V4)).expect("responses");
    assert_eq!(pods.len(), 1, "a connection has one Pod: {pods:?}");
}
