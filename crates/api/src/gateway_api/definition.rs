//! A CustomResourceDefinition around the schemas of its versions.

use serde_json::{Value, json};

use super::schema::{Field, Schema, object, optional, required, string, undescribed};
use super::{BUNDLE_VERSION, Channel, EXPERIMENTAL_GROUP, GROUP};
use crate::crd::approval;
use crate::value::ValueExt as _;

/// The annotation with the version of the upstream bundle, which clients and the conformance suite read.
pub(super) const VERSION_ANNOTATION: &str = "gateway.networking.k8s.io/bundle-version";
/// The annotation with the release channel.
pub(super) const CHANNEL_ANNOTATION: &str = "gateway.networking.k8s.io/channel";
/// The label of policy kinds.
const POLICY_LABEL: &str = "gateway.networking.k8s.io/policy";
/// Where the API was approved.
const APPROVAL: &str = "https://github.com/kubernetes-sigs/gateway-api/pull/5371";

/// The names and the scope of a kind.
pub(super) struct Names {
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) short: Option<&'static str>,
    pub(super) is_namespaced: bool,
    pub(super) is_experimental: bool,
    /// Whether the kind is a policy, attached directly to its targets.
    pub(super) is_policy: bool,
}

impl Names {
    /// A namespaced kind that is not a policy.
    pub(super) const fn namespaced(kind: &'static str, plural: &'static str) -> Self {
        Self { kind, plural, short: None, is_namespaced: true, is_experimental: false, is_policy: false }
    }
}

/// A version of a kind.
pub(super) struct Version {
    pub(super) name: &'static str,
    pub(super) is_served: bool,
    pub(super) is_stored: bool,
    /// Clients that use it are warned.
    pub(super) is_deprecated: bool,
    pub(super) has_status: bool,
    pub(super) columns: Value,
    pub(super) schema: Schema,
}

impl Version {
    /// A served version in which objects are stored.
    pub(super) fn stored(name: &'static str, columns: Value, schema: Schema) -> Self {
        Self { name, is_served: true, is_stored: true, is_deprecated: false, has_status: true, columns, schema }
    }

    /// Another served version of the same shape.
    pub(super) fn also(&self, name: &'static str) -> Self {
        let (columns, schema) = (self.columns.clone(), self.schema.clone());
        Self { name, is_stored: false, columns, schema, ..*self }
    }

    fn into_value(self, kind: &str) -> Value {
        let mut version = json!({
            "name": self.name, "served": self.is_served, "storage": self.is_stored,
            "subresources": if self.has_status { json!({"status": {}}) } else { json!({}) },
            "schema": {"openAPIV3Schema": self.schema.into_value()},
        });
        if !self.columns.is_null() {
            version.put("additionalPrinterColumns", self.columns);
        }
        if self.is_deprecated {
            version.put("deprecated", true);
            let text = format!(
                "The {} version of {kind} has been deprecated and will be removed in a future release of the API. \
                 Please upgrade to v1.",
                self.name
            );
            version.put("deprecationWarning", text);
        }
        version
    }
}

/// The whole object of a kind.
pub(super) fn root(description: &str, spec: Schema, status: Option<Schema>) -> Schema {
    let mut fields: Vec<Field> = vec![
        optional("apiVersion", "The version of the object's shape.", string()),
        optional("kind", "The kind of the object.", string()),
        undescribed("metadata", object([])),
        required("spec", "What is wanted.", spec),
    ];
    fields.extend(status.map(|status| optional("status", "What controllers observed.", status)));
    object(fields).describe(description)
}

/// The definition of a kind.
pub(super) fn definition(channel: Channel, names: &Names, versions: impl IntoIterator<Item = Version>) -> Value {
    let group = if names.is_experimental { EXPERIMENTAL_GROUP } else { GROUP };
    let mut all = json!({
        "categories": ["gateway-api"], "kind": names.kind, "listKind": format!("{}List", names.kind),
        "plural": names.plural, "singular": names.kind.to_lowercase(),
    });
    if let Some(short) = names.short {
        all.put("shortNames", vec![short]);
    }
    let mut metadata = json!({
        "name": format!("{}.{group}", names.plural),
        "annotations": {
            approval::ANNOTATION: APPROVAL, VERSION_ANNOTATION: BUNDLE_VERSION, CHANNEL_ANNOTATION: channel.name(),
        },
    });
    if names.is_policy {
        metadata["labels"] = json!({POLICY_LABEL: "Direct"});
    }
    let versions: Vec<Value> = versions.into_iter().map(|version| version.into_value(names.kind)).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata,
        "spec": {
            "group": group, "names": all, "scope": if names.is_namespaced { "Namespaced" } else { "Cluster" },
            "versions": versions, "conversion": {"strategy": "None"},
        },
    })
}

/// A column of tables with text.
pub(super) fn column(name: &str, path: &str) -> Value {
    json!({"name": name, "jsonPath": path, "type": "string"})
}

/// The status of a condition.
pub(super) fn condition_column(name: &str) -> Value {
    column(name, &format!(".status.conditions[?(@.type==\"{name}\")].status"))
}

/// The age of the object.
pub(super) fn age() -> Value {
    json!({"name": "Age", "jsonPath": ".metadata.creationTimestamp", "type": "date"})
}
