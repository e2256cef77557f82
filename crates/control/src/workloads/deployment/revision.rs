//! The ReplicaSet of the current template, and its revision number.
//!
//! Templates are compared without the label `pod-template-hash`. So a rollback finds the old set, which gets the next revision number.

use api::hash::fnv1a32;
use api::value::ValueExt as _;
use api::view::annotations::{DEPLOYMENT_REVISION, LAST_APPLIED};
use api::view::labels::POD_TEMPLATE_HASH;
use serde_json::{Value, json};

use super::super::replicas;
use super::{KIND, Set, Work};

/// The annotation with previous revision numbers.
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The longest revision history, in bytes.
const HISTORY_LIMIT: usize = 2000;
/// The label that distinguishes the sets of a Deployment and their Pods.
pub(super) const HASH: &str = POD_TEMPLATE_HASH;
/// Annotations that are not copied from the Deployment.
const NOT_COPIED: [&str; 6] =
    [LAST_APPLIED, DEPLOYMENT_REVISION, HISTORY, super::DESIRED, super::MAXIMUM, "deprecated.deployment.rollback.to"];
/// The safe alphabet of Kubernetes: without vowels.
const DIGITS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Work<'_> {
    /// The index of the oldest set with the current template.
    pub(super) fn find_newest(&self) -> Option<usize> {
        let template = self.workload.object.at("spec.template");
        self.sets.iter().position(|set| is_equal(set.object.at("spec.template"), template))
    }

    /// Updates revision and annotations of the newest set, if it exists.
    pub(super) fn update_newest(&mut self) {
        let Some(index) = self.newest else { return };
        let number = self.next_number();
        let min_ready = self.workload.object.int("spec.minReadySeconds");
        self.copy_annotations(index);
        let set = &mut self.sets[index];
        set.number_it(number);
        if set.object.int("spec.minReadySeconds") != min_ready {
            set.object.put("spec.minReadySeconds", min_ready);
        }
        let (number, name) = (set.revision(), set.name().to_owned());
        self.note_revision(number);
        if self.progressing().is_none() && self.has_deadline() {
            self.set_condition("Progressing", "True", "FoundNewReplicaSet", &format!("Found new replica set {name:?}"));
        }
    }

    /// Finds or creates the newest set; `None` on a name collision, which is resolved first.
    pub(super) fn ensure_newest(&mut self) -> Option<usize> {
        if self.newest.is_some() {
            self.update_newest();
            return self.newest;
        }
        let (number, object) = (self.next_number(), self.new_set());
        let name = object.text("metadata.name").to_owned();
        let taken = super::StoredObject::read(
            self.view,
            replicas::SETS.table,
            &format!("{}/{name}", self.workload.namespace()),
        );
        if taken.is_some() {
            // A hash collision: the count becomes part of the hash.
            self.new.put("status.collisionCount", self.new.int("status.collisionCount") + 1);
            return None;
        }
        let index = self.sets.len();
        self.sets.push(Set { workload: None, object, delete: false });
        self.newest = Some(index);
        self.copy_annotations(index);
        self.sets[index].number_it(number);
        let size = self.size_of_newest(index);
        self.resize(index, size);
        self.note_revision(number);
        if self.has_deadline() {
            let message = format!("Created new replica set {name:?}");
            self.set_condition("Progressing", "True", "NewReplicaSetCreated", &message);
        }
        Some(index)
    }

    /// The next revision number.
    fn next_number(&self) -> i64 {
        let others = self.old().into_iter().map(|index| self.sets[index].revision());
        others.max().unwrap_or_default() + 1
    }

    fn new_set(&self) -> Value {
        let deployment = &self.workload.object;
        let mut template = deployment.at("spec.template").clone();
        let hash = hash(&template, deployment.int("status.collisionCount"));
        let labelled = |map: &Value| {
            let mut labels = map.as_object().cloned().unwrap_or_default();
            labels.insert(HASH.to_owned(), hash.as_str().into());
            Value::Object(labels)
        };
        let labels = labelled(template.at("metadata.labels"));
        template.put("metadata.labels", labels.clone());
        let mut selector = deployment.at("spec.selector").clone();
        selector.put("matchLabels", labelled(selector.at("matchLabels")));
        let room = 253 - 1 - hash.len();
        let base = &self.workload.name()[..self.workload.name().floor_char_boundary(room)];
        json!({
            "metadata": {
                "name": format!("{base}-{hash}"), "namespace": self.workload.namespace(), "labels": labels,
                "ownerReferences": [KIND.reference(deployment)],
            },
            "spec": {
                "replicas": 0, "minReadySeconds": deployment.int("spec.minReadySeconds"), "selector": selector,
                "template": template,
            },
        })
    }

    fn copy_annotations(&mut self, index: usize) {
        let annotations = self.workload.object.map("metadata.annotations").into_iter().flatten();
        for (name, value) in annotations.filter(|(name, _)| !NOT_COPIED.contains(&name.as_str())) {
            self.sets[index].annotate(name, value.as_str().unwrap_or_default());
        }
    }

    fn note_revision(&mut self, number: i64) {
        let mut all = self.new.map("metadata.annotations").cloned().unwrap_or_default();
        if all.get(DEPLOYMENT_REVISION).and_then(Value::as_str) != Some(&number.to_string()) {
            all.insert(DEPLOYMENT_REVISION.to_owned(), number.to_string().into());
            self.new.put("metadata.annotations", Value::Object(all));
        }
    }
}

impl Set {
    /// Raises the revision number; the previous one is added to the history.
    fn number_it(&mut self, number: i64) {
        let before = self.annotation(DEPLOYMENT_REVISION).map(str::to_owned);
        if self.revision() >= number {
            return;
        }
        self.annotate(DEPLOYMENT_REVISION, &number.to_string());
        let Some(before) = before else { return };
        let mut all: Vec<String> = self
            .annotation(HISTORY)
            .filter(|text| !text.is_empty())
            .into_iter()
            .flat_map(|text| text.split(','))
            .map(str::to_owned)
            .collect();
        all.push(before);
        while all.join(",").len() > HISTORY_LIMIT {
            all.remove(0);
        }
        self.annotate(HISTORY, &all.join(","));
    }
}

/// Whether two templates are equal without the hash label.
fn is_equal(a: &Value, b: &Value) -> bool {
    let strip = |template: &Value| {
        let mut template = template.clone();
        if let Some(labels) = template.at_mut("metadata.labels").and_then(Value::as_object_mut) {
            labels.remove(HASH);
        }
        template
    };
    strip(a) == strip(b)
}

/// The hash of a template: FNV-1a of its JSON with sorted keys.
pub(in crate::workloads) fn hash(template: &Value, collisions: i64) -> String {
    let mut text = template.to_string();
    if collisions > 0 {
        text.push_str(&collisions.to_string());
    }
    let hash = fnv1a32(text.as_bytes());
    hash.to_string().bytes().map(|digit| char::from(DIGITS[usize::from(digit) % DIGITS.len()])).collect()
}
