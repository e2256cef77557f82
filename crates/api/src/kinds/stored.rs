//! Kinds that are stored and validated, and that nothing in Waypost acts on.
//!
//! Charts and manifests create them together with other objects, so they must be accepted; their types, defaults and checks
//! are those of Kubernetes. Every create and update is answered with a warning ([`STORED_ONLY`]), so that a stored
//! NetworkPolicy is not mistaken for an enforced one. A kind is a [`Kind`] and a [`Stored`]: functions for what differs
//! between them.

pub mod apiservice;
mod cron;
pub mod cronjob;
pub mod flowcontrol;
pub mod horizontalpodautoscaler;
pub mod networkpolicy;
pub mod persistentvolume;
pub mod persistentvolumeclaim;
pub mod podtemplate;
pub mod runtimeclass;
pub mod storage;
#[cfg(test)]
mod tests;

use serde_json::Value;

use super::common::{IMMUTABLE, same};
use crate::field::{Errors, Path};
use crate::kind::{Rules, keep_status};
use crate::meta;
use crate::names;
use crate::quantity::Amount;
use crate::value::ValueExt as _;

/// The text of the warning of a create or update after version and kind.
pub const STORED_ONLY: &str = "is stored only: no controller acts on it";

const SPEC: Path<'static> = Path::Root("spec");

/// The rules of a kind that is only stored.
struct Stored {
    api_version: &'static str,
    kind: &'static str,
    namespaced: bool,
    has_status: bool,
    /// What a new object may be called.
    name: fn(&str, bool) -> Vec<String>,
    default: fn(&mut Value),
    /// Sets the status that a new object has.
    begin: fn(&mut Value),
    /// Checks everything but the metadata.
    validate: fn(&Value, &mut Errors),
    /// Checks what may not change.
    validate_change: fn(&Value, &Value, &mut Errors),
    /// The field whose change makes a new generation.
    generation: &'static str,
}

impl Stored {
    /// A namespaced kind with a status, and with nothing to default or to check.
    const fn new(api_version: &'static str, kind: &'static str) -> Self {
        Self {
            api_version,
            kind,
            namespaced: true,
            has_status: true,
            name: names::name_is_subdomain,
            default: |_| {},
            begin: |_| {},
            validate: |_, _| {},
            validate_change: |_, _, _| {},
            generation: "spec",
        }
    }
}

impl Rules for Stored {
    fn default(&self, object: &mut Value) {
        (self.default)(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        if self.has_status {
            object.drop_path("status");
            (self.begin)(object);
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        if self.has_status {
            keep_status(new, old);
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, self.namespaced, self.name, errors);
        (self.validate)(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        (self.validate)(new, errors);
        (self.validate_change)(new, old, errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
    }

    fn warnings(&self, _new: &Value, _old: Option<&Value>, out: &mut Vec<String>) {
        out.push(format!("{} {} {STORED_ONLY}", self.api_version, self.kind));
    }

    fn new_generation(&self, new: &Value, old: &Value) -> bool {
        !same(new.at(self.generation), old.at(self.generation))
    }
}

/// Checks the modes in which a volume may be mounted.
fn validate_access_modes(path: &Path<'_>, modes: &[&str], errors: &mut Errors) {
    const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    for mode in modes.iter().filter(|mode| !MODES.contains(mode)) {
        errors.not_supported(path, *mode, MODES);
    }
    let known = || modes.iter().filter(|mode| MODES.contains(mode));
    if modes.contains(&"ReadWriteOncePod") && known().any(|mode| *mode != "ReadWriteOncePod") {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

/// `RWO,ROX`: modes in the order in which cells list them.
fn access_mode_cell(modes: &[&str]) -> Value {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let short = SHORT.iter().filter(|(mode, _)| modes.contains(mode)).map(|(_, short)| *short);
    short.collect::<Vec<_>>().join(",").into()
}

/// The phase of a volume or claim.
fn phase_cell(object: &Value) -> Value {
    if object.has("metadata.deletionTimestamp") { "Terminating" } else { object.text("status.phase") }.into()
}

/// The class of a volume or claim: its former annotation wins.
fn class_cell(object: &Value) -> Value {
    let annotation = object.at("metadata.annotations").get("volume.beta.kubernetes.io/storage-class");
    annotation.and_then(Value::as_str).unwrap_or(object.text("spec.storageClassName")).into()
}

/// Sets a field that has no value.
fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if !object.has(field) {
        object.put(field, value);
    }
}

/// Sets a string that is empty.
fn set_text(object: &mut Value, field: &str, value: &str) {
    if object.text(field).is_empty() {
        object.put(field, value);
    }
}

/// Refuses a string that is set to something else than these.
fn optional_one_of(path: &Path<'_>, value: &str, known: &[&str], errors: &mut Errors) {
    if !value.is_empty() && !known.contains(&value) {
        errors.not_supported(path, value, known);
    }
}

/// Refuses a change of a field.
fn immutable_field(path: &Path<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    if !same(new, old) {
        errors.invalid(path, new, IMMUTABLE);
    }
}

/// Refuses quantities that are not greater than zero.
fn positive(path: &Path<'_>, quantity: &Value, errors: &mut Errors) {
    if Amount::of(quantity) <= Amount::ZERO {
        errors.invalid(path, quantity, "must be greater than zero");
    }
}

/// `True`, `False`, or `<unset>`, as a cell shows it.
fn flag_cell(flag: &Value) -> Value {
    match flag.as_bool() {
        Some(true) => "True".into(),
        Some(false) => "False".into(),
        None => "<unset>".into(),
    }
}
