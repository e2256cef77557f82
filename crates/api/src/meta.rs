//! `metadata`: what every object has in common, checked the same way for all kinds.
//!
//! In: objects whose shape the schema has checked. Out: field errors under `metadata`. Kubernetes runs several of
//! these checks twice on an update and then drops repeated errors, so each stands here once, where it is first run.

use serde_json::Value;

use crate::field::{Errors, FieldError, Path, quote};
use crate::names::{self, NameRule};
use crate::value::ValueExt as _;

const METADATA: Path<'static> = Path::Root("metadata");
const ANNOTATIONS_MAX: usize = 256 * 1024;
const MANAGER_MAX: usize = 128;
const SUBRESOURCE_MAX: usize = 256;
/// Finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["foregroundDeletion", "kubernetes", "orphan"];

/// Checks the metadata of an object (ValidateObjectMeta of kube-apiserver: name, namespace, labels, annotations,
/// owners, finalizers).
pub fn validate(object: &Value, namespaced: bool, name: impl NameRule, errors: &mut Errors) {
    validate_generic(object, namespaced, name, errors);
    check_finalizer_domains(object, errors);
}

/// The checks of [`validate`] for kinds outside of the core of Kubernetes: finalizers need no domain.
pub fn validate_generic(object: &Value, namespaced: bool, name: impl NameRule, errors: &mut Errors) {
    validate_common(object, namespaced, name, errors);
}

/// Checks that an update leaves alone what may not change (ValidateObjectMetaUpdate of Kubernetes, and the checks
/// that it runs for all kinds before those of the kind). A name need only fit into a path here.
pub fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_generic_update(new, old, errors);
    check_finalizer_domains(new, errors);
}

/// The checks of [`validate_update`] for kinds outside of the core of Kubernetes: finalizers need no domain.
pub fn validate_generic_update(new: &Value, old: &Value, errors: &mut Errors) {
    let namespaced = !old.text("metadata.namespace").is_empty();
    validate_common(new, namespaced, names::name_is_path_segment, errors);
    if old.has("metadata.deletionTimestamp") {
        check_no_new_finalizers(new, old, errors);
    }
    if new.text("metadata.resourceVersion").is_empty() {
        errors.invalid(&METADATA.child("resourceVersion"), "", "must be specified for an update");
    }
    let generation = new.int("metadata.generation");
    if generation < old.int("metadata.generation") {
        errors.invalid(&METADATA.child("generation"), generation, "must not be decremented");
    }
    for field in ["name", "namespace", "uid"] {
        check_immutable(field, text_value(new, field), text_value(old, field), errors);
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        check_immutable(field, new.at("metadata").at(field), old.at("metadata").at(field), errors);
    }
}

/// Checks a label map at any path.
pub fn validate_labels(path: &Path<'_>, labels: &Value, errors: &mut Errors) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        for why in names::qualified_name(key) {
            errors.invalid(path, key.as_str(), &why);
        }
        let value = value.as_str().unwrap_or_default();
        for why in names::label_value(value) {
            errors.invalid(path, value, &why);
        }
    }
}

/// Checks the name of a field manager: at most 128 bytes, all of them printable.
pub fn validate_manager(path: &Path<'_>, manager: &str, errors: &mut Errors) {
    if manager.len() > MANAGER_MAX {
        errors.too_long(path, MANAGER_MAX);
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        errors.invalid(path, manager, &format!("invalid character U+{:04X} (at position {at})", c as u32));
    }
}

/// The checks that creates and updates share.
fn validate_common(object: &Value, namespaced: bool, rule: impl NameRule, errors: &mut Errors) {
    let metadata = object.at("metadata");
    check_name(metadata, rule, errors);
    check_namespace(metadata.text("namespace"), namespaced, errors);
    let generation = metadata.int("generation");
    if generation < 0 {
        errors.invalid(&METADATA.child("generation"), generation, "must be greater than or equal to 0");
    }
    validate_labels(&METADATA.child("labels"), metadata.at("labels"), errors);
    validate_annotations(&METADATA.child("annotations"), metadata.at("annotations"), errors);
    check_owners(metadata.items("ownerReferences"), errors);
    check_finalizers(metadata, errors);
    check_managed_fields(metadata.items("managedFields"), errors);
}

fn check_name(metadata: &Value, rule: impl NameRule, errors: &mut Errors) {
    let generate = metadata.text("generateName");
    if !generate.is_empty() {
        for why in rule(generate, true) {
            errors.invalid(&METADATA.child("generateName"), generate, &why);
        }
    }
    let name = metadata.text("name");
    if name.is_empty() {
        errors.required(&METADATA.child("name"), "name or generateName is required");
        return;
    }
    for why in rule(name, false) {
        errors.invalid(&METADATA.child("name"), name, &why);
    }
}

fn check_namespace(namespace: &str, namespaced: bool, errors: &mut Errors) {
    let path = METADATA.child("namespace");
    match (namespaced, namespace) {
        (true, "") => errors.required(&path, ""),
        (true, _) => {
            for why in names::dns_label(namespace) {
                errors.invalid(&path, namespace, &why);
            }
        }
        (false, "") => {}
        (false, _) => errors.forbidden(&path, "not allowed on this type"),
    }
}

/// Checks a map of annotations at any path.
pub fn validate_annotations(path: &Path<'_>, annotations: &Value, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        size += key.len() + value.as_str().unwrap_or_default().len();
        for why in names::qualified_name(&key.to_lowercase()) {
            errors.invalid(path, key.as_str(), &why);
        }
    }
    if size > ANNOTATIONS_MAX {
        errors.too_long(path, ANNOTATIONS_MAX);
    }
}

fn check_owners(owners: &[Value], errors: &mut Errors) {
    let path = METADATA.child("ownerReferences");
    let mut controller: Option<String> = None;
    for (index, owner) in owners.iter().enumerate() {
        check_owner(&path.index(index), owner, errors);
        if !owner.flag("controller") {
            continue;
        }
        let this = format!("{}/{}", owner.text("kind"), owner.text("name"));
        match &controller {
            None => controller = Some(this),
            Some(first) => {
                let all: Vec<String> = owners.iter().map(owner_json).collect();
                let why = "Only one reference can have Controller set to true. Found \"true\" in references for";
                push_invalid(&path, &format!("[{}]", all.join(",")), &format!("{why} {first} and {this}"), errors);
            }
        }
    }
}

fn check_owner(path: &Path<'_>, owner: &Value, errors: &mut Errors) {
    let version = owner.text("apiVersion");
    let bare = version.rsplit('/').next().unwrap_or_default();
    if version.is_empty() {
        errors.required(&path.child("apiVersion"), "must not be empty");
    } else if bare.is_empty() || version.matches('/').count() > 1 {
        errors.invalid(&path.child("apiVersion"), version, "must be <group>/<version> or <version>");
    }
    for field in ["kind", "name", "uid"] {
        if owner.text(field).is_empty() {
            errors.required(&path.child(field), "must not be empty");
        }
    }
    if matches!(version, "v1" | "/v1") && owner.text("kind") == "Event" {
        push_invalid(path, &owner_json(owner), "/v1, Kind=Event is disallowed from being an owner", errors);
    }
}

/// An owner reference in the order of kube-apiserver's struct, which is not the alphabetical one.
fn owner_json(owner: &Value) -> String {
    let mut out = String::from("{");
    for field in ["apiVersion", "kind", "name", "uid"] {
        let sep = if out.len() > 1 { "," } else { "" };
        out.push_str(&format!("{sep}\"{field}\":{}", Value::from(owner.text(field))));
    }
    for field in ["controller", "blockOwnerDeletion"] {
        if let Some(flag) = owner.at(field).as_bool() {
            out.push_str(&format!(",\"{field}\":{flag}"));
        }
    }
    out.push('}');
    out
}

/// An error about a value that is already written out.
fn push_invalid(path: &Path<'_>, shown: &str, why: &str, errors: &mut Errors) {
    let body = format!("Invalid value: {shown}: {why}");
    errors.0.push(FieldError { reason: "FieldValueInvalid", field: path.to_string(), body });
}

fn check_finalizers(metadata: &Value, errors: &mut Errors) {
    let path = METADATA.child("finalizers");
    let finalizers = metadata.texts("finalizers");
    for name in &finalizers {
        for why in names::qualified_name(name) {
            errors.invalid(&path, *name, &why);
        }
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.invalid(&path, metadata.at("finalizers"), why);
    }
}

fn check_finalizer_domains(object: &Value, errors: &mut Errors) {
    for (index, name) in object.texts("metadata.finalizers").into_iter().enumerate() {
        if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(&METADATA.child("finalizers").index(index), name, why);
        }
    }
}

fn check_no_new_finalizers(new: &Value, old: &Value, errors: &mut Errors) {
    let before = old.texts("metadata.finalizers");
    let mut extra = new.texts("metadata.finalizers");
    extra.retain(|name| !before.contains(name));
    extra.sort_unstable();
    extra.dedup();
    if !extra.is_empty() {
        let list: Vec<String> = extra.iter().map(|name| quote(name)).collect();
        let why = "no new finalizers can be added if the object is being deleted, found new finalizers";
        errors.forbidden(&METADATA.child("finalizers"), &format!("{why} []string{{{}}}", list.join(", ")));
    }
}

fn check_managed_fields(entries: &[Value], errors: &mut Errors) {
    let path = METADATA.child("managedFields");
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        match entry.text("operation") {
            "" => errors.required(&path.child("operation"), "must not be empty"),
            "Apply" | "Update" => {}
            other => errors.not_supported(&path.child("operation"), other, &["Apply", "Update"]),
        }
        let kind = entry.text("fieldsType");
        if !kind.is_empty() && kind != "FieldsV1" {
            errors.invalid(&path.child("fieldsType"), kind, "must be `FieldsV1`");
        }
        validate_manager(&path.child("manager"), entry.text("manager"), errors);
        if entry.text("subresource").len() > SUBRESOURCE_MAX {
            errors.too_long(&path.child("subresource"), SUBRESOURCE_MAX);
        }
    }
}

fn text_value<'a>(object: &'a Value, field: &str) -> &'a Value {
    static EMPTY: Value = Value::String(String::new());
    match object.at("metadata").at(field) {
        Value::Null => &EMPTY,
        value => value,
    }
}

fn check_immutable(field: &str, new: &Value, old: &Value, errors: &mut Errors) {
    if new != old {
        errors.invalid(&METADATA.child(field), new, "field is immutable");
    }
}

/// What Go's unicode.IsPrint accepts, approximated by the standard library: its debug output escapes the rest.
pub(crate) fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    // A character after another one, because a combining mark at the start would be escaped too.
    let mut pair = String::from("x");
    pair.push(c);
    pair.escape_debug().count() == 2 && !c.is_whitespace()
}

/// Removes duplicate owner references, and adds a warning.
pub fn drop_repeated_owners(object: &mut Value, warnings: &mut Vec<String>) {
    let owners = object.items("metadata.ownerReferences");
    let mut kept: Vec<Value> = Vec::with_capacity(owners.len());
    let mut repeated: Vec<&str> = Vec::new();
    for owner in owners {
        if kept.contains(owner) {
            repeated.push(owner.text("uid"));
        } else {
            kept.push(owner.clone());
        }
    }
    if repeated.is_empty() {
        return;
    }
    warnings.push(format!(
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
         reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    ));
    object.put("metadata.ownerReferences", kept);
}

#[cfg(test)]
mod tests;
