//! One version of a CustomResourceDefinition, compiled.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::apply::CustomType;
use crate::crd;
use crate::crd::columns::{self, Columns};
use crate::crd::conversion::Webhook;
use crate::crd::selectable::{self, Selectables};
use crate::structural::Structural;
use crate::structural::rules::Compiled;
use crate::value::ValueExt as _;

/// Everything that the server needs for the objects of one version.
#[derive(Debug)]
pub struct Definition {
    /// What server-side apply needs, the schema included.
    pub object_type: CustomType,
    /// The rules in CEL, compiled when the first object is written: most definitions of a cluster have no writes for a long time,
    /// and compiled rules take more memory than all the rest.
    rules: Arc<OnceLock<Compiled>>,
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
    /// The `apiVersion` that objects are stored in.
    pub storage_version: String,
    /// The `apiVersion` of objects that earlier releases stored without one: the first version in which objects were stored.
    pub first_version: String,
    /// The webhook that converts objects between versions; `None` with the strategy `None`.
    pub webhook: Option<Arc<Webhook>>,
    /// `openAPIV3Schema`, for OpenAPI documents.
    pub published: Arc<Value>,
    /// The revision of the definition in the store.
    pub revision: u64,
}

impl Definition {
    /// Compiles all versions of a definition that was stored at a revision, in its order.
    #[must_use]
    pub fn all(definition: &Value, revision: u64) -> Vec<Self> {
        let versions = definition.items("spec.versions");
        let shapes = Shape::all(versions);
        let names = versions.iter().map(|version| version.text("name").to_owned());
        let schemas: BTreeMap<String, Arc<Structural>> =
            names.zip(&shapes).map(|(name, shape)| (name, shape.schema.clone())).collect();
        let both = versions.iter().zip(shapes);
        both.map(|(version, shape)| Self::new(definition, version, shape, &schemas, revision)).collect()
    }

    /// A definition of nothing, in place of one that was deleted.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(&Value::Null, &Value::Null, Shape::default(), &BTreeMap::new(), 0)
    }

    fn new(
        definition: &Value,
        version: &Value,
        shape: Shape,
        schemas: &BTreeMap<String, Arc<Structural>>,
        revision: u64,
    ) -> Self {
        let name = version.text("name");
        let Shape { published, schema, rules } = shape;
        // A status that a create drops has its default for readers, and is not stored.
        let has_status = version.has("subresources.status");
        let has_default_status = has_status && schema.member("status").is_some_and(|status| status.default.is_some());
        let accepted = |name: &str| {
            let accepted = definition.at("status.acceptedNames").text(name);
            if accepted.is_empty() { definition.at("spec.names").text(name) } else { accepted }.to_owned()
        };
        let group = definition.text("spec.group");
        let stored = crd::storage_version(definition).map_or(name, |stored| stored.text("name"));
        let webhook = Webhook::of(definition).map(Arc::new);
        Self {
            rules,
            object_type: CustomType {
                group: group.to_owned(),
                version: name.to_owned(),
                kind: accepted("kind"),
                schema,
                has_status,
                versions: schemas.clone(),
                by_webhook: webhook.is_some(),
            },
            columns: columns::columns(version),
            scale: version.has("subresources.scale").then(|| version.at("subresources.scale").clone()),
            selectable: selectable::selectable(version),
            list_kind: accepted("listKind"),
            deprecation: crd::deprecation_warning(definition, version),
            is_terminating: definition.has("metadata.deletionTimestamp"),
            stored: schemas.get(stored).filter(|_| stored != name).cloned(),
            storage_version: format!("{group}/{stored}"),
            first_version: format!("{group}/{}", definition.texts("status.storedVersions").first().unwrap_or(&stored)),
            webhook,
            settled_at: (schemas.len() == 1 && !has_default_status).then_some(revision),
            published,
            revision,
        }
    }

    /// The schema.
    #[must_use]
    pub fn schema(&self) -> &Structural {
        &self.object_type.schema
    }

    /// The schema of the version in which an object is stored (`example.com/v1`); `None` when the definition does not have it.
    #[must_use]
    pub fn schema_of(&self, api_version: &str) -> Option<&Arc<Structural>> {
        self.object_type.schema_of(api_version)
    }

    /// Brings an object of another version into the form of this one, with the strategy `None`: what this version does not
    /// have is dropped. Defaults are those of the version in which the object is stored, as in kube-apiserver.
    pub fn shape(&self, object: &mut Value) {
        let own = &self.object_type.schema;
        let stored = self.schema_of(object.text("apiVersion")).unwrap_or(own);
        stored.prune(object);
        stored.apply_defaults(object);
        if !Arc::ptr_eq(stored, own) {
            own.prune(object);
        }
    }

    /// The rules in CEL.
    #[must_use]
    pub fn rules(&self) -> &Compiled {
        self.rules.get_or_init(|| Compiled::new(self.schema()))
    }

    /// Whether the status is a subresource.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.object_type.has_status
    }
}

/// What versions with equal schemas share: most definitions with several versions have one shape.
#[derive(Clone, Default)]
struct Shape {
    published: Arc<Value>,
    schema: Arc<Structural>,
    rules: Arc<OnceLock<Compiled>>,
}

impl Shape {
    /// The shapes of versions, in their order.
    fn all(versions: &[Value]) -> Vec<Self> {
        let mut shapes: Vec<Self> = Vec::new();
        for version in versions {
            let published = version.at("schema.openAPIV3Schema");
            let known = shapes.iter().find(|known| *known.published == *published).cloned();
            shapes.push(known.unwrap_or_else(|| Self {
                published: Arc::new(published.clone()),
                schema: Arc::new(Structural::parse(published)),
                rules: Arc::default(),
            }));
        }
        shapes
    }
}
