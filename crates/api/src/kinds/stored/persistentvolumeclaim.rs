//! PersistentVolumeClaim: a request for storage. No volume is bound to it, so it stays `Pending`.

use serde_json::Value;

use super::super::common::{report, same};
use super::super::workload::validate_labels_selector;
use super::{
    SPEC, Stored, access_mode_cell, class_cell, immutable_field, optional_one_of, phase_cell, positive, set,
    validate_access_modes,
};
use crate::field::{Errors, Path};
use crate::kind::{Kind, status_of};
use crate::names;
use crate::quantity::Amount;
use crate::table::{AGE, NAME, Table, age, column, no_conditions, or, wide_column};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    singular: "persistentvolumeclaim",
    short_names: &["pvc"],
    schema: "core.PersistentVolumeClaim",
    table: "persistentvolumeclaims",
    subresources: &[status_of("PersistentVolumeClaim")],
    delete_returns_object: true,
    table_view: &TABLE,
    ..Kind::common(&RULES)
};

static RULES: Stored = Stored {
    default,
    begin: |object| object.put("status.phase", "Pending"),
    validate,
    validate_change,
    ..Stored::new("v1", "PersistentVolumeClaim")
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Status", "The phase of the claim."),
        column("Volume", "The PersistentVolume that is bound to it."),
        column("Capacity", "How large the volume is."),
        column("Access Modes", "How the volume may be mounted."),
        column("StorageClass", "The StorageClass of the claim."),
        column("VolumeAttributesClass", "The VolumeAttributesClass of the claim."),
        AGE,
        wide_column("VolumeMode", "Whether the volume has a file system."),
    ],
    row: |object, now| {
        let is_bound = !object.text("spec.volumeName").is_empty();
        let (capacity, modes) = if is_bound {
            (object.text("status.capacity.storage"), object.texts("status.accessModes"))
        } else {
            ("", Vec::new())
        };
        vec![
            object.text("metadata.name").into(),
            phase_cell(object),
            object.text("spec.volumeName").into(),
            capacity.into(),
            access_mode_cell(&modes),
            class_cell(object),
            or(object.text("spec.volumeAttributesClassName"), "<unset>").into(),
            age(object, now).into(),
            or(object.text("spec.volumeMode"), "<unset>").into(),
        ]
    },
    conditions: no_conditions,
};

fn default(object: &mut Value) {
    set(object, "spec.volumeMode", "Filesystem");
    // Either field stands for both, unless the reference is to another namespace.
    let (source, reference) = (object.at("spec.dataSource").clone(), object.at("spec.dataSourceRef").clone());
    match (source.is_null(), reference.is_null()) {
        (false, true) => object.put("spec.dataSourceRef", source),
        (true, false) if reference.text("namespace").is_empty() => object.put("spec.dataSource", reference),
        _ => {}
    }
    set(object, "status.phase", "Pending");
}

fn validate(object: &Value, errors: &mut Errors) {
    let (spec, modes) = (object.at("spec"), object.texts("spec.accessModes"));
    let path = SPEC.child("accessModes");
    if modes.is_empty() {
        errors.required(&path, "at least 1 access mode is required");
    }
    if spec.has("selector") {
        validate_labels_selector(&SPEC.child("selector"), spec.at("selector"), errors);
    }
    validate_access_modes(&path, &modes, errors);
    let resources = SPEC.child("resources");
    match spec.at("resources.requests.storage") {
        Value::Null => errors.required(&resources.key("storage"), ""),
        storage => positive(&resources.key("storage"), storage, errors),
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let class = spec.text(field);
        if !class.is_empty() {
            report(&SPEC.child(field), class, names::dns_subdomain(class), errors);
        }
    }
    optional_one_of(&SPEC.child("volumeMode"), spec.text("volumeMode"), &["Block", "Filesystem"], errors);
}

fn validate_change(new: &Value, old: &Value, errors: &mut Errors) {
    let (mut wanted, mut before) = (new.at("spec").clone(), old.at("spec").clone());
    if before.text("volumeName").is_empty() {
        before.drop_path("volumeName");
        wanted.drop_path("volumeName");
    }
    if new.text("status.phase") == "Bound" {
        for field in ["resources.requests.storage", "volumeAttributesClassName"] {
            before.drop_path(field);
            wanted.drop_path(field);
        }
    }
    // A class can be chosen later for a claim without one.
    if !before.has("storageClassName") && class_cell(old) == "" {
        wanted.drop_path("storageClassName");
    }
    if !same(&wanted, &before) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims";
        errors.forbidden(&SPEC, detail);
    }
    let size = |object: &Value, field: &str| Amount::of(object.at(field));
    let asked = size(new, "spec.resources.requests.storage");
    if asked < size(old, "spec.resources.requests.storage") && asked <= size(old, "status.capacity.storage") {
        let (resources, storage) = (SPEC.child("resources"), "field can not be less than status.capacity");
        errors.forbidden(&resources.child("requests").child("storage"), storage);
    }
    immutable_field(&Path::Root("volumeMode"), new.at("spec.volumeMode"), old.at("spec.volumeMode"), errors);
}
