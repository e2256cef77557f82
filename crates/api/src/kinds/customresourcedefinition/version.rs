//! One version of a definition: its name, deprecation, subresources and printer columns.

use serde_json::Value;

use super::options::Options;
use super::spec::{Part, Spec};
use super::{schema, selectable};
use crate::field::{Errors, Path};
use crate::meta;
use crate::names;
use crate::value::ValueExt as _;

/// Bytes of a deprecation warning.
const WARNING_MAX: usize = 256;
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// Checks a version; what all versions have in common is checked elsewhere.
pub(super) fn validate(path: &Path<'_>, version: &Value, spec: Spec<'_>, options: &Options<'_>, errors: &mut Errors) {
    let name = version.text("name");
    let wrong = names::dns_1035_label(name);
    if !wrong.is_empty() {
        errors.invalid(&path.child("name"), name, &wrong.join(","));
    }
    validate_deprecation(&path.child("deprecationWarning"), version, errors);
    let own = spec.own(version, Part::Schema);
    if own.is_object() {
        // A duplicate version has the subresources of the first of them.
        let first = spec.versions().iter().find(|other| other.text("name") == name).unwrap_or(version);
        let has_status = first.at("subresources.status").is_object();
        let place = schema::Place { version: name, has_status };
        schema::validate(&path.child("schema"), own, place, spec, options, errors);
    }
    validate_subresources(&path.child("subresources"), spec.own(version, Part::Subresources), errors);
    validate_columns(&path.child("additionalPrinterColumns"), spec.own(version, Part::Columns), errors);
    let fields = spec.own(version, Part::Selectable);
    if fields.as_array().is_none_or(Vec::is_empty) {
        return;
    }
    let path = path.child("selectableFields");
    if own.at("openAPIV3Schema").is_object() {
        let any_number = options.any_number_of_fields(fields, Some(name));
        selectable::validate(&path, fields, own.at("openAPIV3Schema"), any_number, errors);
    } else {
        errors.invalid(&path, "", "may only be set when `version.schema.openAPIV3Schema` is not included");
    }
}

fn validate_deprecation(path: &Path<'_>, version: &Value, errors: &mut Errors) {
    let Value::String(warning) = version.at("deprecationWarning") else { return };
    let mut invalid = |why: &str| errors.invalid(path, warning.as_str(), why);
    if !version.flag("deprecated") {
        return invalid("can only be set for deprecated versions");
    }
    if warning.len() > WARNING_MAX {
        invalid("must be <= 256 characters long");
    }
    if warning.is_empty() {
        invalid("must not be an empty string");
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| !meta::is_printable(*c)) {
        let why = "must only contain printable UTF-8 characters; non-printable character found at index";
        invalid(&format!("{why} {at}"));
    }
}

/// Checks the paths of the scale subresource.
pub(super) fn validate_subresources(path: &Path<'_>, subresources: &Value, errors: &mut Errors) {
    let scale = subresources.at("scale");
    if !scale.is_object() {
        return;
    }
    let rules: [(&str, &[&str], &str); 3] = [
        ("specReplicasPath", &[".spec."], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ];
    let path = path.child("scale");
    for (field, roots, why) in rules {
        let (path, value) = (path.child(field), scale.text(field));
        if value.is_empty() {
            if field != "labelSelectorPath" {
                errors.required(&path, "");
            }
        } else if is_path(&path, value, errors) && !roots.iter().any(|root| value.starts_with(root)) {
            errors.invalid(&path, value, why);
        }
    }
}

/// Checks printer columns.
pub(super) fn validate_columns(path: &Path<'_>, columns: &Value, errors: &mut Errors) {
    for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
        let path = path.index(index);
        if column.text("name").is_empty() {
            errors.required(&path.child("name"), "");
        }
        let kind = column.text("type");
        let types = format!("must be one of {}", COLUMN_TYPES.join(","));
        if kind.is_empty() {
            errors.required(&path.child("type"), &types);
        } else if !COLUMN_TYPES.contains(&kind) {
            errors.invalid(&path.child("type"), kind, &types);
        }
        let format = column.text("format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            errors.invalid(&path.child("format"), format, &format!("must be one of {}", COLUMN_FORMATS.join(",")));
        }
        let json_path = column.text("jsonPath");
        if json_path.is_empty() {
            errors.required(&path.child("JSONPath"), "");
        } else {
            is_path(&path.child("JSONPath"), json_path, errors);
        }
    }
}

/// Whether a path starts as a JSON path does; nothing more is checked.
fn is_path(path: &Path<'_>, value: &str, errors: &mut Errors) -> bool {
    let is_path = value.starts_with('.');
    if !is_path {
        errors.invalid(path, value, "must be a simple json path starting with .");
    }
    is_path
}
