//! Hostnames against the table of the specification, and against all covering names.

use proptest::prelude::*;

use super::{HostMap, covers, host_of, intersects};

#[test]
fn intersection_of_listener_and_route() {
    let table = [
        (None, "a.example.com", true),
        (None, "*.example.com", true),
        (Some("a.example.com"), "a.example.com", true),
        (Some("a.example.com"), "b.example.com", false),
        (Some("a.example.com"), "*.example.com", true),
        (Some("a.b.example.com"), "*.example.com", true),
        (Some("example.com"), "*.example.com", false),
        (Some("aexample.com"), "*.example.com", false),
        (Some("*.example.com"), "a.example.com", true),
        (Some("*.example.com"), "a.b.example.com", true),
        (Some("*.example.com"), "example.com", false),
        (Some("*.example.com"), "*.example.com", true),
        (Some("*.example.com"), "*.b.example.com", true),
        (Some("*.b.example.com"), "*.example.com", true),
        (Some("*.example.com"), "*.com", true),
        (Some("*.example.com"), "*.example.org", false),
        (Some("*.example.com"), "*.aexample.com", false),
    ];
    for (listener, route, expected) in table {
        assert_eq!(intersects(listener, route), expected, "{listener:?} {route}");
    }
}

#[test]
fn the_most_specific_name_is_found() {
    let mut map = HostMap::default();
    for host in [None, Some("*.com"), Some("*.example.com"), Some("a.example.com"), Some("example.com")] {
        assert_eq!(map.insert(host, host), None);
    }
    let found = |host| map.find(host).copied().flatten();
    assert_eq!(found("a.example.com"), Some("a.example.com"));
    assert_eq!(found("b.example.com"), Some("*.example.com"));
    assert_eq!(found("x.a.example.com"), Some("*.example.com"));
    assert_eq!(found("example.com"), Some("example.com"));
    assert_eq!(found("other.com"), Some("*.com"));
    assert_eq!(found("com"), None);
    assert_eq!(found(""), None);
    assert_eq!(found(".com"), None);
    let candidates: Vec<_> = map.candidates("a.example.com").copied().collect();
    assert_eq!(candidates, [Some("a.example.com"), Some("*.example.com"), Some("*.com"), None]);
    assert_eq!(map.covering("a.b.example.com").map(|c| c.labels).collect::<Vec<_>>(), [2, 3, 0]);
    assert_eq!(map.covering(".b.example.com").map(|c| c.labels).collect::<Vec<_>>(), [2, 3, 0], "an empty label");
}

#[test]
fn values_are_changed_and_removed_by_exact_name() {
    let mut map = HostMap::default();
    *map.get_mut_or_insert_with(Some("*.a"), || 1) += 1;
    *map.get_mut_or_insert_with(Some("*.a"), || 1) += 1;
    map.insert(None, 7);
    let before = map.clone();
    assert_eq!((map.get(Some("*.a")), map.get(Some("a")), map.get(None)), (Some(&3), None, Some(&7)));
    assert_eq!(map.remove(Some("a")), None);
    assert_eq!(map.remove(Some("*.a")), Some(3));
    assert_eq!(map.remove(None), Some(7));
    assert!(map.is_empty());
    assert_eq!((before.len(), before.find("b.a")), (2, Some(&3)));
}

#[test]
fn hosts_of_authorities() {
    let table = [
        ("Example.COM:8080", "example.com"),
        ("example.com", "example.com"),
        ("example.com.", "example.com"),
        ("example.com.:80", "example.com"),
        ("[::1]:80", "[::1]"),
        ("[2001:DB8::1]", "[2001:db8::1]"),
        ("::1", "::1"),
        ("user@example.com:1", "example.com"),
        ("10.0.0.1:80", "10.0.0.1"),
        ("", ""),
        ("[", "["),
    ];
    for (authority, expected) in table {
        assert_eq!(host_of(authority), expected, "{authority}");
    }
}

fn host() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop::sample::select(&["a", "b", "c"]), 1..5).prop_map(|labels| labels.join("."))
}

fn hostname() -> impl Strategy<Value = Option<String>> {
    (any::<bool>(), prop::option::weighted(0.9, host()))
        .prop_map(|(wildcard, host)| host.map(|host| if wildcard { format!("*.{host}") } else { host }))
}

proptest! {
    #[test]
    fn candidates_are_all_covering_names_most_specific_first(
        names in proptest::collection::hash_set(hostname(), 0..20),
        host in host(),
    ) {
        let mut map = HostMap::default();
        for name in &names {
            map.insert(name.as_deref(), name.clone());
        }
        let mut expected: Vec<_> = names.into_iter().filter(|name| covers(name.as_deref(), &host)).collect();
        expected.sort_by_key(|name| match name {
            None => (2, 0),
            Some(name) => (u8::from(name.starts_with('*')), usize::MAX - name.len()),
        });
        let found: Vec<_> = map.candidates(&host).cloned().collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn names_intersect_when_some_host_is_covered_by_both(listener in hostname(), route in hostname(), host in host()) {
        if let Some(route) = &route && covers(listener.as_deref(), &host) && covers(Some(route), &host) {
            prop_assert!(intersects(listener.as_deref(), route));
        }
    }
}
