//! Watches over HTTP against the real server: nothing lost, nothing twice, whatever happens to the server meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use client::events::ObjectEvent;
use client::http::{Client, Method};
use client::remote::{Remote, Timing};
use client::watch::Source as _;
use client::watch::{Event, KnownKeys, Selection, Watch};
use serde_json::{Value, json};
use testbed::session::TIMEOUT;
use testbed::{Home, Server};

const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";

/// What a listener makes of a watch: objects by key.
struct Listener {
    watching: Watch,
    known: KnownKeys,
    objects: BTreeMap<String, Value>,
    lists: usize,
}

impl Listener {
    fn of(remote: &Remote, what: Selection) -> Self {
        Self { watching: remote.watch(what), known: KnownKeys::default(), objects: BTreeMap::new(), lists: 0 }
    }

    async fn next(&mut self) {
        let event = tokio::time::timeout(TIMEOUT, self.watching.next()).await;
        let event = event.unwrap_or_else(|_| panic!("an event in time: {:?}", self.watching));
        for gone in self.known.apply(&event) {
            self.objects.remove(&*gone);
        }
        match event {
            Event::Init => self.lists += 1,
            Event::InitDone => {}
            Event::InitApply(object) | Event::Apply(object) => {
                let value = serde_json::from_slice(&object.value).expect("JSON");
                self.objects.insert(object.key(), value);
            }
            Event::Delete(object) => {
                assert!(self.objects.remove(&object.key()).is_some(), "{object:?} was not known");
            }
        }
    }

    async fn until(&mut self, wanted: impl Fn(&Self) -> bool) {
        while !wanted(self) {
            self.next().await;
        }
    }

    async fn complete(&mut self) {
        self.until(|listener| listener.known.is_complete()).await;
    }

    /// Waits until an object is there with this datum.
    async fn sees(&mut self, name: &str, datum: &str) {
        let key = format!("default/{name}");
        self.until(|listener| listener.objects.get(&key).is_some_and(|object| object["data"]["a"] == datum)).await;
    }

    fn names(&self) -> Vec<&str> {
        self.objects.keys().map(|key| key.rsplit('/').next().unwrap_or_default()).collect()
    }
}

fn configs() -> Selection {
    Selection::all(api::kinds::find("", "v1", "configmaps").expect("a kind"))
}

fn config(name: &str, label: &str, datum: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": label}}, "data": {"a": datum}})
}

async fn send(client: &mut Client, method: Method, path: &str, body: Option<&Value>) -> Value {
    let (code, answer) = client.json(method, path, body).await.expect("an answer");
    assert!((200..300).contains(&code), "{path}: {answer}");
    answer
}

async fn create(client: &mut Client, object: &Value) {
    send(client, Method::POST, CONFIGS, Some(object)).await;
}

async fn replace(client: &mut Client, object: &Value) {
    let path = format!("{CONFIGS}/{}", object["metadata"]["name"].as_str().expect("a name"));
    send(client, Method::PUT, &path, Some(object)).await;
}

async fn delete(client: &mut Client, name: &str) {
    send(client, Method::DELETE, &format!("{CONFIGS}/{name}"), None).await;
}

/// What the server has, in the form in which listeners hold it.
async fn stored(client: &mut Client) -> BTreeMap<String, Value> {
    let mut list = send(client, Method::GET, "/api/v1/configmaps", None).await;
    let Value::Array(items) = list["items"].take() else { panic!("a list") };
    let slim = |mut object: Value| {
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
        let key = format!("{}/{}", text(metadata, "namespace"), text(metadata, "name"));
        (key, object)
    };
    items.into_iter().map(slim).collect()
}

fn text<'a>(map: &'a serde_json::Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn remote(server: &Server) -> Remote {
    Remote::new(&server.kubeconfig()).expect("a kubeconfig")
}

#[tokio::test]
async fn s38_a_remote_watch_lists_and_then_follows() {
    let server = Server::start();
    let mut client = server.client();
    create(&mut client, &config("a", "x", "1")).await;
    let mut listener = Listener::of(&remote(&server), configs());
    assert!(!listener.watching.status().is_synced());
    listener.complete().await;
    assert!(listener.watching.status().is_synced());
    assert_eq!(listener.objects, stored(&mut client).await);
    create(&mut client, &config("b", "x", "1")).await;
    replace(&mut client, &config("a", "x", "2")).await;
    delete(&mut client, "b").await;
    create(&mut client, &config("last", "x", "3")).await;
    listener.sees("last", "3").await;
    assert_eq!(listener.objects, stored(&mut client).await);
    assert_eq!((listener.lists, listener.watching.status().health().failures), (1, 0));
}

#[tokio::test]
async fn s38_leaving_a_selection_is_a_deletion_over_http_too() {
    let server = Server::start();
    let mut client = server.client();
    create(&mut client, &config("in", "mine", "1")).await;
    create(&mut client, &config("out", "other", "1")).await;
    let what = configs().within("default").selected("app=mine", "").expect("a selector");
    let mut listener = Listener::of(&remote(&server), what);
    listener.complete().await;
    assert_eq!(listener.names(), ["in"]);
    replace(&mut client, &config("out", "mine", "2")).await;
    replace(&mut client, &config("in", "other", "2")).await;
    replace(&mut client, &config("in", "other", "3")).await;
    create(&mut client, &config("last", "mine", "1")).await;
    listener.sees("last", "1").await;
    assert_eq!(listener.names(), ["last", "out"]);

    let mut one = Listener::of(&remote(&server), configs().named("out").expect("a name"));
    one.complete().await;
    assert_eq!(one.names(), ["out"]);
}

/// An address reserved for this test: a server that restarts needs the same port.
fn own_address() -> String {
    let number = std::process::id();
    format!("127.{}.{}.{}:6443", 1 + number % 250, 1 + (number / 250) % 250, fastrand::u8(1..250))
}

/// Random changes to a few objects.
async fn change(client: &mut Client, random: &mut fastrand::Rng, count: usize) {
    for _ in 0..count {
        let name = format!("c{}", random.u8(..12));
        let object = config(&name, "x", &random.u32(..).to_string());
        let (code, answer) = match random.u8(..3) {
            0 => client.json(Method::DELETE, &format!("{CONFIGS}/{name}"), None).await,
            1 => client.json(Method::POST, CONFIGS, Some(&object)).await,
            _ => client.json(Method::PUT, &format!("{CONFIGS}/{name}"), Some(&object)).await,
        }
        .expect("an answer");
        assert!(matches!(code, 200 | 201 | 404 | 409), "{answer}");
    }
}

async fn survives(start: impl Fn() -> Server) {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut server = start();
    let mut listener = Listener::of(&remote(&server), configs());
    listener.complete().await;
    for round in 0..3 {
        change(&mut server.client(), &mut random, 20).await;
        server.kill();
        let mut watched = listener.watching.status();
        while watched.is_synced() {
            // Events that were sent before the end may have to be read before the end can be.
            tokio::select! {
                health = watched.changed() => drop(health),
                () = listener.next() => {}
            }
        }
        assert!(watched.health().out_of_sync.is_some_and(|lost| lost.reason.is_some()), "seed {seed}, round {round}");
        server = start();
        let mut client = server.client();
        change(&mut client, &mut random, 20).await;
        create(&mut client, &config(&format!("last-{round}"), "x", "y")).await;
        listener.sees(&format!("last-{round}"), "y").await;
        assert_eq!(listener.objects, stored(&mut client).await, "seed {seed}, round {round}");
        assert!(watched.is_synced(), "{watched:?}");
    }
}

#[tokio::test]
async fn s38_a_remote_watch_survives_a_server_that_is_killed() {
    let home = testbed::folder();
    let address = own_address();
    survives(|| Server::start_with(Home::Kept(home.path().to_owned()), &["--listen", &address])).await;
}

#[tokio::test]
async fn s38_a_remote_watch_finds_a_server_that_comes_back_elsewhere() {
    let home = testbed::folder();
    survives(|| Server::start_with(Home::Kept(home.path().to_owned()), &[])).await;
}

#[tokio::test]
async fn s38_a_server_that_hangs_is_noticed() {
    let server = Server::start();
    let second = Duration::from_secs(1);
    let timing = Timing { ping: second, response: second, connect: second, ..Timing::default() };
    let mut listener = Listener::of(&remote(&server).with_timing(timing), configs());
    listener.complete().await;
    let signal = |signal| {
        let pid = rustix::process::Pid::from_raw(i32::try_from(server.pid()).expect("a number")).expect("a process");
        rustix::process::kill_process(pid, signal).expect("signalled");
    };
    signal(rustix::process::Signal::STOP);
    let mut watched = listener.watching.status();
    let noticed = async { while watched.changed().await.expect("it goes on").out_of_sync.is_none() {} };
    let noticed = tokio::time::timeout(TIMEOUT, noticed).await;
    signal(rustix::process::Signal::CONT);
    noticed.expect("a silent stream is asked for a sign of life");
    create(&mut server.client(), &config("back", "x", "1")).await;
    listener.sees("back", "1").await;
    assert_eq!(listener.lists, 1, "it goes on where it was");
}

#[tokio::test]
async fn s38_a_long_list_of_large_objects_comes_whole() {
    let server = Server::start();
    let mut client = server.client();
    let filler = "x".repeat(2000);
    for number in 0..1200 {
        create(&mut client, &config(&format!("c{number:04}"), "x", &filler)).await;
    }
    let mut listener = Listener::of(&remote(&server), configs());
    listener.complete().await;
    assert_eq!(listener.objects.len(), stored(&mut client).await.len());
}

#[tokio::test]
async fn s38_trust_is_what_the_kubeconfig_says() {
    let server = Server::start();
    let text = std::fs::read_to_string(server.kubeconfig()).expect("a kubeconfig");
    let authority = text.lines().find(|line| line.contains("certificate-authority-data")).expect("an authority");
    let path = server.home().join("other");
    let with = |line: &str| {
        std::fs::write(&path, text.replace(authority, line)).expect("written");
        Client::from_kubeconfig(&path)
    };
    let mut believing = with("    insecure-skip-tls-verify: true").expect("a kubeconfig");
    assert_eq!(believing.json(Method::GET, CONFIGS, None).await.expect("an answer").0, 200);
    let mut doubting = with(&format!("{authority}\n    tls-server-name: other.example")).expect("a kubeconfig");
    let refused = doubting.json(Method::GET, CONFIGS, None).await.expect_err("it is not the server that it should be");
    assert!(refused.to_string().contains("invalid peer certificate"), "{refused}");
}

#[tokio::test]
async fn s38_findings_are_events_that_people_can_read() {
    let server = Server::start();
    let service = send(&mut server.client(), Method::GET, "/api/v1/namespaces/default/services/kubernetes", None).await;
    let recorder = client::events::EventRecorder::start(&remote(&server), "kube-proxy", "node-1");
    recorder.record(ObjectEvent {
        kind: api::kinds::find("", "v1", "services").expect("a kind"),
        namespace: "default".to_owned(),
        name: "kubernetes".to_owned(),
        uid: service["metadata"]["uid"].as_str().expect("a uid").to_owned(),
        normal: false,
        reason: "BadAddress",
        message: "an endpoint has no address".to_owned(),
    });
    let events = Selection::all(api::kinds::find("", "v1", "events").expect("a kind"));
    let mut listener = Listener::of(&remote(&server), events);
    listener.until(|listener| listener.objects.values().any(|event| event["reason"] == "BadAddress")).await;
    let shown = server.kubectl("describe service kubernetes").success();
    assert!(shown.contains("an endpoint has no address") && shown.contains("kube-proxy"), "{shown}");
}
