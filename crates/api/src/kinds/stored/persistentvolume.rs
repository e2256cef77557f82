//! PersistentVolume: storage that claims could be bound to. Nothing mounts it.

use serde_json::{Map, Value};

use super::super::common::{report, same};
use super::{
    SPEC, Stored, access_mode_cell, class_cell, immutable_field, optional_one_of, phase_cell, positive, set, set_text,
    validate_access_modes,
};
use crate::field::{Errors, Path};
use crate::kind::{Kind, status_of};
use crate::names;
use crate::schema;
use crate::table::{AGE, NAME, Table, age, column, no_conditions, or, wide_column};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "PersistentVolume",
    plural: "persistentvolumes",
    singular: "persistentvolume",
    short_names: &["pv"],
    namespaced: false,
    schema: "core.PersistentVolume",
    table: "persistentvolumes",
    subresources: &[status_of("PersistentVolume")],
    delete_returns_object: true,
    table_view: &TABLE,
    ..Kind::common(&RULES)
};

static RULES: Stored = Stored {
    namespaced: false,
    default,
    begin: |object| object.put("status.phase", "Pending"),
    validate,
    validate_change,
    ..Stored::new("v1", "PersistentVolume")
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Capacity", "How large the volume is."),
        column("Access Modes", "How the volume may be mounted."),
        column("Reclaim Policy", "What happens to the volume after its claim is deleted."),
        column("Status", "The phase of the volume."),
        column("Claim", "The claim that it is bound to."),
        column("StorageClass", "The StorageClass of the volume."),
        column("VolumeAttributesClass", "The VolumeAttributesClass of the volume."),
        column("Reason", "Why the volume is in its phase."),
        AGE,
        wide_column("VolumeMode", "Whether the volume has a file system."),
    ],
    row: |object, now| {
        let claim = match object.at("spec.claimRef") {
            Value::Null => String::new(),
            claim => format!("{}/{}", claim.text("namespace"), claim.text("name")),
        };
        vec![
            object.text("metadata.name").into(),
            object.text("spec.capacity.storage").into(),
            access_mode_cell(&object.texts("spec.accessModes")),
            object.text("spec.persistentVolumeReclaimPolicy").into(),
            phase_cell(object),
            claim.into(),
            class_cell(object),
            or(object.text("spec.volumeAttributesClassName"), "<unset>").into(),
            object.text("status.reason").into(),
            age(object, now).into(),
            or(object.text("spec.volumeMode"), "<unset>").into(),
        ]
    },
    conditions: no_conditions,
};

fn default(object: &mut Value) {
    set(object, "status.phase", "Pending");
    set_text(object, "spec.persistentVolumeReclaimPolicy", "Retain");
    set(object, "spec.volumeMode", "Filesystem");
    if object.has("spec.hostPath") {
        set(object, "spec.hostPath.type", "");
    }
}

/// The sources of volumes that a spec has.
fn sources(spec: &Value) -> Map<String, Value> {
    let known = schema::named("core.PersistentVolumeSource").get();
    let fields = spec.as_object().into_iter().flatten();
    fields
        .filter(|(name, value)| !value.is_null() && known.field(name).is_some())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn validate(object: &Value, errors: &mut Errors) {
    let (spec, modes) = (object.at("spec"), object.texts("spec.accessModes"));
    if modes.is_empty() {
        errors.required(&SPEC.child("accessModes"), "");
    }
    validate_access_modes(&SPEC.child("accessModes"), &modes, errors);
    validate_capacity(spec, errors);
    let policy = spec.text("persistentVolumeReclaimPolicy");
    let policies = ["Delete", "Recycle", "Retain"];
    optional_one_of(&SPEC.child("persistentVolumeReclaimPolicy"), policy, &policies, errors);
    validate_source(spec, errors);
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let class = spec.text(field);
        if !class.is_empty() {
            report(&SPEC.child(field), class, names::dns_subdomain(class), errors);
        }
    }
    optional_one_of(&SPEC.child("volumeMode"), spec.text("volumeMode"), &["Block", "Filesystem"], errors);
}

fn validate_capacity(spec: &Value, errors: &mut Errors) {
    let (path, capacity) = (SPEC.child("capacity"), spec.map("capacity"));
    if capacity.is_none_or(Map::is_empty) {
        errors.required(&path, "");
    }
    if !capacity.is_some_and(|capacity| capacity.len() == 1 && capacity.contains_key("storage")) {
        errors.not_supported(&path, spec.at("capacity"), &["storage"]);
    }
    for (name, quantity) in capacity.into_iter().flatten() {
        positive(&path.key(name), quantity, errors);
    }
}

fn validate_source(spec: &Value, errors: &mut Errors) {
    let sources = sources(spec);
    if sources.is_empty() {
        errors.required(&SPEC, "must specify a volume type");
    }
    for name in sources.keys().skip(1) {
        errors.forbidden(&SPEC.child(name), "may not specify more than 1 volume type");
    }
    for (source, field) in [("hostPath", "path"), ("local", "path"), ("csi", "driver"), ("csi", "volumeHandle")] {
        if sources.get(source).is_some_and(|found| found.text(field).is_empty()) {
            errors.required(&SPEC.child(source).child(field), "");
        }
    }
    if sources.contains_key("local") && spec.items("nodeAffinity.required.nodeSelectorTerms").is_empty() {
        errors.required(&SPEC.child("nodeAffinity"), "Local volume requires node affinity");
    }
}

fn validate_change(new: &Value, old: &Value, errors: &mut Errors) {
    let (mut wanted, before) = (Value::from(sources(new.at("spec"))), Value::from(sources(old.at("spec"))));
    if !before.has("csi.controllerExpandSecretRef") {
        wanted.drop_path("csi.controllerExpandSecretRef");
    }
    if !same(&wanted, &before) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.forbidden(&SPEC.child("persistentvolumesource"), detail);
    }
    immutable_field(&Path::Root("volumeMode"), new.at("spec.volumeMode"), old.at("spec.volumeMode"), errors);
}
