//! `apiVersion`, `kind` and `metadata` of embedded resources.
//!
//! In: an object and its schema. Out: metadata brought into the shape of `ObjectMeta`, with the paths of fields that
//! it does not have, and field errors about metadata that is not valid. The root of an object is handled elsewhere.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{Additional, Structural, go};
use crate::field::{Errors, FieldError, Path};
use crate::schema::TypeId;
use crate::{decode, meta, names, schema};

static OBJECT_META: LazyLock<TypeId> = LazyLock::new(|| schema::named("meta.ObjectMeta"));

/// Brings the metadata of embedded resources into the shape of `ObjectMeta`; `drop_invalid` removes what is malformed.
/// Returns the sorted paths of unknown fields in metadata.
///
/// # Errors
/// The first malformed field.
pub fn coerce(schema: &Structural, object: &mut Value, drop_invalid: bool) -> Result<Vec<String>, FieldError> {
    let mut coercer = Coercer { drop_invalid, unknown: Vec::new() };
    if schema.has_embedded {
        coercer.value(schema, object, schema.embedded, None)?;
    }
    coercer.unknown.sort_unstable();
    Ok(coercer.unknown)
}

/// Like [`coerce`], for a value that is the root of a resource or not.
pub(super) fn coerce_value(
    schema: &Structural,
    value: &mut Value,
    resource: bool,
    path: Option<&Path<'_>>,
) -> Result<(), FieldError> {
    Coercer { drop_invalid: false, unknown: Vec::new() }.value(schema, value, resource, path)
}

struct Coercer {
    drop_invalid: bool,
    unknown: Vec<String>,
}

/// The member of a path that may be the root of an object.
pub(super) fn child<'p>(path: Option<&'p Path<'_>>, name: &'p str) -> Path<'p> {
    path.map_or(Path::Root(name), |path| path.child(name))
}

/// The entry of a map at a path; maps are never the root of an object.
fn key<'p>(path: Option<&'p Path<'_>>, name: &'p str) -> Path<'p> {
    path.map_or(Path::Root(name), |path| path.key(name))
}

fn element<'p>(path: Option<&'p Path<'_>>, index: usize) -> Path<'p> {
    path.map_or(Path::Root(""), |path| path.index(index))
}

fn invalid(path: &Path<'_>, value: &Value, why: &str) -> FieldError {
    let body = format!("Invalid value: {}: {why}", go::shown(value));
    FieldError { reason: "FieldValueInvalid", field: path.to_string(), body }
}

impl Coercer {
    fn value(
        &mut self,
        schema: &Structural,
        value: &mut Value,
        resource: bool,
        path: Option<&Path<'_>>,
    ) -> Result<(), FieldError> {
        match value {
            Value::Object(members) => {
                if resource {
                    self.type_meta(members, path)?;
                    self.metadata(members, path)?;
                }
                for (name, member) in members.iter_mut() {
                    match (schema.properties.get(name.as_str()), &schema.additional) {
                        (Some(known), _) if known.has_embedded => {
                            self.value(known, member, known.embedded, Some(&child(path, name)))?;
                        }
                        (None, Additional::Schema(known)) if known.has_embedded => {
                            self.value(known, member, known.embedded, Some(&key(path, name)))?;
                        }
                        _ => {}
                    }
                }
            }
            Value::Array(elements) => {
                let Some(items) = schema.items.as_deref().filter(|items| items.has_embedded) else { return Ok(()) };
                for (index, item) in elements.iter_mut().enumerate() {
                    self.value(items, item, items.embedded, Some(&element(path, index)))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn type_meta(&self, members: &mut Map<String, Value>, path: Option<&Path<'_>>) -> Result<(), FieldError> {
        for name in ["apiVersion", "kind"] {
            match members.get(name) {
                None | Some(Value::String(_)) => {}
                Some(_) if self.drop_invalid => {
                    members.remove(name);
                }
                Some(other) => return Err(invalid(&child(path, name), other, "must be a string")),
            }
        }
        Ok(())
    }

    fn metadata(&mut self, members: &mut Map<String, Value>, path: Option<&Path<'_>>) -> Result<(), FieldError> {
        let Some(value) = members.get_mut("metadata") else { return Ok(()) };
        let path = child(path, "metadata");
        match decode_meta(value) {
            Ok((decoded, unknown)) => {
                *value = decoded;
                self.unknown.extend(unknown.into_iter().map(|name| format!("{path}.{name}")));
            }
            Err(why) if !self.drop_invalid => return Err(invalid(&path, value, &why)),
            Err(_) => {
                if let Value::Object(fields) = value {
                    self.field_by_field(fields, &path);
                }
            }
        }
        Ok(())
    }

    /// Keeps the fields that are well-formed by themselves.
    fn field_by_field(&mut self, fields: &mut Map<String, Value>, path: &Path<'_>) {
        for (name, value) in std::mem::take(fields) {
            let single = Value::Object([(name, value)].into_iter().collect());
            if let Ok((decoded, unknown)) = decode_meta(&single) {
                self.unknown.extend(unknown.into_iter().map(|name| format!("{path}.{name}")));
                if let Value::Object(decoded) = decoded {
                    fields.extend(decoded);
                }
            }
        }
    }
}

/// `ObjectMeta` as it is printed, and the paths of unknown fields in it.
fn decode_meta(value: &Value) -> Result<(Value, Vec<String>), String> {
    let mut value = value.clone();
    let mut unknown = Vec::new();
    // At the root of a document these two are known; here they are not.
    for name in ["apiVersion", "kind"] {
        if value.as_object_mut().and_then(|fields| fields.remove(name)).is_some() {
            unknown.push(name.to_owned());
        }
    }
    let strict = decode::check(*OBJECT_META, &mut value).map_err(|error| error.to_string())?;
    let path = |message: &String| {
        message.strip_prefix("unknown field \"").and_then(|rest| rest.strip_suffix('"')).map(str::to_owned)
    };
    unknown.extend(strict.iter().filter_map(path));
    decode::prune(*OBJECT_META, &mut value);
    Ok((value, unknown))
}

/// Checks `apiVersion`, `kind` and `metadata` of all embedded resources of an object.
pub fn validate_embedded(schema: &Structural, object: &Value, errors: &mut Errors) {
    if schema.has_embedded {
        validate(schema, object, schema.embedded, None, errors);
    }
}

/// Checks the embedded resources in a value, and the value itself if it is one.
pub(super) fn validate(
    schema: &Structural,
    value: &Value,
    resource: bool,
    path: Option<&Path<'_>>,
    errors: &mut Errors,
) {
    match value {
        Value::Object(members) => {
            if resource {
                validate_resource(members, path, errors);
            }
            for (name, member) in members {
                match (schema.properties.get(name.as_str()), &schema.additional) {
                    (Some(known), _) if known.has_embedded => {
                        validate(known, member, known.embedded, Some(&child(path, name)), errors);
                    }
                    (None, Additional::Schema(known)) if known.has_embedded => {
                        validate(known, member, known.embedded, Some(&key(path, name)), errors);
                    }
                    _ => {}
                }
            }
        }
        Value::Array(elements) => {
            let Some(items) = schema.items.as_deref().filter(|items| items.has_embedded) else { return };
            for (index, item) in elements.iter().enumerate() {
                validate(items, item, items.embedded, Some(&element(path, index)), errors);
            }
        }
        _ => {}
    }
}

fn validate_resource(members: &Map<String, Value>, path: Option<&Path<'_>>, errors: &mut Errors) {
    for name in ["apiVersion", "kind"] {
        if !members.contains_key(name) {
            errors.required(&child(path, name), "");
        }
    }
    for (name, value) in members {
        match (name.as_str(), value) {
            ("apiVersion", Value::String(version)) => check_version(&child(path, name), version, errors),
            ("kind", Value::String(kind)) => check_kind(&child(path, name), kind, errors),
            ("apiVersion" | "kind", _) => errors.0.push(invalid(&child(path, name), value, "must be a string")),
            ("metadata", _) => match decode_meta(value) {
                Ok((decoded, _)) => check_meta(&child(path, name), decoded, errors),
                Err(why) => errors.0.push(invalid(&child(path, name), value, &why)),
            },
            _ => {}
        }
    }
}

fn check_version(path: &Path<'_>, version: &str, errors: &mut Errors) {
    if version.is_empty() {
        errors.invalid(path, version, "must not be empty");
    } else if version.matches('/').count() > 1 {
        errors.invalid(path, version, &format!("unexpected GroupVersion string: {version}"));
    }
}

fn check_kind(path: &Path<'_>, kind: &str, errors: &mut Errors) {
    if kind.is_empty() {
        errors.invalid(path, kind, "must not be empty");
        return;
    }
    let wrong = names::dns_1035_label(&kind.to_lowercase());
    if !wrong.is_empty() {
        errors.invalid(path, kind, &format!("may have mixed case, but should otherwise match: {}", wrong.join(",")));
    }
}

/// Checks metadata as that of any object, except that it needs no name.
fn check_meta(path: &Path<'_>, metadata: Value, errors: &mut Errors) {
    let namespaced = metadata.get("namespace").is_some();
    let named = metadata.get("name").is_some();
    let object = Value::Object([("metadata".to_owned(), metadata)].into_iter().collect());
    let mut found = Errors::default();
    meta::validate(&object, namespaced, names::name_is_path_segment, &mut found);
    for mut error in found.0 {
        if !named && error.reason == "FieldValueRequired" && error.field == "metadata.name" {
            continue;
        }
        let below = error.field.strip_prefix("metadata").unwrap_or_default();
        error.field = format!("{path}{below}");
        errors.0.push(error);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complaints(object: &Value) -> Vec<String> {
        let schema = Structural::parse(&json!({"type": "object", "properties": {
            "l": {"type": "array", "items": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true}},
            "m": {"type": "object", "additionalProperties": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true}},
        }}));
        let mut errors = Errors::default();
        validate_embedded(&schema, object, &mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn embedded_resources_need_version_and_kind() {
        assert_eq!(complaints(&json!({"l": [{}]})), ["l[0].apiVersion: Required value", "l[0].kind: Required value"]);
        assert_eq!(
            complaints(&json!({"m": {"k": {"apiVersion": "a/b/c", "kind": "", "metadata": {}}}})),
            [
                "m[k].apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                "m[k].kind: Invalid value: \"\": must not be empty",
            ]
        );
    }

    #[test]
    fn embedded_metadata_is_checked_but_needs_no_name() {
        let of = |metadata: Value| complaints(&json!({"l": [{"apiVersion": "v1", "kind": "A", "metadata": metadata}]}));
        assert!(of(json!({"labels": {"a": "b"}})).is_empty());
        let wrong = of(json!({"name": "a/b", "namespace": "A"}));
        assert_eq!(wrong.len(), 2);
        assert!(
            wrong[0].starts_with("l[0].metadata.name: Invalid value: \"a/b\": may not contain '/'"),
            "{}",
            wrong[0]
        );
        assert!(wrong[1].starts_with("l[0].metadata.namespace: Invalid value: \"A\""), "{}", wrong[1]);
    }
}
