//! CustomResourceDefinition: a kind that the server learns at run time.
//!
//! Here are defaults, preparation, validation and the table; what the server does with accepted definitions (names,
//! status, deletion, columns, scale) is in [`crate::crd`].

mod conversion;
mod go_value;
mod options;
mod schema;
mod selectable;
mod spec;
#[cfg(test)]
mod tests;
mod validate;
mod version;

use serde_json::{Value, json};

use crate::crd::{self, condition, delete};
use crate::decode;
use crate::field::Errors;
use crate::kind::{Kind, Rules, keep_status, status_of};
use crate::table::{Column, NAME, Table, column, no_conditions, wide_column};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    group: "apiextensions.k8s.io",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    singular: "customresourcedefinition",
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    namespaced: false,
    schema: "apiextensions.CustomResourceDefinition",
    table: "customresourcedefinitions",
    subresources: &[status_of("CustomResourceDefinition")],
    unconditional_update: false,
    delete_returns_object: true,
    generation: true,
    table_view: &TABLE,
    ..Kind::common(&DefinitionRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Scope", "Whether objects of the kind live in namespaces."),
        column("Versions", "The served versions; the one that is stored is marked."),
        Column { kind: "date", ..column("Created At", "When the definition was created.") },
        wide_column("Group", "The API group of the kind."),
        wide_column("Kind", "The name of the kind."),
        wide_column("ShortNames", "The short names of the kind."),
        Column { kind: "boolean", ..wide_column("Established", "Whether objects of the kind are served.") },
    ],
    row: |object, _| {
        vec![
            object.text("metadata.name").into(),
            object.text("spec.scope").into(),
            shown_versions(object).into(),
            object.text("metadata.creationTimestamp").into(),
            object.text("spec.group").into(),
            object.text("spec.names.kind").into(),
            object.texts("spec.names.shortNames").join(",").into(),
            condition::is_true(object, condition::ESTABLISHED).into(),
        ]
    },
    conditions: no_conditions,
};

/// `v1(storage),v1beta1`.
fn shown_versions(object: &Value) -> String {
    let served = object.items("spec.versions").iter().filter(|version| version.flag("served"));
    let shown: Vec<String> = served
        .map(|version| format!("{}{}", version.text("name"), if version.flag("storage") { "(storage)" } else { "" }))
        .collect();
    shown.join(",")
}

struct DefinitionRules;

impl Rules for DefinitionRules {
    fn default(&self, object: &mut Value) {
        default_names(object);
        if !object.has("spec.conversion") {
            object.put("spec.conversion", json!({"strategy": "None"}));
        }
        // An empty webhook configuration is none.
        let webhook = object.at("spec.conversion.webhook");
        if webhook.is_object() && !webhook.has("clientConfig") && webhook.get("conversionReviewVersions").is_none() {
            object.drop_path("spec.conversion.webhook");
        }
        let service = "spec.conversion.webhook.clientConfig.service";
        if object.at(service).is_object() && !object.has(&format!("{service}.port")) {
            object.put(&format!("{service}.port"), 443);
        }
        if object.items("status.storedVersions").is_empty() {
            add_stored_version(object);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object.put("status", json!({}));
        add_stored_version(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
        add_stored_version(new);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::create(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::update(new, old, errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::status(new, old, errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        schema::warn_of_formats(new, old, out);
    }

    fn new_generation(&self, new: &Value, old: &Value) -> bool {
        normal(new).at("spec") != normal(old).at("spec")
    }

    fn mark_deleted(&self, object: &mut Value) {
        delete::mark(object);
    }
}

/// The singular is the kind in lower case, and the kind of lists ends in `List`.
fn default_names(object: &mut Value) {
    let kind = object.text("spec.names.kind").to_owned();
    if object.text("spec.names.singular").is_empty() && !kind.is_empty() {
        object.put("spec.names.singular", kind.to_lowercase());
    }
    if object.text("spec.names.listKind").is_empty() && !kind.is_empty() {
        object.put("spec.names.listKind", format!("{kind}List"));
    }
}

/// Notes that objects may be stored in the version that is the storage version now.
fn add_stored_version(object: &mut Value) {
    let Some(name) = crd::storage_version(object).map(|version| version.text("name").to_owned()) else { return };
    let mut stored = object.items("status.storedVersions").to_vec();
    if !stored.iter().any(|have| *have == name) {
        stored.push(name.into());
        object.put("status.storedVersions", stored);
    }
}

/// Whether the CA bundle of the conversion webhook can be read, if there is one.
pub(crate) fn has_readable_ca_bundle(definition: &Value) -> bool {
    let bundle = definition.text("spec.conversion.webhook.clientConfig.caBundle");
    bundle.is_empty() || conversion::read_ca_bundle(bundle).is_ok()
}

/// A definition with exactly the fields that are printed, so that equal definitions are equal values.
fn normal(object: &Value) -> Value {
    let mut object = object.clone();
    decode::prune(KIND.type_id(), &mut object);
    object
}
