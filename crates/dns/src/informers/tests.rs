//! Watches: readiness after all initial lists, no loss while a watch is broken, removal after a relist.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::zone::Config;

/// Message of a scripted source.
#[derive(Debug)]
enum Step {
    Event(Event),
    Lost(&'static str),
}

/// Source that emits scripted events per kind.
#[derive(Default)]
struct Script {
    steps: Mutex<HashMap<String, mpsc::UnboundedReceiver<Step>>>,
}

impl Source for Script {
    fn watch(&self, what: Selection) -> Watch {
        let mut steps = self.steps.lock().remove(&what.to_string()).expect("a script for it");
        Watch::run(&what, |sender| async move {
            while let Some(say) = steps.recv().await {
                match say {
                    Step::Event(event) => {
                        sender.send(event).await;
                    }
                    Step::Lost(why) => sender.failed(Instant::now(), why),
                }
            }
            std::future::pending::<()>().await;
        })
    }
}

impl Script {
    fn sender_for(&self, what: &str) -> mpsc::UnboundedSender<Step> {
        let (sender_for, steps) = mpsc::unbounded_channel();
        self.steps.lock().insert(what.to_owned(), steps);
        sender_for
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

/// Waits until a condition on the snapshot holds.
async fn until(snapshot: &Arc<ZoneSnapshot>, holds: impl Fn(&ZoneSnapshot) -> bool) {
    let mut updates = snapshot.updates();
    while !holds(snapshot) {
        updates.changed().await.expect("the snapshot is here");
    }
}

fn has(snapshot: &ZoneSnapshot, name: &str) -> bool {
    snapshot.service(&crate::snapshot::service_key("ns", name).expect("labels")).is_some()
}

#[tokio::test]
async fn a_broken_watch_is_reported_and_keeps_its_records() {
    let script = Script::default();
    let [namespaces, services, slices] =
        ["namespaces", "services", "endpointslices.discovery.k8s.io"].map(|what| script.sender_for(what));
    let send_events = |to: &mpsc::UnboundedSender<Step>, events: Vec<Event>| {
        events.into_iter().for_each(|event| to.send(Step::Event(event)).expect("it listens"));
    };
    let snapshot = ZoneSnapshot::new(Config::default()).expect("zones");
    let metrics = Metrics::new(&snapshot.zones, "dns://:53");
    let informers = Informers::start(&script, &snapshot, &metrics).expect("selectors");
    assert_eq!(informers.len(), 3);
    send_events(&namespaces, vec![Event::Init, Event::InitApply(object("", "ns", &json!({}))), Event::InitDone]);
    let first = ["a", "b", "c"].map(|name| Event::InitApply(service(name, "10.96.0.1")));
    send_events(&services, [vec![Event::Init], first.to_vec(), vec![Event::InitDone]].concat());
    until(&snapshot, |snapshot| has(snapshot, "c")).await;
    assert!(!snapshot.is_ready(), "slices are not known yet");
    assert!(
        informers.out_of_sync().iter().any(|text| text.starts_with("endpointslices")),
        "{:?}",
        informers.out_of_sync()
    );
    send_events(&slices, vec![Event::Init, Event::InitDone]);
    until(&snapshot, ZoneSnapshot::is_ready).await;
    assert!(informers.out_of_sync().is_empty(), "{:?}", informers.out_of_sync());

    let serial = snapshot.serial();
    services.send(Step::Lost("the server is away")).expect("it listens");
    send_events(
        &services,
        vec![Event::Init, Event::InitApply(service("a", "10.96.0.1")), Event::InitApply(service("d", "10.96.0.4"))],
    );
    until(&snapshot, |snapshot| has(snapshot, "d")).await;
    assert!(has(&snapshot, "b") && snapshot.is_ready(), "half a list takes nothing away");
    assert_eq!(informers.out_of_sync(), ["services: the server is away"]);
    assert!(metrics.text(&snapshot).contains("waypost_dns_watch_in_sync{watch=\"services\"} 0"));
    send_events(&services, vec![Event::InitDone, Event::Delete(service("a", "10.96.0.1"))]);
    until(&snapshot, |snapshot| !has(snapshot, "a")).await;
    assert!(!has(&snapshot, "b") && !has(&snapshot, "c") && has(&snapshot, "d") && informers.out_of_sync().is_empty());
    let text = metrics.text(&snapshot);
    assert!(
        text.contains("waypost_dns_watch_in_sync{watch=\"services\"} 1")
            && text.contains("breaks_total{watch=\"services\"} 1")
    );
    assert!(snapshot.serial() >= serial);
}

#[tokio::test]
async fn an_invalid_object_does_not_affect_others() {
    let script = Script::default();
    let senders = ["namespaces", "services", "endpointslices.discovery.k8s.io"].map(|what| script.sender_for(what));
    let snapshot = ZoneSnapshot::new(Config::default()).expect("zones");
    let metrics = Metrics::new(&snapshot.zones, "dns://:53");
    let _inputs = Informers::start(&script, &snapshot, &metrics).expect("selectors");
    let invalid = Object { value: b"{\"spec\": 7}".to_vec().into(), ..service("invalid", "10.96.0.1") };
    let lists = [vec![], vec![invalid, service("a", "10.96.0.2")], vec![]];
    for (sender_for, list) in senders.iter().zip(lists) {
        let events =
            [vec![Event::Init], list.into_iter().map(Event::InitApply).collect(), vec![Event::InitDone]].concat();
        events.into_iter().for_each(|event| sender_for.send(Step::Event(event)).expect("it listens"));
    }
    until(&snapshot, ZoneSnapshot::is_ready).await;
    assert!(has(&snapshot, "a") && !has(&snapshot, "invalid"));
}

#[tokio::test]
async fn pods_are_watched_only_when_they_matter_and_selectors_are_checked() {
    let script = Script::default();
    let config = Config { pods: Pods::Verified, endpoints: false, labels: "a=b".to_owned(), ..Config::default() };
    for what in ["namespaces", "services labelled a=b", "pods labelled a=b"] {
        script.sender_for(what);
    }
    let snapshot = ZoneSnapshot::new(config).expect("zones");
    let metrics = Metrics::new(&snapshot.zones, "dns://:53");
    assert_eq!(Informers::start(&script, &snapshot, &metrics).expect("selectors").len(), 3);
    let snapshot = ZoneSnapshot::new(Config { labels: "a in".to_owned(), ..Config::default() }).expect("zones");
    assert!(Informers::start(&script, &snapshot, &metrics).is_err());
}
