//! Maps: borrowed from JSON, or made by the expression.
//!
//! Keys are booleans, numbers and strings. Numbers of different types that are equal find the same entry.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;

use super::{Str, Value, number};
use crate::declared::{Declared, Shape};
use crate::types::{ObjectTypes, Type};

type Fields = serde_json::Map<String, Json>;

/// A map.
#[derive(Clone, Debug)]
pub struct Map<'a>(Repr<'a>);

#[derive(Clone, Debug)]
enum Repr<'a> {
    Json(&'a Fields),
    Declared(&'a Fields, &'a Declared),
    Typed(Arc<Typed<'a>>),
    Values(Arc<Entries<'a>>),
}

struct Typed<'a> {
    fields: &'a Fields,
    kind: Type,
    types: &'a dyn ObjectTypes,
}

impl std::fmt::Debug for Typed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Typed").field("fields", &self.fields).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<'a> Typed<'a> {
    fn find(&self, key: &str) -> Option<Value<'a>> {
        let (name, kind) = match &self.kind {
            Type::Object(object) => (crate::escape::unescape(key)?, self.types.field(object, key).unwrap_or(Type::Dyn)),
            Type::Map(_, value) => (key.to_owned(), (**value).clone()),
            _ => (key.to_owned(), Type::Dyn),
        };
        self.fields.get(&name).map(|value| Value::from_typed_json(value, &kind, self.types))
    }

    fn key(&self, name: &'a str) -> Value<'a> {
        match &self.kind {
            Type::Object(_) => crate::escape::escape(name).map_or_else(|| Value::string(name), Value::string),
            _ => Value::string(name),
        }
    }
}

/// A key in the form in which it is looked up.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(u64),
    String(Arc<str>),
    Type(Arc<str>),
    Null,
}

impl Key {
    fn of(value: &Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(value) => Self::Int(*value),
            Value::Uint(value) => Self::Uint(*value),
            Value::Double(value) => Self::Double(if *value == 0.0 { 0 } else { value.to_bits() }),
            Value::String(Str::Shared(text)) => Self::String(text.clone()),
            Value::String(Str::Borrowed(text)) => Self::String((*text).into()),
            Value::Type(name) => Self::Type(name.clone()),
            Value::Null => Self::Null,
            _ => return None,
        })
    }

    /// The form of any scalar, in which values of different types differ.
    pub(crate) fn scalar(value: &Value<'_>) -> Self {
        Self::of(value).unwrap_or_else(|| Self::Type(format!("{}:{value}", value.type_name()).into()))
    }

    /// The same number as keys of the other number types.
    fn equals(&self) -> [Option<Self>; 2] {
        match self {
            Self::Double(bits) => {
                let value = f64::from_bits(*bits);
                [number::exact_int(value).map(Self::Int), number::exact_uint(value).map(Self::Uint)]
            }
            Self::Int(value) => [u64::try_from(*value).ok().map(Self::Uint), None],
            Self::Uint(value) => [i64::try_from(*value).ok().map(Self::Int), None],
            _ => [None, None],
        }
    }
}

/// Entries in the order in which they were inserted, and where each key is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries<'a> {
    entries: Vec<(Value<'a>, Value<'a>)>,
    places: HashMap<Key, usize>,
}

impl<'a> Entries<'a> {
    /// Inserts or replaces an entry. Lists and maps may be keys, but are never found.
    pub(crate) fn insert(&mut self, key: Value<'a>, value: Value<'a>) {
        let form = Key::of(&key);
        let known = form.as_ref().and_then(|form| self.places.get(form)).and_then(|place| self.entries.get_mut(*place));
        if let Some(entry) = known {
            entry.1 = value;
            return;
        }
        if let Some(form) = form {
            self.places.insert(form, self.entries.len());
        }
        self.entries.push((key, value));
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, key: &Value<'a>) {
        if let Some(form) = Key::of(key)
            && let Some(place) = self.places.remove(&form)
        {
            self.entries.remove(place);
            self.places.values_mut().filter(|other| **other > place).for_each(|other| *other -= 1);
        }
    }

    fn find(&self, key: &Value<'_>) -> Option<&Value<'a>> {
        let form = Key::of(key)?;
        let others = form.equals();
        let place =
            self.places.get(&form).or_else(|| others.iter().flatten().find_map(|other| self.places.get(other)))?;
        self.entries.get(*place).map(|(_, value)| value)
    }
}

impl<'a> Map<'a> {
    pub(crate) fn from_json(fields: &'a Fields) -> Self {
        Self(Repr::Json(fields))
    }

    pub(crate) fn typed(fields: &'a Fields, kind: &Type, types: &'a dyn ObjectTypes) -> Self {
        Self(Repr::Typed(Arc::new(Typed { fields, kind: kind.clone(), types })))
    }

    /// A map or an object that a schema declares.
    pub(crate) fn declared(fields: &'a Fields, declared: &'a Declared) -> Self {
        Self(Repr::Declared(fields, declared))
    }

    /// The JSON and the type of a map that a schema declares.
    pub(crate) fn as_declared(&self) -> Option<(&'a Fields, &'a Declared)> {
        match self.0 {
            Repr::Declared(fields, declared) => Some((fields, declared)),
            _ => None,
        }
    }

    pub(crate) fn from_entries(entries: Entries<'a>) -> Self {
        Self(Repr::Values(Arc::new(entries)))
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Json(fields) | Repr::Declared(fields, _) => fields.len(),
            Repr::Typed(typed) => typed.fields.len(),
            Repr::Values(entries) => entries.entries.len(),
        }
    }

    /// Whether it is borrowed from JSON.
    pub(crate) fn is_json(&self) -> bool {
        matches!(self.0, Repr::Json(_))
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    #[must_use]
    pub fn find(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match &self.0 {
            Repr::Json(fields) => fields.get(key.as_str()?).map(Value::from_json),
            Repr::Declared(fields, declared) => find_declared(fields, declared, key.as_str()?),
            Repr::Typed(typed) => typed.find(key.as_str()?),
            Repr::Values(entries) => entries.find(key).cloned(),
        }
    }

    /// The entries in a stable order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (Value<'a>, Value<'a>)> + '_> {
        match &self.0 {
            Repr::Json(fields) => {
                Box::new(fields.iter().map(|(key, value)| (Value::string(key.as_str()), Value::from_json(value))))
            }
            Repr::Declared(fields, declared) => Box::new(fields.keys().filter_map(move |name| {
                let key = match declared.shape() {
                    Shape::Object(_) => {
                        crate::escape::escape(name).map_or_else(|| Value::string(&**name), Value::string)
                    }
                    _ => Value::string(&**name),
                };
                let value = find_declared(fields, declared, key.as_str()?)?;
                Some((key, value))
            })),
            Repr::Typed(typed) => Box::new(typed.fields.keys().filter_map(|name| {
                let key = typed.key(name);
                let value = typed.find(key.as_str()?)?;
                Some((key, value))
            })),
            Repr::Values(entries) => Box::new(entries.entries.iter().cloned()),
        }
    }

    pub(crate) fn first(&self) -> Option<(Value<'a>, Value<'a>)> {
        self.iter().next()
    }

    /// Inserts an entry, in place if the map is not shared. False if the key already exists.
    pub(crate) fn insert_new(&mut self, key: Value<'a>, value: Value<'a>) -> bool {
        if self.find(&key).is_some() {
            return false;
        }
        if let Repr::Values(known) = &mut self.0 {
            Arc::make_mut(known).insert(key, value);
            return true;
        }
        let mut entries = Entries::default();
        self.iter().for_each(|(key, value)| entries.insert(key, value));
        entries.insert(key, value);
        *self = Self::from_entries(entries);
        true
    }
}

/// A field of an object, by its escaped name, or the value of a key. An object's field that is null is not there.
fn find_declared<'a>(fields: &'a Fields, declared: &'a Declared, key: &str) -> Option<Value<'a>> {
    match declared.shape() {
        Shape::Map(values) => fields.get(key).map(|value| Value::declared(value, values)),
        Shape::Object(properties) => {
            let unescaped = if key.contains("__") { Some(crate::escape::unescape(key)?) } else { None };
            let name = unescaped.as_deref().unwrap_or(key);
            let known = properties.fields.get(name)?;
            let value = fields.get(name).filter(|value| !value.is_null())?;
            Some(known.as_ref().map_or_else(|| Value::from_json(value), |declared| Value::declared(value, declared)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_other_types_find_their_entry() {
        let mut entries = Entries::default();
        entries.insert(Value::Int(1), Value::Bool(true));
        entries.insert(Value::Uint(2), Value::Bool(false));
        let map = Map::from_entries(entries);
        for key in [Value::Int(1), Value::Uint(1), Value::Double(1.0)] {
            assert_eq!(map.find(&key).and_then(|value| value.as_bool()), Some(true), "{key}");
        }
        assert_eq!(map.find(&Value::Int(2)).and_then(|value| value.as_bool()), Some(false));
        assert!(map.find(&Value::Double(1.5)).is_none());
        assert!(map.find(&Value::Int(-1)).is_none());
    }

    #[test]
    fn entries_are_replaced_and_removed() {
        let mut entries = Entries::default();
        for (key, value) in [("a", 1), ("b", 2), ("a", 3)] {
            entries.insert(Value::string(key), Value::Int(value));
        }
        entries.remove(&Value::string("a"));
        let mut map = Map::from_entries(entries);
        assert_eq!(map.len(), 1);
        assert!(map.find(&Value::string("b")).is_some());
        assert!(!map.insert_new(Value::string("b"), Value::Null));
        assert!(map.insert_new(Value::list(Vec::new()), Value::Null));
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn typed_fields_are_found_by_their_escaped_names() {
        let json: Json = serde_json::from_str(
            r#"{"namespace": "n", "since": "2026-01-02T03:04:05Z", "wait": "90s", "data": "aGk=", "ratio": 1}"#,
        )
        .expect("JSON");
        let mut types = crate::types::ObjectTable::default();
        types.add(
            "T",
            [
                ("__namespace__", Type::String),
                ("since", Type::Timestamp),
                ("wait", Type::Duration),
                ("data", Type::Bytes),
                ("ratio", Type::Double),
            ],
        );
        let value = Value::from_typed_json(&json, &Type::object("T"), &types);
        let Value::Map(map) = value else { panic!("no map") };
        let find = |name: &str| map.find(&Value::string(name)).map(|value| value.type_name().to_owned());
        assert_eq!(find("__namespace__").as_deref(), Some("string"));
        assert_eq!(find("since").as_deref(), Some("google.protobuf.Timestamp"));
        assert_eq!(find("wait").as_deref(), Some("google.protobuf.Duration"));
        assert_eq!(find("data").as_deref(), Some("bytes"));
        assert_eq!(find("ratio").as_deref(), Some("double"));
        assert_eq!(find("frob"), None);
        assert_eq!(map.iter().count(), 5);
    }
}
