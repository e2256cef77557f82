//! The columns of the kinds of storage.k8s.io.

use crate::table::{AGE, Column, NAME, Table, age, column, integer_column, no_conditions, or};
use crate::value::ValueExt as _;

/// Annotations of the class of claims that name none.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

pub(super) static CLASS_TABLE: Table = Table {
    columns: &[
        NAME,
        column("Provisioner", "What creates volumes of this class."),
        column("ReclaimPolicy", "What happens to a volume after its claim is deleted."),
        column("VolumeBindingMode", "When volumes are created and bound."),
        column("AllowVolumeExpansion", "Whether volumes can be made larger."),
        AGE,
    ],
    row: |object, now| {
        let annotations = object.at("metadata.annotations");
        let is_default = DEFAULT_CLASS.iter().any(|key| annotations.get(key).is_some_and(|value| value == "true"));
        let suffix = if is_default { " (default)" } else { "" };
        vec![
            format!("{}{suffix}", object.text("metadata.name")).into(),
            object.text("provisioner").into(),
            or(object.text("reclaimPolicy"), "Delete").into(),
            or(object.text("volumeBindingMode"), "Immediate").into(),
            object.flag("allowVolumeExpansion").into(),
            age(object, now).into(),
        ]
    },
    conditions: no_conditions,
};

const fn flag_column(name: &'static str, description: &'static str) -> Column {
    Column { kind: "boolean", ..column(name, description) }
}

pub(super) static DRIVER_TABLE: Table = Table {
    columns: &[
        NAME,
        flag_column("AttachRequired", "Whether volumes must be attached."),
        flag_column("PodInfoOnMount", "Whether the driver needs to know the Pod."),
        flag_column("StorageCapacity", "Whether capacity is considered by schedulers."),
        column("TokenRequests", "The audiences of the tokens that the driver gets."),
        flag_column("RequiresRepublish", "Whether volumes are published again and again."),
        column("Modes", "Which volumes the driver has."),
        AGE,
    ],
    row: |object, now| {
        let spec = object.at("spec");
        let audiences = spec.items("tokenRequests").iter().map(|one| one.text("audience"));
        let audiences = audiences.collect::<Vec<_>>().join(",");
        vec![
            object.text("metadata.name").into(),
            spec.at("attachRequired").as_bool().unwrap_or(true).into(),
            spec.flag("podInfoOnMount").into(),
            spec.flag("storageCapacity").into(),
            if spec.has("tokenRequests") { audiences.into() } else { "<unset>".into() },
            spec.flag("requiresRepublish").into(),
            or(&spec.texts("volumeLifecycleModes").join(","), "<none>").into(),
            age(object, now).into(),
        ]
    },
    conditions: no_conditions,
};

pub(super) static NODE_TABLE: Table = Table {
    columns: &[NAME, integer_column("Drivers", "How many drivers the Node has."), AGE],
    row: |object, now| {
        let drivers = object.items("spec.drivers").len();
        vec![object.text("metadata.name").into(), drivers.into(), age(object, now).into()]
    },
    conditions: no_conditions,
};

pub(super) static CAPACITY_TABLE: Table = Table {
    columns: &[
        NAME,
        column("StorageClassName", "The StorageClass of the capacity."),
        column("Capacity", "How much storage is left."),
    ],
    row: |object, _| {
        let capacity = or(object.text("capacity"), "<unset>").into();
        vec![object.text("metadata.name").into(), object.text("storageClassName").into(), capacity]
    },
    conditions: no_conditions,
};

pub(super) static ATTACHMENT_TABLE: Table = Table {
    columns: &[
        NAME,
        Column { format: "name", ..column("Attacher", "The driver that attaches the volume.") },
        column("PV", "The PersistentVolume."),
        column("Node", "The Node that it is attached to."),
        flag_column("Attached", "Whether it is attached."),
        AGE,
    ],
    row: |object, now| {
        vec![
            object.text("metadata.name").into(),
            object.text("spec.attacher").into(),
            object.text("spec.source.persistentVolumeName").into(),
            object.text("spec.nodeName").into(),
            object.flag("status.attached").into(),
            age(object, now).into(),
        ]
    },
    conditions: no_conditions,
};
