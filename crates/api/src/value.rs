//! Reading and writing JSON objects without ceremony.
//!
//! The kinds read values whose shape the schema has already checked, so an absent member, a null and an empty one
//! mean the same to most rules: these helpers implement that once.

use serde_json::{Map, Value};

/// What an absent member reads as.
static NULL: Value = Value::Null;

/// Short ways into a JSON value.
pub trait ValueExt {
    /// The member at a dotted path, or null.
    fn at(&self, path: &str) -> &Value;
    /// The string at a dotted path, or the empty string.
    fn text(&self, path: &str) -> &str;
    /// The integer at a dotted path, or 0.
    fn int(&self, path: &str) -> i64;
    /// The boolean at a dotted path, or false.
    fn flag(&self, path: &str) -> bool;
    /// The list at a dotted path, or an empty one.
    fn items(&self, path: &str) -> &[Value];
    /// The strings of the list at a dotted path.
    fn texts(&self, path: &str) -> Vec<&str>;
    /// Whether the dotted path leads to something that is not null.
    fn has(&self, path: &str) -> bool;
    /// The map at a dotted path.
    fn map(&self, path: &str) -> Option<&Map<String, Value>>;
    /// Sets a dotted path, making the objects on the way.
    fn put(&mut self, path: &str, value: impl Into<Value>);
    /// Removes what a dotted path names and returns it.
    fn drop_path(&mut self, path: &str) -> Option<Value>;
    /// The list at a dotted path, to be changed.
    fn items_mut(&mut self, path: &str) -> &mut [Value];
    /// The member at a dotted path, to be changed.
    fn at_mut(&mut self, path: &str) -> Option<&mut Value>;
}

impl ValueExt for Value {
    fn at(&self, path: &str) -> &Value {
        let mut here = self;
        for part in path.split('.') {
            match here.get(part) {
                Some(next) => here = next,
                None => return &NULL,
            }
        }
        here
    }

    fn text(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    fn int(&self, path: &str) -> i64 {
        self.at(path).as_i64().unwrap_or_default()
    }

    fn flag(&self, path: &str) -> bool {
        self.at(path).as_bool().unwrap_or_default()
    }

    fn items(&self, path: &str) -> &[Value] {
        self.at(path).as_array().map_or(&[], Vec::as_slice)
    }

    fn texts(&self, path: &str) -> Vec<&str> {
        self.items(path).iter().filter_map(Self::as_str).collect()
    }

    fn has(&self, path: &str) -> bool {
        !self.at(path).is_null()
    }

    fn map(&self, path: &str) -> Option<&Map<String, Value>> {
        self.at(path).as_object()
    }

    fn put(&mut self, path: &str, value: impl Into<Self>) {
        let mut here = self;
        let mut parts = path.split('.').peekable();
        while let Some(part) = parts.next() {
            if !here.is_object() {
                *here = Self::Object(Map::new());
            }
            let Self::Object(map) = here else { return };
            if parts.peek().is_none() {
                map.insert(part.to_owned(), value.into());
                return;
            }
            here = map.entry(part).or_insert_with(|| Self::Object(Map::new()));
        }
    }

    fn drop_path(&mut self, path: &str) -> Option<Value> {
        let (parent, last) = match path.rsplit_once('.') {
            Some((parent, last)) => (self.at_mut(parent)?, last),
            None => (self, path),
        };
        parent.as_object_mut()?.remove(last)
    }

    fn items_mut(&mut self, path: &str) -> &mut [Value] {
        self.at_mut(path).and_then(Self::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
    }

    fn at_mut(&mut self, path: &str) -> Option<&mut Value> {
        path.split('.').try_fold(self, |here, part| here.get_mut(part))
    }
}
