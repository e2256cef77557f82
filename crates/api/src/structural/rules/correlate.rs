//! Which part of the old object a part of the new one corresponds to, and whether it changed.
//!
//! Members and entries of maps correspond by name, items of lists of type map by their keys. Other items correspond to
//! nothing. A rule that a value did not keep before is not enforced while the value stays the same.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;

use serde_json::Value;

use crate::structural::{Additional, ListType, Structural};

/// Old lists that are longer than this get an index.
const SCANNED: usize = 8;

/// A value with the old value that it corresponds to.
#[derive(Debug)]
pub(super) struct Correlated<'a> {
    new: &'a Value,
    old: &'a Value,
    schema: &'a Structural,
    same: Cell<Option<bool>>,
}

impl<'a> Correlated<'a> {
    pub(super) fn new(new: &'a Value, old: &'a Value, schema: &'a Structural) -> Self {
        Self { new, old, schema, same: Cell::new(None) }
    }

    /// The member or entry of this name, if the schema knows it and it was there before.
    fn member(&self, name: &str) -> Option<Self> {
        let (new, old) = (self.new.as_object()?.get(name)?, self.old.as_object()?.get(name)?);
        let schema = match (self.schema.properties.get(name), &self.schema.additional) {
            (Some(property), _) => property,
            (None, Additional::Schema(values)) => values,
            (None, _) => return None,
        };
        Some(Self::new(new, old, schema))
    }

    /// Whether the value is the one that was there before.
    fn is_same(&self) -> bool {
        if let Some(same) = self.same.get() {
            return same;
        }
        let same = self.compare();
        self.same.set(Some(same));
        same
    }

    fn compare(&self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                let (ListType::Map(_), Some(items)) = (&self.schema.list, &self.schema.items) else {
                    return new == old;
                };
                let olds = OldItems::new(self.schema, Some(self.old));
                new.iter().all(|item| olds.find(item).is_some_and(|old| Self::new(item, old, items).compare()))
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.keys().all(|name| self.member(name).is_some_and(|below| below.compare()))
            }
            (new, old) => new == old,
        }
    }
}

/// Whether errors about a value are enforced.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ratchet<'r, 'a> {
    /// The value itself, if it corresponds to an old one.
    current: Option<&'r Correlated<'a>>,
    /// The nearest value above that corresponds to an old one.
    parent: Option<&'r Correlated<'a>>,
}

impl<'r, 'a> Ratchet<'r, 'a> {
    pub(super) fn root(current: Option<&'r Correlated<'a>>) -> Self {
        Self { current, parent: None }
    }

    /// Whether the value, or one that it is in, did not change.
    pub(super) fn holds(self) -> bool {
        self.current.or(self.parent).is_some_and(Correlated::is_same)
    }

    /// For `allOf`, whose errors do not depend on the value itself.
    pub(super) fn all_of(self) -> Self {
        Self { current: None, parent: self.parent }
    }

    /// Goes to a member; `slot` holds what it corresponds to.
    pub(super) fn member<'n>(self, name: &str, slot: &'n OnceCell<Correlated<'a>>) -> Ratchet<'n, 'a>
    where
        'r: 'n,
    {
        match self.current {
            None => self,
            // These two are never seen to change.
            Some(_) if self.parent.is_none() && matches!(name, "apiVersion" | "kind") => Ratchet::default(),
            Some(current) => Self::below(current, current.member(name), slot),
        }
    }

    /// Goes to an item, with the old item that it corresponds to.
    pub(super) fn item<'n>(
        self,
        item: &'a Value,
        olds: Option<&OldItems<'a>>,
        slot: &'n OnceCell<Correlated<'a>>,
    ) -> Ratchet<'n, 'a>
    where
        'r: 'n,
    {
        let Some(current) = self.current else { return self };
        let found = current.schema.items.as_deref().zip(olds.and_then(|olds| olds.find(item)));
        Self::below(current, found.map(|(schema, old)| Correlated::new(item, old, schema)), slot)
    }

    /// The old list that items are found in.
    pub(super) fn old_items(self) -> Option<OldItems<'a>> {
        self.current.map(|current| OldItems::new(current.schema, Some(current.old)))
    }

    fn below<'n>(
        current: &'r Correlated<'a>,
        found: Option<Correlated<'a>>,
        slot: &'n OnceCell<Correlated<'a>>,
    ) -> Ratchet<'n, 'a>
    where
        'r: 'n,
    {
        let found = found.map(|found| slot.get_or_init(|| found));
        Ratchet { current: found, parent: Some(current) }
    }
}

/// The items of an old list, found by their keys. Empty unless the list is of type map.
#[derive(Debug)]
pub(super) struct OldItems<'a> {
    keys: &'a [Box<str>],
    items: &'a [Value],
    index: OnceCell<HashMap<String, usize>>,
}

impl<'a> OldItems<'a> {
    pub(super) fn new(schema: &'a Structural, old: Option<&'a Value>) -> Self {
        let (keys, items) = match (&schema.list, old) {
            (ListType::Map(keys), Some(Value::Array(items))) => (keys.as_slice(), items.as_slice()),
            _ => (&[][..], &[][..]),
        };
        Self { keys, items, index: OnceCell::new() }
    }

    /// The first old item with the keys of this one.
    pub(super) fn find(&self, item: &Value) -> Option<&'a Value> {
        if self.keys.is_empty() || self.items.is_empty() {
            return None;
        }
        if self.items.len() <= SCANNED {
            return self.items.iter().find(|old| self.same_keys(item, old));
        }
        let index = self.index.get_or_init(|| {
            let mut index = HashMap::with_capacity(self.items.len());
            for (place, old) in self.items.iter().enumerate() {
                if let Some(key) = self.key(old) {
                    index.entry(key).or_insert(place);
                }
            }
            index
        });
        self.items.get(*index.get(&self.key(item)?)?)
    }

    fn same_keys(&self, one: &Value, other: &Value) -> bool {
        self.keys.iter().all(|key| scalar(one, key).is_some_and(|value| scalar(other, key) == Some(value)))
    }

    fn key(&self, item: &Value) -> Option<String> {
        let mut out = String::new();
        for key in self.keys {
            out.push_str(&scalar(item, key)?.to_string());
            out.push('\0');
        }
        Some(out)
    }
}

/// A member that is a scalar.
fn scalar<'v>(item: &'v Value, name: &str) -> Option<&'v Value> {
    let value = item.as_object()?.get(name)?;
    matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_)).then_some(value)
}
