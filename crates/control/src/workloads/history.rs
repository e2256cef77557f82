//! ControllerRevisions: the templates that an owner of Pods has had, for updates and rollbacks.

use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::deployment::hash;
use super::{StoredObject, WorkloadKind};
use crate::controller::View;
use crate::objects::pod::seconds;
use crate::write::Write;

/// The table of revisions.
pub(super) const TABLE: &str = "controllerrevisions";

/// A revision that is not stored yet.
pub(super) struct NewRevision {
    /// Its name.
    pub(super) name: String,
    /// Its hash, which is part of its name.
    pub(super) hash: String,
    /// `collisionCount` after its name was found.
    pub(super) collisions: i64,
    /// Creates it.
    pub(super) write: Write,
}

/// The data of a revision: a patch that restores the template.
pub(super) fn data(template: &Value) -> Value {
    let mut template = template.clone();
    template.put("$patch", "replace");
    json!({"spec": {"template": template}})
}

/// Sorts revisions, the newest last.
pub(super) fn sort(revisions: &mut [StoredObject]) {
    revisions.sort_by_cached_key(|one| {
        let created = seconds(one.object.text("metadata.creationTimestamp"));
        (one.object.int("revision"), created, one.name().to_owned())
    });
}

/// The write that gives a revision another number, unless it has it.
pub(super) fn renumbered(revision: &StoredObject, number: i64) -> Option<Write> {
    let mut new = revision.object.clone();
    new.put("revision", number);
    revision.replaced(new)
}

/// A new revision with a free name. `label` is the label of its hash.
pub(super) fn new_revision(
    view: &View<'_>,
    kind: &WorkloadKind,
    owner: &StoredObject,
    label: &str,
    data: &Value,
    number: i64,
) -> NewRevision {
    let mut collisions = owner.object.int("status.collisionCount");
    let (name, hash) = loop {
        let hash = hash(data.at("spec.template"), collisions);
        let name = format!("{}-{hash}", owner.name());
        if StoredObject::read(view, TABLE, &format!("{}/{name}", owner.namespace())).is_none() {
            break (name, hash);
        }
        collisions += 1;
    };
    let mut labels = owner.object.map("spec.template.metadata.labels").cloned().unwrap_or_default();
    labels.insert(label.to_owned(), hash.as_str().into());
    let mut metadata = json!({
        "name": name, "namespace": owner.namespace(), "labels": labels,
        "ownerReferences": [kind.reference(&owner.object)],
    });
    let annotations = owner.object.at("metadata.annotations");
    if !annotations.is_null() {
        metadata.put("annotations", annotations.clone());
    }
    let write = Write::create(TABLE, json!({"metadata": metadata, "data": data, "revision": number}));
    NewRevision { name, hash, collisions, write }
}
