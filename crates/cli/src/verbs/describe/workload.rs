//! Controllers of Pods: Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers.

use api::value::ValueExt as _;
use api::view::annotations::DEPLOYMENT_REVISION;
use serde_json::Value;

use super::sheet::{Sheet, conditions, controller, pairs};
use super::{containers, pod};
use crate::verbs::pods;

/// `others` are the ReplicaSets of a Deployment, the Pods of anything else.
pub(super) fn describe(object: &Value, others: &[Value], sheet: &mut Sheet) {
    let (spec, status) = (object.at("spec"), object.at("status"));
    let uid = object.text("metadata.uid");
    let owned = |other: &&Value| {
        let mut owners = other.items("metadata.ownerReferences").iter();
        owners.any(|owner| owner.flag("controller") && owner.text("uid") == uid)
    };
    let others: Vec<&Value> = others.iter().filter(owned).collect();
    sheet.metadata(object);
    sheet.some("CreationTimestamp", object.text("metadata.creationTimestamp"));
    sheet.field("Selector", pods::selector(object).unwrap_or_default());
    sheet.some("Controlled By", controller(object));
    let wanted = spec.at("replicas").as_i64().unwrap_or(1);
    let number = |field: &str| status.int(field);
    let deployment = object.text("kind") == "Deployment";
    if deployment {
        sheet.field(
            "Replicas",
            format!(
                "{wanted} desired | {} updated | {} total | {} available | {} unavailable",
                number("updatedReplicas"),
                number("replicas"),
                number("availableReplicas"),
                number("unavailableReplicas")
            ),
        );
        sheet.field("StrategyType", spec.text("strategy.type"));
        let rolling = spec.at("strategy.rollingUpdate");
        sheet.some("RollingUpdateStrategy", pairs(rolling, " ").replace('\n', ", "));
        sheet.some("Paused", if spec.flag("paused") { "true" } else { "" });
    } else if object.text("kind") == "DaemonSet" {
        sheet.some("Node-Selector", pairs(spec.at("template.spec.nodeSelector"), "="));
        for (label, field) in [
            ("Desired Number of Nodes Scheduled", "desiredNumberScheduled"),
            ("Current Number of Nodes Scheduled", "currentNumberScheduled"),
            ("Number of Nodes Scheduled with Up-to-date Pods", "updatedNumberScheduled"),
            ("Number of Nodes Scheduled with Available Pods", "numberAvailable"),
            ("Number of Nodes Misscheduled", "numberMisscheduled"),
        ] {
            sheet.field(label, number(field).to_string());
        }
        sheet.field("Pods Status", counted(&others));
        sheet.some("Update Strategy", spec.text("updateStrategy.type"));
    } else {
        sheet.field("Replicas", format!("{} current / {wanted} desired", number("replicas")));
        sheet.field("Pods Status", counted(&others));
        sheet.some("Update Strategy", spec.text("updateStrategy.type"));
        sheet.some("Service Name", spec.text("serviceName"));
    }
    sheet.field("MinReadySeconds", spec.int("minReadySeconds").to_string());
    let template = spec.at("template");
    sheet.heading("Pod Template");
    sheet.inside(|sheet| {
        sheet.field("Labels", pairs(template.at("metadata.labels"), "="));
        sheet.some("Annotations", pairs(template.at("metadata.annotations"), ": "));
        sheet.some("Service Account", template.text("spec.serviceAccountName"));
        containers::describe("Init Containers", template.items("spec.initContainers"), None, sheet);
        containers::describe("Containers", template.items("spec.containers"), None, sheet);
        pod::volumes(template.at("spec"), sheet);
    });
    conditions(object, sheet);
    if deployment {
        replica_sets(object, &others, sheet);
    }
}

/// The number of Pods in each state.
fn counted(pods: &[&Value]) -> String {
    let of = |phase: &str| pods.iter().filter(|pod| pod.text("status.phase") == phase).count();
    format!(
        "{} Running / {} Waiting / {} Succeeded / {} Failed",
        of("Running"),
        of("Pending"),
        of("Succeeded"),
        of("Failed")
    )
}

/// The current ReplicaSet, and older ones that still have Pods.
fn replica_sets(deployment: &Value, sets: &[&Value], sheet: &mut Sheet) {
    let revision = |object: &Value| {
        object.at("metadata.annotations").get(DEPLOYMENT_REVISION).and_then(Value::as_str).map(str::to_owned)
    };
    let summary = |set: &&&Value| {
        let (name, have) = (set.text("metadata.name"), set.int("status.replicas"));
        format!("{name} ({have}/{} replicas created)", set.int("spec.replicas"))
    };
    let (new, old): (Vec<&&Value>, Vec<&&Value>) = sets.iter().partition(|set| revision(set) == revision(deployment));
    let old = old.iter().filter(|set| set.int("status.replicas") > 0 || set.int("spec.replicas") > 0);
    sheet.field("OldReplicaSets", old.map(summary).collect::<Vec<_>>().join(", "));
    sheet.field("NewReplicaSet", new.iter().map(summary).collect::<Vec<_>>().join(", "));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deployment_lists_its_replica_sets() {
        let set = |name: &str, revision: &str, replicas: i64| {
            json!({"metadata": {"name": name, "annotations": {DEPLOYMENT_REVISION: revision}, "ownerReferences": [{"uid": "u", "controller": true}]},
                   "spec": {"replicas": replicas}, "status": {"replicas": replicas}})
        };
        let deployment = json!({"kind": "Deployment", "metadata": {"name": "web", "uid": "u", "annotations": {DEPLOYMENT_REVISION: "2"}},
            "spec": {"replicas": 3, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}},
            "status": {"replicas": 3, "updatedReplicas": 2, "availableReplicas": 3}});
        let mut sheet = Sheet::default();
        describe(&deployment, &[set("web-1", "1", 1), set("web-2", "2", 2), set("web-0", "0", 0)], &mut sheet);
        let text = sheet.text();
        for part in [
            "3 desired | 2 updated | 3 total | 3 available | 0 unavailable",
            "web-1 (1/1 replicas created)",
            "NewReplicaSet:          web-2 (2/2 replicas created)",
            "maxSurge 25%, maxUnavailable 1",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        assert!(!text.contains("web-0"), "{text}");
    }
}
