//! What was probably meant: names and hostnames that are close to one that does not exist.
//!
//! In: a name and those there are. Out: the nearest, if it is near enough to be a typing error.

use crate::similar::value_distance;
use crate::words::list;

/// How many names are listed.
pub(super) const NAMED: usize = 4;

/// The nearest of several names.
pub(super) fn name<'a>(wanted: &str, have: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = have.into_iter().filter_map(|have| Some((value_distance(wanted, have)?, have)));
    distances.min().map(|(_, have)| have)
}

/// The end of a sentence that names the nearest name, or those there are, of things called `noun`.
pub(super) fn hint<'a>(wanted: &str, noun: &str, have: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = have.into_iter().collect();
    match (name(wanted, all.iter().copied()), &all[..]) {
        (Some(near), _) => format!("; did you mean {near}?"),
        (None, []) => format!("; there is no {noun}"),
        (None, all) => format!("; there is {}", list(all, NAMED)),
    }
}

/// The key `namespace/name` that was probably meant: a near name in the namespace, or the same name in another one.
pub(super) fn key<'a>(wanted: &str, have: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (namespace, name) = wanted.split_once('/')?;
    let distance = |have: &'a str| {
        let (other, called) = have.split_once('/')?;
        match (other == namespace, called == name) {
            (true, _) => Some((0, value_distance(name, called)?, have)),
            (false, true) => Some((1, 0, have)),
            (false, false) => None,
        }
    };
    have.into_iter().filter_map(distance).min().map(|(.., have)| have)
}

/// The hostname that a route probably meant, for a listener with this hostname. A wildcard suggests the name below it.
pub(super) fn hostname(wanted: &str, listener: &str) -> Option<String> {
    let Some(suffix) = listener.strip_prefix("*.") else {
        return value_distance(wanted, listener).map(|_| listener.to_owned());
    };
    let labels = suffix.split('.').count();
    let own: Vec<&str> = wanted.split('.').collect();
    let (first, rest) = own.split_at_checked(own.len().checked_sub(labels)?)?;
    let is_near = value_distance(suffix, &rest.join(".")).is_some();
    (is_near && !first.is_empty()).then(|| format!("{}.{suffix}", first.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostnames_suggest_what_the_listener_has() {
        for (wanted, listener, want) in [
            ("shop.exmaple.com", "shop.example.com", Some("shop.example.com")),
            ("shop.exmaple.com", "*.example.com", Some("shop.example.com")),
            ("a.b.exmaple.com", "*.example.com", Some("a.b.example.com")),
            ("exmaple.com", "*.example.com", None),
            ("shop.test", "intern.corp.example", None),
            ("com", "*.example.com", None),
        ] {
            assert_eq!(hostname(wanted, listener).as_deref(), want, "{wanted} {listener}");
        }
    }

    #[test]
    fn a_near_name_of_the_namespace_comes_before_the_same_name_elsewhere() {
        let have = ["other/web", "default/wbe", "default/api"];
        assert_eq!(key("default/web", have), Some("default/wbe"));
        assert_eq!(key("shop/web", have), Some("other/web"));
        assert_eq!(key("shop/db", have), None);
        assert_eq!(hint("htps", "listener", ["http", "https"]), "; did you mean https?");
        assert_eq!(hint("x", "listener", ["http", "tls"]), "; there is http and tls");
        assert_eq!(hint("x", "listener", []), "; there is no listener");
    }
}
