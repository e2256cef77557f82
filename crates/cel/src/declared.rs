//! Types that OpenAPI schemas declare: what a JSON value is in an expression, and how large it may become.
//!
//! In: a tree of shapes with the limits of the schema. Out: the [`Type`] of an expression's variable, views of JSON values
//! that borrow ([`Value::declared`]), and the bounds that the estimate of an expression's cost uses.

mod formats;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::escape::{escape, is_reserved, unescape};
use crate::types::{ObjectTypes, Type};
use crate::value::{List, Map, Str, Value};

/// A type that a schema declares.
#[derive(Debug)]
pub struct Declared {
    shape: Shape,
    kind: Type,
    nullable: bool,
    max_elements: u64,
    min_size: u64,
}

/// What a declared value is.
#[derive(Debug)]
#[non_exhaustive]
pub enum Shape {
    /// A truth value.
    Bool,
    /// An integer.
    Int,
    /// A number, which expressions see as a double even if it is written without a fraction.
    Double,
    /// Text.
    String,
    /// Bytes, written in base64.
    Bytes,
    /// A span of time.
    Duration,
    /// A day.
    Date,
    /// A point in time.
    DateTime,
    /// An integer or a string.
    IntOrString,
    /// A list.
    List(Arc<Declared>, Items),
    /// A map from strings.
    Map(Arc<Declared>),
    /// An object with known fields.
    Object(Properties),
}

/// How the elements of a list relate to each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Items {
    /// A sequence.
    Ordered,
    /// Unique scalars: their order does not matter when lists are compared.
    Set,
    /// Objects that are unique by the values of these fields, which have their escaped names.
    Keyed(Box<[Box<str>]>),
}

/// The fields of an object type.
#[derive(Debug)]
pub struct Properties {
    /// The name of the type, unique among the types of an environment.
    pub name: Arc<str>,
    /// By the name in JSON; none for a field whose type expressions cannot use.
    pub fields: HashMap<Box<str>, Option<Arc<Declared>>>,
    /// The least number of bytes that an object takes in JSON.
    pub min_size: u64,
}

impl Properties {
    /// The type of a field, by the name that expressions use.
    pub(crate) fn escaped(&self, field: &str) -> Option<&Arc<Declared>> {
        let name = unescape(field)?;
        self.fields.get(name.as_str())?.as_ref().filter(|_| escape(&name).as_deref() == Some(field))
    }
}

impl Declared {
    /// A type. `max_elements` limits the characters of strings, the elements of lists and the entries of maps.
    #[must_use]
    pub fn new(shape: Shape, nullable: bool, max_elements: u64) -> Self {
        let (kind, min_size) = match &shape {
            Shape::Bool => (Type::Bool, 4),
            Shape::Int => (Type::Int, 1),
            Shape::Double => (Type::Double, 1),
            Shape::IntOrString => (Type::Dyn, 1),
            Shape::String => (Type::String, 2),
            Shape::Bytes => (Type::Bytes, 2),
            Shape::Duration => (Type::Duration, 3),
            Shape::Date => (Type::Timestamp, 12),
            Shape::DateTime => (Type::Timestamp, 21),
            Shape::List(items, _) => (Type::list(items.kind.clone()), 2),
            Shape::Map(values) => (Type::map(Type::String, values.kind.clone()), 2),
            Shape::Object(properties) => (Type::Object(properties.name.clone()), properties.min_size),
        };
        Self { shape, kind, nullable, max_elements, min_size }
    }

    /// The type of expressions with such a value.
    #[must_use]
    pub fn kind(&self) -> &Type {
        &self.kind
    }

    /// What it is.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The least number of bytes that a value takes in JSON.
    #[must_use]
    pub fn min_size(&self) -> u64 {
        self.min_size
    }

    /// The most characters, elements or entries that a value has; 0 for other types.
    #[must_use]
    pub fn max_elements(&self) -> u64 {
        self.max_elements
    }

    /// The type of elements of a list or of values of a map.
    #[must_use]
    pub fn element(&self) -> Option<&Arc<Self>> {
        match &self.shape {
            Shape::List(element, _) | Shape::Map(element) => Some(element),
            _ => None,
        }
    }
}

/// The object types below a declared type.
#[derive(Debug)]
pub struct DeclaredTypes {
    objects: HashMap<Arc<str>, Arc<Declared>>,
}

impl DeclaredTypes {
    /// Collects them.
    #[must_use]
    pub fn new(root: &Arc<Declared>) -> Self {
        let mut objects = HashMap::new();
        let mut pending = vec![root];
        while let Some(declared) = pending.pop() {
            match &declared.shape {
                Shape::Object(properties) => {
                    objects.insert(properties.name.clone(), declared.clone());
                    pending.extend(properties.fields.values().flatten());
                }
                Shape::List(element, _) | Shape::Map(element) => pending.push(element),
                _ => {}
            }
        }
        Self { objects }
    }
}

impl ObjectTypes for DeclaredTypes {
    fn contains(&self, name: &str) -> bool {
        // Kubernetes resolves these two as well, although they are no identifiers of CEL.
        self.objects.contains_key(name) || matches!(name, "duration" | "timestamp")
    }

    fn field(&self, name: &str, field: &str) -> Option<Type> {
        let Shape::Object(properties) = &self.objects.get(name)?.shape else { return None };
        let found = properties.escaped(field);
        let found = found.or_else(|| properties.fields.get(field)?.as_ref().filter(|_| is_reserved(field)));
        found.map(|declared| declared.kind.clone())
    }
}

impl<'a> Value<'a> {
    /// A JSON value of a declared type, borrowed. A value that is not of the type becomes [`Value::Invalid`].
    #[must_use]
    pub fn declared(json: &'a Json, declared: &'a Declared) -> Self {
        match (&declared.shape, json) {
            (_, Json::Null) if declared.nullable => Self::Null,
            (_, Json::Null) => Self::invalid("invalid data, got null for schema with nullable=false"),
            (Shape::Bool, Json::Bool(value)) => Self::Bool(*value),
            (Shape::Int, Json::Number(number)) => match number.as_i64() {
                Some(value) => Self::Int(value),
                None => mismatch("int", json),
            },
            (Shape::Double, Json::Number(number)) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            (Shape::String | Shape::IntOrString, Json::String(text)) => Self::String(Str::Borrowed(text)),
            (Shape::IntOrString, Json::Number(number)) if number.is_i64() => Self::from_json(json),
            (Shape::IntOrString, _) => {
                Self::invalid("invalid data, expected XIntOrString value to be either a string or integer")
            }
            (Shape::Bytes | Shape::Duration | Shape::Date | Shape::DateTime, Json::String(text)) => {
                formats::parse(text, &declared.shape)
            }
            (Shape::List(..), Json::Array(values)) => Self::List(List::declared(values, declared)),
            (Shape::Map(_) | Shape::Object(_), Json::Object(fields)) => Self::Map(Map::declared(fields, declared)),
            (Shape::List(..), _) => {
                Self::invalid("invalid data, expected an array for the provided schema with type=array")
            }
            (Shape::Map(_) | Shape::Object(_), _) => {
                Self::invalid("invalid data, expected a map for the provided schema with type=object")
            }
            (Shape::Bool, _) => mismatch("bool", json),
            (Shape::Int, _) => mismatch("int", json),
            (Shape::Double, _) => mismatch("float", json),
            (Shape::String | Shape::Bytes | Shape::Duration | Shape::Date | Shape::DateTime, _) => {
                mismatch("string", json)
            }
        }
    }

    fn invalid(message: impl Into<Arc<str>>) -> Self {
        Self::Invalid(message.into())
    }
}

fn mismatch<'a>(wanted: &str, json: &Json) -> Value<'a> {
    let found = match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    };
    Value::invalid(format!("invalid data, expected {wanted}, got {found}"))
}

#[cfg(test)]
mod tests;
