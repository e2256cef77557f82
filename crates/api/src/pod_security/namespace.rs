//! Admission of Namespaces: their labels, and existing Pods that violate a new label.
//!
//! In: a Namespace and its previous state. Out: field errors of its labels, or warnings. Existing Pods are never refused; a stricter
//! `enforce` gives warnings about those that violate it. Callers skip subresources of Namespaces, which are not checked.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::admission::Configuration;
use super::evaluate::evaluate;
use super::policy::{AUDIT, AUDIT_VERSION, ENFORCE, ENFORCE_VERSION, Level, LevelVersion, Policy, WARN, WARN_VERSION};
use crate::field::Errors;
use crate::value::ValueExt as _;

/// How many Pods of a Namespace are checked at most.
pub const MAX_PODS: usize = 3000;
/// The warning when the Pods of a Namespace cannot be read.
pub const LIST_FAILED: &str = "failed to list pods while checking new PodSecurity enforce level";

/// The decision on a valid update of a Namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NamespaceUpdate {
    /// It is allowed with these warnings.
    Allowed(Vec<String>),
    /// It is allowed with the warnings of [`Configuration::existing_pods`] about this level and version.
    CheckPods(LevelVersion),
}

impl Configuration {
    /// Decides on a new Namespace; returns warnings.
    ///
    /// # Errors
    /// The labels that have bad values, for a 422 Invalid.
    pub fn admit_new_namespace(&self, namespace: &Value) -> Result<Vec<String>, Errors> {
        let (policy, errors) = Policy::read(namespace.at("metadata.labels"), &self.defaults);
        if !errors.is_empty() {
            return Err(errors);
        }
        let is_exempt = self.is_exempt_namespace(namespace.text("metadata.name"));
        Ok(if is_exempt { self.exemption_warning(namespace, &policy) } else { Vec::new() })
    }

    /// Decides on an update of a Namespace.
    ///
    /// # Errors
    /// The labels that have bad values, unless the same were bad before, for a 422 Invalid.
    pub fn admit_namespace_update(&self, new: &Value, old: &Value) -> Result<NamespaceUpdate, Errors> {
        let (policy, errors) = Policy::read(new.at("metadata.labels"), &self.defaults);
        let (before, errors_before) = Policy::read(old.at("metadata.labels"), &self.defaults);
        if !errors.is_empty() && errors != errors_before {
            return Err(errors);
        }
        let (enforce, before) = (policy.enforce, before.enforce);
        let is_relaxed = enforce.version == before.version && enforce.level <= before.level;
        Ok(if is_relaxed || enforce.level == Level::Privileged {
            NamespaceUpdate::Allowed(Vec::new())
        } else if self.is_exempt_namespace(new.text("metadata.name")) {
            NamespaceUpdate::Allowed(self.exemption_warning(new, &policy))
        } else {
            NamespaceUpdate::CheckPods(enforce)
        })
    }

    /// Warnings about Pods of a Namespace that violate its new `enforce`: one for all Pods that violate the same checks.
    ///
    /// At most [`MAX_PODS`] are checked, one of each controller first. `is_expired` is called after each: kube-apiserver stops after a
    /// second or half of the time that remains for the request, whichever is shorter.
    #[must_use]
    pub fn existing_pods<'a>(
        &self,
        namespace: &str,
        enforce: LevelVersion,
        pods: impl IntoIterator<Item = &'a Value>,
        mut is_expired: impl FnMut() -> bool,
    ) -> Vec<String> {
        let pods = prioritized(pods.into_iter().filter(|pod| !self.is_exempt_runtime_class(pod.at("spec"))));
        let mut checked = 0;
        let mut violating: HashMap<String, ViolatingPods<'_>> = HashMap::new();
        for pod in pods.iter().take(MAX_PODS) {
            checked += 1;
            let violations = evaluate(enforce, pod.at("metadata"), pod.at("spec"));
            if !violations.is_empty() {
                let name = pod.text("metadata.name");
                let group = violating.entry(violations.reason()).or_insert(ViolatingPods { first: name, count: 0 });
                group.first = group.first.min(name);
                group.count += 1;
            }
            if is_expired() {
                break;
            }
        }
        let mut warnings = Vec::new();
        if checked < pods.len() {
            let total = pods.len();
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
            ));
        }
        if !violating.is_empty() {
            warnings.push(format!(
                "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{enforce}\""
            ));
        }
        let mut lines: Vec<String> = violating.iter().map(|(reason, group)| group.warning(reason)).collect();
        lines.sort_unstable();
        warnings.extend(lines);
        warnings
    }

    /// The warning that the labels of an exempt Namespace have no effect.
    fn exemption_warning(&self, namespace: &Value, policy: &Policy) -> Vec<String> {
        if policy.is_fully_privileged() || policy.is_equivalent(&self.defaults) {
            return Vec::new();
        }
        let labels = namespace.at("metadata.labels");
        let modes = [
            ("enforce", policy.enforce, [ENFORCE, ENFORCE_VERSION]),
            ("audit", policy.audit, [AUDIT, AUDIT_VERSION]),
            ("warn", policy.warn, [WARN, WARN_VERSION]),
        ];
        let is_set = |keys: &[&str]| keys.iter().any(|key| labels.get(key).is_some());
        let set = modes.iter().filter(|(_, mode, keys)| mode.level != Level::Privileged && is_set(keys));
        let set: Vec<String> = set.map(|(name, mode, _)| format!("{name}={mode}")).collect();
        let name = namespace.text("metadata.name");
        vec![format!(
            "namespace \"{name}\" is exempt from Pod Security, and the policy ({}) will be ignored",
            set.join(", ")
        )]
    }
}

/// Pods that violate the same checks.
struct ViolatingPods<'a> {
    /// The first by name.
    first: &'a str,
    count: usize,
}

impl ViolatingPods<'_> {
    fn warning(&self, reason: &str) -> String {
        let first = self.first;
        match self.count {
            0 | 1 => format!("{first}: {reason}"),
            2 => format!("{first} (and 1 other pod): {reason}"),
            count => format!("{first} (and {} other pods): {reason}", count - 1),
        }
    }
}

/// Moves further Pods of the same controller to the end: they are most likely equal.
fn prioritized<'a>(pods: impl Iterator<Item = &'a Value>) -> Vec<&'a Value> {
    let mut seen = HashSet::new();
    let (mut first, further): (Vec<_>, Vec<_>) =
        pods.partition(|pod| controller(pod).is_none_or(|uid| seen.insert(uid)));
    first.extend(further);
    first
}

/// The uid of the controller of a Pod.
fn controller(pod: &Value) -> Option<&str> {
    let owner = pod.items("metadata.ownerReferences").iter().find(|owner| owner.flag("controller"));
    owner.map(|owner| owner.text("uid"))
}

#[cfg(test)]
mod tests;
