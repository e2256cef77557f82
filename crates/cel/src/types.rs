//! Static types of expressions, and where object types come from.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The type of an expression.
///
/// Displayed as Kubernetes shows the type of a result (`must evaluate to bool but got string`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Type {
    /// Anything: checked when the expression is evaluated.
    Dyn,
    /// The type of `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// An unsigned integer of 64 bits.
    Uint,
    /// A floating-point number of 64 bits.
    Double,
    /// Text.
    String,
    /// A sequence of bytes.
    Bytes,
    /// A point in time.
    Timestamp,
    /// A span of time.
    Duration,
    /// A list of elements of one type.
    List(Arc<Self>),
    /// A map from keys of one type to values of one type.
    Map(Arc<Self>, Arc<Self>),
    /// A value that may be absent.
    Optional(Arc<Self>),
    /// A type of values without fields, by name, such as `net.IP`.
    Opaque(Arc<str>),
    /// A type of values with fields that [`ObjectTypes`] knows, by name.
    Object(Arc<str>),
    /// The type of a type.
    Type(Option<Arc<Self>>),
    /// A parameter of an overload's signature.
    Param(&'static str),
    /// A variable of the checker that is not bound yet.
    Var(usize),
    /// The type of an expression that was refused.
    Error,
}

impl Type {
    /// A list of elements of this type.
    #[must_use]
    pub fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    /// A map with keys and values of these types.
    #[must_use]
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// An optional value of this type.
    #[must_use]
    pub fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// An object type by name.
    #[must_use]
    pub fn object(name: &str) -> Self {
        Self::Object(name.into())
    }

    pub(crate) fn opaque(name: &str) -> Self {
        Self::Opaque(name.into())
    }

    pub(crate) fn type_of(inner: Self) -> Self {
        Self::Type(Some(Arc::new(inner)))
    }

    /// The name of the type without its parameters, as values of it report it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(..) => "map",
            Self::Optional(_) => "optional_type",
            Self::Opaque(name) | Self::Object(name) => name,
            Self::Type(_) => "type",
            Self::Param(name) => name,
            Self::Var(_) => "var",
            Self::Error => "error",
        }
    }

    pub(crate) fn params(&self) -> Vec<&Self> {
        match self {
            Self::List(inner) | Self::Optional(inner) | Self::Type(Some(inner)) => vec![inner],
            Self::Map(key, value) => vec![key, value],
            _ => Vec::new(),
        }
    }

    /// The type as messages of the checker show it.
    pub(crate) fn in_message(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Timestamp => "timestamp".to_owned(),
            Self::Duration => "duration".to_owned(),
            Self::Error => "!error!".to_owned(),
            Self::Var(number) => format!("_var{number}"),
            _ => with_params(self.name(), &self.params(), Self::in_message),
        }
    }
}

fn with_params(name: &str, params: &[&Type], show: impl Fn(&Type) -> String) -> String {
    if params.is_empty() {
        return name.to_owned();
    }
    let params: Vec<String> = params.iter().map(|param| show(param)).collect();
    format!("{name}({})", params.join(", "))
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_params(self.name(), &self.params(), ToString::to_string))
    }
}

/// The object types that expressions may use.
///
/// Field names are as expressions write them, that is with Kubernetes' escapes (see [`crate::escape`]).
pub trait ObjectTypes: Send + Sync {
    /// Whether there is an object type of this name.
    fn contains(&self, name: &str) -> bool;

    /// The type of a field of an object type.
    fn field(&self, name: &str, field: &str) -> Option<Type>;
}

/// Object types in a table.
#[derive(Clone, Debug, Default)]
pub struct ObjectTable {
    types: HashMap<String, HashMap<String, Type>>,
}

impl ObjectTable {
    /// Adds a type, or adds fields to a type that is there.
    pub fn add<'f>(&mut self, name: &str, fields: impl IntoIterator<Item = (&'f str, Type)>) {
        for (field, kind) in fields {
            self.add_time(&kind);
            self.types.entry(name.to_owned()).or_default().insert(field.to_owned(), kind);
        }
        self.types.entry(name.to_owned()).or_default();
    }

    /// Kubernetes also declares the types of fields, which shows for those whose names are no identifiers otherwise.
    fn add_time(&mut self, kind: &Type) {
        match kind {
            Type::Timestamp => drop(self.types.entry("timestamp".to_owned()).or_default()),
            Type::Duration => drop(self.types.entry("duration".to_owned()).or_default()),
            Type::List(inner) => self.add_time(inner),
            Type::Map(_, value) => self.add_time(value),
            _ => {}
        }
    }
}

impl ObjectTypes for ObjectTable {
    fn contains(&self, name: &str) -> bool {
        self.types.contains_key(name)
    }

    fn field(&self, name: &str, field: &str) -> Option<Type> {
        let fields = self.types.get(name)?;
        let known = fields.get(field).cloned();
        known.or_else(|| crate::escape::is_reserved(field).then(|| fields.get(&format!("__{field}__")).cloned())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_shown_in_two_ways() {
        let kind = Type::map(Type::String, Type::list(Type::Duration));
        assert_eq!(kind.to_string(), "map(string, list(google.protobuf.Duration))");
        assert_eq!(kind.in_message(), "map(string, list(duration))");
        assert_eq!(Type::type_of(Type::Null).in_message(), "type(null)");
        assert_eq!(Type::optional(Type::Var(3)).in_message(), "optional_type(_var3)");
        assert_eq!(Type::Null.to_string(), "null_type");
    }

    #[test]
    fn tables_find_reserved_words_escaped() {
        let mut table = ObjectTable::default();
        table.add("T", [("__namespace__", Type::String), ("name", Type::Int)]);
        assert!(table.contains("T") && !table.contains("U"));
        assert_eq!(table.field("T", "namespace"), Some(Type::String));
        assert_eq!(table.field("T", "__namespace__"), Some(Type::String));
        assert_eq!(table.field("T", "name"), Some(Type::Int));
        assert_eq!(table.field("T", "__name__"), None);
    }
}
