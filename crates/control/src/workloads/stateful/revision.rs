//! ControllerRevisions of a StatefulSet: one per template, for updates and rollbacks.
//!
//! In: the set and its revisions. Out: the update revision, the current revision of the last completed update, and writes that create and prune revisions.

use std::collections::BTreeSet;

use api::value::ValueExt as _;
use api::view::labels::CONTROLLER_REVISION_HASH;
use serde_json::Value;

use super::super::{StoredObject, history, new_pod};
use super::{KIND, identity};
use crate::controller::View;
use crate::objects::pod::Pod;
use crate::write::Write;

/// The label of a revision with its hash.
const HASH: &str = "controller.kubernetes.io/hash";

/// The revisions of a set.
pub(super) struct Revisions {
    /// The name of the update revision.
    pub(super) update: String,
    /// The name of the current revision.
    pub(super) current: String,
    /// `collisionCount`
    pub(super) collisions: i64,
    /// Writes of revisions.
    pub(super) writes: Vec<Write>,
    update_template: Value,
    current_template: Value,
}

/// The revision of a Pod.
pub(super) fn of(pod: &Pod) -> &str {
    pod.entry.facts.label(CONTROLLER_REVISION_HASH).unwrap_or_default()
}

impl Revisions {
    pub(super) fn of(view: &View<'_>, set: &StoredObject, mut known: Vec<StoredObject>) -> Self {
        history::sort(&mut known);
        let next = known.last().map_or(0, |last| last.object.int("revision")) + 1;
        let template = set.object.at("spec.template");
        let data = history::data(template);
        let (mut writes, mut collisions) = (Vec::new(), set.object.int("status.collisionCount"));
        let last_equal = known.iter().rposition(|one| one.object.at("data") == &data);
        let update = match last_equal {
            Some(index) => {
                // A rollback: the old revision becomes the newest.
                if index + 1 != known.len() {
                    writes.extend(history::renumbered(&known[index], next));
                }
                known[index].name().to_owned()
            }
            None => {
                let new = history::new_revision(view, &KIND, set, HASH, &data, next);
                collisions = new.collisions;
                writes.push(new.write);
                new.name
            }
        };
        let said = set.object.text("status.currentRevision");
        let current = known.iter().find(|one| one.name() == said);
        let current_template =
            current.map_or_else(|| template.clone(), |one| restored(one.object.at("data.spec.template")));
        let current = current.map_or_else(|| update.clone(), |one| one.name().to_owned());
        let mut revisions =
            Self { update, current, collisions, writes, update_template: template.clone(), current_template };
        revisions.forget(view, set, &known);
        revisions
    }

    /// Deletes unused revisions beyond `revisionHistoryLimit`.
    fn forget(&mut self, view: &View<'_>, set: &StoredObject, known: &[StoredObject]) {
        let Ok(limit) = usize::try_from(set.object.int("spec.revisionHistoryLimit")) else { return };
        let pods = view.cache.owners.dependents_of(set.uid()).filter_map(|one| view.cache.pods.get(&one.key.name));
        let mut live: BTreeSet<&str> = pods.map(|pod| of(pod)).collect();
        live.extend([self.update.as_str(), self.current.as_str()]);
        let old: Vec<&StoredObject> =
            known.iter().filter(|one| !live.contains(one.name()) && !one.is_deleting()).collect();
        let excess = old.len().saturating_sub(limit);
        self.writes.extend(old.into_iter().take(excess).map(StoredObject::deleted));
    }

    /// A new Pod of the update revision, or of the current one below the partition.
    pub(super) fn new_pod(&self, set: &StoredObject, number: usize, kept: bool) -> Value {
        let (revision, template) =
            if kept { (&self.current, &self.current_template) } else { (&self.update, &self.update_template) };
        let mut template = template.clone();
        let mut labels = template.map("metadata.labels").cloned().unwrap_or_default();
        labels.insert(CONTROLLER_REVISION_HASH.to_owned(), revision.as_str().into());
        template.put("metadata.labels", Value::Object(labels));
        let name = format!("{}-{number}", set.name());
        let mut pod = new_pod(&template, set.namespace(), &name, &KIND.reference(&set.object));
        pod.put("metadata.generateName", format!("{}-", set.name()));
        identity::set_identity(&mut pod, &set.object, number);
        pod
    }
}

/// The template of a revision.
fn restored(kept: &Value) -> Value {
    let mut template = kept.clone();
    template.drop_path("$patch");
    template
}
