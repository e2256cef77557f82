//! The kinds of storage.k8s.io: classes of storage, drivers, and where volumes are attached. No driver is run.

mod tables;

use serde_json::{Value, json};

use super::super::common::{IMMUTABLE, report, same};
use super::super::workload::{not_negative, validate_labels_selector};
use super::{SPEC, Stored, immutable_field, optional_one_of, set};
use crate::field::{Errors, Path};
use crate::kind::{Kind, status_of};
use crate::names;
use crate::quantity::Amount;
use crate::value::ValueExt as _;

const GROUP: &str = "storage.k8s.io";
const API_VERSION: &str = "storage.k8s.io/v1";
/// Characters of the name of a driver.
const MAX_DRIVER_NAME: usize = 63;
/// Characters of the name that a driver has for a node.
const MAX_NODE_ID: usize = 256;
/// Keys and bytes of the parameters of a StorageClass.
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETERS_SIZE: usize = 256 * 1024;

/// `StorageClass`.
pub static STORAGE_CLASS: Kind = Kind {
    group: GROUP,
    kind: "StorageClass",
    plural: "storageclasses",
    singular: "storageclass",
    short_names: &["sc"],
    namespaced: false,
    schema: "storage.StorageClass",
    table: "storageclasses",
    delete_returns_object: true,
    table_view: &tables::CLASS_TABLE,
    ..Kind::common(&CLASS_RULES)
};

static CLASS_RULES: Stored = Stored {
    namespaced: false,
    has_status: false,
    default: |object| {
        set(object, "reclaimPolicy", "Delete");
        set(object, "volumeBindingMode", "Immediate");
    },
    validate: validate_class,
    validate_change: |new, old, errors| {
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            immutable_field(&Path::Root(field), new.at(field), old.at(field), errors);
        }
    },
    ..Stored::new(API_VERSION, "StorageClass")
};

/// `CSIDriver`.
pub static CSI_DRIVER: Kind = Kind {
    group: GROUP,
    kind: "CSIDriver",
    plural: "csidrivers",
    singular: "csidriver",
    namespaced: false,
    schema: "storage.CSIDriver",
    table: "csidrivers",
    unconditional_update: false,
    delete_returns_object: true,
    table_view: &tables::DRIVER_TABLE,
    ..Kind::common(&DRIVER_RULES)
};

static DRIVER_RULES: Stored = Stored {
    namespaced: false,
    has_status: false,
    default: default_driver,
    validate: validate_driver,
    validate_change: |new, old, errors| {
        // The first path is misspelled there, too.
        for (field, path) in [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")]
        {
            immutable_field(&SPEC.child(path), new.at("spec").at(field), old.at("spec").at(field), errors);
        }
    },
    ..Stored::new(API_VERSION, "CSIDriver")
};

/// `CSINode`.
pub static CSI_NODE: Kind = Kind {
    group: GROUP,
    kind: "CSINode",
    plural: "csinodes",
    singular: "csinode",
    namespaced: false,
    schema: "storage.CSINode",
    table: "csinodes",
    unconditional_update: false,
    delete_returns_object: true,
    table_view: &tables::NODE_TABLE,
    ..Kind::common(&NODE_RULES)
};

static NODE_RULES: Stored = Stored {
    namespaced: false,
    has_status: false,
    validate: validate_node,
    validate_change: validate_node_change,
    ..Stored::new(API_VERSION, "CSINode")
};

/// `CSIStorageCapacity`.
pub static CSI_STORAGE_CAPACITY: Kind = Kind {
    group: GROUP,
    kind: "CSIStorageCapacity",
    plural: "csistoragecapacities",
    singular: "csistoragecapacity",
    schema: "storage.CSIStorageCapacity",
    table: "csistoragecapacities",
    unconditional_update: false,
    table_view: &tables::CAPACITY_TABLE,
    ..Kind::common(&CAPACITY_RULES)
};

static CAPACITY_RULES: Stored = Stored {
    has_status: false,
    validate: validate_capacity,
    validate_change: |new, old, errors| {
        for field in ["nodeTopology", "storageClassName"] {
            immutable_field(&Path::Root(field), new.at(field), old.at(field), errors);
        }
    },
    ..Stored::new(API_VERSION, "CSIStorageCapacity")
};

/// `VolumeAttachment`.
pub static VOLUME_ATTACHMENT: Kind = Kind {
    group: GROUP,
    kind: "VolumeAttachment",
    plural: "volumeattachments",
    singular: "volumeattachment",
    namespaced: false,
    schema: "storage.VolumeAttachment",
    table: "volumeattachments",
    subresources: &[status_of("VolumeAttachment")],
    unconditional_update: false,
    delete_returns_object: true,
    table_view: &tables::ATTACHMENT_TABLE,
    ..Kind::common(&ATTACHMENT_RULES)
};

static ATTACHMENT_RULES: Stored = Stored {
    namespaced: false,
    validate: validate_attachment,
    validate_change: |new, old, errors| immutable_field(&SPEC, new.at("spec"), old.at("spec"), errors),
    ..Stored::new(API_VERSION, "VolumeAttachment")
};

fn validate_class(object: &Value, errors: &mut Errors) {
    match object.text("provisioner") {
        "" => errors.required(&Path::Root("provisioner"), ""),
        name => {
            let name = name.to_lowercase();
            report(&Path::Root("provisioner"), &name, names::qualified_name(&name), errors);
        }
    }
    validate_parameters(object.at("parameters"), errors);
    optional_one_of(&Path::Root("reclaimPolicy"), object.text("reclaimPolicy"), &["Delete", "Retain"], errors);
    let (path, mode) = (Path::Root("volumeBindingMode"), object.text("volumeBindingMode"));
    if !matches!(mode, "Immediate" | "WaitForFirstConsumer") {
        errors.not_supported(&path, mode, &["Immediate", "WaitForFirstConsumer"]);
    }
}

fn validate_parameters(parameters: &Value, errors: &mut Errors) {
    let (path, parameters) = (Path::Root("parameters"), parameters.as_object());
    let count = parameters.map_or(0, serde_json::Map::len);
    if count > MAX_PARAMETERS {
        return errors.too_long(&path, MAX_PARAMETERS);
    }
    let mut size = 0;
    for (key, value) in parameters.into_iter().flatten() {
        if key.is_empty() {
            errors.invalid(&path, "", "field can not be empty.");
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_PARAMETERS_SIZE {
        errors.too_long(&path, MAX_PARAMETERS_SIZE);
    }
}

fn default_driver(object: &mut Value) {
    set(object, "spec.attachRequired", true);
    for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        set(object, &format!("spec.{field}"), false);
    }
    set(object, "spec.fsGroupPolicy", "ReadWriteOnceWithFSType");
    if object.items("spec.volumeLifecycleModes").is_empty() {
        object.put("spec.volumeLifecycleModes", json!(["Persistent"]));
    }
}

fn validate_driver(object: &Value, errors: &mut Errors) {
    let spec = object.at("spec");
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    optional_one_of(&SPEC.child("fsGroupPolicy"), spec.text("fsGroupPolicy"), &policies, errors);
    let (list, requests) = (SPEC.child("tokenRequests"), spec.items("tokenRequests"));
    for (index, request) in requests.iter().enumerate() {
        let (path, audience) = (list.index(index), request.text("audience"));
        if requests[..index].iter().any(|earlier| earlier.text("audience") == audience) {
            errors.duplicate(&path.child("audience"), audience);
            continue;
        }
        let Some(seconds) = request.at("expirationSeconds").as_i64() else { continue };
        if seconds < 600 {
            let detail = "may not specify a duration less than 10 minutes";
            errors.invalid(&path.child("expirationSeconds"), seconds, detail);
        } else if seconds > 1 << 32 {
            let detail = "may not specify a duration larger than 2^32 seconds";
            errors.invalid(&path.child("expirationSeconds"), seconds, detail);
        }
    }
    for mode in spec.texts("volumeLifecycleModes") {
        let modes = ["Persistent", "Ephemeral"];
        optional_one_of(&SPEC.child("volumeLifecycleModes"), mode, &modes, errors);
    }
    let period = spec.at("nodeAllocatableUpdatePeriodSeconds").as_i64();
    if let Some(period) = period.filter(|period| *period < 10) {
        let path = SPEC.child("nodeAllocatableUpdatePeriodSeconds");
        errors.invalid(&path, period, "must be greater than or equal to 10 seconds");
    }
}

/// Checks the name of a driver where another object refers to it.
fn validate_driver_name(path: &Path<'_>, name: &str, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
    }
    if name.len() > MAX_DRIVER_NAME {
        errors.too_long(path, MAX_DRIVER_NAME);
    }
    report(path, name, names::dns_subdomain(&name.to_lowercase()), errors);
}

fn validate_node(object: &Value, errors: &mut Errors) {
    let (list, drivers) = (SPEC.child("drivers"), object.items("spec.drivers"));
    for (index, driver) in drivers.iter().enumerate() {
        let (path, name) = (list.index(index), driver.text("name"));
        validate_driver_name(&path.child("name"), name, errors);
        match driver.text("nodeID") {
            "" => errors.required(&path.child("nodeID"), ""),
            id if id.len() > MAX_NODE_ID => {
                errors.invalid(&path.child("nodeID"), id, &format!("must be {MAX_NODE_ID} characters or less"));
            }
            _ => {}
        }
        not_negative(&path.child("allocatable"), driver.at("allocatable"), &["count"], errors);
        if drivers[..index].iter().any(|earlier| earlier.text("name") == name) {
            errors.duplicate(&path.child("name"), name);
        }
        for key in driver.texts("topologyKeys") {
            report(&path, key, names::qualified_name(key), errors);
        }
    }
}

/// Of a driver that stays, only how many volumes it can have may change.
fn validate_node_change(new: &Value, old: &Value, errors: &mut Errors) {
    let fixed = |driver: &Value| {
        let mut driver = driver.clone();
        driver.drop_path("allocatable");
        driver
    };
    for driver in new.items("spec.drivers").iter().map(fixed) {
        let mut before = old.items("spec.drivers").iter().filter(|one| one.text("name") == driver.text("name"));
        if before.any(|before| !same(&fixed(before), &driver)) {
            errors.invalid(&SPEC.child("drivers"), driver, IMMUTABLE);
        }
    }
}

fn validate_capacity(object: &Value, errors: &mut Errors) {
    if object.has("nodeTopology") {
        validate_labels_selector(&Path::Root("nodeTopology"), object.at("nodeTopology"), errors);
    }
    let class = object.text("storageClassName");
    report(&Path::Root("storageClassName"), class, names::dns_subdomain(class), errors);
    if Amount::of(object.at("capacity")) < Amount::ZERO {
        errors.invalid(&Path::Root("capacity"), object.at("capacity"), "must be greater than or equal to 0");
    }
}

fn validate_attachment(object: &Value, errors: &mut Errors) {
    let spec = object.at("spec");
    validate_driver_name(&SPEC.child("attacher"), spec.text("attacher"), errors);
    let (path, source) = (SPEC.child("source"), spec.at("source"));
    let exactly_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source.has("inlineVolumeSpec"), source.at("persistentVolumeName").as_str()) {
        (false, None) => errors.required(&path, exactly_one),
        (true, Some(_)) => errors.forbidden(&path, exactly_one),
        (false, Some("")) => {
            errors.required(&path.child("persistentVolumeName"), "must specify non empty persistentVolumeName");
        }
        (false, Some(name)) => report(&path.child("persistentVolumeName"), name, names::dns_subdomain(name), errors),
        (true, None) => {}
    }
    let node = spec.text("nodeName");
    report(&SPEC.child("nodeName"), node, names::dns_subdomain(node), errors);
}
