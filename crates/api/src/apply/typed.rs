//! How ownership sees the schema: what is one field, what is owned part by part, and how the parts are named.
//!
//! In: the schema tables. Out: a [`Node`] for every place in an object, the [`Element`] of every list item, and
//! [`complete`], the object with everything in place that the original's typed objects always have (empty messages,
//! zero values of required fields). Ownership compares such complete objects, so that a `status: {}` that was never
//! written is neither added nor removed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::element::Element;
use crate::schema::{self, Field, Merge, Shape, TypeId};

/// What stands at one place of an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node {
    /// One value, whatever is in it.
    Leaf(&'static Shape),
    /// A list that is owned item by item.
    List(List),
    /// A map that is owned entry by entry.
    Map(&'static Shape),
    /// A message that is owned member by member.
    Message(TypeId),
}

/// A list that is owned item by item.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    /// What an item is.
    pub(super) item: &'static Shape,
    /// The fields that tell items apart; none: the items themselves do.
    pub(super) keys: &'static [&'static str],
}

impl Node {
    /// What a field holds.
    pub(super) fn of_field(field: &'static Field) -> Self {
        match (&field.shape, &field.merge) {
            (shape @ (Shape::List(_) | Shape::Map(_) | Shape::Object(_)), Merge::Atomic) => Self::Leaf(shape),
            (Shape::List(item), Merge::Set) => Self::List(List { item, keys: &[] }),
            (Shape::List(item), Merge::Keys(keys)) => Self::List(List { item, keys }),
            (Shape::List(item), Merge::Unset) => match &field.patch.merge_key {
                Some("") => Self::List(List { item, keys: &[] }),
                Some(key) => Self::List(List { item, keys: std::slice::from_ref(key) }),
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

    /// What a member holds; `None` when the message does not have it.
    pub(super) fn member(self, name: &str) -> Option<Self> {
        match self {
            Self::Message(ty) => ty.get().field(name).map(Self::of_field),
            Self::Map(entry) => Some(Self::of_shape(entry)),
            Self::Leaf(_) | Self::List(_) => None,
        }
    }
}

impl List {
    /// What an item holds.
    pub(super) fn node(self) -> Node {
        Node::of_shape(self.item)
    }

    /// The key of an item among the others; the error says why there is none.
    pub(super) fn element(self, item: &Value) -> Result<Element<'_>, String> {
        if self.keys.is_empty() {
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
        let mut keys: Vec<(Cow<'_, str>, Cow<'_, Value>)> = Vec::with_capacity(self.keys.len());
        for key in self.keys {
            if let Some(value) = map.get(*key).or_else(|| self.default(key)) {
                keys.push((Cow::Borrowed(key), Cow::Borrowed(value)));
            }
        }
        if keys.is_empty() {
            let names: Vec<String> = self.keys.iter().map(|key| format!("\"{key}\"")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                names.join(" ")
            ));
        }
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Element::Key(keys))
    }

    fn default(self, key: &str) -> Option<&'static Value> {
        match self.item {
            Shape::Object(ty) => ty.get().field(key).and_then(|field| field.default.as_ref()),
            _ => None,
        }
    }
}

/// The complete form of every message of which nothing is given; creates compare with it.
static ZEROS: LazyLock<HashMap<TypeId, Value>> =
    LazyLock::new(|| schema::all().map(|ty| (ty, complete(ty, None))).collect());

/// The complete form of an object of which nothing is given.
pub(super) fn zero(ty: TypeId) -> &'static Value {
    ZEROS.get(&ty).unwrap_or(&Value::Null)
}

/// The object as the original's typed form would show it, without `apiVersion`, `kind` and `managedFields`.
pub(super) fn complete(ty: TypeId, object: Option<&Value>) -> Value {
    let mut out = Map::new();
    fill(ty, object.and_then(Value::as_object), &mut out);
    Value::Object(out)
}

fn fill(ty: TypeId, object: Option<&Map<String, Value>>, out: &mut Map<String, Value>) {
    for field in &ty.get().fields {
        match &field.shape {
            Shape::Object(inner) if field.inline => fill(*inner, object, out),
            // Ownership of the record of ownership is nothing anybody asks for.
            _ if field.json == "managedFields" => {}
            _ => {
                if let Some(value) = shown(field, object.and_then(|map| map.get(field.json))) {
                    out.insert(field.json.to_owned(), value);
                }
            }
        }
    }
}

/// What the typed form shows for a field, if it shows the field at all.
fn shown(field: &'static Field, value: Option<&Value>) -> Option<Value> {
    let value = value.filter(|value| !value.is_null());
    if field.pointer {
        return match value {
            Some(value) => Some(completed(&field.shape, value)),
            None => field.keep.then_some(Value::Null),
        };
    }
    let zero = match &field.shape {
        Shape::Object(ty) => {
            let whole = complete(*ty, value);
            return (!field.omit_zero || whole != complete(*ty, None)).then_some(whole);
        }
        Shape::Time | Shape::MicroTime | Shape::Raw | Shape::FieldsV1 => {
            return value.cloned().or_else(|| (!field.omit_zero).then_some(Value::Null));
        }
        Shape::IntOrString => return Some(value.cloned().unwrap_or_else(|| 0.into())),
        Shape::Quantity => return Some(value.cloned().unwrap_or_else(|| "0".into())),
        Shape::Duration => return Some(value.cloned().unwrap_or_else(|| "0s".into())),
        Shape::List(_) | Shape::Map(_) | Shape::Bytes => Value::Null,
        Shape::String => "".into(),
        Shape::Bool => false.into(),
        Shape::Int32 | Shape::Int64 | Shape::Float64 => 0.into(),
    };
    match value {
        Some(value) if field.keep || !is_zero(value) => Some(completed(&field.shape, value)),
        _ => field.keep.then_some(zero),
    }
}

fn completed(shape: &Shape, value: &Value) -> Value {
    match (shape, value) {
        (Shape::Object(ty), value) => complete(*ty, Some(value)),
        (Shape::List(item), Value::Array(items)) if has_messages(item) => {
            items.iter().map(|value| completed(item, value)).collect()
        }
        (Shape::Map(entry), Value::Object(entries)) if has_messages(entry) => {
            Value::Object(entries.iter().map(|(key, value)| (key.clone(), completed(entry, value))).collect())
        }
        (_, value) => value.clone(),
    }
}

fn has_messages(shape: &Shape) -> bool {
    match shape {
        Shape::Object(_) => true,
        Shape::List(inner) | Shape::Map(inner) => has_messages(inner),
        _ => false,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_always_there_and_empty_values_never() {
        let service = schema::named("core.Service");
        assert_eq!(complete(service, None), json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}));
        let given = json!({
            "apiVersion": "v1", "metadata": {"labels": {}, "name": "", "managedFields": [{}]}, "unknown": 1,
            "spec": {"ports": [{"port": 0, "name": ""}], "sessionAffinityConfig": {}, "type": null},
        });
        let expected = json!({
            "metadata": {}, "status": {"loadBalancer": {}},
            "spec": {"ports": [{"port": 0, "targetPort": 0}], "sessionAffinityConfig": {}},
        });
        assert_eq!(complete(service, Some(&given)), expected);
        let slice = schema::named("discovery.EndpointSlice");
        assert_eq!(complete(slice, None), json!({"metadata": {}, "addressType": "", "endpoints": null, "ports": null}));
    }

    #[test]
    fn items_are_named_by_their_keys_with_defaults() {
        let spec = Node::Message(schema::named("core.ServiceSpec"));
        let Some(Node::List(ports)) = spec.member("ports") else { panic!("ports are a keyed list") };
        let port = json!({"port": 80, "name": "a"});
        assert_eq!(ports.element(&port).expect("keys").to_string(), "[port=80,protocol=\"TCP\"]");
        assert!(matches!(spec.member("selector"), Some(Node::Leaf(_))));
        assert!(matches!(spec.member("clusterIPs"), Some(Node::Leaf(_))));
        let status = Node::Message(schema::named("core.ServiceStatus"));
        let Some(Node::List(conditions)) = status.member("conditions") else { panic!("conditions are a keyed list") };
        assert_eq!(
            conditions.element(&json!({})).expect_err("no key"),
            "associative list with keys has an element that omits all key fields [\"type\"] (and doesn't have default \
             values for any key fields)"
        );
    }
}
