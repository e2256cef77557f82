//! The Pods of a DaemonSet: its template with tolerations, labels of the revision and the affinity to a node.

use api::kinds::daemonset::template_generation;
use api::value::ValueExt as _;
use api::view::labels::CONTROLLER_REVISION_HASH;
use api::view::taints::{NOT_READY, UNREACHABLE, UNSCHEDULABLE};
use serde_json::{Value, json};

use super::super::{StoredObject, new_pod};
use super::KIND;

/// The label with the number of the template.
pub(super) const TEMPLATE_GENERATION: &str = "pod-template-generation";

/// The taints that all Pods of DaemonSets tolerate.
const TOLERATED: [(&str, &str); 6] = [
    (NOT_READY, "NoExecute"),
    (UNREACHABLE, "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    (UNSCHEDULABLE, "NoSchedule"),
];
/// The taint that those in the network of the node tolerate.
const NO_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The tolerations of a Pod: those of the spec, and those of every daemon, without a limit of time.
pub(super) fn tolerations(spec: &Value) -> Vec<Value> {
    let mut all = spec.items("tolerations").to_vec();
    let network = spec.flag("hostNetwork").then_some(NO_NETWORK);
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        let is_same = |other: &&mut Value| {
            ["key", "operator", "value", "effect"].iter().all(|field| other.text(field) == toleration.text(field))
        };
        let mut is_new = true;
        for other in all.iter_mut().filter(is_same) {
            other.clone_from(&toleration);
            is_new = false;
        }
        if is_new {
            all.push(toleration);
        }
    }
    all
}

/// A Pod for a node.
pub(super) fn new_daemon_pod(set: &StoredObject, hash: &str, node: &str, name: &str) -> Value {
    let mut template = set.object.at("spec.template").clone();
    let mut labels = template.map("metadata.labels").cloned().unwrap_or_default();
    if let Some(number) = template_generation(&set.object) {
        labels.insert(TEMPLATE_GENERATION.to_owned(), number.to_string().into());
    }
    labels.insert(CONTROLLER_REVISION_HASH.to_owned(), hash.into());
    template.put("metadata.labels", labels);
    template.put("spec.tolerations", tolerations(template.at("spec")));
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let required = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
    template.put(required, json!({"nodeSelectorTerms": [term]}));
    new_pod(&template, set.namespace(), name, &KIND.reference(&set.object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_of_daemons_have_no_time_limit() {
        let spec = json!({"tolerations": [
            {"key": "gpu", "operator": "Exists"},
            {"key": NOT_READY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
            {"key": UNREACHABLE, "effect": "NoExecute", "tolerationSeconds": 30},
        ]});
        let all = tolerations(&spec);
        assert_eq!(all.len(), 8, "{all:?}");
        assert_eq!(all[1], json!({"key": NOT_READY, "operator": "Exists", "effect": "NoExecute"}));
        assert_eq!(all[2].int("tolerationSeconds"), 30, "another operator is another toleration");
        assert_eq!(all[3], json!({"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}));
        assert_eq!(tolerations(&json!({"tolerations": all, "hostNetwork": true})).len(), 9);
    }
}
