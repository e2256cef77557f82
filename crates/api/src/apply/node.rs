//! How ownership sees a schema: what is one field, what is owned part by part, and how the parts are named.
//!
//! In: the schema tables, or the structural schema of a custom kind ([`super::custom`]). Out: a [`Node`] for every place
//! in an object, its [`Form`], and the [`Element`] of every list item.

use std::borrow::Cow;

use serde_json::Value;

use super::custom::Custom;
use super::element::Element;
use crate::schema::{Field, Merge, Shape, TypeId};

/// The type at one place of an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node<'s> {
    /// One value, whatever is in it.
    Leaf(&'static Shape),
    /// A list that is owned item by item.
    List {
        /// What an item is.
        item: &'static Shape,
        /// The fields that tell items apart; none: the items themselves do.
        keys: &'static [&'static str],
    },
    /// A map that is owned entry by entry.
    Map(&'static Shape),
    /// A message that is owned member by member.
    Message(TypeId),
    /// A place in a custom resource.
    Custom(Custom<'s>),
    /// A value without a schema: objects are owned member by member, everything else is one value.
    Deduced,
    /// A value without a schema inside of one value.
    Untyped,
}

/// How the value at a place is owned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form<'s> {
    /// As one value.
    Leaf,
    /// Item by item.
    List(List<'s>),
    /// Member by member, as [`Node::member`] has them.
    Members,
}

/// A list that is owned item by item.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<'s> {
    /// What an item holds.
    pub(super) item: Node<'s>,
    /// The fields that tell items apart; none: the items themselves do.
    pub(super) keys: Keys<'s>,
}

/// Names of key fields.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keys<'s> {
    /// Of a list of the tables.
    Table(&'static [&'static str]),
    /// Of a list of a structural schema.
    Custom(&'s [Box<str>]),
}

impl<'s> Node<'s> {
    /// What a field holds.
    pub(super) fn of_field(field: &'static Field) -> Self {
        match (&field.shape, &field.merge) {
            (shape @ (Shape::List(_) | Shape::Map(_) | Shape::Object(_)), Merge::Atomic) => Self::Leaf(shape),
            (Shape::List(item), Merge::Set) => Self::List { item, keys: &[] },
            (Shape::List(item), Merge::Keys(keys)) => Self::List { item, keys },
            (Shape::List(item), Merge::Unset) => match &field.patch.merge_key {
                Some("") => Self::List { item, keys: &[] },
                Some(key) => Self::List { item, keys: std::slice::from_ref(key) },
                None => Self::Leaf(&field.shape),
            },
            (shape, _) => Self::of_shape(shape),
        }
    }

    /// What a list item or a map entry holds.
    pub(super) fn of_shape(shape: &'static Shape) -> Self {
        match shape {
            Shape::Object(ty) if !ty.get().atomic => Self::Message(*ty),
            Shape::Map(entry) => Self::Map(entry),
            leaf => Self::Leaf(leaf),
        }
    }

    /// How a value at this place is owned. Only a schema that allows several types depends on the value.
    pub(super) fn form(self, value: Option<&Value>) -> Form<'s> {
        match self {
            Self::Leaf(_) | Self::Untyped => Form::Leaf,
            Self::List { item, keys } => Form::List(List { item: Self::of_shape(item), keys: Keys::Table(keys) }),
            Self::Map(_) | Self::Message(_) => Form::Members,
            Self::Custom(custom) => custom.form(value),
            Self::Deduced => match value {
                None | Some(Value::Null | Value::Object(_)) => Form::Members,
                Some(_) => Form::Leaf,
            },
        }
    }

    /// What a member holds; `None` when the schema does not allow it.
    pub(super) fn member(self, name: &str) -> Option<Self> {
        match self {
            Self::Message(ty) => ty.get().field(name).map(Self::of_field),
            Self::Map(entry) => Some(Self::of_shape(entry)),
            Self::Custom(custom) => custom.member(name),
            Self::Deduced => Some(Self::Deduced),
            Self::Leaf(_) | Self::List { .. } | Self::Untyped => None,
        }
    }

    /// Whether the schema names this member. Members that are allowed without being named are entries of a map.
    pub(super) fn declares(self, name: &str) -> bool {
        match self {
            Self::Message(ty) => ty.get().field(name).is_some(),
            Self::Custom(custom) => custom.declares(name),
            Self::Leaf(_) | Self::List { .. } | Self::Map(_) | Self::Deduced | Self::Untyped => false,
        }
    }

    /// What a list item holds; `None` where no list is allowed or it is one value.
    pub(super) fn item(self) -> Option<Self> {
        match self {
            Self::List { item, .. } => Some(Self::of_shape(item)),
            Self::Custom(custom) => custom.item(),
            _ => None,
        }
    }

    /// Whether this is an atomic value that has parts: paths into it denote the value.
    pub(super) fn is_atomic(self) -> bool {
        match self {
            Self::Leaf(shape) => matches!(
                shape,
                Shape::List(_) | Shape::Map(_) | Shape::Object(_) | Shape::Union(..) | Shape::Raw | Shape::Json
            ),
            Self::Custom(custom) => custom.is_atomic(),
            _ => false,
        }
    }
}

impl List<'_> {
    /// The key of an item among the others; the error is the reason why there is none.
    pub(super) fn element<'a>(self, item: &'a Value) -> Result<Element<'a>, String>
    where
        Self: 'a,
    {
        if self.keys.names().next().is_none() {
            return match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                scalar => Ok(Element::Item(Cow::Borrowed(scalar))),
            };
        }
        let map = match item {
            Value::Object(map) => map,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut keys: Vec<(Cow<'a, str>, Cow<'a, Value>)> = Vec::new();
        for key in self.keys.names() {
            if let Some(value) = map.get(key).or_else(|| self.default(key)) {
                keys.push((Cow::Borrowed(key), Cow::Borrowed(value)));
            }
        }
        if keys.is_empty() {
            let names: Vec<String> = self.keys.names().map(|key| format!("\"{key}\"")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                names.join(" ")
            ));
        }
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Element::Key(keys))
    }
}

impl<'s> List<'s> {
    fn default(self, key: &str) -> Option<&'s Value> {
        match self.item {
            Node::Message(ty) | Node::Leaf(&Shape::Object(ty)) => ty.get().field(key)?.default.as_ref(),
            Node::Custom(custom) => custom.default(key),
            _ => None,
        }
    }
}

impl<'s> Keys<'s> {
    fn names(self) -> impl Iterator<Item = &'s str> {
        let (table, custom): (&[&str], &[Box<str>]) = match self {
            Self::Table(keys) => (keys, &[]),
            Self::Custom(keys) => (&[], keys),
        };
        table.iter().copied().chain(custom.iter().map(AsRef::as_ref))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema;

    #[test]
    fn items_are_named_by_their_keys_with_defaults() {
        let member = |ty: &str, name: &str| Node::Message(schema::named(ty)).member(name).expect("a field");
        let Form::List(ports) = member("core.ServiceSpec", "ports").form(None) else { panic!("a keyed list") };
        let port = json!({"port": 80, "name": "a"});
        assert_eq!(ports.element(&port).expect("keys").to_string(), "[port=80,protocol=\"TCP\"]");
        assert!(matches!(member("core.ServiceSpec", "selector"), Node::Leaf(_)));
        assert!(matches!(member("core.ServiceSpec", "clusterIPs"), Node::Leaf(_)));
        let Form::List(conditions) = member("core.ServiceStatus", "conditions").form(None) else {
            panic!("a keyed list")
        };
        assert_eq!(
            conditions.element(&json!({})).expect_err("no key"),
            "associative list with keys has an element that omits all key fields [\"type\"] (and doesn't have default \
             values for any key fields)"
        );
    }
}
