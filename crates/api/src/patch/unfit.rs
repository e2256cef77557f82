//! The errors of kube-apiserver for a strategically patched object that does not fit its type.
//!
//! It converts such an object without going through JSON, and that converter has its own messages.

use serde_json::Value;

use crate::schema::{Shape, TypeId};

/// The first error about a value of this type; `detail` is the error of the JSON decoder, for the name of the Go type.
pub(super) fn first(ty: TypeId, value: &Value, detail: &str) -> Option<String> {
    let (_, named) = detail.rsplit_once("of type ")?;
    shape(&Shape::Object(ty), value, named)
}

fn shape(wanted: &Shape, value: &Value, named: &str) -> Option<String> {
    let have = kind_of(value);
    match (wanted, value) {
        (_, Value::Null)
        | (Shape::String, Value::String(_))
        | (Shape::Bool, Value::Bool(_))
        | (Shape::Float64, Value::Number(_)) => None,
        (Shape::String, _) if have == "int64" => Some(format!("cannot convert int64 to {named}")),
        (Shape::String, _) => Some("unrecognized type: string".to_owned()),
        (Shape::Bool, _) => Some("unrecognized type: bool".to_owned()),
        (Shape::Int32 | Shape::Int64, _) => integer(wanted, value, have),
        (Shape::List(item), Value::Array(items)) => items.iter().find_map(|value| shape(item, value, named)),
        (Shape::List(_), _) => Some(format!("cannot restore slice from {have}")),
        (Shape::Map(item), Value::Object(map)) => map.values().find_map(|value| shape(item, value, named)),
        (Shape::Map(_), _) => Some(format!("cannot restore map from {have}")),
        (Shape::Object(ty), Value::Object(map)) => {
            ty.get().json_fields().find_map(|field| shape(&field.shape, map.get(field.json)?, named))
        }
        (Shape::Object(_), _) => Some(format!("cannot restore struct from: {have}")),
        // Times, quantities and their like read themselves from JSON.
        _ => None,
    }
}

fn integer(wanted: &Shape, value: &Value, have: &str) -> Option<String> {
    let name = if *wanted == Shape::Int32 { "int32" } else { "int64" };
    match value.as_f64() {
        Some(number) if number.fract() == 0.0 => None,
        Some(_) => Some(format!("cannot convert {have} to {name}")),
        None => Some(format!("unrecognized type: {name}")),
    }
}

/// The Go kind of a decoded value.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::named;

    #[test]
    fn the_words_of_the_converter() {
        let ty = named("core.Service");
        let detail = "json: cannot unmarshal number into Go struct field ServiceSpec.spec.type of type v1.ServiceType";
        for (spec, words) in [
            (json!({"type": 7}), Some("cannot convert int64 to v1.ServiceType")),
            (json!({"ports": [{"port": "x"}]}), Some("unrecognized type: int32")),
            (json!({"ports": "x"}), Some("cannot restore slice from string")),
            (json!({"selector": ["x"]}), Some("cannot restore map from slice")),
            (json!(3.5), Some("cannot restore struct from: float64")),
            (json!({"ports": [{"port": 80, "targetPort": "web"}]}), None),
        ] {
            assert_eq!(first(ty, &json!({"spec": spec}), detail).as_deref(), words, "{spec}");
        }
    }
}
