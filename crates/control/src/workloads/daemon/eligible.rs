//! Which nodes run the Pods of a DaemonSet: those that its template selects and whose taints its Pods tolerate.

use api::value::ValueExt as _;
use serde_json::Value;

use super::template;
use crate::objects::node::Node;
use crate::objects::placement::Placement;

/// Whether a node runs a Pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Eligibility {
    /// A Pod is deleted.
    None,
    /// A Pod stays, but none is created: the node has a taint NoSchedule.
    Stays,
    /// A Pod is created.
    Runs,
}

/// The constraints of a template.
pub(super) struct Constraints {
    /// `spec.nodeName`
    node: Box<str>,
    placement: Placement,
}

impl Constraints {
    pub(super) fn of(template: &Value) -> Self {
        let spec = template.at("spec");
        let tolerations = template::tolerations(spec);
        let placement = Placement::read(spec.at("nodeSelector"), spec.at("affinity"), &tolerations);
        Self { node: spec.text("nodeName").into(), placement }
    }

    pub(super) fn on(&self, node: &Node) -> Eligibility {
        let named = self.node.is_empty() || *self.node == *node.name();
        if !named || !self.placement.matches(node) {
            return Eligibility::None;
        }
        if self.placement.untolerated_taint(node).is_none() {
            return Eligibility::Runs;
        }
        let mut evicting = node.taints.iter().filter(|taint| &*taint.effect == "NoExecute");
        if evicting.all(|taint| self.placement.tolerates(taint)) { Eligibility::Stays } else { Eligibility::None }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use store::{Entry, Key, Table};

    use super::*;

    fn node(object: &Value) -> Node {
        Node::read(&Arc::new(Entry {
            key: Key::new(Table::named("minions"), object.text("metadata.name").to_owned()),
            created: 1,
            modified: 1,
            expires: None,
            value: api::object::encode(object),
            facts: Arc::new(api::kinds::node::KIND.facts(object)),
        }))
    }

    fn on(spec: &Value, taints: &Value) -> Eligibility {
        let labels = json!({"disk": "fast"});
        let node = node(&json!({"metadata": {"name": "a", "labels": labels}, "spec": {"taints": taints}}));
        Constraints::of(&json!({"spec": spec})).on(&node)
    }

    #[test]
    fn selectors_affinity_and_names_choose_nodes() {
        use Eligibility::{None, Runs};
        let affinity = |term: Value| {
            let terms = json!({"nodeSelectorTerms": [term]});
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
        };
        let by_name = |name: &str| {
            affinity(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}))
        };
        for (spec, expected) in [
            (json!({}), Runs),
            (json!({"nodeName": "a"}), Runs),
            (json!({"nodeName": "b"}), None),
            (json!({"nodeSelector": {"disk": "fast"}}), Runs),
            (json!({"nodeSelector": {"disk": "slow"}}), None),
            (affinity(json!({"matchExpressions": [{"key": "disk", "operator": "Exists"}]})), Runs),
            (affinity(json!({"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]})), None),
            (by_name("a"), Runs),
            (by_name("b"), None),
        ] {
            assert_eq!(on(&spec, &json!([])), expected, "{spec}");
        }
    }

    #[test]
    fn taints_keep_pods_away() {
        use Eligibility::{None, Runs, Stays};
        let tolerant = json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]});
        let network = json!({"hostNetwork": true});
        for (spec, key, effect, expected) in [
            (json!({}), "gpu", "PreferNoSchedule", Runs),
            (json!({}), "gpu", "NoSchedule", Stays),
            (json!({}), "gpu", "NoExecute", None),
            (tolerant.clone(), "gpu", "NoSchedule", Runs),
            (tolerant, "gpu", "NoExecute", Runs),
            (json!({}), "node.kubernetes.io/not-ready", "NoExecute", Runs),
            (json!({}), "node.kubernetes.io/not-ready", "NoSchedule", Stays),
            (json!({}), "node.kubernetes.io/unreachable", "NoExecute", Runs),
            (json!({}), "node.kubernetes.io/disk-pressure", "NoSchedule", Runs),
            (json!({}), "node.kubernetes.io/memory-pressure", "NoSchedule", Runs),
            (json!({}), "node.kubernetes.io/pid-pressure", "NoSchedule", Runs),
            (json!({}), "node.kubernetes.io/unschedulable", "NoSchedule", Runs),
            (json!({}), "node.kubernetes.io/network-unavailable", "NoSchedule", Stays),
            (network, "node.kubernetes.io/network-unavailable", "NoSchedule", Runs),
        ] {
            let taints = json!([{"key": key, "effect": effect}]);
            assert_eq!(on(&spec, &taints), expected, "{spec} {key}:{effect}");
        }
    }
}
