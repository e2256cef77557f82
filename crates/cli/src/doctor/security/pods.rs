//! Pods that reach their machine, in namespaces where nothing would have refused them.

use std::collections::BTreeMap;

use api::pod_security::{Level, LevelVersion, PREFIX, Policy, Version, evaluate};
use api::value::ValueExt as _;
use serde_json::Value;

use super::{Finding, Pods, Severity};

pub(super) const CHECK: &str = "privileged-pods";

/// The namespace of the cluster's own Pods.
const SYSTEM: &str = "kube-system";

/// Pods that the baseline level would refuse, where neither it nor a stricter one is enforced. Pods of one controller are one finding.
pub(super) fn privileged(evidence: &Pods) -> Vec<Finding> {
    let mut found: BTreeMap<(String, String), Finding> = BTreeMap::new();
    for pod in evidence.pods.iter().filter(|pod| !["Succeeded", "Failed"].contains(&pod.text("status.phase"))) {
        let namespace = pod.text("metadata.namespace");
        if enforced(evidence, namespace) != Level::Privileged {
            continue;
        }
        let baseline = LevelVersion { level: Level::Baseline, version: Version::Latest };
        let violations = evaluate(baseline, pod.at("metadata"), pod.at("spec"));
        if violations.is_empty() {
            continue;
        }
        let name = owner(pod);
        found.entry((namespace.to_owned(), name.clone())).or_insert_with(|| Finding {
            check: CHECK,
            severity: if namespace == SYSTEM { Severity::Note } else { Severity::Warning },
            object: name,
            saw: format!("reaches its machine: {}", violations.detail()),
            fix: format!(
                "remove what it does not need; then kubectl label namespace {namespace} {PREFIX}enforce=baseline, and keep Pods \
                 that need more in a namespace of their own"
            ),
        });
    }
    found.into_values().collect()
}

/// The level that is enforced in a namespace.
fn enforced(evidence: &Pods, name: &str) -> Level {
    let namespace = evidence.namespaces.iter().find(|namespace| namespace.text("metadata.name") == name);
    let labels = namespace.map_or(&Value::Null, |namespace| namespace.at("metadata.labels"));
    Policy::read(labels, &Policy::default()).0.enforce.level
}

/// `DaemonSet shop/agent`, or the Pod where nothing controls it.
fn owner(pod: &Value) -> String {
    let namespace = pod.text("metadata.namespace");
    let owner = pod.items("metadata.ownerReferences").iter().find(|owner| owner.flag("controller"));
    match owner {
        Some(owner) => format!("Pods of {} {namespace}/{}", owner.text("kind"), owner.text("name")),
        None => format!("Pod {namespace}/{}", pod.text("metadata.name")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(namespace: &str, name: &str, spec: &Value) -> Value {
        json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": {"phase": "Running"}})
    }

    fn container(more: &Value) -> Value {
        let mut container = json!({"name": "c", "image": "web:1"});
        for (key, value) in more.as_object().expect("an object") {
            container[key] = value.clone();
        }
        json!({"containers": [container]})
    }

    fn found(pods: Vec<Value>) -> Vec<(Severity, String)> {
        let namespace = |name: &str, labels: &Value| json!({"metadata": {"name": name, "labels": labels}});
        let namespaces = vec![
            namespace("shop", &json!({})),
            namespace("kube-system", &json!({})),
            namespace("safe", &json!({"pod-security.kubernetes.io/enforce": "baseline"})),
            namespace("open", &json!({"pod-security.kubernetes.io/enforce": "privileged"})),
        ];
        let found = privileged(&Pods { namespaces, pods });
        found.into_iter().map(|finding| (finding.severity, finding.object)).collect()
    }

    #[test]
    fn pods_that_reach_their_machine_are_found() {
        let ordinary = container(&json!({}));
        assert_eq!(found(vec![pod("shop", "a", &ordinary)]), []);
        let mut path = ordinary.clone();
        path["volumes"] = json!([{"name": "v", "hostPath": {"path": "/"}}]);
        let mut network = ordinary;
        network["hostNetwork"] = json!(true);
        for spec in [
            container(&json!({"securityContext": {"privileged": true}})),
            path,
            network,
            container(&json!({"image": "host"})),
        ] {
            let warning = vec![(Severity::Warning, "Pod shop/a".to_owned())];
            assert_eq!(found(vec![pod("shop", "a", &spec)]), warning, "{spec}");
            assert_eq!(found(vec![pod("open", "a", &spec)]).len(), 1, "{spec}");
            // Pods that are older than the level are not rejected; setting it returns a warning.
            assert_eq!(found(vec![pod("safe", "a", &spec)]), [], "{spec}");
            assert_eq!(found(vec![pod("kube-system", "a", &spec)]), [(Severity::Note, "Pod kube-system/a".to_owned())]);
        }
    }

    #[test]
    fn pods_of_one_controller_are_one_finding_and_those_that_ended_are_none() {
        let spec = container(&json!({"securityContext": {"privileged": true}}));
        let mut pods: Vec<Value> = ["a", "b"].map(|name| pod("shop", name, &spec)).into();
        for pod in &mut pods {
            pod["metadata"]["ownerReferences"] = json!([{"kind": "DaemonSet", "name": "agent", "controller": true}]);
        }
        let mut ended = pod("shop", "c", &spec);
        ended["status"]["phase"] = json!("Succeeded");
        pods.push(ended);
        assert_eq!(found(pods), [(Severity::Warning, "Pods of DaemonSet shop/agent".to_owned())]);
    }
}
