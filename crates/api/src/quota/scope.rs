//! Scopes of quotas: to which Pods or volume claims a quota applies.
//!
//! In: the `spec` of a quota and an object. Out: whether the quota applies to the object. All scopes and all
//! expressions of the scope selector must match.

use serde_json::Value;

use crate::kinds::pod::qos;
use crate::value::ValueExt as _;

/// Pods with a deadline.
pub const TERMINATING: &str = "Terminating";
/// Pods without a deadline.
pub const NOT_TERMINATING: &str = "NotTerminating";
/// Pods without requests and limits.
pub const BEST_EFFORT: &str = "BestEffort";
/// Pods with requests or limits.
pub const NOT_BEST_EFFORT: &str = "NotBestEffort";
/// Pods of a priority class.
pub const PRIORITY_CLASS: &str = "PriorityClass";
/// Pods with affinity terms for other namespaces.
pub const CROSS_NAMESPACE_AFFINITY: &str = "CrossNamespacePodAffinity";
/// Volume claims of a volume attributes class.
pub const VOLUME_ATTRIBUTES_CLASS: &str = "VolumeAttributesClass";

/// Every scope there is.
pub const ALL: [&str; 7] = [
    TERMINATING,
    NOT_TERMINATING,
    BEST_EFFORT,
    NOT_BEST_EFFORT,
    PRIORITY_CLASS,
    CROSS_NAMESPACE_AFFINITY,
    VOLUME_ATTRIBUTES_CLASS,
];
/// Scopes for which selectors only have the operator `Exists`.
pub const WITHOUT_VALUES: [&str; 5] =
    [TERMINATING, NOT_TERMINATING, BEST_EFFORT, NOT_BEST_EFFORT, CROSS_NAMESPACE_AFFINITY];

/// The operator of a scope selector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// One of the values.
    In,
    /// None of the values, or not set.
    NotIn,
    /// Set.
    Exists,
    /// Not set.
    DoesNotExist,
}

impl Operator {
    /// The operator of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "In" => Some(Self::In),
            "NotIn" => Some(Self::NotIn),
            "Exists" => Some(Self::Exists),
            "DoesNotExist" => Some(Self::DoesNotExist),
            _ => None,
        }
    }
}

/// Whether a quota with this scope may limit this resource. Unknown scopes are valid for every resource.
#[must_use]
pub fn is_valid_for(scope: &str, resource: &str) -> bool {
    let is_compute =
        || matches!(resource, "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory");
    match scope {
        BEST_EFFORT => resource == "pods",
        VOLUME_ATTRIBUTES_CLASS => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ if ALL.contains(&scope) => resource == "pods" || is_compute(),
        _ => true,
    }
}

/// How scopes are matched with objects of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    Pod,
    Claim,
    /// No scope matches.
    Other,
}

/// Whether all scopes of a quota match an object.
pub(super) fn matches(quota_spec: &Value, subject: Subject, object: &Value) -> bool {
    let scopes = quota_spec.items("scopes").iter().filter_map(Value::as_str);
    let mut scopes = scopes.map(|scope| (scope, "Exists", &[][..]));
    let requirements = quota_spec.items("scopeSelector.matchExpressions").iter();
    let mut requirements = requirements.map(|one| (one.text("scopeName"), one.text("operator"), one.items("values")));
    let mut holds = |(scope, operator, values): (&str, &str, &[Value])| match subject {
        Subject::Pod => pod_has(object, scope, operator, values),
        Subject::Claim => scope == VOLUME_ATTRIBUTES_CLASS && claim_has(object, operator, values),
        Subject::Other => false,
    };
    scopes.all(&mut holds) && requirements.all(&mut holds)
}

fn pod_has(pod: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
    match scope {
        TERMINATING => is_terminating(pod),
        NOT_TERMINATING => !is_terminating(pod),
        BEST_EFFORT => is_best_effort(pod),
        NOT_BEST_EFFORT => !is_best_effort(pod),
        PRIORITY_CLASS => {
            let class = pod.text("spec.priorityClassName");
            compare((!class.is_empty()).then_some(class), operator, values)
        }
        CROSS_NAMESPACE_AFFINITY => has_cross_namespace_affinity(pod),
        _ => false,
    }
}

/// Whether a Pod has `activeDeadlineSeconds`.
pub(super) fn is_terminating(pod: &Value) -> bool {
    pod.at("spec.activeDeadlineSeconds").as_i64().is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Value) -> bool {
    let class = pod.text("status.qosClass");
    BEST_EFFORT == if class.is_empty() { qos::class(pod) } else { class }
}

fn has_cross_namespace_affinity(pod: &Value) -> bool {
    let is_elsewhere = |term: &Value| !term.items("namespaces").is_empty() || term.has("namespaceSelector");
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let affinity = pod.at("spec.affinity").at(kind);
        let required = affinity.items("requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = affinity.items("preferredDuringSchedulingIgnoredDuringExecution");
        required.iter().any(is_elsewhere) || preferred.iter().any(|term| is_elsewhere(term.at("podAffinityTerm")))
    })
}

fn claim_has(claim: &Value, operator: &str, values: &[Value]) -> bool {
    let classes = volume_attributes_classes(claim);
    if classes.is_empty() {
        return compare(None, operator, values);
    }
    classes.into_iter().any(|class| compare(Some(class), operator, values))
}

/// The volume attributes classes of a claim: desired, current and target of a modification.
pub(super) fn volume_attributes_classes(claim: &Value) -> Vec<&str> {
    let fields = [
        "spec.volumeAttributesClassName",
        "status.currentVolumeAttributesClassName",
        "status.modifyVolumeStatus.targetVolumeAttributesClassName",
    ];
    let mut classes: Vec<&str> = fields.into_iter().map(|field| claim.text(field)).collect();
    classes.retain(|class| !class.is_empty());
    classes.sort_unstable();
    classes.dedup();
    classes
}

fn compare(value: Option<&str>, operator: &str, values: &[Value]) -> bool {
    let is_listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    match Operator::of(operator) {
        Some(Operator::In) => is_listed,
        Some(Operator::NotIn) => !is_listed,
        Some(Operator::Exists) => value.is_some(),
        Some(Operator::DoesNotExist) => value.is_none(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn has(pod_spec: &Value, quota_spec: &Value) -> bool {
        matches(quota_spec, Subject::Pod, &json!({"spec": pod_spec}))
    }

    #[test]
    fn all_scopes_must_match() {
        let busy = json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}], "activeDeadlineSeconds": 5});
        let idle = json!({"containers": [{}]});
        let quota = |scopes: &[&str]| json!({"scopes": scopes});
        assert!(has(&busy, &json!({})) && has(&idle, &json!({})));
        assert!(
            has(&busy, &quota(&[TERMINATING, NOT_BEST_EFFORT])) && !has(&busy, &quota(&[TERMINATING, BEST_EFFORT]))
        );
        assert!(has(&idle, &quota(&[NOT_TERMINATING, BEST_EFFORT])) && !has(&idle, &quota(&[NOT_BEST_EFFORT])));
        assert!(!has(&idle, &quota(&[VOLUME_ATTRIBUTES_CLASS])));
        assert!(!matches(&quota(&[BEST_EFFORT]), Subject::Other, &json!({})));
    }

    #[test]
    fn priority_classes_are_compared() {
        let (high, none) = (json!({"priorityClassName": "high"}), json!({}));
        let quota = |operator: &str, values: &[&str]| {
            let requirement = json!({"scopeName": PRIORITY_CLASS, "operator": operator, "values": values});
            json!({"scopeSelector": {"matchExpressions": [requirement]}})
        };
        assert!(has(&high, &quota("In", &["low", "high"])) && !has(&none, &quota("In", &["high"])));
        assert!(!has(&high, &quota("NotIn", &["high"])) && has(&none, &quota("NotIn", &["high"])));
        assert!(has(&high, &quota("Exists", &[])) && !has(&none, &quota("Exists", &[])));
        assert!(!has(&high, &quota("DoesNotExist", &[])) && has(&none, &quota("DoesNotExist", &[])));
        assert!(has(&high, &json!({"scopes": [PRIORITY_CLASS]})));
    }

    #[test]
    fn affinity_may_name_other_namespaces() {
        let quota = json!({"scopes": [CROSS_NAMESPACE_AFFINITY]});
        let pod = |kind: &str, terms: Value| json!({"affinity": {kind: terms}});
        let required = |term: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        assert!(has(&pod("podAffinity", required(json!({"namespaceSelector": {}}))), &quota));
        assert!(!has(&pod("podAntiAffinity", required(json!({"topologyKey": "k"}))), &quota));
        let preferred =
            json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {"namespaces": ["x"]}}]});
        assert!(has(&pod("podAntiAffinity", preferred), &quota));
    }

    #[test]
    fn claims_have_several_classes() {
        let claim = json!({
            "spec": {"volumeAttributesClassName": "gold"}, "status": {"currentVolumeAttributesClassName": "silver"},
        });
        let quota = |operator: &str, value: &str| {
            let requirement = json!({"scopeName": VOLUME_ATTRIBUTES_CLASS, "operator": operator, "values": [value]});
            json!({"scopeSelector": {"matchExpressions": [requirement]}})
        };
        assert!(matches(&quota("In", "gold"), Subject::Claim, &claim));
        assert!(matches(&quota("In", "silver"), Subject::Claim, &claim));
        assert!(!matches(&quota("In", "gold"), Subject::Claim, &json!({})));
    }
}
