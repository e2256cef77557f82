//! Revisions of a Deployment (its ReplicaSets), DaemonSet or StatefulSet (ControllerRevisions). Pure.

use anyhow::Context as _;
use api::value::ValueExt as _;
use api::view::annotations::DEPLOYMENT_REVISION;
use serde_json::Value;

const CAUSE: &str = "kubernetes.io/change-cause";
/// The label that a Deployment gives to the Pods of each of its ReplicaSets.
const HASH: &str = "pod-template-hash";

/// A revision.
#[derive(Debug, PartialEq)]
pub(super) struct Revision {
    pub(super) number: i64,
    pub(super) cause: String,
    /// The template of the Pods.
    pub(super) template: Value,
}

impl Revision {
    /// The part that is printed.
    pub(super) fn shown(&self) -> Value {
        let mut template = self.template.clone();
        template.drop_path("metadata.creationTimestamp");
        template
    }
}

/// Reads the revisions of an owner, the oldest first.
pub(super) fn read(owner: &str, objects: &[Value]) -> Vec<Revision> {
    let owned = |object: &&Value| {
        let mut owners = object.items("metadata.ownerReferences").iter();
        owners.any(|reference| reference.flag("controller") && reference.text("uid") == owner)
    };
    let mut out: Vec<Revision> = objects.iter().filter(owned).filter_map(revision).collect();
    out.sort_by_key(|one| one.number);
    out
}

fn revision(object: &Value) -> Option<Revision> {
    let annotation = |key: &str| object.at("metadata.annotations").get(key).and_then(Value::as_str);
    let cause = annotation(CAUSE).unwrap_or("<none>").to_owned();
    if object.text("kind") == "ControllerRevision" {
        let template = object.at("data.spec.template").clone();
        return Some(Revision { number: object.int("revision"), cause, template });
    }
    let number = annotation(DEPLOYMENT_REVISION)?.parse().ok()?;
    Some(Revision { number, cause, template: without_hash(object.at("spec.template")) })
}

/// A template without the label of its ReplicaSet.
pub(super) fn without_hash(template: &Value) -> Value {
    let mut out = template.clone();
    if let Some(Value::Object(labels)) = out.at_mut("metadata.labels") {
        labels.remove(HASH);
    }
    out
}

/// The revision with a number.
pub(super) fn find<'r>(all: &'r [Revision], number: i64, name: &str) -> anyhow::Result<&'r Revision> {
    all.iter().find(|one| one.number == number).with_context(|| {
        format!("{name} has no revision {number}; `waypost rollout history {name}` lists those it has")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn revisions_are_those_of_the_owner_in_order() {
        let set = |number: &str, owner: &str| {
            json!({"kind": "ReplicaSet", "metadata": {"annotations": {DEPLOYMENT_REVISION: number, CAUSE: "because"},
                   "ownerReferences": [{"uid": owner, "controller": true}]},
                   "spec": {"template": {"metadata": {"labels": {"app": "web", HASH: "x"}}}}})
        };
        let found = read("me", &[set("10", "me"), set("2", "me"), set("3", "other")]);
        assert_eq!(found.iter().map(|one| one.number).collect::<Vec<_>>(), [2, 10]);
        assert_eq!(found[0].template, json!({"metadata": {"labels": {"app": "web"}}}));
        assert_eq!(found[0].cause, "because");
        assert!(find(&found, 3, "deployment.apps/web").is_err());
    }
}
