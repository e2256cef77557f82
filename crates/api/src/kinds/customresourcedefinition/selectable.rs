//! Fields that selectors may name: paths to scalars of the schema.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::structural::rules::field_path;
use crate::structural::{Structural, Type};
use crate::value::ValueExt as _;

/// How many fields of a version may be selected by.
pub(super) const MAX: usize = 8;

/// Checks the selectable fields of a version against its schema.
pub(super) fn validate(path: &Path<'_>, fields: &Value, schema: &Value, any_number: bool, errors: &mut Errors) {
    let mut seen: Vec<String> = Vec::new();
    let schema = Structural::parse(schema);
    for (index, field) in fields.as_array().into_iter().flatten().enumerate() {
        let (place, text) = (path.index(index), field.text("jsonPath"));
        let place = place.child("jsonPath");
        if text.is_empty() {
            errors.required(&place, "");
            continue;
        }
        let (name, target) = match field_path::resolve(text, &schema, false) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(&place, text, &format!("is an invalid path: {why}"));
                continue;
            }
        };
        if name.split(['.', '[']).next() == Some("metadata") {
            errors.invalid(&place, text, "must not point to fields in metadata");
        }
        if !matches!(target.ty, Some(Type::String | Type::Boolean | Type::Integer)) {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats \
                       are allowed.";
            errors.invalid(&place, text, why);
        }
        if seen.contains(&name) {
            errors.duplicate(&place, text);
        } else {
            seen.push(name);
        }
    }
    if seen.len() > MAX && !any_number {
        errors.too_many(path, seen.len(), MAX);
    }
}
