//! Changes cost what they touch, say what they change, and leave nothing behind.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::answer::tests::{service, slice};

fn book() -> Arc<Book> {
    Book::new(Config::default()).expect("zones")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn what_says_the_same_is_no_change() {
    let book = book();
    let spec = json!({"clusterIPs": ["10.96.0.1"], "ports": [{"name": "http", "port": 80}]});
    assert!(book.apply(service("a", &spec), 1));
    assert!(!book.apply(service("a", &spec), 2));
    let one = json!([{"addresses": ["10.0.0.1"], "targetRef": {"name": "p"}}]);
    assert!(book.apply(slice("a-1", "a", &one), 3));
    assert!(!book.apply(slice("a-1", "a", &json!([{"addresses": ["10.0.0.1"], "zone": "z"}])), 4), "no name shows it");
    assert!(!book.apply(slice("x-1", "nobody", &one), 5), "nobody has it");
    assert_eq!(book.serial(), 3);
    assert!(
        !book.apply(Update::ServiceGone("ns/nope".into()), 6) && !book.apply(Update::SliceGone("ns/nope".into()), 6)
    );
}

#[test]
fn slices_may_come_first_move_and_go() {
    let book = book();
    let none = json!({"clusterIPs": ["None"]});
    let endpoints = json!([{"addresses": ["10.0.0.1"]}]);
    assert!(!book.apply(slice("s", "a", &endpoints), 1) && book.is_empty());
    assert!(book.apply(service("a", &none), 1));
    assert_eq!(book.service(b"\x01a\x02ns").map(|service| service.v4.len()), Some(1));
    book.apply(service("b", &none), 2);
    assert!(book.apply(slice("s", "b", &endpoints), 2));
    let count = |key: &[u8]| book.service(key).map(|service| service.v4.len());
    assert_eq!((count(b"\x01a\x02ns"), count(b"\x01b\x02ns")), (Some(0), Some(1)));
    assert_eq!(book.owners(address("10.0.0.1")).len(), 1);
    assert!(book.apply(Update::SliceGone("ns/s".into()), 3));
    assert!(book.owners(address("10.0.0.1")).is_empty());
}

#[test]
fn pods_share_addresses() {
    let book = book();
    let pod = |name: &str, phase: &str| {
        let object = json!({"metadata": {"namespace": "ns", "name": name}, "status": {"phase": phase, "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}});
        Update::Pod(Box::new(serde_json::from_value(object).expect("a Pod")))
    };
    let has = |ip: &str| book.has_pod(b"\x02ns", address(ip));
    assert!(
        book.apply(pod("a", "Running"), 1) && book.apply(pod("b", "Running"), 1) && !book.apply(pod("b", "Running"), 1)
    );
    assert!(has("10.0.0.1") && has("fd00::1") && !has("10.0.0.2") && !book.has_pod(b"\x02no", address("10.0.0.1")));
    assert_eq!(book.namespace_of(address("fd00::1")).as_deref(), Some("ns"));
    let other = json!({"metadata": {"namespace": "other", "name": "c"}, "status": {"podIP": "10.0.0.1"}});
    book.apply(Update::Pod(Box::new(serde_json::from_value(other).expect("a Pod"))), 1);
    assert_eq!(book.namespace_of(address("10.0.0.1")), None, "it may be either");
    assert_eq!(book.pods_with(b"\x02ns", address("fd00::1")), ["ns/a", "ns/b"]);
    assert!(book.apply(pod("a", "Succeeded"), 2));
    assert!(has("10.0.0.1"), "the other has it still");
    assert!(book.apply(Update::PodGone("ns/b".into()), 3));
    assert!(!has("10.0.0.1") && !has("fd00::1"));
}

/// Something that may happen.
#[derive(Clone, Debug)]
enum Happens {
    Service(u8, u8),
    ServiceGone(u8),
    Slice(u8, u8, Vec<u8>),
    SliceGone(u8),
    Namespace(bool),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        (0u8..3, 0u8..4).prop_map(|(name, form)| Happens::Service(name, form)),
        (0u8..3).prop_map(Happens::ServiceGone),
        (0u8..4, 0u8..3, prop::collection::vec(0u8..6, 0..4)).prop_map(|(name, of, all)| Happens::Slice(name, of, all)),
        (0u8..4).prop_map(Happens::SliceGone),
        any::<bool>().prop_map(Happens::Namespace),
    ]
}

fn update(event: &Happens) -> Update {
    match event {
        Happens::Service(name, form) => {
            let spec = match form {
                0 => json!({"clusterIPs": ["None"]}),
                1 => json!({"type": "ExternalName", "externalName": "example.net"}),
                other => json!({"clusterIPs": [format!("10.96.0.{other}")], "ports": [{"port": 80}]}),
            };
            service(&format!("s{name}"), &spec)
        }
        Happens::ServiceGone(name) => Update::ServiceGone(format!("ns/s{name}").into()),
        Happens::Slice(name, of, all) => {
            let all: Vec<_> = all.iter().map(|last| json!({"addresses": [format!("10.0.0.{last}")]})).collect();
            slice(&format!("e{name}"), &format!("s{of}"), &json!(all))
        }
        Happens::SliceGone(name) => Update::SliceGone(format!("ns/e{name}").into()),
        Happens::Namespace(true) => Update::Namespace("ns".into()),
        Happens::Namespace(false) => Update::NamespaceGone("ns".into()),
    }
}

/// All that can be looked up.
fn shown(book: &Book) -> String {
    let mut lines = Vec::new();
    book.services.each(|service| {
        lines.push(format!(
            "{} {:?} {:?} {:?} {:?}",
            text_of(&service.key.wire),
            service.kind,
            service.v4,
            service.endpoints,
            service.namespace.is_shown()
        ));
    });
    let mut owners = Vec::new();
    book.addresses.each(|owner| owners.push(*owner));
    for owner in owners {
        let service = book.numbered(owner.number()).expect("an address leads to a Service");
        lines.push(format!("{} {}", owner.is_own(), text_of(&service.key.wire)));
    }
    for last in 0..6 {
        let owners = |start| book.owners(address(&format!("{start}.{last}"))).into_iter();
        let named = |(own, service): (bool, Arc<Service>)| format!("{last} {own} {}", text_of(&service.key.wire));
        lines.extend(owners("10.0.0").chain(owners("10.96.0")).map(named));
    }
    book.namespaces.each(|namespace| lines.extend(namespace.is_shown().then(|| format!("{:?}", namespace.wire))));
    lines.sort();
    lines.join("\n")
}

proptest! {
    // Each case makes two books.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However a state was reached, it is the same; a second list changes nothing; and when all is gone, nothing is
    /// left.
    #[test]
    fn a_state_does_not_remember_its_past(events in prop::collection::vec(happens(), 0..40)) {
        let book = book();
        let mut last = std::collections::BTreeMap::new();
        for event in &events {
            book.apply(update(event), 1);
            match event {
                Happens::Service(name, _) | Happens::ServiceGone(name) => last.insert((0, *name), event.clone()),
                Happens::Slice(name, ..) | Happens::SliceGone(name) => last.insert((1, *name), event.clone()),
                Happens::Namespace(_) => last.insert((2, 0), event.clone()),
            };
        }
        let fresh = self::book();
        last.values().for_each(|event| {
            fresh.apply(update(event), 1);
        });
        prop_assert_eq!(shown(&book), shown(&fresh));
        let before = book.serial();
        for event in last.values() {
            prop_assert!(!book.apply(update(event), before + 1), "{:?} again", event);
        }
        for number in 0..4 {
            book.apply(Update::ServiceGone(format!("ns/s{number}").into()), 2);
            book.apply(Update::SliceGone(format!("ns/e{number}").into()), 2);
        }
        book.apply(Update::NamespaceGone("ns".into()), 2);
        prop_assert_eq!(shown(&book), "");
        prop_assert!(book.state.lock().is_empty(), "the writer keeps nothing");
    }
}
