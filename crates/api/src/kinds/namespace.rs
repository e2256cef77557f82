//! Namespace: the finalizer that keeps it until it is empty, its phase and the label with its name.
//!
//! Three ways lead to a Namespace: the main resource keeps finalizers and status as they are, `/status` changes the
//! status, and `/finalize` changes `spec.finalizers` (the part `finalize`).

use serde_json::Value;

use super::common::report;
use crate::claims::Claims;
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules, Selectable, Subresource, keep_status, status_of};
use crate::meta;
use crate::names;
use crate::node_port_range::{ANNOTATION, NodePortRange, NodePortRangeError};
use crate::status::Status;
use crate::table::{AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;
use crate::view::labels::METADATA_NAME;

/// The finalizer that the namespace controller removes last.
pub const FINALIZER: &str = "kubernetes";

const STANDARD_FINALIZERS: &[&str] = &[FINALIZER, "foregroundDeletion", "orphan"];

/// The kind.
pub static KIND: Kind = Kind {
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    namespaced: false,
    schema: "core.Namespace",
    table: "namespaces",
    verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
    subresources: &[Subresource { name: "finalize", kind: "Namespace", verbs: &["update"] }, status_of("Namespace")],
    delete_returns_object: true,
    selectable: &[Selectable { label: "status.phase", value: |object| object.text("status.phase").to_owned() }],
    table_view: &TABLE,
    ..Kind::common(&NamespaceRules)
};

static TABLE: Table = Table {
    columns: &[NAME, column("Status", "Whether the namespace is in use or being removed."), AGE],
    row: |object, now| {
        vec![object.text("metadata.name").into(), object.text("status.phase").into(), age(object, now).into()]
    },
    conditions: no_conditions,
};

struct NamespaceRules;

impl Rules for NamespaceRules {
    fn default(&self, object: &mut Value) {
        label_with_name(object);
        if object.text("status.phase").is_empty() {
            object.put("status.phase", "Active");
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        // A generated name was not known when the defaults were filled in.
        label_with_name(object);
        object.put("status", serde_json::json!({"phase": "Active"}));
        let mut finalizers = object.items("spec.finalizers").to_vec();
        if !finalizers.iter().any(|name| name == FINALIZER) {
            finalizers.push(FINALIZER.into());
        }
        object.put("spec.finalizers", finalizers);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        match old.at("spec.finalizers") {
            Value::Null => {
                new.drop_path("spec.finalizers");
            }
            finalizers => new.put("spec.finalizers", finalizers.clone()),
        }
        keep_status(new, old);
    }

    fn begin_create(&self, object: &mut Value, claims: &mut dyn Claims) -> Result<(), Status> {
        reserve_ports(object, claims)
    }

    fn begin_update(&self, new: &mut Value, _: &Value, claims: &mut dyn Claims) -> Result<(), Status> {
        reserve_ports(new, claims)
    }

    fn finish_delete(&self, object: &Value, claims: &mut dyn Claims) {
        // Giving back is always possible.
        drop(claims.reserve_ports(object.text("metadata.name"), None));
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, false, names::name_is_label, errors);
        if let Some(Err(error)) = node_ports(object) {
            invalid_node_ports(object, &error.to_string(), errors);
        }
        for name in object.texts("spec.finalizers") {
            check_finalizer(&Path::Root("spec.finalizers"), name, errors);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        self.validate_create(new, errors);
    }

    fn prepare_part(&self, part: &str, new: &mut Value, old: &Value) {
        match part {
            "finalize" => keep_status(new, old),
            _ => self.prepare_status(new, old),
        }
    }

    fn validate_part(&self, part: &str, new: &Value, old: &Value, errors: &mut Errors) {
        match part {
            "finalize" => validate_finalize(new, old, errors),
            _ => self.validate_status(new, old, errors),
        }
    }

    fn mark_deleted(&self, object: &mut Value) {
        object.put("status.phase", "Terminating");
        // A Namespace takes as long as its content does.
        object.drop_path("metadata.deletionGracePeriodSeconds");
    }

    fn is_held(&self, object: &Value) -> bool {
        !object.items("spec.finalizers").is_empty()
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        let (wanted, detail) = if new.has("metadata.deletionTimestamp") {
            ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
        } else {
            ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
        };
        let phase = new.text("status.phase");
        if phase != wanted {
            errors.invalid(&Path::Root("status.Phase"), phase, detail);
        }
    }
}

/// The node ports that a Namespace asks for.
fn node_ports(object: &Value) -> Option<Result<NodePortRange, NodePortRangeError>> {
    let text = object.at("metadata.annotations").get(ANNOTATION)?;
    Some(NodePortRange::parse(text.as_str().unwrap_or_default()))
}

/// Reserves the node ports that a Namespace asks for. What cannot be read is left to the validation.
fn reserve_ports(object: &Value, claims: &mut dyn Claims) -> Result<(), Status> {
    let range = match node_ports(object) {
        None => None,
        Some(Ok(range)) => Some(range),
        Some(Err(_)) => return Ok(()),
    };
    let name = object.text("metadata.name");
    claims.reserve_ports(name, range).map_err(|error| {
        let mut errors = Errors::default();
        invalid_node_ports(object, &error.to_string(), &mut errors);
        Status::invalid("", "Namespace", name, &errors)
    })
}

fn invalid_node_ports(object: &Value, why: &str, errors: &mut Errors) {
    let path = Path::Root("metadata");
    let path = path.child("annotations");
    let value = object.at("metadata.annotations").get(ANNOTATION).unwrap_or(&Value::Null);
    errors.invalid(&path.key(ANNOTATION), value, why);
}

fn label_with_name(object: &mut Value) {
    let name = object.text("metadata.name");
    if name.is_empty() || object.at("metadata.labels").get(METADATA_NAME).and_then(Value::as_str) == Some(name) {
        return;
    }
    let name = Value::from(name);
    // The key has dots, so the dotted path ends at the map.
    if let Some(labels) = object.at_mut("metadata.labels").and_then(Value::as_object_mut) {
        labels.insert(METADATA_NAME.to_owned(), name);
    } else {
        object.put("metadata.labels", serde_json::json!({METADATA_NAME: name}));
    }
}

/// Checks a write to `/finalize`.
fn validate_finalize(new: &Value, old: &Value, errors: &mut Errors) {
    meta::validate_update(new, old, errors);
    let path = Path::Root("spec.finalizers");
    for (index, name) in new.items("spec.finalizers").iter().enumerate() {
        check_finalizer(&path.index(index), name.as_str().unwrap_or_default(), errors);
    }
}

fn check_finalizer(path: &Path<'_>, name: &str, errors: &mut Errors) {
    report(path, name, names::qualified_name(name), errors);
    if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
        errors.invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{golden, summary};

    #[test]
    fn golden_answers() {
        golden("namespace", &KIND);
    }

    #[test]
    fn the_label_follows_the_name() {
        let mut object = json!({"metadata": {"generateName": "x-"}});
        NamespaceRules.default(&mut object);
        assert!(!object.has("metadata.labels"));
        object.put("metadata.name", "x-1");
        NamespaceRules.prepare_create(&mut object);
        assert_eq!(object.at("metadata.labels"), &json!({METADATA_NAME: "x-1"}));
        assert_eq!(object.at("spec.finalizers"), &json!(["kubernetes"]));
    }

    #[test]
    fn finalizers_are_known_or_qualified() {
        let object = json!({
            "metadata": {"name": "x", "resourceVersion": "1"},
            "spec": {"finalizers": ["mine", "example.com/mine", "orphan"]},
        });
        assert_eq!(
            summary(|errors| NamespaceRules.validate_create(&object, errors)),
            "spec.finalizers: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully \
             qualified"
        );
        let old = json!({"metadata": {"name": "x"}});
        let text = summary(|errors| validate_finalize(&object, &old, errors));
        assert!(text.starts_with("spec.finalizers[0]: Invalid value"), "{text}");
    }
}
