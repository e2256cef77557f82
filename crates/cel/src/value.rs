//! Values of expressions.
//!
//! Input comes from JSON and is borrowed: a large object is not copied, only the parts that an expression reads are wrapped.
//! Everything else is shared, so cloning a value is cheap.

pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod list;
pub(crate) mod map;
pub(crate) mod number;
pub(crate) mod text;
pub(crate) mod time;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::library::authz::Check;
use crate::library::cidr::Cidr;
use crate::library::named_format::NamedFormat;
use crate::library::quantity::Quantity;
use crate::library::semver::Version;
use crate::library::url::Url;
use crate::types::{ObjectTypes, Type};

pub(crate) use self::list::Unique;
pub use self::list::{Iter, List};
pub use self::map::Map;
pub use self::text::Str;
pub use self::time::Timestamp;

/// A value.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// Text.
    String(Str<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    List(List<'a>),
    /// A map.
    Map(Map<'a>),
    /// A point in time.
    Timestamp(Timestamp),
    /// A span of time in nanoseconds.
    Duration(i64),
    /// A type, by name.
    Type(Arc<str>),
    /// A value that may be absent.
    Optional(Option<Arc<Self>>),
    /// An object of the caller.
    Object(&'a dyn Object),
    /// A Kubernetes resource quantity.
    Quantity(Arc<Quantity>),
    /// A URL.
    Url(Arc<Url>),
    /// An IP address.
    Ip(IpAddr),
    /// A range of IP addresses.
    Cidr(Cidr),
    /// A semantic version.
    Semver(Arc<Version>),
    /// A named format of strings.
    Format(&'static NamedFormat),
    /// An authorizer, or a check that is being built with it.
    Check(Check<'a>),
    /// A part of the input that is not of its declared type. Using it fails with this message.
    Invalid(Arc<str>),
}

/// An object whose fields the caller provides, possibly computed on access.
pub trait Object: fmt::Debug + Sync {
    /// The name of its type.
    fn type_name(&self) -> &str;

    /// The value of a field, by the name that expressions use. `None` when there is no such field.
    ///
    /// # Errors
    /// A message, when the field cannot be computed.
    fn get(&self, field: &str) -> Option<Result<Value<'_>, String>>;
}

impl<'a> Value<'a> {
    /// A string.
    #[must_use]
    pub fn string(text: impl Into<Str<'a>>) -> Self {
        Self::String(text.into())
    }

    /// A JSON value, borrowed. Numbers without a fraction that fit are integers.
    #[must_use]
    pub fn from_json(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => {
                number.as_i64().map_or_else(|| Self::Double(number.as_f64().unwrap_or(f64::NAN)), Self::Int)
            }
            Json::String(text) => Self::String(Str::Borrowed(text)),
            Json::Array(items) => Self::List(List::from_json(items)),
            Json::Object(fields) => Self::Map(Map::from_json(fields)),
        }
    }

    /// A JSON value that a schema describes, borrowed: strings become times, durations and bytes according to the type, and
    /// fields of objects are accessed by their escaped names.
    #[must_use]
    pub fn from_typed_json(json: &'a Json, kind: &Type, types: &'a dyn ObjectTypes) -> Self {
        match (json, kind) {
            (Json::Number(number), Type::Double) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            (Json::String(text), Type::Timestamp) => Timestamp::parse(text)
                .or_else(|| Timestamp::parse_date(text))
                .map_or_else(|| Self::string(&**text), Self::Timestamp),
            (Json::String(text), Type::Duration) => {
                time::parse_duration(text).map_or_else(|| Self::string(&**text), Self::Duration)
            }
            (Json::String(text), Type::Bytes) => {
                text::decode_base64(text).map_or_else(|| Self::string(&**text), |bytes| Self::Bytes(bytes.into()))
            }
            (Json::Array(items), Type::List(element)) => Self::List(List::typed(items, element, types)),
            (Json::Object(fields), Type::Object(_) | Type::Map(..)) => Self::Map(Map::typed(fields, kind, types)),
            _ => Self::from_json(json),
        }
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn list(values: Vec<Self>) -> Self {
        Self::List(List::from_values(values))
    }

    pub(crate) fn strings(values: impl IntoIterator<Item = String>) -> Self {
        Self::list(values.into_iter().map(Self::string).collect())
    }

    /// The name of the value's type.
    #[must_use]
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Object(object) => object.type_name(),
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Check(check) => check.type_name(),
            Self::Invalid(_) => "error",
        }
    }

    /// The name of the type in the reference implementation, which a few of its messages contain.
    pub(crate) fn go_type(&self) -> &str {
        match self {
            Self::Null => "types.Null",
            Self::Bool(_) => "types.Bool",
            Self::Int(_) => "types.Int",
            Self::Uint(_) => "types.Uint",
            Self::Double(_) => "types.Double",
            Self::String(_) => "types.String",
            Self::Bytes(_) => "types.Bytes",
            Self::List(_) => "*types.baseList",
            Self::Map(_) => "*types.baseMap",
            Self::Timestamp(_) => "types.Timestamp",
            Self::Duration(_) => "types.Duration",
            Self::Type(_) => "*types.Type",
            Self::Optional(_) => "*types.Optional",
            Self::Object(_) => "*lazy.MapValue",
            Self::Quantity(_) => "cel.Quantity",
            Self::Url(_) => "cel.URL",
            Self::Ip(_) => "cel.IP",
            Self::Cidr(_) => "cel.CIDR",
            Self::Semver(_) => "cel.Semver",
            Self::Format(_) => "cel.Format",
            Self::Check(_) => "library.authorizerVal",
            Self::Invalid(_) => "*types.Err",
        }
    }

    /// The same for a value as it comes out of a variable.
    pub(crate) fn go_raw_type(&self) -> &str {
        match self {
            Self::Null => "<nil>",
            Self::List(list) if list.is_json() => "[]interface {}",
            Self::Map(map) if map.is_json() => "map[string]interface {}",
            other => other.go_type(),
        }
    }

    /// Whether a value may be an argument where a signature has this type. Elements of lists and maps: only the first is
    /// looked at.
    pub(crate) fn fits(&self, kind: &Type) -> bool {
        match (kind, self) {
            (Type::Dyn | Type::Param(_) | Type::Var(_), _) => true,
            (Type::List(element), Self::List(list)) => list.get(0).is_none_or(|first| first.fits(element)),
            (Type::Map(key, value), Self::Map(map)) => {
                map.first().is_none_or(|(first, found)| first.fits(key) && found.fits(value))
            }
            _ => kind.name() == self.type_name(),
        }
    }

    /// The text of a string value.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// The truth of a bool value.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Whether `optional.ofNonZeroValue` takes this for nothing.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null | Self::Int(0) | Self::Uint(0) | Self::Bool(false) | Self::Duration(0) => true,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.as_str().is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.is_empty(),
            Self::Timestamp(time) => time.is_zero(),
            _ => false,
        }
    }
}

/// A value in messages, for example the key in `no such key: x`.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("0"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}"),
            Self::Double(value) => f.write_str(&number::shortest(*value)),
            Self::String(text) => f.write_str(text.as_str()),
            Self::Bytes(bytes) => write!(f, "{bytes:?}"),
            Self::List(list) => {
                let items: Vec<String> = list.iter().map(|item| item.to_string()).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Self::Map(map) => {
                let entries: Vec<String> = map.iter().map(|(key, value)| format!("{key}: {value}")).collect();
                write!(f, "{{{}}}", entries.join(", "))
            }
            Self::Timestamp(time) => write!(f, "{{{}}}", time.display()),
            Self::Duration(nanos) => write!(f, "{{{}}}", time::duration_in_units(*nanos)),
            Self::Type(name) => f.write_str(name),
            Self::Optional(Some(value)) => write!(f, "optional({value})"),
            Self::Optional(None) => f.write_str("optional.none()"),
            Self::Object(object) => f.write_str(object.type_name()),
            Self::Quantity(quantity) => write!(f, "{quantity}"),
            Self::Url(url) => write!(f, "{url}"),
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Cidr(cidr) => write!(f, "{cidr}"),
            Self::Semver(version) => write!(f, "{version}"),
            Self::Format(format) => f.write_str(format.name),
            Self::Check(check) => f.write_str(check.type_name()),
            Self::Invalid(message) => f.write_str(message),
        }
    }
}
