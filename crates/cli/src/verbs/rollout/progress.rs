//! The status of a rollout, as printed by kubectl. Pure: an object in, a sentence out.

use api::value::ValueExt as _;
use serde_json::Value;

/// The state of an update.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is complete.
    Done(String),
    /// It is progressing.
    Waiting(String),
    /// It has failed.
    Failed(String),
}

/// The state of an update.
pub(super) fn of(plural: &str, object: &Value) -> State {
    if object.int("metadata.generation") > object.int("status.observedGeneration") {
        return State::Waiting(
            "Waiting for deployment spec update to be observed...".replace("deployment", kind(plural)),
        );
    }
    match plural {
        "deployments" => deployment(object),
        "daemonsets" => daemon(object),
        _ => stateful(object),
    }
}

fn kind(plural: &str) -> &'static str {
    match plural {
        "deployments" => "deployment",
        "daemonsets" => "daemon set",
        _ => "statefulset",
    }
}

fn daemon(object: &Value) -> State {
    if object.text("spec.updateStrategy.type") == "OnDelete" {
        return State::Done("the Pods of this DaemonSet are updated when they are deleted (OnDelete)".to_owned());
    }
    let name = object.text("metadata.name");
    let number = |field: &str| object.int(&format!("status.{field}"));
    let (wanted, updated) = (number("desiredNumberScheduled"), number("updatedNumberScheduled"));
    let available = number("numberAvailable");
    let waiting =
        |what: String| State::Waiting(format!("Waiting for daemon set {name:?} rollout to finish: {what}..."));
    if updated < wanted {
        waiting(format!("{updated} out of {wanted} new pods have been updated"))
    } else if available < wanted {
        waiting(format!("{available} of {wanted} updated pods are available"))
    } else {
        State::Done(format!("daemon set {name:?} successfully rolled out"))
    }
}

fn deployment(object: &Value) -> State {
    let name = object.text("metadata.name");
    let late = object.items("status.conditions").iter().any(|condition| {
        condition.text("type") == "Progressing" && condition.text("reason") == "ProgressDeadlineExceeded"
    });
    if late {
        return State::Failed(format!("deployment {name:?} exceeded its progress deadline"));
    }
    let wanted = object.at("spec.replicas").as_i64().unwrap_or(1);
    let number = |field: &str| object.int(&format!("status.{field}"));
    let (updated, all, available) = (number("updatedReplicas"), number("replicas"), number("availableReplicas"));
    let waiting =
        |what: String| State::Waiting(format!("Waiting for deployment {name:?} rollout to finish: {what}..."));
    if updated < wanted {
        waiting(format!("{updated} out of {wanted} new replicas have been updated"))
    } else if all > updated {
        waiting(format!("{} old replicas are pending termination", all - updated))
    } else if available < updated {
        waiting(format!("{available} of {updated} updated replicas are available"))
    } else {
        State::Done(format!("deployment {name:?} successfully rolled out"))
    }
}

fn stateful(object: &Value) -> State {
    let number = |field: &str| object.int(&format!("status.{field}"));
    let wanted = object.at("spec.replicas").as_i64().unwrap_or(1);
    if object.text("spec.updateStrategy.type") == "OnDelete" {
        return State::Done("the Pods of this StatefulSet are updated when they are deleted (OnDelete)".to_owned());
    }
    if number("readyReplicas") < wanted {
        return State::Waiting(format!("Waiting for {} pods to be ready...", wanted - number("readyReplicas")));
    }
    let partition = object.int("spec.updateStrategy.rollingUpdate.partition");
    if partition > 0 {
        let updated = number("updatedReplicas");
        if updated < wanted - partition {
            return State::Waiting(format!(
                "Waiting for partitioned roll out to finish: {updated} out of {} new pods have been updated...",
                wanted - partition
            ));
        }
        return State::Done(format!("partitioned roll out complete: {updated} new pods have been updated..."));
    }
    let (current, update) = (object.text("status.currentRevision"), object.text("status.updateRevision"));
    if current != update {
        let updated = number("updatedReplicas");
        return State::Waiting(format!(
            "waiting for statefulset rolling update to complete {updated} pods at revision {update}..."
        ));
    }
    let all = number("currentReplicas");
    State::Done(format!("statefulset rolling update complete {all} pods at revision {current}..."))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deployment_goes_through_its_stages() {
        let at = |updated: i64, all: i64, available: i64| {
            let object = json!({"metadata": {"name": "web", "generation": 1}, "spec": {"replicas": 3}, "status":
                {"observedGeneration": 1, "updatedReplicas": updated, "replicas": all, "availableReplicas": available}});
            of("deployments", &object)
        };
        let waiting =
            |what: &str| State::Waiting(format!("Waiting for deployment \"web\" rollout to finish: {what}..."));
        assert_eq!(at(1, 3, 3), waiting("1 out of 3 new replicas have been updated"));
        assert_eq!(at(3, 4, 3), waiting("1 old replicas are pending termination"));
        assert_eq!(at(3, 3, 2), waiting("2 of 3 updated replicas are available"));
        assert_eq!(at(3, 3, 3), State::Done("deployment \"web\" successfully rolled out".to_owned()));
        let unseen = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}});
        assert!(matches!(of("deployments", &unseen), State::Waiting(_)));
    }

    #[test]
    fn a_deployment_past_its_progress_deadline_fails() {
        let object = json!({"metadata": {"name": "web"}, "status": {"conditions": [
            {"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]}});
        assert!(matches!(of("deployments", &object), State::Failed(_)));
    }

    #[test]
    fn a_daemon_set_is_complete_when_every_node_has_an_available_pod() {
        let at = |updated: i64, available: i64| {
            let object = json!({"metadata": {"name": "agent"}, "status": {"desiredNumberScheduled": 2,
                "updatedNumberScheduled": updated, "numberAvailable": available}});
            of("daemonsets", &object)
        };
        let waiting =
            |what: &str| State::Waiting(format!("Waiting for daemon set \"agent\" rollout to finish: {what}..."));
        assert_eq!(at(1, 2), waiting("1 out of 2 new pods have been updated"));
        assert_eq!(at(2, 1), waiting("1 of 2 updated pods are available"));
        assert_eq!(at(2, 2), State::Done("daemon set \"agent\" successfully rolled out".to_owned()));
        let on_delete = json!({"spec": {"updateStrategy": {"type": "OnDelete"}}});
        assert!(matches!(of("daemonsets", &on_delete), State::Done(_)));
    }

    #[test]
    fn a_stateful_set_is_complete_when_its_revisions_are_equal() {
        let at = |ready: i64, current: &str| {
            let object = json!({"spec": {"replicas": 2}, "status": {"readyReplicas": ready, "updatedReplicas": 1,
                "currentReplicas": 2, "currentRevision": current, "updateRevision": "b"}});
            of("statefulsets", &object)
        };
        assert_eq!(at(1, "a"), State::Waiting("Waiting for 1 pods to be ready...".to_owned()));
        assert!(matches!(at(2, "a"), State::Waiting(_)));
        assert!(matches!(at(2, "b"), State::Done(_)));
    }
}
