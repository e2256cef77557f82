//! Many clients at once: whatever they all want, one gets; whatever they all add, is kept; whatever failed left nothing.
//!
//! Requests of a round are all on the wire before any is answered, each over a connection of its own, so the server decides
//! among them. Rounds are repeated because a race that is lost once in a thousand times is lost every day.

use client::http::{Client, Method};
use futures_util::future::join_all;
use serde_json::{Value, json};
use testbed::session::{ADDRESSES, SERVICES, Session, service, text};
use testbed::{Home, Server};
use tokio::runtime::Runtime;

const CLIENTS: usize = 40;
const ROUNDS: usize = 50;

/// Clients that ask at the same time.
struct Crowd {
    runtime: Runtime,
    clients: Vec<Client>,
    server: Server,
}

impl Crowd {
    fn of(server: Server) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let first = server.client();
        let clients = (0..CLIENTS).map(|_| first.another()).collect();
        Self { runtime: runtime.expect("a runtime"), clients, server }
    }

    /// Each client sends its request; the answers in the order of clients.
    fn ask(&mut self, request: impl Fn(usize) -> (Method, String, Option<Value>)) -> Vec<(u16, Value)> {
        let asking = self.clients.iter_mut().enumerate().map(|(number, client)| {
            let (method, path, body) = request(number);
            async move { client.json(method, &path, body.as_ref()).await.expect("an answer") }
        });
        self.runtime.block_on(join_all(asking))
    }

    fn ask_one(&mut self, method: Method, path: &str) -> Value {
        let (code, answer) = self.runtime.block_on(self.clients[0].json(method, path, None)).expect("an answer");
        assert_eq!(code, 200, "{answer}");
        answer
    }

    /// Runs a task for each client at the same time.
    fn each<F: Future<Output = ()>>(&mut self, work: impl Fn(usize, Client) -> F) {
        let clients: Vec<Client> = self.clients.iter().map(Client::another).collect();
        self.runtime.block_on(join_all(clients.into_iter().enumerate().map(|(number, client)| work(number, client))));
    }
}

/// All clients create, round after round: one succeeds, all others get `refusal`.
fn one_wins_every_round(body: impl Fn(usize) -> Value, refusal: (u16, &str, &str)) {
    let mut crowd = Crowd::of(Server::start());
    for round in 0..ROUNDS {
        let answers = crowd.ask(|number| (Method::POST, SERVICES.to_owned(), Some(body(number))));
        let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(code, _)| *code == 201);
        assert_eq!(won.len(), 1, "round {round}: {won:?}");
        for (code, status) in lost {
            let told = (code, text(&status, "/reason"));
            assert_eq!(told, (refusal.0, refusal.1), "round {round}: {status}");
            assert!(text(&status, "/message").contains(refusal.2), "round {round}: {status}");
        }
        // What the winner had is free again, for the next round.
        crowd.ask_one(Method::DELETE, &format!("{SERVICES}/{}", text(&won[0].1, "/metadata/name")));
    }
    let left = crowd.ask_one(Method::GET, ADDRESSES);
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1), "only the kubernetes Service holds an address: {left}");
}

#[test]
fn s31_of_thousands_that_want_one_address_one_gets_it_each_time() {
    let body = |number| service(&format!("s{number}"), json!({"clusterIP": "10.96.0.77", "ports": [{"port": 80}]}));
    let told = "spec.clusterIPs: Invalid value: [\"10.96.0.77\"]: failed to allocate IP 10.96.0.77: provided IP is already allocated";
    one_wins_every_round(body, (422, "Invalid", told));
}

#[test]
fn s31_of_thousands_that_want_one_node_port_one_gets_it_each_time() {
    let ports = json!([{"port": 80, "nodePort": 30_080}]);
    let body = |number| service(&format!("s{number}"), json!({"type": "NodePort", "ports": ports}));
    let told = "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated";
    one_wins_every_round(body, (422, "Invalid", told));
}

#[test]
fn s31_of_thousands_that_want_one_name_one_gets_it_each_time() {
    let body = |_| service("web", json!({"type": "NodePort", "ports": [{"port": 80}]}));
    one_wins_every_round(body, (409, "AlreadyExists", "services \"web\" already exists"));
}

#[test]
fn s31_thousands_of_creates_at_once_get_addresses_and_ports_of_their_own() {
    let mut crowd = Crowd::of(Server::start());
    let spec = json!({"type": "NodePort", "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]});
    let (mut addresses, mut ports) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let body = |number| service(&format!("s{round}-{number}"), spec.clone());
        for (code, made) in crowd.ask(|number| (Method::POST, SERVICES.to_owned(), Some(body(number)))) {
            assert_eq!(code, 201, "{made}");
            addresses.extend(made["spec"]["clusterIPs"].as_array().expect("addresses").iter().map(Value::to_string));
            ports.push(made["spec"]["ports"][0]["nodePort"].as_u64().expect("a node port"));
        }
    }
    addresses.sort();
    ports.sort_unstable();
    assert!(addresses.windows(2).all(|pair| pair[0] != pair[1]), "an address was given twice: {addresses:?}");
    assert!(ports.windows(2).all(|pair| pair[0] != pair[1]), "a node port was given twice: {ports:?}");
    assert_eq!((addresses.len(), ports.len()), (2 * CLIENTS * ROUNDS, CLIENTS * ROUNDS));
}

#[test]
fn s01_concurrent_updates_with_a_resource_version_lose_nothing() {
    const EACH: usize = 5;
    let mut crowd = Crowd::of(Server::start());
    let web = service("web", json!({"ports": [{"port": 80}]}));
    let made =
        crowd.ask(|number| (Method::PUT, format!("{SERVICES}/s{number}"), Some(renamed(&web, &format!("s{number}")))));
    assert!(made.iter().all(|(code, _)| *code == 201), "a PUT creates: {made:?}");
    let path = format!("{SERVICES}/s0");
    crowd.each(|_, mut client| {
        let path = path.clone();
        async move {
            let mut done = 0;
            // One client wins each round, so no client needs more attempts than there are updates in total.
            for _ in 0..=CLIENTS * EACH {
                let (_, mut object) = client.json(Method::GET, &path, None).await.expect("the Service");
                let count: usize = text(&object, "/metadata/annotations/count").parse().unwrap_or(0);
                object["metadata"]["annotations"] = json!({"count": (count + 1).to_string()});
                let (code, answer) = client.json(Method::PUT, &path, Some(&object)).await.expect("an answer");
                match (code, text(&answer, "/reason")) {
                    (200, _) => done += 1,
                    (409, "Conflict") => {
                        assert!(text(&answer, "/message").contains("the object has been modified"), "{answer}");
                    }
                    _ => panic!("{code} {answer}"),
                }
                if done == EACH {
                    return;
                }
            }
            panic!("only {done} updates of {EACH} were accepted");
        }
    });
    let counted = crowd.ask_one(Method::GET, &path);
    assert_eq!(text(&counted, "/metadata/annotations/count"), (CLIENTS * EACH).to_string());
}

fn renamed(object: &Value, name: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["name"] = json!(name);
    object
}

#[test]
fn s01_concurrent_patches_without_a_resource_version_all_land() {
    const EACH: usize = 10;
    let mut crowd = Crowd::of(Server::start());
    let made = crowd.ask(|number| {
        (Method::POST, SERVICES.to_owned(), Some(service(&format!("s{number}"), json!({"ports": [{"port": 80}]}))))
    });
    assert!(made.iter().all(|(code, _)| *code == 201), "{made:?}");
    let path = format!("{SERVICES}/s0");
    crowd.each(|number, mut client| {
        let path = path.clone();
        async move {
            for turn in 0..EACH {
                let patch = json!({"metadata": {"annotations": {format!("a{number}-{turn}"): "x"}}}).to_string();
                let kind = ["application/merge-patch+json", "application/strategic-merge-patch+json"][turn % 2];
                let (code, answer) =
                    client.bytes(Method::PATCH, &path, Some(kind), patch.into()).await.expect("an answer");
                assert_eq!(code, 200, "{}", String::from_utf8_lossy(&answer));
            }
        }
    });
    let patched = crowd.ask_one(Method::GET, &path);
    assert_eq!(patched["metadata"]["annotations"].as_object().map(serde_json::Map::len), Some(CLIENTS * EACH));
}

#[test]
fn s01_of_many_deletes_of_one_object_one_is_told_that_it_did_it() {
    let mut crowd = Crowd::of(Server::start());
    for round in 0..ROUNDS / 5 {
        let web = service("web", json!({"ports": [{"port": 80}]}));
        let made = crowd.ask(|_| (Method::POST, SERVICES.to_owned(), Some(web.clone())));
        assert_eq!(made.iter().filter(|(code, _)| *code == 201).count(), 1, "round {round}");
        let answers = crowd.ask(|_| (Method::DELETE, format!("{SERVICES}/web"), None));
        assert_eq!(answers.iter().filter(|(code, _)| *code == 200).count(), 1, "round {round}: {answers:?}");
        assert!(answers.iter().all(|(code, _)| matches!(code, 200 | 404)), "round {round}: {answers:?}");
    }
}

/// What one of many does to one of few Services.
fn any_change(random: &mut fastrand::Rng) -> (Method, String, Value) {
    let name = format!("s{}", random.u8(..6));
    let path = format!("{SERVICES}/{name}");
    let ports = json!([{"name": "a", "port": 80, "nodePort": 30_000 + random.u16(..20)}, {"name": "b", "port": 81}]);
    let address = format!("10.96.0.{}", random.u8(2..20));
    match random.u8(..8) {
        0 | 1 => (
            Method::POST,
            SERVICES.to_owned(),
            service(&name, json!({"type": "NodePort", "ipFamilyPolicy": "PreferDualStack", "ports": ports})),
        ),
        2 => {
            (Method::POST, SERVICES.to_owned(), service(&name, json!({"clusterIP": address, "ports": [{"port": 80}]})))
        }
        3 => (Method::PATCH, path, json!({"spec": {"type": "ClusterIP", "ipFamilyPolicy": "SingleStack"}})),
        4 => (Method::PATCH, path, json!({"spec": {"type": "NodePort", "externalName": null, "ports": ports}})),
        5 => (
            Method::PATCH,
            path,
            json!({"spec": {"type": "ExternalName", "externalName": "db.example.com", "clusterIP": null, "clusterIPs": null}}),
        ),
        6 => (
            Method::PATCH,
            path,
            json!({"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": ports}}),
        ),
        _ => (Method::DELETE, path, Value::Null),
    }
}

/// Addresses and the Services that say they have them, sorted.
fn own_addresses(services: &Value) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for service in services["items"].as_array().expect("items") {
        for address in service["spec"]["clusterIPs"].as_array().into_iter().flatten() {
            out.push((text(address, "").to_owned(), text(service, "/metadata/name").to_owned()));
        }
    }
    out.sort();
    out
}

/// Addresses and the Services that they are held for, sorted.
fn held_addresses(addresses: &Value) -> Vec<(String, String)> {
    let pair = |item| (text(item, "/metadata/name").to_owned(), text(item, "/spec/parentRef/name").to_owned());
    let mut out: Vec<_> = addresses["items"].as_array().expect("items").iter().map(pair).collect();
    out.sort();
    out
}

#[test]
fn s31_changes_of_all_kinds_at_once_leave_addresses_and_ports_with_their_owners() {
    let arguments = ["--service-node-port-range", "30000-30199"];
    let mut crowd = Crowd::of(Server::start_with(Home::Own(testbed::folder()), &arguments));
    crowd.each(|number, mut client| async move {
        let mut random = fastrand::Rng::with_seed(number as u64);
        for _ in 0..60 {
            let (method, path, body) = any_change(&mut random);
            let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
            let bytes = if body.is_null() { String::new() } else { body.to_string() };
            let (code, answer) =
                client.bytes(method.clone(), &path, Some(kind), bytes.into()).await.expect("an answer");
            // Some win, some are too late, some want what another has; no client gets a server error.
            let answer = String::from_utf8_lossy(&answer);
            assert!(matches!(code, 200 | 201 | 404 | 409 | 422), "{method} {path} {body}: {code} {answer}");
        }
    });
    let services = crowd.ask_one(Method::GET, SERVICES);
    assert_eq!(held_addresses(&crowd.ask_one(Method::GET, ADDRESSES)), own_addresses(&services));
    for service in services["items"].as_array().expect("items") {
        crowd.ask_one(Method::DELETE, &format!("{SERVICES}/{}", text(service, "/metadata/name")));
    }
    let ports: Vec<Value> =
        (0..200).map(|n| json!({"name": format!("p{n}"), "port": 1 + n, "nodePort": 30_000 + n})).collect();
    // Fails if a node port has leaked.
    crowd.server.session().create("all", json!({"type": "NodePort", "ports": ports}));
}

/// A server with 14 addresses and 11 node ports.
fn tiny() -> Server {
    let arguments = ["--service-cluster-ip-range", "10.0.0.0/28", "--service-node-port-range", "30000-30010"];
    Server::start_with(Home::Own(testbed::folder()), &arguments)
}

/// Creates Services at once until the range is full: `room` succeed, the others get `refusal`; deletes them; again.
fn a_range_fills_and_empties(spec: &Value, room: usize, refusal: &str) {
    let mut crowd = Crowd::of(tiny());
    for round in 0..5 {
        let body = |number| service(&format!("s{number}"), spec.clone());
        let answers = crowd.ask(|number| (Method::POST, SERVICES.to_owned(), Some(body(number))));
        let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(code, _)| *code == 201);
        assert_eq!(won.len(), room, "round {round}: {lost:?}");
        for (code, status) in lost {
            assert_eq!((code, text(&status, "/reason")), (500, "InternalError"), "round {round}: {status}");
            assert!(text(&status, "/message").contains(refusal), "round {round}: {status}");
        }
        for (_, made) in won {
            crowd.ask_one(Method::DELETE, &format!("{SERVICES}/{}", text(&made, "/metadata/name")));
        }
    }
}

#[test]
fn s31_a_full_address_range_is_said_and_recovers_with_the_first_delete() {
    // One of the 14 is the kubernetes Service's.
    a_range_fills_and_empties(&json!({"ports": [{"port": 80}]}), 13, "failed to allocate a serviceIP for Service");
}

#[test]
fn s40_a_full_node_port_range_is_said_and_recovers_with_the_first_delete() {
    let spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
    a_range_fills_and_empties(&spec, 11, "failed to allocate a nodePort: range is full");
}

/// What is there, and that it is as it was before, after creates that must fail.
fn failures_leave_nothing(api: &mut Session, bodies: &[Value]) {
    let before = (api.items(ADDRESSES), api.items(SERVICES));
    for body in bodies {
        for _ in 0..20 {
            let answer = api.post(SERVICES, body);
            assert!(matches!(answer.code, 409 | 422 | 500), "{answer:?}");
            assert_ne!(text(&answer.body, "/message"), "", "{answer:?}");
        }
    }
    assert_eq!((api.items(ADDRESSES), api.items(SERVICES)), before);
}

#[test]
fn s31_a_create_that_fails_after_its_first_claim_leaves_nothing_behind() {
    let server = tiny();
    let mut api = server.session();
    api.create(
        "taken",
        json!({"type": "NodePort", "clusterIP": "10.0.0.5", "ports": [{"port": 80, "nodePort": 30_005}]}),
    );
    let of = |spec| service("x", spec);
    let two_ports = |second: u16| json!([{"name": "a", "port": 80, "nodePort": 30_001}, {"name": "b", "port": 81, "nodePort": second}]);
    failures_leave_nothing(
        &mut api,
        &[
            of(json!({"type": "NodePort", "ports": two_ports(30_005)})),
            of(json!({"type": "NodePort", "ports": two_ports(31_000)})),
            of(json!({"type": "NodePort", "clusterIP": "10.0.0.6", "ports": [{"port": 80, "nodePort": 30_005}]})),
            // Invalid only after addresses and ports were claimed.
            of(json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "ICMP"}]})),
            of(
                json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30_005, "ports": [{"port": 80}]}),
            ),
            service("taken", json!({"type": "NodePort", "ports": [{"port": 80}]})),
            service("Not A Name", json!({"ports": [{"port": 80}]})),
        ],
    );
    // All node ports but the taken one are still there for one who wants them all, and so is every address.
    let rest: Vec<u16> = (30_000..=30_010).filter(|port| *port != 30_005).collect();
    let ports: Vec<Value> =
        rest.iter().map(|port| json!({"name": format!("p{port}"), "port": port, "nodePort": port})).collect();
    api.create("all", json!({"type": "NodePort", "clusterIP": "10.0.0.2", "ports": ports}));
    for host in [3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14] {
        api.create(&format!("h{host}"), json!({"clusterIP": format!("10.0.0.{host}"), "ports": [{"port": 80}]}));
    }
}

#[test]
fn s31_when_the_second_chosen_address_is_taken_the_first_stays_free() {
    let server = Server::start();
    let mut api = server.session();
    api.create("six", json!({"ipFamilies": ["IPv6"], "clusterIP": "fd00:10:96::5", "ports": [{"port": 80}]}));
    let ips = json!(["10.96.0.5", "fd00:10:96::5"]);
    let both =
        json!({"ipFamilyPolicy": "RequireDualStack", "clusterIP": ips[0], "clusterIPs": ips, "ports": [{"port": 80}]});
    failures_leave_nothing(&mut api, &[service("x", both)]);
    api.create("four", json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}));
}
