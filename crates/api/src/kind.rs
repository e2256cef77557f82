//! The definition of a kind for the server, and the rules a kind may have.
//!
//! A kind is one file in [`crate::kinds`] and one line in its table: a [`Kind`] (names, scope, verbs, where it is
//! stored, selectable fields) and a [`Rules`] implementation (defaults, preparation, validation, warnings). The verbs
//! in the server are the same for all kinds; everything specific to a kind is behind these hooks.

mod typed;

use std::sync::Arc;

use serde_json::Value;

use crate::claims::Claims;
use crate::custom::Definition;
use crate::facts::Facts;
use crate::field::Errors;
use crate::schema::{self, TypeId};
use crate::status::{Resource, Status};
use crate::table::{self, Table};
use crate::value::ValueExt as _;

/// One kind of one group and version.
pub struct Kind {
    /// The API group, empty for core.
    pub group: &'static str,
    /// `v1`.
    pub version: &'static str,
    /// `Service`.
    pub kind: &'static str,
    /// `services`.
    pub plural: &'static str,
    /// `service`.
    pub singular: &'static str,
    /// `svc`.
    pub short_names: &'static [&'static str],
    /// `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// The message in the schema tables (`core.Service`).
    pub schema: &'static str,
    /// The table of the store (`services/specs`); empty for kinds that are answered and not stored.
    pub table: &'static str,
    /// The verbs of the main resource, sorted.
    pub verbs: &'static [&'static str],
    /// Subresources, sorted by name.
    pub subresources: &'static [Subresource],
    /// PUT of a missing name creates.
    pub create_on_update: bool,
    /// PUT without a resourceVersion overwrites.
    pub unconditional_update: bool,
    /// DELETE answers with the object, not with a Status.
    pub delete_returns_object: bool,
    /// `metadata.generation` is maintained.
    pub generation: bool,
    /// How long objects live, in seconds.
    pub ttl: Option<u64>,
    /// Fields that field selectors may name, besides `metadata.name` and `metadata.namespace`.
    pub selectable: &'static [Selectable],
    /// The columns of `kubectl get`.
    pub table_view: &'static Table,
    /// The rules.
    pub rules: &'static dyn Rules,
}

/// A part of an object with its own URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subresource {
    /// `status`.
    pub name: &'static str,
    /// The kind that is exchanged there (`Service`, `ServiceProxyOptions`).
    pub kind: &'static str,
    /// Its verbs, sorted.
    pub verbs: &'static [&'static str],
}

/// A field that a field selector may name.
#[derive(Clone, Copy)]
pub struct Selectable {
    /// `spec.clusterIP`.
    pub label: &'static str,
    /// The value, as a selector compares it.
    pub value: fn(&Value) -> String,
}

/// The verbs of most kinds.
pub const ALL_VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The `status` subresource of a kind.
#[must_use]
pub const fn status_of(kind: &'static str) -> Subresource {
    Subresource { name: "status", kind, verbs: &["get", "patch", "update"] }
}

/// Kinds that a subresource exchanges and that belong to another group version than their parent.
pub const FOREIGN_KINDS: &[(&str, &str, &str)] =
    &[("Eviction", "policy", "v1"), ("Scale", "autoscaling", "v1"), ("TokenRequest", "authentication.k8s.io", "v1")];

/// The subresource with which the number of Pods is read and changed, whatever the kind.
pub const SCALE: &str = "scale";

/// The `scale` subresource.
#[must_use]
pub const fn scale() -> Subresource {
    Subresource { name: SCALE, kind: "Scale", verbs: &["get", "patch", "update"] }
}

/// What is particular to a kind. Each hook gets values of the right shape: the schema was checked before.
pub trait Rules: Sync {
    /// The definition of a custom kind, as it is at the moment; `None` for kinds of the static table.
    fn definition(&self) -> Option<Arc<Definition>> {
        None
    }

    /// Fills what the client left out; runs on every decoded object and after every patch.
    fn default(&self, _object: &mut Value) {}

    /// Before a create is validated: drops what clients may not set (status).
    fn prepare_create(&self, _object: &mut Value) {}

    /// Before an update is validated: keeps what clients may not change (status).
    fn prepare_update(&self, _new: &mut Value, _old: &Value) {}

    /// Before an update of the status is validated: everything but status and metadata stays as it was.
    fn prepare_status(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
    }

    /// Before an update of another part is validated.
    fn prepare_part(&self, part: &str, new: &mut Value, old: &Value) {
        if part == SCALE {
            keep_all_but_replicas(new, old);
        } else {
            self.prepare_status(new, old);
        }
    }

    /// Claims addresses and ports for a new object.
    ///
    /// # Errors
    /// The Status that answers the request when something cannot be had.
    fn begin_create(&self, _object: &mut Value, _claims: &mut dyn Claims) -> Result<(), Status> {
        Ok(())
    }

    /// Claims and releases what a change needs.
    ///
    /// # Errors
    /// The Status that answers the request when something cannot be had.
    fn begin_update(&self, _new: &mut Value, _old: &Value, _claims: &mut dyn Claims) -> Result<(), Status> {
        Ok(())
    }

    /// Releases what a deleted object held.
    fn finish_delete(&self, _object: &Value, _claims: &mut dyn Claims) {}

    /// Checks a new object, metadata included.
    fn validate_create(&self, object: &Value, errors: &mut Errors);

    /// Checks a change, metadata included.
    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors);

    /// Checks a change of the status.
    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        self.validate_update(new, old, errors);
    }

    /// Checks a change of another part.
    fn validate_part(&self, part: &str, new: &Value, old: &Value, errors: &mut Errors) {
        if part == SCALE {
            self.validate_update(new, old, errors);
        } else {
            self.validate_status(new, old, errors);
        }
    }

    /// What to warn of; `old` is `None` on create.
    fn warnings(&self, _new: &Value, _old: Option<&Value>, _out: &mut Vec<String>) {}

    /// What to warn of after a change of the status.
    fn status_warnings(&self, _new: &Value, _old: &Value, _out: &mut Vec<String>) {}

    /// Whether this change makes a new generation.
    fn new_generation(&self, new: &Value, old: &Value) -> bool {
        new.at("spec") != old.at("spec")
    }

    /// Whether objects may take time to go: their deletion then always shows when it began.
    fn is_graceful(&self) -> bool {
        false
    }

    /// Whether a deletion without a propagation policy orphans dependents.
    fn orphans_dependents(&self) -> bool {
        self.orphan_warning().is_some()
    }

    /// The warning about a deletion that orphans dependents because it has no propagation policy.
    fn orphan_warning(&self) -> Option<&'static str> {
        None
    }

    /// How many seconds an object may take to go after it was deleted.
    fn grace_period(&self, _object: &Value, _asked: Option<i64>) -> i64 {
        0
    }

    /// What changes in an object when it is marked as deleted, besides its metadata.
    fn mark_deleted(&self, _object: &mut Value) {}

    /// Whether something besides `metadata.finalizers` keeps a deleted object.
    fn is_held(&self, _object: &Value) -> bool {
        false
    }

    /// What readers of the main resource see of a stored object.
    fn on_read(&self, _object: &mut Value) {}

    /// Whether the stored form of an object that was written at this revision may differ from the form of this version.
    fn converts(&self, _modified: u64) -> bool {
        false
    }

    /// The stored form of an object of this version.
    fn shown_to_stored(&self, object: Value) -> Value {
        object
    }

    /// The form of this version of a stored object.
    fn stored_to_shown(&self, object: Value) -> Value {
        object
    }
}

/// Everything but status and metadata as it was.
pub fn keep_all_but_status(new: &mut Value, old: &Value) {
    let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) else { return };
    new.retain(|key, _| matches!(key.as_str(), "metadata" | "status" | "kind" | "apiVersion"));
    for (key, value) in old {
        if !matches!(key.as_str(), "metadata" | "status") {
            new.insert(key.clone(), value.clone());
        }
    }
}

/// Everything as it was but how many Pods there should be.
fn keep_all_but_replicas(new: &mut Value, old: &Value) {
    let (replicas, fields) = (new.int("spec.replicas"), new.at("metadata.managedFields").clone());
    let kind = ["kind", "apiVersion"].map(|name| new.at(name).clone());
    *new = old.clone();
    new.put("spec.replicas", replicas);
    new.put("metadata.managedFields", fields);
    for (name, value) in ["kind", "apiVersion"].into_iter().zip(kind) {
        new.put(name, value);
    }
}

/// The status as it was.
pub fn keep_status(new: &mut Value, old: &Value) {
    match old.get("status") {
        Some(status) => new.put("status", status.clone()),
        None => {
            new.drop_path("status");
        }
    }
}

impl Kind {
    /// Defaults shared by most kinds, so that each overrides only what differs: namespaced, of `v1`, with all verbs.
    #[must_use]
    pub const fn common(rules: &'static dyn Rules) -> Self {
        Self {
            group: "",
            version: "v1",
            kind: "",
            plural: "",
            singular: "",
            short_names: &[],
            categories: &[],
            namespaced: true,
            schema: "",
            table: "",
            verbs: ALL_VERBS,
            subresources: &[],
            create_on_update: false,
            unconditional_update: true,
            delete_returns_object: false,
            generation: false,
            ttl: None,
            selectable: &[],
            table_view: &table::PLAIN,
            rules,
        }
    }

    /// `v1` or `discovery.k8s.io/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The names a message needs.
    #[must_use]
    pub fn resource(&self) -> Resource<'static> {
        Resource { group: self.group, plural: self.plural, kind: self.kind }
    }

    /// The type of an object.
    #[must_use]
    pub fn type_id(&self) -> TypeId {
        schema::named(self.schema)
    }

    /// The subresource of this name.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// Group, version and name of the kind that is exchanged at a URL of this kind, or of a part of it.
    #[must_use]
    pub fn exchanged(&self, part: Option<&Subresource>) -> (&'static str, &'static str, &'static str) {
        let name = part.map_or(self.kind, |part| part.kind);
        let foreign = FOREIGN_KINDS.iter().find(|(kind, _, _)| part.is_some() && *kind == name);
        let (group, version) = foreign.map_or((self.group, self.version), |(_, group, version)| (group, version));
        (group, version, name)
    }

    /// The kind of a list of objects.
    #[must_use]
    pub fn list_kind(&self) -> String {
        match self.rules.definition() {
            Some(definition) => definition.list_kind.clone(),
            None => format!("{}List", self.kind),
        }
    }

    /// What selectors may ask of an object (in its stored form), apart from the fields of custom resources.
    #[must_use]
    pub fn facts(&self, object: &Value) -> Facts {
        let mut facts = labels_of(object);
        if !self.is_custom() {
            facts.fields = self.selectable.iter().map(|field| (field.value)(object).into_boxed_str()).collect();
        }
        facts
    }

    /// All that selectors may ask of an object (in its stored form).
    #[must_use]
    pub fn all_facts(&self, object: &Value) -> Facts {
        match self.rules.definition() {
            Some(definition) => Facts {
                fields: definition.selectable.values(object).into_iter().map(String::into_boxed_str).collect(),
                ..labels_of(object)
            },
            None => self.facts(object),
        }
    }
}

/// The labels of an object.
pub(crate) fn labels_of(object: &Value) -> Facts {
    let labels = object.map("metadata.labels").map_or_else(Vec::new, |labels| {
        labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into())).collect()
    });
    Facts { labels: labels.into(), fields: Box::default() }
}
