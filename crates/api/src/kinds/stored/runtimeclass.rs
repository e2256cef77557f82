//! RuntimeClass: the configuration of a container runtime by a name.

use super::super::common::{immutable_text, report};
use super::Stored;
use crate::field::Path;
use crate::kind::Kind;
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;

const HANDLER: Path<'static> = Path::Root("handler");

/// The kind.
pub static KIND: Kind = Kind {
    group: "node.k8s.io",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    singular: "runtimeclass",
    namespaced: false,
    schema: "node.RuntimeClass",
    table: "runtimeclasses",
    unconditional_update: false,
    table_view: &TABLE,
    ..Kind::common(&RULES)
};

static RULES: Stored = Stored {
    namespaced: false,
    has_status: false,
    validate: |object, errors| {
        match object.text("handler") {
            "" => errors.required(&HANDLER, ""),
            handler => report(&HANDLER, handler, names::dns_label(handler), errors),
        }
        let scheduling = Path::Root("scheduling");
        meta::validate_labels(&scheduling.child("nodeSelector"), object.at("scheduling.nodeSelector"), errors);
    },
    validate_change: |new, old, errors| immutable_text(&HANDLER, new.text("handler"), old.text("handler"), errors),
    ..Stored::new("node.k8s.io/v1", "RuntimeClass")
};

static TABLE: Table = Table {
    columns: &[NAME, column("Handler", "The configuration of the runtime that this class is for."), AGE],
    row: |object, now| {
        vec![object.text("metadata.name").into(), object.text("handler").into(), age(object, now).into()]
    },
    conditions: no_conditions,
};
