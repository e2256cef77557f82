//! Split Services, slices of listeners, and the order of events.

use std::collections::BTreeSet;
use std::time::Duration;

use client::watch::{KnownKeys, Selection, Source, Watch};
use proptest::prelude::*;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::annotations::{BACKEND_PROTOCOL, SSL_CERT, SSL_PORTS};

fn object(namespace: &str, name: &str, value: &Value) -> Object {
    Object { namespace: namespace.into(), name: name.into(), value: Bytes::from(value.to_string()) }
}

fn service(name: &str, annotations: &Value) -> Object {
    let value = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": "u", "annotations": annotations},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.9", "externalTrafficPolicy": "Cluster",
            "loadBalancerSourceRanges": ["192.0.2.0/24"],
            "ports": [
                {"name": "https", "port": 443, "protocol": "TCP", "nodePort": 30443},
                {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080},
                {"name": "quic", "port": 443, "protocol": "UDP"},
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1", "ipMode": "VIP"}, {"ip": "2001:db8::1"}]}},
    });
    object("shop", name, &value)
}

fn value(object: &Object) -> Value {
    serde_json::from_slice(&object.value).expect("JSON")
}

fn words(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| format!("{event:?}")).collect()
}

#[test]
fn a_gateway_service_is_split_in_two() {
    let events =
        Services::default().follow(Event::Apply(service("web", &json!({SSL_CERT: "arn:x", SSL_PORTS: "443"}))));
    assert_eq!(words(&events), ["Apply(shop/web)", "Apply(shop/web.gateway)"]);
    let [Event::Apply(first), Event::Apply(second)] = &events[..] else { panic!("{events:?}") };
    let first = value(first);
    let marks: Vec<bool> =
        first["spec"]["ports"].as_array().expect("ports").iter().map(|port| port[MARK] == true).collect();
    assert_eq!(marks, [true, false, false], "the port of TCP that is named, and no other");
    assert_eq!(first["spec"]["clusterIP"], "10.96.0.9");
    assert_eq!(
        first["status"]["loadBalancer"]["ingress"].as_array().map(Vec::len),
        Some(2),
        "its other ports are there"
    );
    let second = value(second);
    assert_eq!(second["spec"]["externalTrafficPolicy"], "Local");
    assert_eq!(second["spec"]["loadBalancerSourceRanges"], json!(["192.0.2.0/24"]));
    assert_eq!(second["spec"]["ports"], json!([{"name": "https", "protocol": "TCP", "port": 443}]), "no node port");
    assert_eq!(second["status"], first["status"]);
    let ips: Vec<IpAddr> = second["spec"]["clusterIPs"]
        .as_array()
        .expect("addresses")
        .iter()
        .map(|ip| ip.as_str().expect("text").parse().expect("an address"))
        .collect();
    assert!(
        matches!(ips[..], [IpAddr::V4(v4), IpAddr::V6(v6)] if v4.octets()[0] >= 240 && v4.octets()[0] < 255 && v6.segments()[0] == 0x100)
    );
}

#[test]
fn other_services_are_not_changed() {
    let plain = service("web", &json!({"other": "x"}));
    let foreign = service("db", &json!({BACKEND_PROTOCOL: "tcp"}));
    let mut services = Services::default();
    for one in [plain, foreign] {
        assert_eq!(services.follow(Event::Apply(one.clone())), [Event::Apply(one.clone())]);
        assert_eq!(services.follow(Event::Delete(one.clone())), [Event::Delete(one)]);
    }
}

#[test]
fn the_second_service_is_deleted_with_the_annotation_or_the_service() {
    let (with, without) = (service("web", &json!({SSL_CERT: "arn:x"})), service("web", &json!({})));
    let mut services = Services::default();
    services.follow(Event::Apply(with.clone()));
    assert_eq!(words(&services.follow(Event::Apply(without.clone()))), ["Delete(shop/web.gateway)", "Apply(shop/web)"]);
    assert_eq!(words(&services.follow(Event::Apply(without))), ["Apply(shop/web)"]);
    services.follow(Event::Apply(with.clone()));
    assert_eq!(words(&services.follow(Event::Delete(with))), ["Delete(shop/web.gateway)", "Delete(shop/web)"]);
}

fn bound(name: &str, at: &str) -> Bound {
    Bound { name: name.into(), address: at.parse().expect("an address") }
}

#[test]
fn listeners_are_endpoints_of_this_node() {
    let all = vec![
        bound("https", "192.0.2.11:41000"),
        bound("https", "[2001:db8::11]:41001"),
        bound("alt", "192.0.2.11:41002"),
    ];
    let slices = slices(&Listening::from([("shop/web".into(), all)]), "n1");
    assert_eq!(slices.keys().collect::<Vec<_>>(), ["shop/web.gateway-4", "shop/web.gateway-6"]);
    let four = value(&slices["shop/web.gateway-4"]);
    assert_eq!(four["metadata"]["labels"][SERVICE_NAME], "web.gateway");
    assert_eq!(four["endpoints"][0]["nodeName"], "n1");
    assert_eq!(four["endpoints"][0]["addresses"], json!(["192.0.2.11"]));
    let ports: Vec<u64> =
        four["ports"].as_array().expect("ports").iter().filter_map(|port| port["port"].as_u64()).collect();
    assert_eq!(ports, [41_000, 41_002]);
}

/// Source that emits scripted events.
struct Script(parking_lot::Mutex<Option<mpsc::Receiver<Event>>>);

impl Source for Script {
    fn watch(&self, what: Selection) -> Watch {
        let mut events = self.0.lock().take().expect("one watch");
        Watch::run(&what, |out| async move {
            while let Some(event) = events.recv().await {
                out.send(event).await;
            }
            std::future::pending::<()>().await;
        })
    }
}

#[tokio::test]
async fn slices_of_listeners_are_part_of_the_list_and_follow_it() {
    let (say, events) = mpsc::channel(10);
    let script = Script(parking_lot::Mutex::new(Some(events)));
    let one = |at: &str| Arc::new(Listening::from([("shop/web".into(), vec![bound("https", at)])]));
    let (listen, listening) = watch::channel(one("192.0.2.11:1"));
    let split = Split::new(&script, "n1", listening);
    let mut watching = split.watch(Selection::all(&api::kinds::endpointslice::KIND));
    let mut received = async || {
        let event = tokio::time::timeout(Duration::from_secs(20), watching.next()).await.expect("an event in time");
        format!("{event:?}")
    };
    let real = object("shop", "real", &json!({}));
    for event in [Event::Init, Event::InitApply(real), Event::InitDone] {
        say.send(event).await.expect("received");
    }
    for wanted in ["Init", "InitApply(shop/real)", "InitApply(shop/web.gateway-4)", "InitDone"] {
        assert_eq!(received().await, wanted);
    }
    listen.send_replace(one("192.0.2.11:2"));
    assert_eq!(received().await, "Apply(shop/web.gateway-4)");
    listen.send_replace(Arc::default());
    assert_eq!(received().await, "Delete(shop/web.gateway-4)");
    // During a list no other event is emitted.
    say.send(Event::Init).await.expect("received");
    assert_eq!(received().await, "Init");
    listen.send_replace(one("192.0.2.11:3"));
    say.send(Event::InitDone).await.expect("received");
    assert_eq!(received().await, "InitApply(shop/web.gateway-4)");
    assert_eq!(received().await, "InitDone");
}

/// State of a consumer after these events.
fn known(events: &[Event]) -> BTreeSet<String> {
    let (mut keys, mut known) = (BTreeSet::new(), KnownKeys::default());
    for event in events {
        let gone = known.apply(event);
        match event {
            Event::Apply(object) | Event::InitApply(object) => {
                keys.insert(object.key());
            }
            Event::Delete(object) => {
                keys.remove(&object.key());
            }
            Event::Init | Event::InitDone => {}
        }
        gone.iter().for_each(|key| {
            keys.remove(&**key);
        });
    }
    keys
}

proptest! {
    #[test]
    fn exactly_the_gateway_services_are_split_after_any_events(
        steps in proptest::collection::vec((0..4_u8, 0..3_u8, any::<bool>()), 0..40)
    ) {
        let (mut services, mut emitted, mut truth) = (Services::default(), Vec::new(), BTreeMap::new());
        let mut say = |services: &mut Services, event: Event| emitted.extend(services.follow(event));
        say(&mut services, Event::Init);
        say(&mut services, Event::InitDone);
        for (step, number, wants) in steps {
            let name = format!("s{number}");
            let annotations = if wants { json!({SSL_CERT: "arn:x"}) } else { json!({}) };
            let one = service(&name, &annotations);
            match step {
                0 | 1 => {
                    truth.insert(name, wants);
                    say(&mut services, Event::Apply(one));
                }
                2 => {
                    if truth.remove(&name).is_some() {
                        say(&mut services, Event::Delete(one));
                    }
                }
                _ => {
                    // Relist after lost history: some changes were missed.
                    truth.insert(name, wants);
                    say(&mut services, Event::Init);
                    for (name, wants) in &truth {
                        let annotations = if *wants { json!({SSL_CERT: "arn:x"}) } else { json!({}) };
                        say(&mut services, Event::InitApply(service(name, &annotations)));
                    }
                    say(&mut services, Event::InitDone);
                }
            }
        }
        let wanted: BTreeSet<String> = truth
            .iter()
            .flat_map(|(name, wants)| [Some(format!("shop/{name}")), wants.then(|| format!("shop/{name}.gateway"))])
            .flatten()
            .collect();
        prop_assert_eq!(known(&emitted), wanted);
    }
}
