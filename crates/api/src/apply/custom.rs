//! How ownership sees the structural schema of a custom kind.
//!
//! In: nodes of a [`Structural`] schema. Out: what [`super::node`] needs to know about a place. The rules are those that
//! Kubernetes derives from the published OpenAPI schema: `apiVersion`, `kind` and `metadata` of an object or embedded
//! object are implied; `x-kubernetes-preserve-unknown-fields` holds for everything below it; an object without
//! properties is free-form; lists are atomic unless `x-kubernetes-list-type` is set.

use std::sync::LazyLock;

use serde_json::Value;

use super::node::{Form, Keys, List, Node};
use crate::schema::{self, Shape, TypeId};
use crate::structural::{Additional, ListType, Structural, Type};

/// The type of `metadata`.
pub(super) static OBJECT_META: LazyLock<TypeId> = LazyLock::new(|| schema::named("meta.ObjectMeta"));

/// The type of `apiVersion` and `kind`.
static STRING: Shape = Shape::String;

/// A place in a custom resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct Custom<'s> {
    schema: &'s Structural,
    /// `x-kubernetes-preserve-unknown-fields` here or above.
    preserve: bool,
    /// A whole object, with `apiVersion`, `kind` and `metadata`.
    object: bool,
}

impl<'s> Custom<'s> {
    /// The root of a custom resource.
    pub(super) fn root(schema: &'s Structural) -> Self {
        Self { schema, preserve: schema.preserve_unknown, object: true }
    }

    fn below(self, schema: &'s Structural) -> Node<'s> {
        let preserve = self.preserve || schema.preserve_unknown;
        Node::Custom(Self { schema, preserve, object: schema.embedded })
    }

    /// Whether values of this type are allowed.
    pub(super) fn allows(self, ty: Type) -> bool {
        self.schema.ty.is_none_or(|own| own == ty)
    }

    /// The type of scalars at this place; `None` where only lists or objects are allowed.
    pub(super) fn scalar(self) -> Option<&'static Shape> {
        match self.schema.ty {
            Some(Type::Array | Type::Object) => None,
            Some(Type::Boolean) => Some(&Shape::Bool),
            Some(Type::Integer | Type::Number) => Some(&Shape::Float64),
            Some(Type::String) if matches!(self.schema.checks.format.as_str(), "" | "byte") => Some(&STRING),
            // A string with a format may be any scalar for kube-apiserver.
            Some(Type::String) | None => Some(&Shape::IntOrString),
        }
    }

    pub(super) fn form(self, value: Option<&Value>) -> Form<'s> {
        match (self.schema.ty, value) {
            (Some(Type::Array), _) | (None, Some(Value::Array(_))) => self.list(),
            (Some(Type::Object), _) | (None, None | Some(Value::Null | Value::Object(_))) => {
                if self.schema.atomic_map {
                    Form::Leaf
                } else {
                    Form::Members
                }
            }
            _ => Form::Leaf,
        }
    }

    fn list(self) -> Form<'s> {
        let keys: &[Box<str>] = match &self.schema.list {
            ListType::Atomic => return Form::Leaf,
            ListType::Set => &[],
            ListType::Map(keys) => keys,
        };
        Form::List(List { item: self.item_node(), keys: Keys::Custom(keys) })
    }

    /// What an item of a list holds, also inside of a list that is one value.
    pub(super) fn item_node(self) -> Node<'s> {
        self.schema.items.as_deref().map_or(Node::Untyped, |items| self.below(items))
    }

    pub(super) fn item(self) -> Option<Node<'s>> {
        self.allows(Type::Array).then(|| self.item_node())
    }

    pub(super) fn member(self, name: &str) -> Option<Node<'s>> {
        if !self.allows(Type::Object) {
            return None;
        }
        if let Some(node) = self.implied(name) {
            return Some(node);
        }
        if let Some(schema) = self.schema.properties.get(name) {
            return Some(self.below(schema));
        }
        match &self.schema.additional {
            Additional::Schema(schema) => Some(self.below(schema)),
            Additional::Any => Some(Node::Deduced),
            Additional::None => (self.preserve || self.is_free_form()).then_some(Node::Deduced),
        }
    }

    pub(super) fn declares(self, name: &str) -> bool {
        self.implied(name).is_some() || self.schema.properties.contains_key(name)
    }

    /// The members of every object.
    fn implied(self, name: &str) -> Option<Node<'s>> {
        match name {
            "apiVersion" | "kind" if self.object => Some(Node::Leaf(&STRING)),
            "metadata" if self.object => Some(Node::Message(*OBJECT_META)),
            _ => None,
        }
    }

    fn is_free_form(self) -> bool {
        !self.object && self.schema.properties.is_empty()
    }

    pub(super) fn is_atomic(self) -> bool {
        match self.schema.ty {
            Some(Type::Array) => self.schema.list == ListType::Atomic,
            // Paths into an object without a schema stay as they are.
            Some(Type::Object) | None => {
                let deduced = self.is_free_form() && !matches!(self.schema.additional, Additional::Schema(_));
                self.schema.atomic_map && !deduced
            }
            Some(_) => false,
        }
    }

    /// The default of a member.
    pub(super) fn default(self, name: &str) -> Option<&'s Value> {
        self.schema.properties.get(name)?.default.as_ref().filter(|default| !default.is_null())
    }
}
