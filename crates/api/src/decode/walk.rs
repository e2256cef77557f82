//! The schema, walked along a document.
//!
//! Each JSON value meets the shape that its field has. A value of the wrong type does not end the walk: the first such
//! error is remembered and reported at the end, as Go's decoder does it; only values with a parser of their own
//! (times, quantities) stop at once and hide the earlier ones.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::scalar::{self, Fault};
use super::untyped::note;
use super::{MAX_DEPTH, gotype, stop};
use crate::field::quote;
use crate::schema::{Field, Shape, TypeId};

/// The way from the document to a value.
pub(super) enum Step {
    Field(TypeId, &'static Field),
    Index(usize),
    /// A key of a map; empty when nothing below it can be reported.
    Key(String),
}

/// Everything a walk remembers.
#[derive(Default)]
pub(super) struct Walk {
    trail: Vec<Step>,
    strict: Vec<String>,
    error: Option<String>,
    depth: usize,
    /// How many unions the value stands in. Go reads those with a decoder of their own, which is not strict and stops at
    /// its first error.
    unions: usize,
}

/// What the next value must be.
#[derive(Clone, Copy)]
enum Target {
    /// The document itself, which may also say its kind.
    Root(TypeId),
    Shape(&'static Shape),
}

/// Decodes one value.
pub(super) struct Seed<'w> {
    walk: &'w mut Walk,
    target: Target,
}

/// A key of an object, resolved.
enum Key {
    Field(&'static Field),
    /// `kind` or `apiVersion` of the document.
    Meta(&'static str),
    Unknown(String),
}

static STRING: Shape = Shape::String;

impl Walk {
    /// Starts at a document of this type.
    pub(super) fn root(&mut self, ty: TypeId) -> Seed<'_> {
        Seed { walk: self, target: Target::Root(ty) }
    }

    /// The strict messages, or the error of the document.
    pub(super) fn finish(self) -> Result<Vec<String>, String> {
        self.error.map_or(Ok(self.strict), Err)
    }

    fn strict(&mut self, what: &str, name: &str) {
        if self.unions > 0 {
            return;
        }
        let mut path = gotype::strict_path(&self.trail);
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        note(&mut self.strict, format!("{what} field {}", quote(&path)));
    }

    /// Records an error and returns whether to continue.
    fn fault<E: serde::de::Error>(&mut self, target: Target, fault: Fault) -> Result<Value, E> {
        let (message, fatal) = match fault {
            Fault::Other { message, fatal } => (message, fatal),
            Fault::Mismatch { found, wanted, fatal } => {
                let wanted = wanted.map_or_else(|| target.go_type(&self.trail), str::to_owned);
                let place =
                    gotype::field_path(&self.trail).map_or("value".to_owned(), |path| format!("struct field {path}"));
                (format!("json: cannot unmarshal {found} into Go {place} of type {wanted}"), fatal)
            }
        };
        if fatal || self.unions > 0 {
            self.error = Some(message);
            return Err(stop());
        }
        self.error.get_or_insert(message);
        Ok(Value::Null)
    }

    fn enter<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.error = Some("exceeded max depth".to_owned());
            return Err(stop());
        }
        Ok(())
    }
}

impl Target {
    fn shape(self) -> Option<&'static Shape> {
        match self {
            Self::Root(_) => None,
            Self::Shape(shape) => Some(shape),
        }
    }

    fn message(self) -> Option<TypeId> {
        match self {
            Self::Root(ty) => Some(ty),
            Self::Shape(Shape::Object(ty) | Shape::Union(ty, _)) => Some(*ty),
            Self::Shape(_) => None,
        }
    }

    fn go_type(self, trail: &[Step]) -> String {
        match self {
            Self::Root(ty) => gotype::message(ty),
            Self::Shape(shape) => gotype::of(trail, shape),
        }
    }
}

impl Seed<'_> {
    /// A scalar: converted when the shape is one, else of the wrong type.
    fn scalar<E: serde::de::Error>(
        self,
        found: &'static str,
        convert: impl FnOnce(&Shape) -> Result<Value, Fault>,
    ) -> Result<Value, E> {
        let result = match self.target.shape() {
            Some(shape) => convert(shape),
            None => Err(Fault::Mismatch { found: found.to_owned(), wanted: None, fatal: false }),
        };
        result.or_else(|fault| self.walk.fault(self.target, fault))
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

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.scalar("bool", |shape| scalar::boolean(shape, value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.scalar("number", |shape| scalar::number(shape, value.into()))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.scalar("number", |shape| scalar::number(shape, value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not a finite number"))?;
        self.scalar("number", |shape| scalar::number(shape, number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.scalar("string", |shape| scalar::string(shape, value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        self.walk.enter()?;
        let out = match self.target.shape() {
            Some(Shape::List(inner)) => list(self.walk, inner, seq)?,
            Some(Shape::Union(_, other)) if let Shape::List(inner) = &**other => {
                self.walk.unions += 1;
                let out = list(self.walk, inner, seq)?;
                self.walk.unions -= 1;
                out
            }
            Some(Shape::Raw | Shape::FieldsV1 | Shape::Json) => raw_list(self.walk, seq)?,
            shape => {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                let fault = scalar::mismatch(shape.unwrap_or(&STRING), "array");
                self.walk.fault(self.target, fault)?
            }
        };
        self.walk.depth -= 1;
        Ok(out)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        self.walk.enter()?;
        let out = match (self.target.message(), self.target.shape()) {
            (Some(ty), Some(Shape::Union(..))) => {
                self.walk.unions += 1;
                let out = message(self.walk, ty, false, map)?;
                self.walk.unions -= 1;
                out
            }
            (Some(ty), _) => message(self.walk, ty, matches!(self.target, Target::Root(_)), map)?,
            (_, Some(Shape::Map(inner))) => entries(self.walk, inner, map)?,
            (_, Some(Shape::Raw | Shape::FieldsV1 | Shape::Json)) => raw_map(self.walk, map)?,
            (_, shape) => {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                let fault = scalar::mismatch(shape.unwrap_or(&STRING), "object");
                self.walk.fault(self.target, fault)?
            }
        };
        self.walk.depth -= 1;
        Ok(out)
    }
}

static RAW: Shape = Shape::Raw;

fn raw_list<'de, A: SeqAccess<'de>>(walk: &mut Walk, mut seq: A) -> Result<Value, A::Error> {
    let mut out = Vec::new();
    while let Some(value) = seq.next_element_seed(Seed { walk, target: Target::Shape(&RAW) })? {
        out.push(value);
    }
    Ok(out.into())
}

fn raw_map<'de, A: MapAccess<'de>>(walk: &mut Walk, mut map: A) -> Result<Value, A::Error> {
    let mut out = Map::new();
    while let Some(key) = map.next_key::<String>()? {
        let value = map.next_value_seed(Seed { walk, target: Target::Shape(&RAW) })?;
        out.insert(key, value);
    }
    Ok(out.into())
}

fn list<'de, A: SeqAccess<'de>>(walk: &mut Walk, inner: &'static Shape, mut seq: A) -> Result<Value, A::Error> {
    let mut out = Vec::new();
    loop {
        walk.trail.push(Step::Index(out.len()));
        let next = seq.next_element_seed(Seed { walk, target: Target::Shape(inner) })?;
        walk.trail.pop();
        match next {
            Some(value) => out.push(or_zero(inner, value)),
            None => return Ok(out.into()),
        }
    }
}

fn entries<'de, A: MapAccess<'de>>(walk: &mut Walk, inner: &'static Shape, mut map: A) -> Result<Value, A::Error> {
    let mut out = Map::new();
    let deep = matches!(inner, Shape::Object(_) | Shape::Union(..) | Shape::Map(_) | Shape::List(_));
    while let Some(key) = map.next_key::<String>()? {
        if out.contains_key(&key) {
            walk.strict("duplicate", &key);
        }
        walk.trail.push(Step::Key(if deep { key.clone() } else { String::new() }));
        let value = map.next_value_seed(Seed { walk, target: Target::Shape(inner) })?;
        walk.trail.pop();
        out.insert(key, or_zero(inner, value));
    }
    Ok(out.into())
}

/// Go puts the zero value where a list or a map has a null.
fn or_zero(shape: &Shape, value: Value) -> Value {
    if value.is_null() { super::prune::zero(shape) } else { value }
}

fn message<'de, A: MapAccess<'de>>(walk: &mut Walk, ty: TypeId, root: bool, mut map: A) -> Result<Value, A::Error> {
    let mut out = Map::new();
    let mut nulls = false;
    while let Some(key) = map.next_key_seed(KeySeed { ty, root })? {
        let (name, field) = match key {
            Key::Field(field) => (field.json, Some(field)),
            Key::Meta(name) => (name, None),
            Key::Unknown(name) => {
                walk.strict("unknown", &name);
                map.next_value::<IgnoredAny>()?;
                continue;
            }
        };
        let earlier = out.remove(name);
        if earlier.is_some() {
            walk.strict("duplicate", name);
        }
        let shape = field.map_or(&STRING, |field| &field.shape);
        if let Some(field) = field {
            walk.trail.push(Step::Field(ty, field));
        }
        let value = map.next_value_seed(Seed { walk, target: Target::Shape(shape) })?;
        if field.is_some() {
            walk.trail.pop();
        }
        let value = match earlier {
            Some(earlier) => again(shape, field.is_some_and(|field| field.pointer), earlier, value),
            None => value,
        };
        nulls |= value.is_null();
        out.insert(name.to_owned(), value);
    }
    if nulls {
        out.retain(|_, value| !value.is_null());
    }
    Ok(out.into())
}

/// A field that came twice: Go decodes the second on top of the first, so objects and maps unite, and a null leaves
/// what cannot be null.
fn again(shape: &Shape, pointer: bool, earlier: Value, value: Value) -> Value {
    match (shape, earlier, value) {
        (Shape::List(_) | Shape::Map(_), _, Value::Null) => Value::Null,
        (_, earlier, Value::Null) => {
            if pointer {
                Value::Null
            } else {
                earlier
            }
        }
        (Shape::Map(_), Value::Object(mut earlier), Value::Object(value)) => {
            earlier.extend(value);
            earlier.into()
        }
        (Shape::Object(ty), Value::Object(mut earlier), Value::Object(value)) => {
            for (key, value) in value {
                let merged = match (earlier.remove(&key), ty.get().field(&key)) {
                    (Some(old), Some(field)) => again(&field.shape, field.pointer, old, value),
                    _ => value,
                };
                earlier.insert(key, merged);
            }
            earlier.into()
        }
        (_, _, value) => value,
    }
}

/// Resolves a key without making a string of it.
struct KeySeed {
    ty: TypeId,
    root: bool,
}

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Key;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Key, E> {
        Ok(match (self.ty.get().field(name), name) {
            (Some(field), _) => Key::Field(field),
            (None, "kind") if self.root => Key::Meta("kind"),
            (None, "apiVersion") if self.root => Key::Meta("apiVersion"),
            _ => Key::Unknown(name.to_owned()),
        })
    }
}
