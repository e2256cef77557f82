//! JSON of no particular type, with its duplicate fields.
//!
//! Patches are parsed so: their fields are not those of any message. The last of several equal keys wins; each key that
//! came again is reported once, by its path.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::field::quote;

/// kube-apiserver stops counting here.
pub(super) const MAX_STRICT: usize = 100;

/// Where the parser is, and what it has seen twice.
#[derive(Default)]
pub(super) struct State {
    path: String,
    pub(super) duplicates: Vec<String>,
}

/// Parses one value.
pub(super) struct Seed<'s>(pub(super) &'s mut State);

/// Adds a message unless it was added before.
pub(super) fn note(messages: &mut Vec<String>, text: String) {
    if messages.len() < MAX_STRICT && !messages.contains(&text) {
        messages.push(text);
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        let length = self.0.path.len();
        loop {
            self.0.path.push_str(&format!("[{}]", out.len()));
            let next = seq.next_element_seed(Seed(self.0))?;
            self.0.path.truncate(length);
            match next {
                Some(value) => out.push(value),
                None => return Ok(out.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        let length = self.0.path.len();
        while let Some(key) = map.next_key::<String>()? {
            if length > 0 {
                self.0.path.push('.');
            }
            self.0.path.push_str(&key);
            if out.contains_key(&key) {
                note(&mut self.0.duplicates, format!("duplicate field {}", quote(&self.0.path)));
            }
            let value = map.next_value_seed(Seed(self.0))?;
            self.0.path.truncate(length);
            out.insert(key, value);
        }
        Ok(out.into())
    }
}
