//! Lists: borrowed from JSON, shared, or two lists one behind the other.
//!
//! Lists that a schema declares as sets or as maps have elements that are unique, and are compared and joined by them.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;

use super::Value;
use super::map::Key;
use crate::budget::Stop;
use crate::declared::{Declared, Items, Shape};
use crate::types::{ObjectTypes, Type};

/// Joined lists of up to this many elements are copied into one.
const COPIED: usize = 256;
/// Joined lists are copied into one when they were joined this many times.
const JOINS: usize = 32;

/// A list, and what a schema declares it as.
#[derive(Clone, Debug)]
pub struct List<'a>(Repr<'a>, Option<&'a Declared>);

/// What is unique about the elements of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unique<'a> {
    /// Nothing.
    No,
    /// The elements, which are scalars.
    Values,
    /// The values of these fields, which have their escaped names.
    Keys(&'a [Box<str>]),
}

impl Unique<'_> {
    /// The key of an element.
    ///
    /// # Errors
    /// When an element of a set is a list or a map.
    pub(crate) fn key(self, element: &Value<'_>) -> Result<Vec<Option<Key>>, Stop> {
        match (self, element) {
            (Self::Keys(fields), Value::Map(map)) => {
                let find = |field: &str| map.find(&Value::string(field)).map(|value| Key::scalar(&value));
                Ok(fields.iter().map(|field| find(field)).collect())
            }
            (Self::Values, Value::List(_) | Value::Map(_)) => {
                Err("listSet operations are only supported on lists of scalar values".into())
            }
            _ => Ok(vec![Some(Key::scalar(element))]),
        }
    }
}

#[derive(Clone, Debug)]
enum Repr<'a> {
    Json(&'a [Json]),
    Declared(&'a [Json]),
    Typed(Arc<Typed<'a>>),
    Values(Arc<Vec<Value<'a>>>),
    Joined(Arc<Joined<'a>>),
}

struct Typed<'a> {
    items: &'a [Json],
    element: Type,
    types: &'a dyn ObjectTypes,
}

impl std::fmt::Debug for Typed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Typed").field("items", &self.items).field("element", &self.element).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Joined<'a> {
    left: List<'a>,
    right: List<'a>,
    len: usize,
    joins: usize,
}

impl<'a> List<'a> {
    pub(crate) fn from_json(items: &'a [Json]) -> Self {
        Self(Repr::Json(items), None)
    }

    pub(crate) fn typed(items: &'a [Json], element: &Type, types: &'a dyn ObjectTypes) -> Self {
        Self(Repr::Typed(Arc::new(Typed { items, element: element.clone(), types })), None)
    }

    /// `declared` is that of the list, which has that of its elements.
    pub(crate) fn declared(items: &'a [Json], declared: &'a Declared) -> Self {
        Self(Repr::Declared(items), Some(declared))
    }

    pub(crate) fn from_values(values: Vec<Value<'a>>) -> Self {
        Self(Repr::Values(Arc::new(values)), None)
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Json(items) | Repr::Declared(items) => items.len(),
            Repr::Typed(typed) => typed.items.len(),
            Repr::Values(values) => values.len(),
            Repr::Joined(joined) => joined.len,
        }
    }

    /// Whether it is borrowed from JSON.
    pub(crate) fn is_json(&self) -> bool {
        matches!(self.0, Repr::Json(_))
    }

    /// Whether a schema declares it.
    pub(crate) fn is_declared(&self) -> bool {
        matches!(self.0, Repr::Declared(..))
    }

    /// What is unique about its elements.
    pub(crate) fn unique(&self) -> Unique<'a> {
        match self.1.map(Declared::shape) {
            Some(Shape::List(_, Items::Set)) => Unique::Values,
            Some(Shape::List(_, Items::Keyed(keys))) => Unique::Keys(keys),
            _ => Unique::No,
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An element.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match &self.0 {
            Repr::Json(items) => items.get(index).map(Value::from_json),
            Repr::Declared(items) => items.get(index).map(|item| match self.1.map(Declared::shape) {
                Some(Shape::List(element, _)) => Value::declared(item, element),
                _ => Value::from_json(item),
            }),
            Repr::Typed(typed) => {
                typed.items.get(index).map(|item| Value::from_typed_json(item, &typed.element, typed.types))
            }
            Repr::Values(values) => values.get(index).cloned(),
            Repr::Joined(joined) => match index.checked_sub(joined.left.len()) {
                None => joined.left.get(index),
                Some(index) => joined.right.get(index),
            },
        }
    }

    /// The elements in order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, 'a> {
        Iter { pending: vec![self], current: None, index: 0 }
    }

    /// How many elements joining two lists copies; what it costs besides is small.
    pub(crate) fn join_cost(&self, other: &Self) -> usize {
        let len = self.len().saturating_add(other.len());
        if self.unique() != Unique::No || len <= COPIED || self.joins().max(other.joins()) >= JOINS { len } else { 1 }
    }

    /// This list followed by another; elements that must be unique are added or replaced.
    ///
    /// # Errors
    /// When an element of a set is a list or a map.
    pub(crate) fn add(&self, other: &Self) -> Result<Self, Stop> {
        let unique = self.unique();
        if unique == Unique::No {
            return Ok(self.join(other));
        }
        let mut values: Vec<Value<'a>> = self.iter().collect();
        let mut places = HashMap::with_capacity(values.len());
        for (place, value) in values.iter().enumerate() {
            places.insert(unique.key(value)?, place);
        }
        for value in other.iter() {
            let key = unique.key(&value)?;
            match places.get(&key).and_then(|place| values.get_mut(*place)) {
                Some(known) if unique != Unique::Values => *known = value,
                Some(_) => {}
                None => {
                    // Only sets remember what was added.
                    if unique == Unique::Values {
                        places.insert(key, values.len());
                    }
                    values.push(value);
                }
            }
        }
        Ok(Self(Repr::Values(Arc::new(values)), self.1))
    }

    /// This list followed by another.
    pub(crate) fn join(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        if other.is_empty() {
            return self.clone();
        }
        let len = self.len().saturating_add(other.len());
        let joins = 1 + self.joins().max(other.joins());
        if len <= COPIED || joins > JOINS {
            return Self::from_values(self.iter().chain(other.iter()).collect());
        }
        Self(Repr::Joined(Arc::new(Joined { left: self.clone(), right: other.clone(), len, joins })), None)
    }

    fn joins(&self) -> usize {
        match &self.0 {
            Repr::Joined(joined) => joined.joins,
            _ => 0,
        }
    }

    /// Appends elements, in place if the list is not shared.
    pub(crate) fn push_all(&mut self, values: impl IntoIterator<Item = Value<'a>>) {
        if let Repr::Values(known) = &mut self.0 {
            Arc::make_mut(known).extend(values);
            return;
        }
        let all = self.iter().chain(values).collect();
        *self = Self::from_values(all);
    }
}

/// The elements of a list.
#[derive(Debug)]
pub struct Iter<'l, 'a> {
    /// Lists that come later, the next one last.
    pending: Vec<&'l List<'a>>,
    /// The list that is being read, which is not joined.
    current: Option<&'l List<'a>>,
    index: usize,
}

impl<'a> Iterator for Iter<'_, 'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        loop {
            if let Some(value) = self.current.and_then(|list| list.get(self.index)) {
                self.index += 1;
                return Some(value);
            }
            let list = self.pending.pop()?;
            match &list.0 {
                Repr::Joined(joined) => self.pending.extend([&joined.right, &joined.left]),
                _ => (self.current, self.index) = (Some(list), 0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(list: &List<'_>) -> Vec<i64> {
        list.iter().map(|value| if let Value::Int(value) = value { value } else { -1 }).collect()
    }

    #[test]
    fn joined_lists_read_like_one() {
        let json: Json = serde_json::from_str("[1, 2, 3]").expect("a list");
        let Value::List(short) = Value::from_json(&json) else { panic!("no list") };
        let long = List::from_values((0..300).map(Value::Int).collect());
        let both = short.join(&long);
        assert_eq!(both.len(), 303);
        assert_eq!(ints(&both).get(..5), Some(&[1, 2, 3, 0, 1][..]));
        assert!(both.get(303).is_none());
        assert_eq!(ints(&short.join(&short)), [1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn many_joins_are_flattened() {
        let long = List::from_values((0..300).map(Value::Int).collect());
        let mut all = long.clone();
        for _ in 0..40 {
            all = all.join(&long);
        }
        assert!(all.joins() <= JOINS);
        assert_eq!(all.len(), 41 * 300);
    }

    #[test]
    fn pushing_does_not_change_copies() {
        let mut list = List::from_values(vec![Value::Int(1)]);
        let copy = list.clone();
        list.push_all([Value::Int(2)]);
        assert_eq!((ints(&list), ints(&copy)), (vec![1, 2], vec![1]));
    }
}
