//! Whether everything that the junctors of the root restrict is also described outside of them.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::value::ValueExt as _;

/// Checks the junctors of the root; those further below are not looked at, as in kube-apiserver.
pub(super) fn check(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    junctors(schema, schema, path, path, errors);
}

/// Compares the junctors in `values` (at `there`) with the schema that describes the value (at `here`).
fn junctors(values: &Value, schema: &Value, here: &Path<'_>, there: &Path<'_>, errors: &mut Errors) {
    if values.at("not").is_object() {
        nested(values.at("not"), schema, here, &there.child("not"), errors);
    }
    for field in ["allOf", "anyOf", "oneOf"] {
        let place = there.child(field);
        for (index, junctor) in values.items(field).iter().enumerate() {
            nested(junctor, schema, here, &place.index(index), errors);
        }
    }
}

fn nested(values: &Value, schema: &Value, here: &Path<'_>, there: &Path<'_>, errors: &mut Errors) {
    junctors(values, schema, here, there, errors);
    if values.at("items").is_object() {
        described(values.at("items"), schema.at("items"), &here.child("items"), &there.child("items"), errors);
    }
    let (here, there) = (here.child("properties"), there.child("properties"));
    for (name, property) in values.map("properties").into_iter().flatten() {
        let known = schema.map("properties").and_then(|properties| properties.get(name)).unwrap_or(&Value::Null);
        described(property, known, &here.key(name), &there.key(name), errors);
    }
}

fn described(values: &Value, schema: &Value, here: &Path<'_>, there: &Path<'_>, errors: &mut Errors) {
    if schema.is_object() {
        nested(values, schema, here, there, errors);
    } else {
        errors.required(here, &format!("because it is defined in {there}"));
    }
}
