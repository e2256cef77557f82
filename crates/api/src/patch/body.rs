//! Reading a patch body: JSON flows in; the value and the complaints of strict decoding flow out.
//!
//! `serde_json` silently keeps the last of two members with one name. Strict decoding reports them, with their path, in
//! the order of the text, so they have to be seen while the text is read. A JSON patch is read against the four members
//! of an operation: others are unknown, and what is in them is not looked at.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::field::quote;

/// kube-apiserver stops collecting errors here.
const MAX_COMPLAINTS: usize = 100;

/// The value, and what is wrong with it in strict eyes.
pub(super) fn read(body: &[u8], operations: bool) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut notes = Notes { path: String::new(), found: Vec::new(), muted: false };
    let mut input = serde_json::Deserializer::from_slice(body);
    let role = if operations { Role::Operations } else { Role::Free };
    let value = Reader { notes: &mut notes, role }.deserialize(&mut input)?;
    input.end()?;
    let mut found = notes.found;
    if operations {
        for complaint in &mut found {
            complaint.insert_str(0, "json patch ");
        }
    }
    Ok((value, found))
}

struct Notes {
    path: String,
    found: Vec<String>,
    muted: bool,
}

/// What the value being read is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Free,
    Operations,
    Operation,
}

struct Reader<'a> {
    notes: &'a mut Notes,
    role: Role,
}

impl Notes {
    fn complain(&mut self, what: &str, name: &str) {
        if self.muted || self.found.len() >= MAX_COMPLAINTS {
            return;
        }
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        let complaint = format!("{what} field {}", quote(&path));
        if !self.found.contains(&complaint) {
            self.found.push(complaint);
        }
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let role = if self.role == Role::Operations { Role::Operation } else { Role::Free };
        let length = self.notes.path.len();
        let mut out = Vec::new();
        loop {
            self.notes.path.push_str(&format!("[{}]", out.len()));
            let item = items.next_element_seed(Reader { notes: &mut *self.notes, role })?;
            self.notes.path.truncate(length);
            match item {
                Some(item) => out.push(item),
                None => return Ok(Value::Array(out)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let length = self.notes.path.len();
        let muted = self.notes.muted;
        let mut out = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if self.role == Role::Operation && !matches!(name.as_str(), "op" | "path" | "from" | "value") {
                self.notes.complain("unknown", &name);
                self.notes.muted = true;
            } else if out.contains_key(&name) {
                self.notes.complain("duplicate", &name);
            }
            if length > 0 {
                self.notes.path.push('.');
            }
            self.notes.path.push_str(&name);
            let value = members.next_value_seed(Reader { notes: &mut *self.notes, role: Role::Free })?;
            self.notes.path.truncate(length);
            self.notes.muted = muted;
            out.insert(name, value);
        }
        Ok(Value::Object(out))
    }
}
