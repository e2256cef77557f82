//! A map of strings as sorted pairs: smaller than a tree and as fast to search at the sizes that objects have.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// Labels, annotations, selectors, quantities by resource name. Each key occurs once; pairs are in the order of keys.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct StringMap(Box<[(Box<str>, Box<str>)]>);

impl StringMap {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let place = self.0.binary_search_by(|(have, _)| (**have).cmp(key)).ok()?;
        self.0.get(place).map(|(_, value)| &**value)
    }

    /// Whether it has a key.
    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Whether it has no pair.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pairs, in the order of keys.
    pub fn iter(&self) -> std::slice::Iter<'_, (Box<str>, Box<str>)> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a StringMap {
    type Item = &'a (Box<str>, Box<str>);
    type IntoIter = std::slice::Iter<'a, (Box<str>, Box<str>)>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<StringMap> for Box<[(Box<str>, Box<str>)]> {
    fn from(map: StringMap) -> Self {
        map.0
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for StringMap {
    /// Of several pairs with one key the last counts, as in JSON.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<(Box<str>, Box<str>)> =
            pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        pairs.reverse();
        pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        pairs.dedup_by(|(later, _), (kept, _)| later == kept);
        Self(pairs.into())
    }
}

impl<'de> Deserialize<'de> for StringMap {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Pairs)
    }
}

struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = StringMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StringMap, A::Error> {
        let mut pairs = Vec::<(Box<str>, Box<str>)>::new();
        while let Some((key, value)) = map.next_entry::<Box<str>, Option<Box<str>>>()? {
            pairs.push((key, value.unwrap_or_default()));
        }
        Ok(pairs.into_iter().collect())
    }
}
