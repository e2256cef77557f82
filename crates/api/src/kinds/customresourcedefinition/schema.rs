//! Schemas of versions: which checks apply to them, and the calls of the checks.

use serde_json::Value;

use super::options::Options;
use super::spec::{Part, Spec, any_schema};
use crate::field::{Errors, Path, quote};
use crate::structural::rules::{self, Compiled};
use crate::structural::{Structural, check, format};
use crate::value::ValueExt as _;

/// Whose schema it is.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The version; the first one for a schema that all versions share.
    pub(super) version: &'a str,
    /// Whether the version has a status subresource.
    pub(super) has_status: bool,
}

/// Checks a `schema`, whose member `openAPIV3Schema` is the schema itself.
pub(super) fn validate(
    path: &Path<'_>,
    validation: &Value,
    place: Place<'_>,
    spec: Spec<'_>,
    options: &Options<'_>,
    errors: &mut Errors,
) {
    let schema = validation.at("openAPIV3Schema");
    if !schema.is_object() {
        return;
    }
    let path = path.child("openAPIV3Schema");
    let mut checks = options.schema_checks;
    checks.status = place.has_status;
    checks.structural |= must_be_structural(spec);
    let mut found = Errors::default();
    let is_structural = check::check_schema(schema, &path, &checks, &mut found);
    let parsed = Structural::parse(schema);
    let before = found.0.len();
    if is_structural {
        let mut budget = rules::BUDGET;
        check_defaults(&parsed, true, &path, &mut budget, &mut found);
    }
    let compile = is_structural && found.0.len() == before;
    let unchanged = options.has_same_schema(spec, place.version);
    let rule_options = rules::Options { known: options.known_expressions.as_ref(), unchanged, compile };
    rules::check_rules(&parsed, &path, &rule_options, &mut found);
    errors.0.append(&mut found.0);
}

/// Whether schemas must be structural even where those of the definition were not.
fn must_be_structural(spec: Spec<'_>) -> bool {
    const EXTENSIONS: &[&str] = &[
        "x-kubernetes-embedded-resource",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-validations",
    ];
    let needs = |schema: &Value| {
        let has = |name: &str| schema.get(name).is_some_and(|value| !value.is_null());
        has("default") || EXTENSIONS.iter().any(|name| has(name))
    };
    !spec.0.flag("preserveUnknownFields")
        || spec.schemas().any(|schema| any_schema(schema, &mut |schema| needs(schema)))
}

/// Checks defaults against the rules of their schemas. Below `additionalProperties` nothing is checked, as in the
/// original.
fn check_defaults(schema: &Structural, is_resource: bool, path: &Path<'_>, budget: &mut i64, errors: &mut Errors) {
    if !schema.has_defaults {
        return;
    }
    let is_resource = is_resource || schema.embedded;
    if let Some(default) = &schema.default {
        Compiled::of(schema, is_resource).validate_default(schema, default, &path.child("default"), budget, errors);
    }
    if let Some(items) = &schema.items {
        check_defaults(items, false, &path.child("items"), budget, errors);
    }
    let properties = path.child("properties");
    for (name, property) in &schema.properties {
        check_defaults(property, false, &properties.key(name), budget, errors);
    }
}

/// Warns of formats that are not validated, unless the definition had them before.
pub(super) fn warn_of_formats(new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
    let before = old.map_or_else(Vec::new, unknown_formats);
    for format in unknown_formats(new) {
        if !before.contains(&format) {
            out.push(format!("unrecognized format {}", quote(&format)));
        }
    }
}

fn unknown_formats(definition: &Value) -> Vec<String> {
    let spec = Spec::of(definition);
    let mut out = Vec::new();
    let mut collect = |schema: &Value| {
        let text = schema.text("format");
        if !text.is_empty() && format::supported(schema).is_empty() {
            out.push(text.to_owned());
        }
        false
    };
    any_schema(spec.shared(Part::Schema).at("openAPIV3Schema"), &mut collect);
    for version in spec.versions() {
        any_schema(spec.own(version, Part::Schema).at("openAPIV3Schema"), &mut collect);
    }
    out
}
