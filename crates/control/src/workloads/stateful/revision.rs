//! What a set looked like: a ControllerRevision for each template, which Pods are made from and rollbacks go back to.
//!
//! In: the set and its revisions. Out: the revision that Pods should have, the one they had when the last update was
//! done, and what must be written so that both are there and no more are kept than the set says.

use std::collections::BTreeSet;

use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::super::deployment::hash;
use super::super::{Held, new_pod};
use super::{FLAVOR, identity};
use crate::controller::View;
use crate::objects::pod::{Pod, seconds};
use crate::write::Write;

/// Where revisions are stored.
pub(super) const TABLE: &str = "controllerrevisions";
/// The label of a Pod with the revision it was made from.
const LABEL: &str = "controller-revision-hash";
/// The label of a revision with its hash.
const HASH: &str = "controller.kubernetes.io/hash";

/// The revisions of a set.
pub(super) struct Revisions {
    /// The name of the revision that Pods should have.
    pub(super) update: String,
    /// The name of the revision that all had when the last update was done.
    pub(super) current: String,
    /// How many names were taken.
    pub(super) collisions: i64,
    /// What must be written.
    pub(super) writes: Vec<Write>,
    update_template: Value,
    current_template: Value,
}

/// The revision that a Pod was made from.
pub(super) fn of(pod: &Pod) -> &str {
    pod.entry.facts.label(LABEL).unwrap_or_default()
}

impl Revisions {
    pub(super) fn of(view: &View<'_>, set: &Held, mut known: Vec<Held>) -> Self {
        known.sort_by_cached_key(|one| {
            let created = seconds(one.object.text("metadata.creationTimestamp"));
            (one.object.int("revision"), created, one.name().to_owned())
        });
        let next = known.last().map_or(0, |last| last.object.int("revision")) + 1;
        let template = set.object.at("spec.template");
        let data = data(template);
        let (mut writes, mut collisions) = (Vec::new(), set.object.int("status.collisionCount"));
        let last_equal = known.iter().rposition(|one| one.object.at("data") == &data);
        let update = match last_equal {
            Some(index) => {
                // One to go back to: it becomes the newest.
                if index + 1 != known.len() {
                    let mut again = known[index].object.clone();
                    again.put("revision", next);
                    writes.extend(known[index].replaced(again));
                }
                known[index].name().to_owned()
            }
            None => {
                let (name, write, taken) = new(view, set, &data, next, collisions);
                collisions += taken;
                writes.push(write);
                name
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

    /// Deletes revisions that nobody needs, beyond those that are kept to go back to.
    fn forget(&mut self, view: &View<'_>, set: &Held, known: &[Held]) {
        let Ok(limit) = usize::try_from(set.object.int("spec.revisionHistoryLimit")) else { return };
        let pods = view.world.owners.dependents_of(set.uid()).filter_map(|one| view.world.pods.get(&one.key.name));
        let mut live: BTreeSet<&str> = pods.map(|pod| of(pod)).collect();
        live.extend([self.update.as_str(), self.current.as_str()]);
        let old: Vec<&Held> = known.iter().filter(|one| !live.contains(one.name()) && !one.is_deleting()).collect();
        let excess = old.len().saturating_sub(limit);
        self.writes.extend(old.into_iter().take(excess).map(Held::deleted));
    }

    /// A new Pod of the set: of the revision that Pods should have, or of the current one where an update is held back.
    pub(super) fn new_pod(&self, set: &Held, number: usize, kept: bool) -> Value {
        let (revision, template) =
            if kept { (&self.current, &self.current_template) } else { (&self.update, &self.update_template) };
        let mut template = template.clone();
        let mut labels = template.map("metadata.labels").cloned().unwrap_or_default();
        labels.insert(LABEL.to_owned(), revision.as_str().into());
        template.put("metadata.labels", Value::Object(labels));
        let name = format!("{}-{number}", set.name());
        let mut pod = new_pod(&template, set.namespace(), &name, &FLAVOR.reference(&set.object));
        pod.put("metadata.generateName", format!("{}-", set.name()));
        identity::give(&mut pod, &set.object, number);
        pod
    }
}

/// What a revision keeps: a patch that puts the template back as it was.
fn data(template: &Value) -> Value {
    let mut template = template.clone();
    template.put("$patch", "replace");
    json!({"spec": {"template": template}})
}

/// The template that a revision keeps.
fn restored(kept: &Value) -> Value {
    let mut template = kept.clone();
    template.drop_path("$patch");
    template
}

/// A new revision under a name that is free, and how many were taken.
fn new(view: &View<'_>, set: &Held, data: &Value, number: i64, collisions: i64) -> (String, Write, i64) {
    let mut taken = 0;
    let (name, hash) = loop {
        let hash = hash(data.at("spec.template"), collisions + taken);
        let name = format!("{}-{hash}", set.name());
        if Held::read(view, TABLE, &format!("{}/{name}", set.namespace())).is_none() {
            break (name, hash);
        }
        taken += 1;
    };
    let mut labels = set.object.map("spec.template.metadata.labels").cloned().unwrap_or_default();
    labels.insert(HASH.to_owned(), hash.into());
    let mut metadata = json!({
        "name": name, "namespace": set.namespace(), "labels": labels,
        "ownerReferences": [FLAVOR.reference(&set.object)],
    });
    let annotations = set.object.at("metadata.annotations");
    if !annotations.is_null() {
        metadata.put("annotations", annotations.clone());
    }
    let write = Write::create(TABLE, json!({"metadata": metadata, "data": data, "revision": number}));
    (name, write, taken)
}
