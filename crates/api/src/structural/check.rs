//! Validation of the schemas of CustomResourceDefinitions, except for their CEL rules.
//!
//! In: the JSON of `openAPIV3Schema`. Out: field errors in the order of Kubernetes: the root, then whether the schema
//! is structural (or else whether its defaults are valid), then what is forbidden or contradictory anywhere in it.

mod complete;
mod defaults;
mod dump;
mod lists;
mod openapi;
mod options;
mod structure;

#[cfg(test)]
mod tests;

use serde_json::Value;

pub use self::options::Options;
use crate::field::{Errors, FieldError, Path};
use crate::value::ValueExt as _;

/// Fields that the root of a schema may have if there is a status subresource, by their names in Go.
const ALLOWED_AT_ROOT: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// Checks the schema at `path` (`….openAPIV3Schema`). Whether it is structural with valid defaults: only then are its
/// rules looked at.
pub fn check_schema(schema: &Value, path: &Path<'_>, options: &Options, errors: &mut Errors) -> bool {
    let before = errors.0.len();
    if options.status {
        check_root(schema, path, errors);
    }
    if schema.flag("nullable") {
        errors.forbidden(&path.child("nullable"), "nullable cannot be true at the root");
    }
    let mut unsupported = None;
    let mut structural = false;
    if options.structural {
        let mut found = Errors::default();
        unsupported = structure::unsupported(schema);
        if unsupported.is_none() {
            found = non_structural(schema, path);
            if found.is_empty() {
                defaults::check(schema, path, options.pruned_defaults, &mut found);
            }
            structural = found.is_empty();
        }
        errors.0.append(&mut found.0);
    }
    openapi::check(schema, path, options, errors);
    if let Some(field) = unsupported.filter(|_| errors.0.len() == before) {
        errors.invalid(path, "", &format!("OpenAPIV3Schema '{field}' is not supported"));
    }
    structural
}

/// What makes a schema non-structural, sorted, as in the condition `NonStructuralSchema`.
#[must_use]
pub fn non_structural(schema: &Value, path: &Path<'_>) -> Errors {
    let mut errors = Errors::default();
    structure::check(schema, path, &mut errors);
    complete::check(schema, path, &mut errors);
    errors.0.sort_by_cached_key(ToString::to_string);
    errors
}

/// With a status subresource, the schema of `status` is taken out of the root, so nothing there may span both.
fn check_root(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in dump::set_fields(schema) {
        if field == "Type" {
            if schema.text("type") != "object" {
                let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
                errors.invalid(&path.child("type"), schema.text("type"), why);
                return;
            }
        } else if !ALLOWED_AT_ROOT.contains(&field) {
            let list = ALLOWED_AT_ROOT.join(" ");
            let why = format!(
                "only [{list}] fields are allowed at the root of the schema if the status subresource is enabled"
            );
            errors.0.push(invalid(path, &dump::schema(schema), &why));
            return;
        }
    }
}

/// An error about a value that is already written out.
fn invalid(path: &Path<'_>, shown: &str, why: &str) -> FieldError {
    let body = format!("Invalid value: {shown}: {why}");
    FieldError { reason: "FieldValueInvalid", field: path.to_string(), body }
}
