//! The kinds of `admissionregistration.k8s.io`: admission policies with their bindings, and webhook configurations.
//!
//! What a policy decides and when a webhook is called is in [`crate::dynamic_admission`]; here are defaults, validation and
//! tables. Expressions are compiled by [`crate::dynamic_admission::expression`].

pub mod binding;
pub(super) mod client_config;
mod conditions;
pub mod policy;
mod rules;
pub mod webhooks;

use serde_json::Value;

use crate::dynamic_admission::GROUP;
use crate::field::{Errors, Path, quote};
use crate::kind::{Kind, Rules};
use crate::value::ValueExt as _;

/// Names with this suffix are reserved for configurations that are read from files.
const STATIC_SUFFIX: &str = ".static.k8s.io";

/// What all kinds of the group have in common.
const fn common(rules: &'static dyn Rules) -> Kind {
    Kind {
        group: GROUP,
        namespaced: false,
        categories: &["api-extensions"],
        unconditional_update: false,
        generation: true,
        ..Kind::common(rules)
    }
}

fn reserved() -> String {
    let suffix = quote(STATIC_SUFFIX);
    format!(
        "names ending with {suffix} are reserved for static manifest-based configurations and cannot be managed via the API"
    )
}

/// Refuses a new object whose name is reserved.
fn check_name(object: &Value, errors: &mut Errors) {
    let name = object.text("metadata.name");
    if name.ends_with(STATIC_SUFFIX) {
        errors.invalid(&Path::Root("metadata.name"), name, &reserved());
    }
}

/// Warns of an object that has a reserved name from before names were reserved.
fn warn_of_name(object: &Value, old: Option<&Value>, out: &mut Vec<String>) {
    if old.is_some() && object.text("metadata.name").ends_with(STATIC_SUFFIX) {
        out.push(format!("metadata.name: {}", reserved()));
    }
}

/// Sets a value if it is missing.
fn put_missing(object: &mut Value, path: &str, value: impl Into<Value>) {
    if !object.has(path) {
        object.put(path, value);
    }
}

#[cfg(test)]
mod tests;
