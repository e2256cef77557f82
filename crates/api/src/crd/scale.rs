//! The `scale` subresource of a defined kind: where its numbers are is in the definition.
//!
//! In: the `subresources.scale` of a version and an object. Out: a Scale (`autoscaling/v1`); and back, the object with
//! the requested number of replicas.

use serde_json::{Map, Value};

use super::columns;
use crate::field::{Errors, Path, quote};
use crate::kinds::scale;
use crate::value::ValueExt as _;

/// What a Scale shows of an object that does not say how many replicas there should be, while it is changed.
pub const UNSET: i64 = i32::MIN as i64;

/// Why there is no Scale.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScaleError {
    /// A value is of the wrong type.
    #[error("{0}")]
    Type(String),
    /// The object does not say how many replicas there should be: an internal error.
    #[error("the spec replicas field {} does not exist", quote(.0))]
    Missing(String),
    /// A change leaves that open: a bad request.
    #[error("the spec replicas field {} cannot be empty", quote(.0))]
    Empty(String),
}

/// The Scale of an object, as it is read.
///
/// # Errors
/// When the object has no number of replicas, or one that is none.
pub fn get(definition: &Value, object: &Value) -> Result<Value, ScaleError> {
    let path = definition.text("specReplicasPath");
    match integer(object, path)? {
        Some(_) => show(definition, object),
        None => Err(ScaleError::Missing(path.to_owned())),
    }
}

/// The Scale of an object that was just written: a missing number is 0.
///
/// # Errors
/// When a value is of the wrong type.
pub fn show(definition: &Value, object: &Value) -> Result<Value, ScaleError> {
    let replicas = integer(object, definition.text("specReplicasPath"))?.unwrap_or(0);
    let current = integer(object, definition.text("statusReplicasPath"))?.unwrap_or(0);
    let selector = match definition.text("labelSelectorPath") {
        "" => None,
        path => text(object, path)?,
    };
    Ok(scale::build(object, replicas, current, selector.unwrap_or_default()))
}

/// The Scale of an object that a change starts from: a missing number is [`UNSET`].
///
/// # Errors
/// When a value is of the wrong type.
pub fn before_change(definition: &Value, object: &Value) -> Result<Value, ScaleError> {
    let mut shown = show(definition, object)?;
    if integer(object, definition.text("specReplicasPath"))?.is_none() {
        shown.put("spec.replicas", UNSET);
    }
    Ok(shown)
}

/// Puts the number of replicas of a Scale into an object, with the version of the object that the Scale was read from.
///
/// # Errors
/// When the Scale has no number, or the object no place for it.
pub fn put(definition: &Value, object: &mut Value, scale: &Value) -> Result<(), ScaleError> {
    let path = definition.text("specReplicasPath");
    let replicas = scale.int("spec.replicas");
    if replicas == UNSET {
        return Err(ScaleError::Empty(path.to_owned()));
    }
    set(object, path, replicas.into())?;
    let version = scale.text("metadata.resourceVersion");
    if !version.is_empty() {
        object.put("metadata.resourceVersion", version);
    }
    Ok(())
}

/// Checks the numbers of an object: those of the spec, and those of the status.
pub fn validate(definition: &Value, object: &Value, errors: &mut Errors) {
    if definition.is_object() {
        validate_count(definition.text("specReplicasPath"), object, errors);
        validate_status(definition, object, errors);
    }
}

/// Checks the numbers of the status, which is all that a change of the status is checked for.
pub fn validate_status(definition: &Value, object: &Value, errors: &mut Errors) {
    if !definition.is_object() {
        return;
    }
    validate_count(definition.text("statusReplicasPath"), object, errors);
    let path = definition.at("labelSelectorPath").as_str();
    if let Some((path, Err(why))) = path.map(|path| (path, text(object, path))) {
        errors.invalid(&Path::Root(path), "", &why.to_string());
    }
}

fn validate_count(path: &str, object: &Value, errors: &mut Errors) {
    let place = Path::Root(path);
    match integer(object, path) {
        Err(why) => errors.invalid(&place, 0, &why.to_string()),
        Ok(Some(count)) if count < 0 => errors.invalid(&place, count, "should be a non-negative integer"),
        Ok(Some(count)) if count > i64::from(i32::MAX) => {
            errors.invalid(&place, count, &format!("should be less than or equal to {}", i32::MAX));
        }
        Ok(_) => {}
    }
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

/// The value at a path; `None` when it is missing.
fn nested<'o>(object: &'o Value, path: &str) -> Result<Option<&'o Value>, ScaleError> {
    let mut value = object;
    let mut way = String::new();
    for name in names(path) {
        way.push('.');
        way.push_str(name);
        match value {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(name) {
                Some(next) => value = next,
                None => return Ok(None),
            },
            other => return Err(mismatch(&way, other, "map[string]interface{}")),
        }
    }
    Ok(Some(value))
}

fn integer(object: &Value, path: &str) -> Result<Option<i64>, ScaleError> {
    match nested(object, path)? {
        None => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or_else(|| mismatch(&dotted(path), value, "int64")),
    }
}

fn text<'o>(object: &'o Value, path: &str) -> Result<Option<&'o str>, ScaleError> {
    match nested(object, path)? {
        None => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or_else(|| mismatch(&dotted(path), value, "string")),
    }
}

fn dotted(path: &str) -> String {
    format!(".{}", path.strip_prefix('.').unwrap_or(path))
}

fn mismatch(path: &str, value: &Value, wanted: &str) -> ScaleError {
    let (shown, kind) = match value {
        Value::Null => ("<nil>".to_owned(), "<nil>"),
        Value::Bool(_) => (columns::text(value), "bool"),
        Value::Number(number) if number.is_f64() => (columns::text(value), "float64"),
        Value::Number(_) => (columns::text(value), "int64"),
        Value::String(_) => (columns::text(value), "string"),
        Value::Array(_) => (go_text(value), "[]interface {}"),
        Value::Object(_) => (go_text(value), "map[string]interface {}"),
    };
    ScaleError::Type(format!("{path} accessor error: {shown} is of the type {kind}, expected {wanted}"))
}

/// A value as Go's `%v` prints it.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let members: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
            format!("map[{}]", members.join(" "))
        }
        scalar => columns::text(scalar),
    }
}

/// Sets the value at a path; maps on the way are made.
fn set(object: &mut Value, path: &str, value: Value) -> Result<(), ScaleError> {
    let names: Vec<&str> = names(path).collect();
    let Some((last, way)) = names.split_last() else { return Ok(()) };
    let mut place = object;
    for (index, name) in way.iter().enumerate() {
        let no_map = || {
            let way = names[..=index].join(".");
            ScaleError::Type(format!("value cannot be set because .{way} is not a map[string]interface{{}}"))
        };
        let map = place.as_object_mut().ok_or_else(no_map)?;
        place = map.entry(*name).or_insert_with(|| Map::new().into());
        if !place.is_object() {
            return Err(no_map());
        }
    }
    if let Some(map) = place.as_object_mut() {
        map.insert((*last).to_owned(), value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::summary;

    fn paths() -> Value {
        json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector"})
    }

    #[test]
    fn a_scale_is_made_of_the_object() {
        let object = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "3", "labels": {}},
            "spec": {"replicas": 3}, "status": {"selector": "a=b"}});
        let wanted = json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "3"},
            "spec": {"replicas": 3}, "status": {"replicas": 0, "selector": "a=b"}});
        assert_eq!(get(&paths(), &object), Ok(wanted));
        let error = get(&paths(), &json!({"spec": {}})).expect_err("no replicas");
        assert_eq!(error.to_string(), "the spec replicas field \".spec.replicas\" does not exist");
        let error = get(&paths(), &json!({"spec": {"replicas": 1.5}})).expect_err("no integer");
        assert_eq!(error.to_string(), ".spec.replicas accessor error: 1.5 is of the type float64, expected int64");
        let error = get(&paths(), &json!({"spec": [1, {"a": "b"}]})).expect_err("no map");
        let why = ".spec.replicas accessor error: [1 map[a:b]] is of the type []interface {}, expected map[string]interface{}";
        assert_eq!(error.to_string(), why);
    }

    #[test]
    fn a_change_is_put_into_the_object() {
        let mut object = json!({"metadata": {"resourceVersion": "3"}});
        let scale = before_change(&paths(), &object).expect("a scale");
        assert_eq!(scale.int("spec.replicas"), UNSET);
        let error = put(&paths(), &mut object, &scale).expect_err("not set");
        assert_eq!(error.to_string(), "the spec replicas field \".spec.replicas\" cannot be empty");
        let change = json!({"spec": {"replicas": 5}, "metadata": {"resourceVersion": "2"}});
        assert_eq!(put(&paths(), &mut object, &change), Ok(()));
        assert_eq!(object, json!({"metadata": {"resourceVersion": "2"}, "spec": {"replicas": 5}}));
        let error = put(&paths(), &mut json!({"spec": 1}), &change).expect_err("no map");
        assert_eq!(error.to_string(), "value cannot be set because .spec is not a map[string]interface{}");
    }

    #[test]
    fn numbers_are_checked() {
        let check = |object: Value| summary(|errors| validate(&paths(), &object, errors));
        assert_eq!(check(json!({"spec": {"replicas": 3}})), "[]");
        assert_eq!(
            check(json!({"spec": {"replicas": -1}, "status": {"replicas": 3_000_000_000_i64, "selector": 1}})),
            "[.spec.replicas: Invalid value: -1: should be a non-negative integer, .status.replicas: Invalid value: \
             3000000000: should be less than or equal to 2147483647, .status.selector: Invalid value: \"\": \
             .status.selector accessor error: 1 is of the type int64, expected string]"
        );
    }
}
