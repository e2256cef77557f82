//! Overlaps of listeners that come and go, against a comparison of each with each.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Whether a name covers another one.
fn covers(wide: Option<&str>, name: Option<&str>) -> bool {
    match (wide, name) {
        (None, _) => true,
        (Some(wide), Some(name)) => wide.strip_prefix('*').is_some_and(|suffix| wide != name && name.ends_with(suffix)),
        (Some(_), None) => false,
    }
}

fn is_overlapping(host: &Host, all: &BTreeSet<Host>) -> bool {
    let overlap = |other: &&Host| {
        let (one, two) = (host.1.as_deref(), other.1.as_deref());
        other.0 == host.0 && *other != host && (covers(one, two) || covers(two, one))
    };
    all.iter().any(|other| overlap(&other))
}

fn host() -> impl Strategy<Value = Host> {
    let names = vec![
        None,
        Some("*.test"),
        Some("*.a.test"),
        Some("*.b.a.test"),
        Some("a.test"),
        Some("b.a.test"),
        Some("c.b.a.test"),
        Some("ba.test"),
        Some("test"),
    ];
    (1_u16..3, prop::sample::select(names)).prop_map(|(port, name)| (port, name.map(Into::into)))
}

proptest! {
    #[test]
    fn overlaps_equal_a_comparison_of_each_with_each(changes in prop::collection::vec(host(), 1..40)) {
        let mut overlaps = Overlaps::default();
        let mut all: BTreeSet<Host> = BTreeSet::new();
        for change in changes {
            let before: BTreeSet<Host> = all.iter().filter(|host| overlaps.is_overlapping(host)).cloned().collect();
            let altered: BTreeSet<Host> = if all.remove(&change) {
                overlaps.remove(&change).into_iter().collect()
            } else {
                all.insert(change.clone());
                // In between it may be there twice, while it moves from one object to another.
                let altered = overlaps.insert(&change);
                prop_assert_eq!(overlaps.insert(&change), Vec::new());
                prop_assert_eq!(overlaps.remove(&change), Vec::new());
                altered.into_iter().collect()
            };
            for host in &all {
                let now = overlaps.is_overlapping(host);
                prop_assert_eq!(now, is_overlapping(host, &all), "{:?}", host);
                prop_assert!(now == before.contains(host) || *host == change || altered.contains(host));
            }
        }
        for host in all {
            overlaps.remove(&host);
        }
        prop_assert!(overlaps.is_empty());
    }
}

#[test]
fn a_name_finds_those_around_and_below_it_only() {
    let host = |name: &str| (443, Some(Arc::from(name)));
    let mut overlaps = Overlaps::default();
    for number in 0..3000 {
        assert_eq!(overlaps.insert(&host(&format!("{number}.example.test"))), []);
    }
    overlaps.insert(&host("a.other.test"));
    assert_eq!(overlaps.insert(&host("*.other.test")), [host("a.other.test")]);
    assert_eq!(overlaps.insert(&host("b.other.test")), [host("*.other.test")]);
    assert_eq!(overlaps.insert(&host("*.test")).len(), 3003);
}
