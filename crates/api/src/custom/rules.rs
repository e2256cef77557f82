//! The rules of a custom kind: those of its definition, whatever it is at the moment.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;

use super::Definition;
use crate::crd::scale;
use crate::field::{Errors, Path};
use crate::kind::{Rules, keep_status};
use crate::structural::rules;
use crate::value::ValueExt as _;
use crate::{meta, names};

/// Follows a version of a definition.
#[derive(Debug)]
pub struct CustomRules {
    namespaced: bool,
    definition: ArcSwap<Definition>,
}

impl CustomRules {
    pub(super) fn new(namespaced: bool, definition: Arc<Definition>) -> Self {
        Self { namespaced, definition: ArcSwap::new(definition) }
    }

    pub(super) fn replace(&self, definition: Arc<Definition>) {
        self.definition.store(definition);
    }

    fn current(&self) -> Arc<Definition> {
        self.definition.load_full()
    }
}

impl Rules for CustomRules {
    fn definition(&self) -> Option<Arc<Definition>> {
        Some(self.current())
    }

    fn default(&self, object: &mut Value) {
        self.current().schema().apply_defaults(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        if self.current().has_status() {
            object.drop_path("status");
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        if self.current().has_status() {
            keep_status(new, old);
        }
    }

    /// Only the status changes: the metadata stays, too.
    fn prepare_status(&self, new: &mut Value, old: &Value) {
        let fields = new.at("metadata.managedFields").clone();
        let (revision, status) = (new.at("metadata.resourceVersion").clone(), new.drop_path("status"));
        *new = old.clone();
        new.put("metadata.managedFields", fields);
        new.put("metadata.resourceVersion", revision);
        match status {
            Some(status) => new.put("status", status),
            None => drop(new.drop_path("status")),
        }
    }

    fn prepare_part(&self, part: &str, new: &mut Value, old: &Value) {
        // A Scale was turned into the object that it changes already.
        if part == "status" {
            self.prepare_status(new, old);
        } else {
            self.prepare_update(new, old);
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        let definition = self.current();
        if !check_type(&definition, object, errors) {
            return;
        }
        meta::validate_generic(object, self.namespaced, names::name_is_subdomain, errors);
        validate_content(&definition, object, None, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        let definition = self.current();
        if !check_type(&definition, new, errors) {
            return;
        }
        validate_metadata_update(new, old, errors);
        validate_content(&definition, new, Some(old), errors);
    }

    /// Rules that an unchanged part of the object does not keep.
    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        let definition = self.current();
        if old.is_some() && !definition.rules().is_empty() {
            definition.rules().validate(definition.schema(), new, old, &mut Errors::default(), out);
        }
    }

    /// Of the content only the status is checked, as a separate value.
    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        let definition = self.current();
        if !check_type(&definition, new, errors) {
            return;
        }
        validate_metadata_update(new, old, errors);
        if let (Some(schema), Some(status)) = (definition.schema().member("status"), new.get("status")) {
            schema.validate_values(status, old.get("status"), Some(&Path::Root("status")), errors);
        }
        if let Some(scale) = &definition.scale {
            scale::validate_status(scale, new, errors);
        }
        validate_rest(&definition, new, Some(old), errors);
    }

    fn new_generation(&self, new: &Value, old: &Value) -> bool {
        let has_status = self.current().has_status();
        let counts = |name: &str| name != "metadata" && !(has_status && name == "status");
        let differs = |a: &Value, b: &Value| {
            a.as_object().into_iter().flatten().any(|(name, value)| counts(name) && b.get(name) != Some(value))
        };
        differs(new, old) || differs(old, new)
    }

    fn converts(&self, modified: u64) -> bool {
        self.current().settled_at.is_none_or(|settled| modified <= settled)
    }

    /// Objects have the form of the storage version: what its schema does not have is not stored.
    fn shown_to_stored(&self, mut object: Value) -> Value {
        let definition = self.current();
        if let Some(stored) = &definition.stored {
            stored.prune(&mut object);
        }
        object.put("apiVersion", definition.storage_version.as_str());
        object
    }

    /// Objects may predate the schema, or be stored in another version.
    fn stored_to_shown(&self, mut object: Value) -> Value {
        self.current().shape(&mut object);
        object
    }
}

/// Checks the metadata of an update. New finalizers of a deleted object are found twice, as in kube-apiserver.
fn validate_metadata_update(new: &Value, old: &Value, errors: &mut Errors) {
    meta::validate_generic_update(new, old, errors);
    let repeated = errors.0.iter().find(|error| error.field == "metadata.finalizers").cloned();
    errors.0.extend(repeated);
}

/// Checks the type of an object; the response names nothing else when it is wrong.
fn check_type(definition: &Definition, object: &Value, errors: &mut Errors) -> bool {
    let (kind, wanted) = (object.text("kind"), &definition.object_type.kind);
    if kind != wanted {
        errors.invalid(&Path::Root("kind"), kind, &format!("must be {wanted}"));
        return false;
    }
    true
}

/// Checks everything but the metadata, in the order of kube-apiserver: schema, scale, then the rules in CEL, which are not
/// evaluated on objects of the wrong shape.
fn validate_content(definition: &Definition, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let schema = definition.schema();
    schema.validate_values(object, old, None, errors);
    if let Some(scale) = &definition.scale {
        scale::validate(scale, object, errors);
    }
    validate_rest(definition, object, old, errors);
}

/// Checks embedded resources, lists and rules.
fn validate_rest(definition: &Definition, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let schema = definition.schema();
    schema.validate_embedded(object, errors);
    schema.validate_lists(object, old, errors);
    if definition.rules().is_empty() {
        return;
    }
    if rules::blocks(errors) {
        errors.0.push(rules::not_checked());
        return;
    }
    definition.rules().validate(schema, object, old, errors, &mut Vec::new());
}
