//! PodTemplate: a Pod template as a separate object.

use serde_json::Value;

use super::super::pod::template;
use super::Stored;
use crate::field::Path;
use crate::kind::Kind;
use crate::selector;
use crate::table::{NAME, Table, column, no_conditions, or};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "PodTemplate",
    plural: "podtemplates",
    singular: "podtemplate",
    schema: "core.PodTemplate",
    table: "podtemplates",
    delete_returns_object: true,
    generation: true,
    table_view: &TABLE,
    ..Kind::common(&RULES)
};

static RULES: Stored = Stored {
    has_status: false,
    default: |object| template::fill(object.at_mut("template")),
    validate: |object, errors| template::validate(&Path::Root("template"), object.at("template"), errors),
    generation: "template",
    ..Stored::new("v1", "PodTemplate")
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Containers", "The names of the containers of each Pod."),
        column("Images", "Their images."),
        column("Pod Labels", "The labels of each Pod."),
    ],
    row: |object, _| {
        let containers = object.items("template.spec.containers");
        let all = |field: &str| containers.iter().map(|one| one.text(field)).collect::<Vec<_>>().join(",");
        let labels = selector::text(&serde_json::json!({"matchLabels": object.at("template.metadata.labels")}));
        let labels: Value = or(&labels, "<none>").into();
        vec![object.text("metadata.name").into(), all("name").into(), all("image").into(), labels]
    },
    conditions: no_conditions,
};
