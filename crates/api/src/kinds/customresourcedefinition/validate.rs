//! Validation of definitions: create, update and status.
//!
//! Kubernetes validates a form in which everything that all versions have in common stands beside the versions
//! ([`Spec`]); paths and order of the errors follow from that.

use serde_json::Value;

use super::options::Options;
use super::spec::{Part, Spec, any_schema};
use super::{conversion, go_value, normal, schema, selectable, version};
use crate::crd::approval;
use crate::field::{Errors, Path};
use crate::kinds::common::{immutable_text, invalid_struct, one_of};
use crate::meta;
use crate::names;
use crate::value::ValueExt as _;

const SPEC: Path<'static> = Path::Root("spec");
const STATUS: Path<'static> = Path::Root("status");

/// Checks a new definition.
pub(super) fn create(object: &Value, errors: &mut Errors) {
    let required = format!("{}.{}", object.text("spec.names.plural"), object.text("spec.group"));
    let name_rule = |name: &str, prefix: bool| {
        let mut wrong = names::name_is_subdomain(name, prefix);
        if name != required {
            wrong.push("must be spec.names.plural+\".\"+spec.group".to_owned());
        }
        wrong
    };
    meta::validate_generic(object, false, name_rule, errors);
    let whole = normal(object);
    validate_spec(object, &whole, &Options::create(), errors);
    validate_rest(&whole, None, errors);
}

/// Checks a change.
pub(super) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    meta::validate_generic_update(new, old, errors);
    let (whole, before) = (normal(new), normal(old));
    let options = Options::update(&before);
    validate_spec(new, &whole, &options, errors);
    let (spec, old_spec) = (whole.at("spec"), before.at("spec"));
    let names_path = SPEC.child("names");
    if options.immutable_names {
        immutable_text(&SPEC.child("scope"), spec.text("scope"), old_spec.text("scope"), errors);
        immutable_text(&names_path.child("kind"), spec.text("names.kind"), old_spec.text("names.kind"), errors);
    }
    immutable_text(&SPEC.child("group"), spec.text("group"), old_spec.text("group"), errors);
    immutable_text(&names_path.child("plural"), spec.text("names.plural"), old_spec.text("names.plural"), errors);
    validate_rest(&whole, Some(&before), errors);
}

/// Checks a change of the status.
pub(super) fn status(new: &Value, old: &Value, errors: &mut Errors) {
    meta::validate_generic_update(new, old, errors);
    validate_names(&STATUS.child("acceptedNames"), new.at("status.acceptedNames"), errors);
}

/// Everything except the spec: status, approval of protected groups, unknown fields.
fn validate_rest(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    validate_names(&STATUS.child("acceptedNames"), object.at("status.acceptedNames"), errors);
    validate_stored_versions(object, errors);
    approval::validate(object, old, errors);
    let preserves = |object: &Value| object.flag("spec.preserveUnknownFields");
    if preserves(object) && !old.is_some_and(preserves) {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid(&SPEC.child("preserveUnknownFields"), Value::from(true), why);
    }
}

fn validate_stored_versions(object: &Value, errors: &mut Errors) {
    let path = STATUS.child("storedVersions");
    let (stored, versions) = (object.texts("status.storedVersions"), object.items("spec.versions"));
    if stored.is_empty() {
        return errors.invalid(&path, Value::Null, "must have at least one stored version");
    }
    for version in versions.iter().filter(|version| version.flag("storage")) {
        let name = version.text("name");
        // A duplicate version is looked for twice, and found once.
        let is_first =
            versions.iter().find(|other| other.text("name") == name).is_some_and(|v| std::ptr::eq(v, version));
        if !stored.contains(&name) || !is_first {
            let why = format!("must have the storage version {name}");
            errors.invalid(&path, object.at("status.storedVersions"), &why);
        }
    }
    for (index, name) in stored.iter().enumerate() {
        let is_last = !stored[index + 1..].contains(name);
        if is_last && !versions.iter().any(|version| version.text("name") == *name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until \
                 a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.invalid(&path.index(index), *name, &why);
        }
    }
}

/// `given` is the definition as it came, `whole` the same with exactly the fields that are printed.
fn validate_spec(given: &Value, whole: &Value, options: &Options<'_>, errors: &mut Errors) {
    let spec = Spec::of(whole);
    validate_group(spec.0.text("group"), errors);
    one_of(&SPEC.child("scope"), spec.0.text("scope"), &["Cluster", "Namespaced"], errors);
    validate_presence_of_schemas(spec, options, errors);
    let preserves = spec.0.flag("preserveUnknownFields");
    let has_defaults = spec
        .schemas()
        .any(|schema| any_schema(schema, &mut |schema| schema.get("default").is_some_and(|d| !d.is_null())));
    if has_defaults && preserves {
        let why = "must be false in order to use defaults in the schema";
        errors.invalid(&SPEC.child("preserveUnknownFields"), Value::from(true), why);
    }
    let path = SPEC.child("versions");
    for (index, version) in spec.versions().iter().enumerate() {
        version::validate(&path.index(index), version, spec, options, errors);
    }
    validate_list_of_versions(given, spec, errors);
    validate_spec_names(spec.0.at("names"), errors);
    validate_shared(spec, options, errors);
    let strategy = spec.0.text("conversion.strategy");
    if strategy != "None" && preserves && spec.0.at("conversion").is_object() {
        let path = SPEC.child("conversion");
        errors.invalid(&path.child("strategy"), strategy, "must be None if spec.preserveUnknownFields is true");
    }
    conversion::validate(&SPEC.child("conversion"), spec.0.at("conversion"), options, errors);
}

fn validate_group(group: &str, errors: &mut Errors) {
    let path = SPEC.child("group");
    let wrong = names::dns_subdomain(group);
    if group.is_empty() {
        errors.required(&path, "");
    } else if !wrong.is_empty() {
        errors.invalid(&path, group, &wrong.join(","));
    } else if !group.contains('.') {
        errors.invalid(&path, group, "should be a domain with at least one dot");
    }
}

fn validate_presence_of_schemas(spec: Spec<'_>, options: &Options<'_>, errors: &mut Errors) {
    let preserves = spec.0.flag("preserveUnknownFields");
    if spec.shared(Part::Schema).at("openAPIV3Schema").is_object() || (!options.schemas && preserves) {
        return;
    }
    let path = SPEC.child("versions");
    for (index, version) in spec.versions().iter().enumerate() {
        let (path, detail) = match options.schemas {
            true => (path.index(index), ""),
            false if version.flag("served") => (path.index(index), "because otherwise all fields are pruned"),
            false => continue,
        };
        if !spec.own(version, Part::Schema).at("openAPIV3Schema").is_object() {
            errors.required(&path.child("schema").child("openAPIV3Schema"), detail);
        }
    }
}

/// Names are unique, one version is stored, and the first one has a good name once more.
fn validate_list_of_versions(given: &Value, spec: Spec<'_>, errors: &mut Errors) {
    const PARTS: &[(Part, &str)] = &[
        (Part::Schema, "schema"),
        (Part::Subresources, "subresources"),
        (Part::Columns, "additionalPrinterColumns"),
        (Part::Selectable, "selectableFields"),
    ];
    let versions = spec.versions();
    let printed = || {
        let hidden: Vec<&str> = PARTS.iter().filter(|(part, _)| spec.is_shared(*part)).map(|(_, name)| *name).collect();
        let list: Vec<String> = versions.iter().map(|version| go_value::version(version, &hidden)).collect();
        // An empty list and none are printed as they came.
        if given.at("spec").get("versions").is_none() {
            return "null".to_owned();
        }
        format!("[{}]", list.join(","))
    };
    let path = SPEC.child("versions");
    let name = |version: &Value| version.text("name").to_owned();
    if versions.iter().enumerate().any(|(index, version)| versions[..index].iter().any(|v| name(v) == name(version))) {
        invalid_struct(&path, &printed(), "must contain unique version names", errors);
    }
    if versions.iter().filter(|version| version.flag("storage")).count() != 1 {
        invalid_struct(&path, &printed(), "must have exactly one version marked as storage version", errors);
    }
    let first = versions.first().map(name).unwrap_or_default();
    let wrong = names::dns_1035_label(&first);
    if !first.is_empty() && !wrong.is_empty() {
        errors.invalid(&SPEC.child("version"), first, &wrong.join(","));
    }
}

/// Some names are required in the spec and not in the status.
fn validate_spec_names(value: &Value, errors: &mut Errors) {
    let path = SPEC.child("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        if value.text(field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
    validate_names(&path, value, errors);
}

/// Checks names at any path.
fn validate_names(path: &Path<'_>, value: &Value, errors: &mut Errors) {
    for field in ["plural", "singular"] {
        check_label(&path.child(field), value.text(field), value.text(field), "", errors);
    }
    for field in ["kind", "listKind"] {
        let (name, mixed) = (value.text(field), "may have mixed case, but should otherwise match: ");
        check_label(&path.child(field), name, &name.to_lowercase(), mixed, errors);
    }
    check_labels(&path.child("shortNames"), &value.texts("shortNames"), errors);
    let (kind, list_kind) = (value.text("kind"), value.text("listKind"));
    if !kind.is_empty() && kind == list_kind {
        errors.invalid(&path.child("listKind"), list_kind, "kind and listKind may not be the same");
    }
    check_labels(&path.child("categories"), &value.texts("categories"), errors);
}

fn check_label(path: &Path<'_>, shown: &str, label: &str, prefix: &str, errors: &mut Errors) {
    let wrong = names::dns_1035_label(label);
    if !label.is_empty() && !wrong.is_empty() {
        errors.invalid(path, shown, &format!("{prefix}{}", wrong.join(",")));
    }
}

fn check_labels(path: &Path<'_>, labels: &[&str], errors: &mut Errors) {
    for (index, label) in labels.iter().enumerate() {
        let wrong = names::dns_1035_label(label);
        if !wrong.is_empty() {
            errors.invalid(&path.index(index), *label, &wrong.join(","));
        }
    }
}

/// What all versions have in common.
fn validate_shared(spec: Spec<'_>, options: &Options<'_>, errors: &mut Errors) {
    let validation = spec.shared(Part::Schema);
    if validation.is_object() {
        let place = schema::Place {
            version: spec.versions().first().map_or("", |first| first.text("name")),
            has_status: spec.has_status(),
        };
        schema::validate(&SPEC.child("validation"), validation, place, spec, options, errors);
    }
    version::validate_subresources(&SPEC.child("subresources"), spec.shared(Part::Subresources), errors);
    version::validate_columns(&SPEC.child("additionalPrinterColumns"), spec.shared(Part::Columns), errors);
    let selectable = spec.shared(Part::Selectable);
    if selectable.as_array().is_none_or(Vec::is_empty) {
        return;
    }
    let path = SPEC.child("selectableFields");
    if validation.is_object() {
        let any_number = options.any_number_of_fields(selectable, None);
        selectable::validate(&path, selectable, validation.at("openAPIV3Schema"), any_number, errors);
    } else {
        errors.invalid(&path, "", "may only be set when validations.schema is included");
    }
}
