//! A set of field paths: what one manager owns, what one write changed.
//!
//! A tree of sorted steps; a path is in the set when its last step is marked `own`. In: paths, pushed in any order, or
//! a `FieldsV1` object. Out: the set algebra that ownership is made of, and the `FieldsV1` object again. Removing a
//! path never removes what is below it ([`Set::difference`]) unless that is requested ([`Set::without`]).

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::element::{Element, Unreadable};

/// A set of field paths.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Set<'a>(Vec<Entry<'a>>);

/// One step and what follows it. An entry that is not owned has something below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry<'a> {
    /// The step.
    pub(super) at: Element<'a>,
    /// Whether the path that ends here is in the set.
    pub(super) own: bool,
    /// The paths that go on from here.
    pub(super) below: Set<'a>,
}

impl<'a> Set<'a> {
    /// Whether no path is in the set.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first steps.
    pub(super) fn into_entries(self) -> Vec<Entry<'a>> {
        self.0
    }

    /// What is known of one first step.
    pub(super) fn get(&self, at: &Element<'_>) -> Option<&Entry<'a>> {
        self.0.binary_search_by(|entry| order(&entry.at, at)).ok().map(|index| &self.0[index])
    }

    /// Adds a step with what follows it; nothing happens when there is nothing to add.
    pub(super) fn push(&mut self, at: Element<'a>, own: bool, below: Self) {
        if !own && below.is_empty() {
            return;
        }
        if self.0.last().is_none_or(|last| last.at < at) {
            self.0.push(Entry { at, own, below });
            return;
        }
        match self.0.binary_search_by(|entry| entry.at.cmp(&at)) {
            Err(index) => self.0.insert(index, Entry { at, own, below }),
            Ok(index) => {
                let entry = &mut self.0[index];
                entry.own |= own;
                entry.below = std::mem::take(&mut entry.below).union(below);
            }
        }
    }

    /// A set of paths of members, each without a leading dot.
    pub(super) fn of_fields(paths: &[&'a str]) -> Self {
        let mut out = Self::default();
        for path in paths {
            let mut steps = path.rsplit('.').map(Element::field);
            let Some(last) = steps.next() else { continue };
            let mut below = Self::default();
            below.push(last, true, Self::default());
            for step in steps {
                let mut above = Self::default();
                above.push(step, false, below);
                below = above;
            }
            out = out.union(below);
        }
        out
    }

    /// The paths of either.
    pub(super) fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut out = Vec::with_capacity(self.0.len().max(other.0.len()));
        let (mut left, mut right) = (self.0.into_iter().peekable(), other.0.into_iter().peekable());
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            match a.at.cmp(&b.at) {
                Ordering::Less => out.extend(left.next()),
                Ordering::Greater => out.extend(right.next()),
                Ordering::Equal => {
                    if let (Some(a), Some(b)) = (left.next(), right.next()) {
                        out.push(Entry { at: a.at, own: a.own || b.own, below: a.below.union(b.below) });
                    }
                }
            }
        }
        out.extend(left);
        out.extend(right);
        Self(out)
    }

    /// The paths that are not in `other`; what is below a path of `other` stays.
    pub(super) fn difference(self, other: &Set<'_>) -> Self {
        self.refine(other, |entry, twin| {
            if let Some(twin) = twin {
                entry.own &= !twin.own;
                entry.below = std::mem::take(&mut entry.below).difference(&twin.below);
            }
        })
    }

    /// The paths that are not in `other` and not below one of its paths.
    pub(super) fn without(self, other: &Set<'_>) -> Self {
        self.refine(other, |entry, twin| match twin {
            Some(twin) if twin.own => {
                entry.own = false;
                entry.below = Set::default();
            }
            Some(twin) => entry.below = std::mem::take(&mut entry.below).without(&twin.below),
            None => {}
        })
    }

    /// The paths of both.
    pub(super) fn intersection(self, other: &Set<'_>) -> Self {
        self.refine(other, |entry, twin| match twin {
            Some(twin) => {
                entry.own &= twin.own;
                entry.below = std::mem::take(&mut entry.below).intersection(&twin.below);
            }
            None => {
                entry.own = false;
                entry.below = Set::default();
            }
        })
    }

    /// Changes each entry, with its counterpart in `other`, and drops those that have become empty.
    fn refine(mut self, other: &Set<'_>, change: impl Fn(&mut Entry<'a>, Option<&Entry<'_>>)) -> Self {
        let mut next = 0;
        self.0.retain_mut(|entry| {
            while other.0.get(next).is_some_and(|twin| order(&twin.at, &entry.at).is_lt()) {
                next += 1;
            }
            let twin = other.0.get(next).filter(|twin| order(&twin.at, &entry.at).is_eq());
            change(entry, twin);
            entry.own || !entry.below.is_empty()
        });
        self
    }

    /// Every path as conflicts print it: the paths that end at a level before those that go deeper.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.list(&mut String::new(), &mut out);
        out
    }

    fn list(&self, prefix: &mut String, out: &mut Vec<String>) {
        out.extend(self.0.iter().filter(|entry| entry.own).map(|entry| format!("{prefix}{}", entry.at)));
        let length = prefix.len();
        for entry in self.0.iter().filter(|entry| !entry.below.is_empty()) {
            prefix.push_str(&entry.at.to_string());
            entry.below.list(prefix, out);
            prefix.truncate(length);
        }
    }

    /// The `FieldsV1` object.
    pub(super) fn encode(&self) -> Value {
        let members = self.0.iter().map(|entry| {
            let mut below = match entry.below.encode() {
                Value::Object(map) => map,
                _ => Map::new(),
            };
            if entry.own && !below.is_empty() {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (entry.at.encode(), Value::Object(below))
        });
        Value::Object(members.collect())
    }

    /// The set that a `FieldsV1` object denotes.
    pub(super) fn decode(fields: &'a Value) -> Result<Self, Unreadable> {
        let mut out = Self::default();
        let map = match fields {
            Value::Object(map) => map,
            Value::Null => return Ok(out),
            _ => return Err(Unreadable("a set of fields must be an object".to_owned())),
        };
        let mut entries = Vec::with_capacity(map.len());
        for (key, value) in map.iter().filter(|(key, _)| key.as_str() != ".") {
            if let Some(at) = Element::decode(key)? {
                let below = Self::decode(value)?;
                let own = below.is_empty() || value.get(".").is_some();
                entries.push(Entry { at, own, below });
            }
        }
        // Keys sort by their text, steps by their values. Sorting first keeps large sets from being shifted entry by entry.
        entries.sort_by(|a, b| a.at.cmp(&b.at));
        for entry in entries {
            out.push(entry.at, entry.own, entry.below);
        }
        Ok(out)
    }
}

/// Compares steps that borrow from different places, which `Ord` alone does not allow.
fn order(a: &Element<'_>, b: &Element<'_>) -> Ordering {
    a.cmp(b)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Random `FieldsV1` objects, some with steps of one identity at two places.
    fn fields() -> impl Strategy<Value = Value> {
        let key = prop_oneof![
            prop::sample::select(vec!["f:a", "f:b", "f:c", "i:0", "i:1", "v:1", "v:1.0", "v:\"x\"", "f:"]),
            prop::sample::select(vec!["k:{\"n\":1}", "k:{\"n\":1,\"p\":\"T\"}", ".", "x:unknown"]),
        ];
        Just(json!({})).prop_recursive(4, 40, 4, move |inner| {
            prop::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Value>())
        })
    }

    fn set(fields: &Value) -> Set<'_> {
        Set::decode(fields).expect("a set")
    }

    proptest! {
        #[test]
        fn encoding_keeps_the_set(fields in fields()) {
            let encoded = set(&fields).encode();
            prop_assert_eq!(set(&encoded), set(&fields));
            prop_assert_eq!(set(&encoded).encode(), encoded);
        }

        #[test]
        fn algebra(a in fields(), b in fields(), c in fields()) {
            let (a, b, c) = (set(&a), set(&b), set(&c));
            prop_assert_eq!(a.clone().union(b.clone()), b.clone().union(a.clone()));
            prop_assert_eq!(
                a.clone().union(b.clone()).union(c.clone()),
                a.clone().union(b.clone().union(c.clone()))
            );
            prop_assert_eq!(a.clone().intersection(&b), b.clone().intersection(&a));
            prop_assert!(a.clone().difference(&a).is_empty());
            prop_assert_eq!(a.clone().difference(&b).union(a.clone().intersection(&b)), a.clone());
            prop_assert_eq!(
                a.clone().difference(&b).difference(&c),
                a.clone().difference(&b.clone().union(c.clone()))
            );
            prop_assert!(a.clone().difference(&b).intersection(&b).is_empty());
            let strict = a.clone().without(&b);
            prop_assert_eq!(strict.clone().difference(&a), Set::default());
            prop_assert_eq!(strict.clone().without(&b), strict);
        }

        #[test]
        fn paths_are_as_many_as_members(a in fields(), b in fields()) {
            let (a, b) = (set(&a), set(&b));
            let both = a.clone().union(b.clone());
            let shared = a.clone().intersection(&b);
            prop_assert_eq!(both.paths().len() + shared.paths().len(), a.paths().len() + b.paths().len());
        }
    }

    #[test]
    fn removing_a_path_keeps_what_is_below_unless_asked() {
        let all = json!({"f:a": {".": {}, "f:b": {}}});
        let a = json!({"f:a": {}});
        assert_eq!(set(&all).difference(&set(&a)).encode(), json!({"f:a": {"f:b": {}}}));
        assert_eq!(set(&all).without(&set(&a)).encode(), json!({}));
        assert_eq!(set(&all).paths(), [".a", ".a.b"]);
        assert_eq!(Set::of_fields(&["a", "a.b"]), set(&all));
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        assert!(Set::decode(&json!({"spec": {}})).is_err());
        assert!(Set::decode(&json!({"f:a": 1})).is_err());
        assert!(Set::decode(&json!([])).is_err());
        assert_eq!(set(&json!({"f:a": {"x:y": {}}})).encode(), json!({"f:a": {}}));
        assert_eq!(set(&json!({"f:a": null})).encode(), json!({"f:a": {}}));
    }
}
