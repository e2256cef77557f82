//! `kill -9` at any moment: no address of a load balancer has two owners afterwards, and none is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use client::http::{Client, Method};
use futures_util::future::join_all;
use serde_json::{Value, json};
use testbed::net::eventually;
use testbed::session::{SERVICES, Session, service, text};
use testbed::{Home, Server};

use super::desk::addresses;

const SEED: u64 = 20_261_116;
const KILLS: usize = 40;
const WRITERS: usize = 8;
/// How long a writer waits for an answer.
const SILENCE: Duration = Duration::from_secs(15);
const ROOM: usize = 16;
const ARGUMENTS: [&str; 2] = ["--load-balancer-pool", "192.0.2.0/28"];

/// Creates and deletes its own Services until the server is gone.
async fn write_until_killed(mut client: Client, number: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let name = format!("w{number}-{}", random.u8(..4));
        let path = format!("{SERVICES}/{name}");
        let body = service(&name, json!({"type": "LoadBalancer", "ports": [{"port": 80}]}));
        let (method, at, body) = match random.bool() {
            true => (Method::POST, SERVICES, Some(&body)),
            false => (Method::DELETE, path.as_str(), None),
        };
        // After the kill the port may belong to another process, which need not respond.
        let Ok(Ok((code, answer))) = tokio::time::timeout(SILENCE, client.json(method, at, body)).await else { return };
        assert!(matches!(code, 200 | 201 | 404 | 409), "{path}: {code} {answer}");
    }
}

/// No address is shown by two Services.
fn verify(session: &mut Session) -> usize {
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for service in session.items(SERVICES) {
        let (shown, name) = (addresses(&service), text(&service, "/metadata/name").to_owned());
        let finalizers = service["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
        let told = service["status"]["conditions"].as_array().map_or(0, Vec::len);
        assert_eq!(finalizers, told, "what we say and what keeps it come and go together: {service}");
        if shown.is_empty() {
            continue;
        }
        let other = owners.insert(shown.clone(), name.clone());
        assert_eq!(other, None, "{shown} has another owner than {name}");
        assert_eq!(finalizers, 1, "an address and what keeps it come together: {service}");
    }
    owners.len()
}

#[test]
fn s43_after_forty_kills_no_address_has_two_owners_and_none_is_lost() {
    let mut random = fastrand::Rng::with_seed(SEED);
    let home = testbed::folder();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let mut seen = 0;
    for kill in 0..KILLS {
        let mut server = Server::start_with(Home::Kept(home.path().to_owned()), &ARGUMENTS);
        seen += verify(&mut server.session());
        let first = server.client();
        let moment = Duration::from_micros(random.u64(5_000..200_000));
        let writing = join_all(
            (0..WRITERS)
                .map(|number| write_until_killed(first.another(), number, SEED + (kill * WRITERS + number) as u64)),
        );
        runtime.block_on(async {
            let killing = async {
                tokio::time::sleep(moment).await;
                server.kill();
            };
            tokio::join!(writing, killing)
        });
    }
    assert!(seen > KILLS, "only {seen} addresses were seen after kills: the test shows nothing");
    let server = Server::start_with(Home::Kept(home.path().to_owned()), &ARGUMENTS);
    let mut session = server.session();
    verify(&mut session);
    for service in session.items(SERVICES) {
        let name = text(&service, "/metadata/name");
        if name != "kubernetes" {
            let _ = session.delete(&format!("{SERVICES}/{name}"));
        }
    }
    eventually("all are gone", || session.names(SERVICES) == ["kubernetes"]);
    for number in 0..ROOM {
        session.create(&format!("last-{number}"), json!({"type": "LoadBalancer", "ports": [{"port": 80}]}));
    }
    eventually("every address can be given again", || verify(&mut session) == ROOM);
    let shown: Vec<Value> = session.items(SERVICES);
    assert_eq!(shown.len(), ROOM + 1);
}
