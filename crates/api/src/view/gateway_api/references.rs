//! References between objects. Group, kind and namespace have defaults that depend on where the reference is.

use serde::Deserialize;

use super::super::lenient::{number, or_default};
use super::{Filter, GROUP};

/// The parent of a route or of a ListenerSet.
#[derive(Deserialize, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentRef {
    /// Its group; absent is [`GROUP`].
    pub group: Option<Box<str>>,
    /// Its kind; absent is `Gateway`.
    pub kind: Option<Box<str>>,
    /// Its namespace; absent is that of the object with the reference.
    pub namespace: Option<Box<str>>,
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// A listener of the parent, or a port of a Service, by name.
    pub section_name: Option<Box<str>>,
    /// A port of the parent, by number.
    pub port: Option<u16>,
}

/// A reference to a Secret, a ConfigMap, a Service or any other object.
#[derive(Deserialize, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// Its group; absent is the core group.
    pub group: Option<Box<str>>,
    /// Its kind; the default depends on the member.
    pub kind: Option<Box<str>>,
    /// Its namespace; absent is that of the object with the reference.
    pub namespace: Option<Box<str>>,
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// A port of a Service, by number.
    pub port: Option<u16>,
}

/// A backend of a rule.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendRef {
    /// The object, a Service unless it says otherwise.
    #[serde(flatten)]
    pub object: ObjectRef,
    /// Its share of the requests, in proportion to the sum of all weights of the rule; 1 unless given.
    #[serde(deserialize_with = "weight")]
    pub weight: u32,
    /// What happens to requests for this backend, after the filters of the rule.
    #[serde(deserialize_with = "or_default")]
    pub filters: Vec<Filter>,
}

impl Default for BackendRef {
    fn default() -> Self {
        Self { object: ObjectRef::default(), weight: 1, filters: Vec::new() }
    }
}

impl ParentRef {
    /// Its group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.group.as_deref().unwrap_or(GROUP)
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or("Gateway")
    }

    /// `namespace/name`, for an object of this namespace.
    #[must_use]
    pub fn key(&self, own: &str) -> Box<str> {
        format!("{}/{}", self.namespace.as_deref().unwrap_or(own), self.name).into()
    }

    /// Whether it refers to a kind of the Gateway API.
    #[must_use]
    pub fn is(&self, kind: &str) -> bool {
        self.group() == GROUP && self.kind() == kind
    }

    /// Whether it refers to a Service.
    #[must_use]
    pub fn is_service(&self) -> bool {
        self.group().is_empty() && self.kind() == "Service"
    }
}

impl ObjectRef {
    /// Its group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.group.as_deref().unwrap_or_default()
    }

    /// Its kind, or this default.
    #[must_use]
    pub fn kind_or<'a>(&'a self, default: &'a str) -> &'a str {
        self.kind.as_deref().unwrap_or(default)
    }

    /// Its namespace, or that of the object with the reference.
    #[must_use]
    pub fn namespace_or<'a>(&'a self, own: &'a str) -> &'a str {
        self.namespace.as_deref().unwrap_or(own)
    }

    /// `namespace/name`, for an object of this namespace.
    #[must_use]
    pub fn key(&self, own: &str) -> Box<str> {
        format!("{}/{}", self.namespace_or(own), self.name).into()
    }
}

fn weight<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    Ok(Option::<i64>::deserialize(from)?.map_or(1, |weight| u32::try_from(weight).unwrap_or_default()))
}

/// A port; one outside the range of ports is none.
pub(super) fn port<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    number(from)
}
