//! The type of the objects that are written: a kind of the schema tables, or a custom kind.
//!
//! In: the kind as defined by a CustomResourceDefinition. Out: the [`Node`] at the root of an object in each version,
//! and the complete form of an object that ownership compares.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use super::check::{Duplicates, check};
use super::custom::{Custom, OBJECT_META};
use super::node::Node;
use super::typed;
use crate::schema::TypeId;
use crate::structural::Structural;

/// The type of an object.
#[derive(Clone, Copy, Debug)]
pub enum ObjectType<'s> {
    /// A kind of the schema tables.
    Table(TypeId),
    /// A custom kind.
    Custom(&'s CustomType),
}

/// A custom kind as it is served in one version. Versions differ in their schemas only with the conversion strategy `None`: a
/// path leads to the same field in all of them.
#[derive(Clone, Debug)]
pub struct CustomType {
    /// The API group.
    pub group: String,
    /// The version of the requests (`v1`).
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The schema of this version.
    pub schema: Arc<Structural>,
    /// Whether this version has the status subresource.
    pub has_status: bool,
    /// The schemas of all versions of the definition, served or not, by name. Ownership in a version that is in none of
    /// them is dropped with the next write.
    pub versions: BTreeMap<String, Arc<Structural>>,
    /// Whether a webhook converts between versions, so that a path leads to other fields in another version. Ownership in
    /// other versions then stays as it is.
    pub by_webhook: bool,
}

/// An empty custom resource.
static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

impl From<TypeId> for ObjectType<'_> {
    fn from(ty: TypeId) -> Self {
        Self::Table(ty)
    }
}

impl<'s> From<&'s CustomType> for ObjectType<'s> {
    fn from(custom: &'s CustomType) -> Self {
        Self::Custom(custom)
    }
}

impl<'s> ObjectType<'s> {
    /// The kind (`Service`).
    pub(super) fn kind(self) -> &'s str {
        match self {
            Self::Table(ty) => ty.get().name.rsplit('.').next().unwrap_or_default(),
            Self::Custom(custom) => &custom.kind,
        }
    }

    /// The root of an object in the version of the request.
    pub(super) fn root(self) -> Node<'s> {
        match self {
            Self::Table(ty) => Node::Message(ty),
            Self::Custom(custom) => Node::Custom(Custom::root(&custom.schema)),
        }
    }

    /// The root of an object in another version, if that has its own schema: versions of the tables do not.
    pub(super) fn other_root(self, api_version: &str) -> Option<Node<'s>> {
        match self {
            Self::Table(_) => None,
            Self::Custom(custom) => {
                let schema = custom.schema_of(api_version).filter(|schema| !Arc::ptr_eq(schema, &custom.schema))?;
                Some(Node::Custom(Custom::root(schema)))
            }
        }
    }

    /// Whether an object fits the schema of another version, as kube-apiserver requires before it uses that version.
    ///
    /// # Errors
    /// What does not fit.
    pub(super) fn check_in(self, api_version: &str, object: &Value) -> Result<(), String> {
        if self.is_opaque() {
            return Ok(());
        }
        self.other_root(api_version).map_or(Ok(()), |root| check(root, object, Duplicates::Refuse))
    }

    /// Whether objects of other versions are not known.
    pub(super) fn is_opaque(self) -> bool {
        matches!(self, Self::Custom(custom) if custom.by_webhook)
    }

    /// Whether an object fits the schema of the request. Objects of the tables do: they were decoded by them.
    ///
    /// # Errors
    /// What does not fit.
    pub(super) fn check_stored(self, object: &Value) -> Result<(), String> {
        match self {
            Self::Table(_) => Ok(()),
            Self::Custom(_) => check(self.root(), object, Duplicates::Allow),
        }
    }

    /// The complete form of an empty object; creates compare with it.
    pub(super) fn zero(self) -> &'static Value {
        match self {
            Self::Table(ty) => typed::zero(ty),
            Self::Custom(_) => &EMPTY,
        }
    }

    /// An object without `apiVersion`, `kind` and `managedFields`, and with everything in place that kube-apiserver
    /// compares. Nothing is filled in for custom kinds, except that `metadata` is typed.
    pub(super) fn complete(self, object: Option<&Value>) -> Value {
        match self {
            Self::Table(ty) => typed::complete(ty, object),
            Self::Custom(_) => {
                let members = object.and_then(Value::as_object).into_iter().flatten();
                let members = members.filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind"));
                let complete = members.map(|(name, value)| match name.as_str() {
                    "metadata" => (name.clone(), typed::complete(*OBJECT_META, Some(value))),
                    _ => (name.clone(), value.clone()),
                });
                Value::Object(complete.collect())
            }
        }
    }
}

impl CustomType {
    /// The schema of a version (`example.com/v1`); `None` when the definition does not have it.
    pub(crate) fn schema_of(&self, api_version: &str) -> Option<&Arc<Structural>> {
        let version = api_version.strip_prefix(self.group.as_str())?.strip_prefix('/')?;
        if version == self.version { Some(&self.schema) } else { self.versions.get(version) }
    }
}
