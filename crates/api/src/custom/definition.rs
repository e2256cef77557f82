//! One version of a CustomResourceDefinition, compiled.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::apply::CustomType;
use crate::crd::columns::{self, Columns};
use crate::crd::selectable::{self, Selectables};
use crate::crd::{self, compare_versions};
use crate::structural::Structural;
use crate::structural::rules::Compiled;
use crate::value::ValueExt as _;

/// Everything that the server needs to know of the objects of one version.
#[derive(Debug)]
pub struct Definition {
    /// What server-side apply needs, the schema included.
    pub object_type: CustomType,
    /// The rules in CEL.
    pub rules: Compiled,
    /// The columns of Tables.
    pub columns: Columns,
    /// `subresources.scale`, if there is one.
    pub scale: Option<Value>,
    /// The fields that field selectors may name.
    pub selectable: Selectables,
    /// The kind of lists.
    pub list_kind: String,
    /// The warning of a deprecated version.
    pub deprecation: Option<String>,
    /// Whether the definition is being deleted: nothing can be created.
    pub is_terminating: bool,
    /// Objects that were written after this revision of the store have the form that readers of this version see. Others
    /// may predate the schema, or were written in another version.
    pub settled_at: Option<u64>,
    /// The schema of the storage version, if it is another one.
    pub stored: Option<Arc<Structural>>,
    /// `openAPIV3Schema`, for OpenAPI documents.
    pub published: Value,
    /// The revision of the definition in the store.
    pub revision: u64,
}

impl Definition {
    /// Compiles all versions of a definition that was stored at a revision, in its order.
    #[must_use]
    pub fn all(crd: &Value, revision: u64) -> Vec<Self> {
        let schema = |version: &Value| Arc::new(Structural::parse(version.at("schema.openAPIV3Schema")));
        let versions = crd.items("spec.versions");
        let schemas: BTreeMap<String, Arc<Structural>> =
            versions.iter().map(|version| (version.text("name").to_owned(), schema(version))).collect();
        versions.iter().map(|version| Self::new(crd, version, &schemas, revision)).collect()
    }

    /// A definition of nothing, in place of one that was deleted.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(&Value::Null, &Value::Null, &BTreeMap::new(), 0)
    }

    fn new(crd: &Value, version: &Value, schemas: &BTreeMap<String, Arc<Structural>>, revision: u64) -> Self {
        let name = version.text("name");
        let schema = schemas.get(name).cloned().unwrap_or_default();
        // A status that a create drops has its default for readers, and is not stored.
        let has_status = version.has("subresources.status");
        let has_default_status = has_status && schema.member("status").is_some_and(|status| status.default.is_some());
        let accepted = |name: &str| {
            let accepted = crd.at("status.acceptedNames").text(name);
            if accepted.is_empty() { crd.at("spec.names").text(name) } else { accepted }.to_owned()
        };
        Self {
            rules: Compiled::new(&schema),
            object_type: CustomType {
                group: crd.text("spec.group").to_owned(),
                version: name.to_owned(),
                kind: accepted("kind"),
                schema,
                has_status,
                versions: schemas.clone(),
            },
            columns: columns::columns(version),
            scale: version.has("subresources.scale").then(|| version.at("subresources.scale").clone()),
            selectable: selectable::selectable(version),
            list_kind: accepted("listKind"),
            deprecation: deprecation(crd, version),
            is_terminating: crd.has("metadata.deletionTimestamp"),
            stored: crd::storage_version(crd)
                .filter(|stored| stored.text("name") != name)
                .and_then(|stored| schemas.get(stored.text("name")).cloned()),
            settled_at: (schemas.len() == 1 && !has_default_status).then_some(revision),
            published: version.at("schema.openAPIV3Schema").clone(),
            revision,
        }
    }

    /// The schema.
    #[must_use]
    pub fn schema(&self) -> &Structural {
        &self.object_type.schema
    }

    /// Whether status has a URL of its own.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.object_type.has_status
    }
}

/// The warning that readers and writers of a deprecated version get.
fn deprecation(crd: &Value, version: &Value) -> Option<String> {
    if !version.flag("deprecated") {
        return None;
    }
    let given = version.text("deprecationWarning");
    if !given.is_empty() {
        return Some(given.to_owned());
    }
    let (group, kind, name) = (crd.text("spec.group"), crd.text("spec.names.kind"), version.text("name"));
    let candidates =
        crd.items("spec.versions").iter().filter(|other| other.flag("served") && !other.flag("deprecated"));
    let newer =
        candidates.map(|other| other.text("name")).filter(|other| compare_versions(other, name) == Ordering::Less);
    let mut warning = format!("{group}/{name} {kind} is deprecated");
    if let Some(newest) = newer.min_by(|a, b| compare_versions(a, b)) {
        warning.push_str(&format!("; use {group}/{newest} {kind}"));
    }
    Some(warning)
}
