//! Many clients at once, on a pool that is too small: at no moment has an address two owners, and in the end none is lost.

use std::collections::BTreeMap;

use client::http::Method;
use futures_util::future::join_all;
use serde_json::{Value, json};
use testbed::net::eventually;
use testbed::session::{SERVICES, service, text};

use super::desk::{Desk, addresses, pool};

const CLIENTS: usize = 16;
const CHANGES: usize = 40;
/// Addresses of the pool; fewer than Services.
const ROOM: usize = 12;

/// What one of many does to one of its own Services.
fn change(random: &mut fastrand::Rng, client: usize) -> (Method, String, Value) {
    let name = format!("c{client}-{}", random.u8(..3));
    let path = format!("{SERVICES}/{name}");
    let ports = json!([{"port": 80}]);
    match random.u8(..8) {
        0..3 => (Method::POST, SERVICES.to_owned(), service(&name, json!({"type": "LoadBalancer", "ports": ports}))),
        3 => {
            let wish = format!("192.0.2.{}", random.usize(..ROOM));
            (Method::PATCH, path, json!({"spec": {"loadBalancerIP": wish}}))
        }
        4 => (Method::PATCH, path, json!({"spec": {"type": "ClusterIP"}})),
        5 => (Method::PATCH, path, json!({"spec": {"type": "LoadBalancer"}})),
        _ => (Method::DELETE, path, Value::Null),
    }
}

/// Follows Services and fails at the first moment at which an address has two of them.
#[derive(Default)]
struct Owners(BTreeMap<String, String>);

impl Owners {
    fn follow(&mut self, kind: &str, object: &Value) {
        let name = text(object, "/metadata/name").to_owned();
        self.0.retain(|_, owner| *owner != name);
        let shown = addresses(object);
        if kind != "DELETED" && !shown.is_empty() {
            let other = self.0.insert(shown.clone(), name.clone());
            assert_eq!(other, None, "{shown} has another owner than {name}");
        }
    }
}

#[test]
fn s43_whatever_many_clients_do_at_once_no_address_has_two_owners_and_none_is_lost() {
    let mut desk = Desk::with_pools(&pool("small", "192.0.2.0-192.0.2.11", ""));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let first = desk.server.client();
    let watching = desk.server.session();
    let mut watch = watching.watch(SERVICES, "");
    let work = (0..CLIENTS).map(|number| {
        let mut client = first.another();
        async move {
            let mut random = fastrand::Rng::with_seed(20_261_116 + number as u64);
            for _ in 0..CHANGES {
                let (method, path, body) = change(&mut random, number);
                let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
                let bytes = if body.is_null() { String::new() } else { body.to_string() };
                let (code, answer) = client.bytes(method, &path, Some(kind), bytes.into()).await.expect("an answer");
                let answer = String::from_utf8_lossy(&answer);
                assert!(matches!(code, 200 | 201 | 404 | 409), "{path} {body}: {code} {answer}");
            }
        }
    });
    runtime.block_on(join_all(work));
    for number in 0..CLIENTS * 3 {
        let _ = desk.session.delete(&format!("{SERVICES}/c{}-{}", number / 3, number % 3));
    }
    eventually("all are gone", || desk.session.names(SERVICES) == ["kubernetes"]);
    // The pool is whole: as many as there is room for, and not one more.
    for number in 0..=ROOM {
        desk.session.create(&format!("last-{number}"), json!({"type": "LoadBalancer", "ports": [{"port": 80}]}));
    }
    let mut shown = Vec::new();
    eventually("every address is given", || {
        shown = desk.session.items(SERVICES).iter().map(addresses).filter(|ip| !ip.is_empty()).collect();
        shown.len() == ROOM
    });
    shown.sort();
    shown.dedup();
    assert_eq!(shown.len(), ROOM, "{shown:?}");
    // What happened on the way.
    let mut owners = Owners::default();
    desk.session.create("end", json!({"ports": [{"port": 80}]}));
    watch.until(|kind, object| {
        owners.follow(kind, object);
        text(object, "/metadata/name") == "end"
    });
    assert_eq!(owners.0.len(), ROOM);
}

#[test]
fn s43_hundreds_of_services_that_come_together_get_an_address_each() {
    let mut desk = Desk::with_pools(&pool("large", "198.51.100.0/23", ""));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let first = desk.server.client();
    let creating = (0..16).map(|number| {
        let mut client = first.another();
        async move {
            for turn in 0..20 {
                let body =
                    service(&format!("s{number}-{turn}"), json!({"type": "LoadBalancer", "ports": [{"port": 80}]}));
                let (code, answer) = client.json(Method::POST, SERVICES, Some(&body)).await.expect("an answer");
                assert_eq!(code, 201, "{answer}");
            }
        }
    });
    runtime.block_on(join_all(creating));
    let mut shown = Vec::new();
    eventually("every Service has an address", || {
        shown = desk.session.items(SERVICES).iter().map(addresses).filter(|ip| !ip.is_empty()).collect();
        shown.len() == 320
    });
    shown.sort();
    shown.dedup();
    assert_eq!(shown.len(), 320);
}
