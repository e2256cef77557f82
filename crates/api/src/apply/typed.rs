//! Objects of the schema tables as kube-apiserver's typed form shows them.
//!
//! In: the schema tables. Out: [`complete`], the object with everything in place that Kubernetes' typed objects always
//! have (empty messages, zero values of required fields). Ownership compares such complete objects, so that a
//! `status: {}` that was never written is neither added nor removed.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::schema::{self, Field, Shape, TypeId};

/// The complete form of every empty message; creates compare with it.
static ZEROS: LazyLock<HashMap<TypeId, Value>> =
    LazyLock::new(|| schema::all().map(|ty| (ty, complete(ty, None))).collect());

/// The complete form of an empty object.
pub(super) fn zero(ty: TypeId) -> &'static Value {
    ZEROS.get(&ty).unwrap_or(&Value::Null)
}

/// The object as kube-apiserver's typed form would show it, without `apiVersion`, `kind` and `managedFields`.
pub(super) fn complete(ty: TypeId, object: Option<&Value>) -> Value {
    let mut out = Map::new();
    fill(ty, object.and_then(Value::as_object), &mut out);
    Value::Object(out)
}

fn fill(ty: TypeId, object: Option<&Map<String, Value>>, out: &mut Map<String, Value>) {
    for field in &ty.get().fields {
        match &field.shape {
            Shape::Object(inner) if field.inline => fill(*inner, object, out),
            // Ownership of `managedFields` itself is not tracked.
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
        Shape::Time | Shape::MicroTime | Shape::Raw | Shape::FieldsV1 | Shape::Json | Shape::Union(..) => {
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
        (Shape::Object(ty), value) | (Shape::Union(ty, _), value @ Value::Object(_)) => complete(*ty, Some(value)),
        (Shape::Union(_, other), Value::Array(_)) => completed(other, value),
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
        Shape::Object(_) | Shape::Union(..) => true,
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
}
