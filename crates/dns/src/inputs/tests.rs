//! Watches as they go: nothing before all lists are complete, nothing lost when one breaks, nothing left after the
//! next.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::zone::Config;

/// What a source sends.
#[derive(Debug)]
enum Say {
    Event(Event),
    Lost(&'static str),
}

/// A source that says what it is told, kind by kind.
#[derive(Default)]
struct Script {
    told: Mutex<HashMap<String, mpsc::UnboundedReceiver<Say>>>,
}

impl Source for Script {
    fn watch(&self, what: Selection) -> Watch {
        let mut told = self.told.lock().remove(&what.to_string()).expect("a script for it");
        Watch::run(&what, |sender| async move {
            while let Some(say) = told.recv().await {
                match say {
                    Say::Event(event) => {
                        sender.send(event).await;
                    }
                    Say::Lost(why) => sender.failed(Instant::now(), why),
                }
            }
            std::future::pending::<()>().await;
        })
    }
}

impl Script {
    fn teller(&self, what: &str) -> mpsc::UnboundedSender<Say> {
        let (teller, told) = mpsc::unbounded_channel();
        self.told.lock().insert(what.to_owned(), told);
        teller
    }
}

fn object(namespace: &str, name: &str, value: &Value) -> Object {
    let mut value = value.clone();
    value["metadata"]["namespace"] = json!(namespace);
    value["metadata"]["name"] = json!(name);
    Object { namespace: namespace.into(), name: name.into(), value: value.to_string().into_bytes().into() }
}

fn service(name: &str, address: &str) -> Object {
    object("ns", name, &json!({"spec": {"clusterIPs": [address], "ports": [{"port": 80}]}}))
}

/// Waits until the book says so.
async fn until(book: &Arc<Book>, holds: impl Fn(&Book) -> bool) {
    let mut updates = book.updates();
    while !holds(book) {
        updates.changed().await.expect("the book is here");
    }
}

fn has(book: &Book, name: &str) -> bool {
    book.service(&crate::book::wire_of("ns", name).expect("labels")).is_some()
}

#[tokio::test]
async fn a_broken_watch_is_told_and_costs_no_answer() {
    let script = Script::default();
    let [namespaces, services, slices] =
        ["namespaces", "services", "endpointslices.discovery.k8s.io"].map(|what| script.teller(what));
    let tell = |to: &mpsc::UnboundedSender<Say>, events: Vec<Event>| {
        events.into_iter().for_each(|event| to.send(Say::Event(event)).expect("it listens"));
    };
    let book = Book::new(Config::default()).expect("zones");
    let metrics = Metrics::new(&book.zones, "dns://:53");
    let inputs = Inputs::start(&script, &book, &metrics).expect("selectors");
    assert_eq!(inputs.len(), 3);
    tell(&namespaces, vec![Event::Init, Event::InitApply(object("", "ns", &json!({}))), Event::InitDone]);
    let first = ["a", "b", "c"].map(|name| Event::InitApply(service(name, "10.96.0.1")));
    tell(&services, [vec![Event::Init], first.to_vec(), vec![Event::InitDone]].concat());
    until(&book, |book| has(book, "c")).await;
    assert!(!book.is_ready(), "slices are not known yet");
    assert!(inputs.lost().iter().any(|text| text.starts_with("endpointslices")), "{:?}", inputs.lost());
    tell(&slices, vec![Event::Init, Event::InitDone]);
    until(&book, Book::is_ready).await;
    assert!(inputs.lost().is_empty(), "{:?}", inputs.lost());

    let serial = book.serial();
    services.send(Say::Lost("the server is away")).expect("it listens");
    tell(
        &services,
        vec![Event::Init, Event::InitApply(service("a", "10.96.0.1")), Event::InitApply(service("d", "10.96.0.4"))],
    );
    until(&book, |book| has(book, "d")).await;
    assert!(has(&book, "b") && book.is_ready(), "half a list takes nothing away");
    assert_eq!(inputs.lost(), ["services: the server is away"]);
    assert!(metrics.text(&book).contains("waypost_dns_watch_in_sync{watch=\"services\"} 0"));
    tell(&services, vec![Event::InitDone, Event::Delete(service("a", "10.96.0.1"))]);
    until(&book, |book| !has(book, "a")).await;
    assert!(!has(&book, "b") && !has(&book, "c") && has(&book, "d") && inputs.lost().is_empty());
    let text = metrics.text(&book);
    assert!(
        text.contains("waypost_dns_watch_in_sync{watch=\"services\"} 1")
            && text.contains("breaks_total{watch=\"services\"} 1")
    );
    assert!(book.serial() >= serial);
}

#[tokio::test]
async fn an_object_that_cannot_be_read_leaves_the_others() {
    let script = Script::default();
    let tellers = ["namespaces", "services", "endpointslices.discovery.k8s.io"].map(|what| script.teller(what));
    let book = Book::new(Config::default()).expect("zones");
    let metrics = Metrics::new(&book.zones, "dns://:53");
    let _inputs = Inputs::start(&script, &book, &metrics).expect("selectors");
    let odd = Object { value: b"{\"spec\": 7}".to_vec().into(), ..service("odd", "10.96.0.1") };
    let lists = [vec![], vec![odd, service("a", "10.96.0.2")], vec![]];
    for (teller, list) in tellers.iter().zip(lists) {
        let events =
            [vec![Event::Init], list.into_iter().map(Event::InitApply).collect(), vec![Event::InitDone]].concat();
        events.into_iter().for_each(|event| teller.send(Say::Event(event)).expect("it listens"));
    }
    until(&book, Book::is_ready).await;
    assert!(has(&book, "a") && !has(&book, "odd"));
}

#[tokio::test]
async fn pods_are_watched_only_when_they_matter_and_selectors_are_checked() {
    let script = Script::default();
    let config = Config { pods: Pods::Verified, endpoints: false, labels: "a=b".to_owned(), ..Config::default() };
    for what in ["namespaces", "services labelled a=b", "pods labelled a=b"] {
        script.teller(what);
    }
    let book = Book::new(config).expect("zones");
    let metrics = Metrics::new(&book.zones, "dns://:53");
    assert_eq!(Inputs::start(&script, &book, &metrics).expect("selectors").len(), 3);
    let book = Book::new(Config { labels: "a in".to_owned(), ..Config::default() }).expect("zones");
    assert!(Inputs::start(&script, &book, &metrics).is_err());
}
