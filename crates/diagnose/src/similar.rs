//! How similar two labels or names are: whether one may be a typing error for the other.
//!
//! Everything has a bound, since a namespace may hold ten thousand values of one label.

/// Keys that charts and tools use for the same thing: which program a Pod runs.
const NAMES_OF_A_PROGRAM: [&str; 5] = ["app.kubernetes.io/name", "app", "k8s-app", "name", "run"];
/// What comes after differences that can be counted.
const CONTAINS: usize = 10;

/// Whether two texts differ only in upper and lower case.
pub(crate) fn differs_in_case(a: &str, b: &str) -> bool {
    a != b && a.eq_ignore_ascii_case(b)
}

/// Whether one name may be a typing error for the other.
#[must_use]
pub fn is_similar(wanted: &str, have: &str) -> bool {
    value_distance(wanted, have).is_some()
}

/// How far a value is from the one that was wanted, from 0 up; `None` when they have little in common.
pub(crate) fn value_distance(wanted: &str, have: &str) -> Option<usize> {
    if wanted.eq_ignore_ascii_case(have) {
        return Some(0);
    }
    let edits = edits(wanted, have, (wanted.len() / 3).clamp(1, 3));
    edits.or_else(|| contained(wanted, have)).or_else(|| begin_alike(wanted, have))
}

/// How far a key is from the one that was wanted, from 0 up; `None` when they have little in common.
pub(crate) fn key_distance(wanted: &str, have: &str) -> Option<usize> {
    let last = |key: &str| key.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    if wanted.eq_ignore_ascii_case(have) || last(wanted) == last(have) {
        return Some(0);
    }
    let place = |key: &str| NAMES_OF_A_PROGRAM.iter().position(|name| *name == key);
    if let (Some(_), Some(place)) = (place(wanted), place(have)) {
        return Some(place);
    }
    edits(wanted, have, (wanted.len() / 3).clamp(1, 3)).or_else(|| contained(wanted, have))
}

/// `web` and `web-frontend`, `nginx` and `my-nginx`.
fn contained(a: &str, b: &str) -> Option<usize> {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    (short.len() >= 3 && long.contains(short)).then(|| CONTAINS + long.len() - short.len())
}

/// `checkout-blue` and `checkout-green`: at least half of the longer is the same.
fn begin_alike(a: &str, b: &str) -> Option<usize> {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let longer = a.len().max(b.len());
    (same >= 4 && same * 2 >= longer).then(|| CONTAINS + longer - same)
}

/// How many letters must be added, removed, changed or swapped with their neighbour to make one of the other, if at most
/// `most`.
fn edits(a: &str, b: &str, most: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    Some(strsim::osa_distance(a, b)).filter(|edits| *edits <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted_up_to_a_limit() {
        assert_eq!(edits("web", "web", 0), Some(0));
        assert_eq!(edits("web", "web2", 1), Some(1), "put in");
        assert_eq!(edits("webs", "web", 1), Some(1), "taken out");
        assert_eq!(edits("web", "wep", 1), Some(1), "changed");
        assert_eq!(edits("frotn", "front", 1), Some(1), "swapped");
        assert_eq!(edits("kitten", "sitting", 3), Some(3));
        assert_eq!(edits("kitten", "sitting", 2), None);
        assert_eq!(edits("", "abc", 3), Some(3));
        assert_eq!(edits("a", "abcde", 3), None, "the length alone says it");
    }

    #[test]
    fn likely_slips_are_close_and_the_nearer_the_smaller() {
        for (wanted, have) in [
            ("web", "Web"),
            ("web", "web2"),
            ("web", "web-frontend"),
            ("frontend", "front"),
            ("nginx", "my-nginx"),
            ("checkout-blue", "checkout-green"),
        ] {
            assert!(value_distance(wanted, have).is_some(), "{wanted} {have}");
        }
        for (wanted, have) in [("web", "api"), ("a", "db"), ("payments", "frontend"), ("web", ""), ("v1", "v234")] {
            assert_eq!(value_distance(wanted, have), None, "{wanted} {have}");
        }
        assert!(value_distance("web", "Web") < value_distance("web", "web2"));
        assert!(value_distance("web", "web2") < value_distance("web", "web-frontend"));
    }

    #[test]
    fn keys_that_mean_the_same_are_close() {
        for (wanted, have) in [
            ("app", "app.kubernetes.io/name"),
            ("app.kubernetes.io/name", "app"),
            ("app", "k8s-app"),
            ("component", "app.kubernetes.io/component"),
            ("tier", "Tier"),
            ("tier", "teir"),
        ] {
            assert!(key_distance(wanted, have).is_some(), "{wanted} {have}");
        }
        assert_eq!(key_distance("app", "pod-template-hash"), None);
        assert!(key_distance("app", "example.com/app") <= key_distance("app", "app.kubernetes.io/name"));
    }

    #[test]
    fn case_is_named_only_when_it_is_the_difference() {
        assert!(differs_in_case("Web", "web"));
        assert!(!differs_in_case("web", "web"));
        assert!(!differs_in_case("web", "Web2"));
    }
}
