//! Invariant 1 of the design: what was acknowledged survives `kill -9`, and nothing is ever owned twice.
//!
//! Writers create and delete Services, each minding names of its own, while the server is killed at random moments, also
//! while it starts. After every restart all that was acknowledged is compared with what is there: a create that was
//! answered must be there, a delete that was answered must have happened, and only what had no answer is in doubt. The
//! ranges are just large enough for all Services at once, so anything that leaks ends in a refusal, which fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::time::Duration;

use client::http::{Client, ClientError, Method};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::session::{ADDRESSES, SERVICES, TIMEOUT, service, text};
use testbed::{Home, Server, server_command};

/// How long a writer waits for an answer.
const SILENCE: Duration = Duration::from_secs(15);
/// Where every random choice comes from.
const SEED: u64 = 20_260_801;
const KILLS: usize = 200;
/// Every so many kills one comes while the server is starting.
const EARLY: usize = 5;
const WRITERS: usize = 32;
/// Names that each writer owns.
const NAMES: usize = 5;
/// Room for `WRITERS * NAMES` Services with two node ports each, and little more.
const ARGUMENTS: [&str; 4] =
    ["--service-cluster-ip-range", "10.96.0.0/24,fd00:10:96::/120", "--service-node-port-range", "30000-30399"];

/// What a Service has that must not change by itself.
#[derive(Clone, PartialEq, Debug)]
struct Held {
    uid: String,
    revision: u64,
    addresses: Vec<String>,
    ports: Vec<u64>,
}

impl Held {
    fn of(service: &Value) -> Self {
        let list = |pointer| service.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
        let texts = |values: Vec<Value>| values.iter().filter_map(|value| Some(value.as_str()?.to_owned())).collect();
        Self {
            uid: text(service, "/metadata/uid").to_owned(),
            revision: revision(service),
            addresses: texts(list("/spec/clusterIPs")),
            ports: list("/spec/ports").iter().filter_map(|port| port["nodePort"].as_u64()).collect(),
        }
    }
}

fn revision(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().expect("a resourceVersion")
}

/// The state of one of its names, as known to a writer.
#[derive(Clone, Debug)]
enum Known {
    Absent,
    Present(Held),
    /// The connection broke before the answer: of a create, or of a delete of what was held before.
    InDoubt(Option<Held>),
}

/// A client that writes its own set of names.
struct Writer {
    random: fastrand::Rng,
    names: BTreeMap<String, Known>,
    /// The newest revision it received.
    newest: u64,
    acknowledged: usize,
}

impl Writer {
    fn new(number: usize) -> Self {
        let random = fastrand::Rng::with_seed(SEED + number as u64);
        let names = (0..NAMES).map(|name| (format!("w{number}-{name}"), Known::Absent)).collect();
        Self { random, names, newest: 0, acknowledged: 0 }
    }

    /// Creates what is not there and deletes what is, until the server is gone.
    async fn write_until_killed(&mut self, mut client: Client) {
        loop {
            let place = self.random.usize(..NAMES);
            let (name, known) =
                self.names.iter().nth(place).map(|(name, known)| (name.clone(), known.clone())).expect("a name");
            let (method, path, body, before) = match known {
                Known::Absent => (Method::POST, SERVICES.to_owned(), Some(service(&name, self.any_spec())), None),
                Known::Present(held) => (Method::DELETE, format!("{SERVICES}/{name}"), None, Some(held)),
                Known::InDoubt(_) => unreachable!("doubts are settled after each restart"),
            };
            // After the kill the port may belong to another process, which need not respond: the result is in doubt, too.
            let answer = tokio::time::timeout(SILENCE, client.json(method, &path, body.as_ref())).await;
            match answer.unwrap_or_else(|_| Err(ClientError::Broken("no answer".to_owned()))) {
                Ok((code, object)) => self.note(&name, before, code, &object),
                // It was never sent.
                Err(ClientError::Connect { .. }) => return,
                Err(_) => {
                    self.names.insert(name, Known::InDoubt(before));
                    return;
                }
            }
        }
    }

    /// Records a response. The only valid rejection is that another Service has the requested value.
    fn note(&mut self, name: &str, before: Option<Held>, code: u16, object: &Value) {
        match (before, code) {
            (None, 201) => drop(self.names.insert(name.to_owned(), Known::Present(Held::of(object)))),
            (Some(held), 200) => {
                assert_eq!(text(object, "/metadata/uid"), held.uid, "another {name} was deleted");
                self.names.insert(name.to_owned(), Known::Absent);
            }
            (None, 422) if text(object, "/message").contains(" is already allocated") => return,
            (before, _) => panic!("{name}, before {before:?}: {code} {object}"),
        }
        let revision = revision(object);
        assert!(revision > self.newest, "{name}: revision {revision} after {}", self.newest);
        self.newest = revision;
        self.acknowledged += 1;
    }

    /// A Service of one or two families and ports, with addresses and ports of its own choice or of the server's.
    fn any_spec(&mut self) -> Value {
        let random = &mut self.random;
        let mut ports = vec![json!({"name": "a", "port": 80})];
        if random.bool() {
            ports.push(json!({"name": "b", "port": 81, "protocol": "UDP"}));
        }
        let mut spec = json!({"type": if random.bool() { "NodePort" } else { "ClusterIP" }, "ports": ports});
        if spec["type"] == "NodePort" && random.bool() {
            spec["ports"][0]["nodePort"] = json!(30_000 + random.u16(..60));
        }
        let dual = random.bool();
        if dual {
            spec["ipFamilyPolicy"] = json!("RequireDualStack");
        }
        if random.bool() {
            let host = random.u8(2..60);
            spec["clusterIP"] = json!(format!("10.96.0.{host}"));
            spec["clusterIPs"] = match dual && random.bool() {
                true => json!([spec["clusterIP"], format!("fd00:10:96::{:x}", random.u8(2..60))]),
                false => json!([spec["clusterIP"]]),
            };
        }
        spec
    }

    /// Compares its state with that of the server, and adopts what was in doubt.
    fn settle(&mut self, there: &BTreeMap<String, Held>) {
        for (name, known) in &mut self.names {
            let found = there.get(name);
            match known {
                Known::Absent => assert_eq!(found, None, "{name} came back after its delete was acknowledged"),
                Known::Present(held) => assert_eq!(found, Some(&*held), "{name} was acknowledged"),
                Known::InDoubt(Some(held)) => {
                    assert!(found.is_none_or(|found| found == held), "{name} changed: {found:?}");
                }
                Known::InDoubt(None) => {}
            }
            *known = found.map_or(Known::Absent, |held| Known::Present(held.clone()));
        }
    }
}

async fn list(client: &mut Client, path: &str) -> (u64, Vec<Value>) {
    let (code, mut list) = client.json(Method::GET, path, None).await.expect("a list");
    assert_eq!(code, 200, "{list}");
    let items = list["items"].as_array_mut().map(std::mem::take).expect("items");
    (revision(&list), items)
}

/// Everything that must be true of what is there. Answers the revision at which it was.
async fn verify(client: &mut Client, writers: &mut [Writer], newest: u64) -> u64 {
    let (now, services) = list(client, "/api/v1/services").await;
    let told = writers.iter().map(|writer| writer.newest).max().unwrap_or(0).max(newest);
    assert!(now >= told, "revision {told} was seen before, now it is {now}");
    let there: BTreeMap<String, Held> =
        services.iter().map(|item| (text(item, "/metadata/name").to_owned(), Held::of(item))).collect();
    let mut addresses: BTreeMap<&str, &str> = BTreeMap::new();
    let mut ports: BTreeMap<u64, &str> = BTreeMap::new();
    for (name, held) in &there {
        for address in &held.addresses {
            let other = addresses.insert(address, name);
            assert_eq!(other, None, "{address} is owned by {name}, too");
        }
        for port in held.ports.iter().collect::<BTreeSet<_>>() {
            let other = ports.insert(*port, name);
            assert_eq!(other, None, "node port {port} is owned by {name}, too");
        }
    }
    let (_, objects) = list(client, ADDRESSES).await;
    let held: BTreeMap<&str, &str> =
        objects.iter().map(|item| (text(item, "/metadata/name"), text(item, "/spec/parentRef/name"))).collect();
    assert_eq!(held, addresses, "IPAddress objects and Services differ");
    for writer in writers {
        writer.settle(&there);
    }
    now
}

/// The server must not have had to repair anything, nor have logged errors.
fn assert_nothing_was_repaired(log: &str) {
    for bad in ["allocations were set right", "\"level\":\"ERROR\"", "panicked"] {
        assert!(!log.contains(bad), "the server had to repair something, or complained:\n{log}");
    }
}

/// Starts the server, lets all writers write, kills it at a random moment.
async fn one_life(home: &TempDir, writers: &mut [Writer], newest: u64, moment: Duration) -> u64 {
    let mut server = Server::start_with(Home::Kept(home.path().to_owned()), &ARGUMENTS);
    let mut client = server.client();
    let newest = verify(&mut client, writers, newest).await;
    let writing = join_all(writers.iter_mut().map(|writer| writer.write_until_killed(client.another())));
    let killing = async {
        tokio::time::sleep(moment).await;
        server.kill();
    };
    let ended = tokio::time::timeout(TIMEOUT, async { tokio::join!(writing, killing) }).await;
    assert!(ended.is_ok(), "a writer got neither an answer nor an error");
    assert_nothing_was_repaired(&server.whole_log());
    newest
}

/// Kills the server before it is ready, maybe in the middle of its recovery.
async fn one_early_death(home: &TempDir, moment: Duration) {
    let mut child = server_command(home.path(), &ARGUMENTS).spawn().expect("the binary starts");
    tokio::time::sleep(moment).await;
    child.kill().expect("killed");
    child.wait().expect("ended");
    let mut log = String::new();
    child.stderr.take().expect("its log").read_to_string(&mut log).expect("its log");
    assert_nothing_was_repaired(&log);
}

/// Deletes every Service of the writers, then claims all there is: whatever leaked would be missing.
fn assert_all_can_be_claimed(server: &Server, writers: &[Writer]) {
    let mut api = server.session();
    for (name, _) in
        writers.iter().flat_map(|writer| &writer.names).filter(|(_, known)| matches!(known, Known::Present(_)))
    {
        let _ = api.delete(&format!("{SERVICES}/{name}")).success();
    }
    let ports: Vec<Value> =
        (0..400).map(|n| json!({"name": format!("p{n}"), "port": 1 + n, "nodePort": 30_000 + n})).collect();
    api.create("all-ports", json!({"type": "NodePort", "clusterIP": "10.96.0.2", "ports": ports}));
    for host in 3..=254 {
        api.create(&format!("h{host}"), json!({"clusterIP": format!("10.96.0.{host}"), "ports": [{"port": 80}]}));
    }
}

#[test]
fn s31_what_was_acknowledged_survives_200_kills_and_nothing_is_owned_twice_or_leaked() {
    eprintln!("seed {SEED}");
    let mut random = fastrand::Rng::with_seed(SEED);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let home = testbed::folder();
    let mut writers: Vec<Writer> = (0..WRITERS).map(Writer::new).collect();
    let mut newest = 0;
    runtime.block_on(async {
        for kill in 1..=KILLS {
            if kill % EARLY == 0 {
                one_early_death(&home, Duration::from_micros(random.u64(..60_000))).await;
            } else {
                let moment = Duration::from_micros(random.u64(5_000..250_000));
                newest = one_life(&home, &mut writers, newest, moment).await;
            }
        }
    });
    let mut server = Server::start_with(Home::Kept(home.path().to_owned()), &ARGUMENTS);
    runtime.block_on(async { verify(&mut server.client(), &mut writers, newest).await });
    let acknowledged: usize = writers.iter().map(|writer| writer.acknowledged).sum();
    assert!(acknowledged > KILLS, "only {acknowledged} writes were acknowledged: the test shows nothing");
    eprintln!("{acknowledged} writes were acknowledged");
    assert_all_can_be_claimed(&server, &writers);
    assert!(server.terminate().success());
    assert_nothing_was_repaired(&server.whole_log());
}
