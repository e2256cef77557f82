//! Admission of Pods and of objects with a Pod template.
//!
//! In: the Namespace, the user, and the object with what it was before. Out: an [`Outcome`]. Pods are refused when they violate `enforce`;
//! objects with a template are not, since the Pods made from it are.

use serde_json::Value;

use super::evaluate::evaluate;
use super::policy::{Level, LevelVersion, PREFIX, Policy};
use crate::value::ValueExt as _;

/// Subresources of Pods through which the spec cannot change.
const IGNORED_SUBRESOURCES: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// The configuration of the plugin.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Configuration {
    /// What applies to Namespaces without labels.
    pub defaults: Policy,
    /// What is not checked.
    pub exemptions: Exemptions,
}

/// Requests that are not checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exemptions {
    /// Names of Namespaces.
    pub namespaces: Vec<String>,
    /// Names of users. Those of controllers should not be listed: they create Pods on behalf of all users.
    pub usernames: Vec<String>,
    /// Names of RuntimeClasses of Pods.
    pub runtime_classes: Vec<String>,
}

/// A request to create or update an object in a Namespace.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The Namespace of the object.
    pub namespace: &'a Value,
    /// The name of the authenticated user.
    pub user: &'a str,
    /// Empty for the resource itself.
    pub subresource: &'a str,
}

/// The decision on a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Why the request is refused: the end of the message of a 403 Forbidden, after `pods "name" is forbidden: `.
    pub refusal: Option<String>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Annotations of the audit event of the request: full keys and values.
    pub audit_annotations: Vec<(String, String)>,
}

impl Outcome {
    fn annotate(&mut self, key: &str, value: String) {
        self.audit_annotations.push((format!("{PREFIX}{key}"), value));
    }

    fn annotated(key: &str, value: &str) -> Self {
        let mut outcome = Self::default();
        outcome.annotate(key, value.to_owned());
        outcome
    }
}

impl Configuration {
    /// Decides on a Pod that is created, or updated where `old` is given.
    #[must_use]
    pub fn admit_pod(&self, request: &Request<'_>, pod: &Value, old: Option<&Value>) -> Outcome {
        if IGNORED_SUBRESOURCES.contains(&request.subresource) {
            return Outcome::default();
        }
        if let Some(exempt) = self.exemption(request) {
            return exempt;
        }
        let (policy, errors) = self.policy(request.namespace);
        if errors.is_none() && policy.is_fully_privileged() {
            return Outcome::annotated("enforce-policy", &LevelVersion::default().to_string());
        }
        if old.is_some_and(|old| !is_significant(pod.at("spec"), old.at("spec"))) {
            return Outcome::default();
        }
        self.decide(&policy, errors, pod, true)
    }

    /// Decides on an object with a Pod template ([`is_controller`]) that is created or updated. It is never refused.
    #[must_use]
    pub fn admit_controller(&self, request: &Request<'_>, group: &str, kind: &str, object: &Value) -> Outcome {
        let Some(path) = template_path(group, kind).filter(|_| request.subresource.is_empty()) else {
            return Outcome::default();
        };
        if let Some(exempt) = self.exemption(request) {
            return exempt;
        }
        let (policy, errors) = self.policy(request.namespace);
        let is_checked = [policy.audit, policy.warn].iter().any(|mode| mode.level != Level::Privileged);
        // The template of a ReplicationController is optional.
        if (errors.is_none() && !is_checked) || !object.has(path) {
            return Outcome::default();
        }
        self.decide(&policy, errors, object.at(path), false)
    }

    /// The policy of a Namespace, and what is wrong with its labels.
    fn policy(&self, namespace: &Value) -> (Policy, Option<String>) {
        let (policy, errors) = Policy::read(namespace.at("metadata.labels"), &self.defaults);
        (policy, (!errors.is_empty()).then(|| errors.summary()))
    }

    fn exemption(&self, request: &Request<'_>) -> Option<Outcome> {
        if self.is_exempt_namespace(request.namespace.text("metadata.name")) {
            Some(Outcome::annotated("exempt", "namespace"))
        } else if has(&self.exemptions.usernames, request.user) {
            Some(Outcome::annotated("exempt", "user"))
        } else {
            None
        }
    }

    pub(super) fn is_exempt_namespace(&self, name: &str) -> bool {
        has(&self.exemptions.namespaces, name)
    }

    pub(super) fn is_exempt_runtime_class(&self, spec: &Value) -> bool {
        has(&self.exemptions.runtime_classes, spec.text("runtimeClassName"))
    }

    /// Evaluates a Pod or a template under a policy. `errors` are those of the labels that the policy was read from.
    fn decide(&self, policy: &Policy, errors: Option<String>, pod: &Value, enforce: bool) -> Outcome {
        if self.is_exempt_runtime_class(pod.at("spec")) {
            return Outcome::annotated("exempt", "runtimeClass");
        }
        let mut outcome = Outcome::default();
        if let Some(errors) = errors {
            outcome.annotate("error", format!("Failed to parse policy: {errors}"));
        }
        let violation = |mode: LevelVersion| {
            let violations = evaluate(mode, pod.at("metadata"), pod.at("spec"));
            (!violations.is_empty()).then(|| format!("PodSecurity \"{mode}\": {}", violations.detail()))
        };
        if enforce {
            outcome.annotate("enforce-policy", policy.enforce.to_string());
            outcome.refusal = violation(policy.enforce).map(|text| format!("violates {text}"));
        }
        if let Some(text) = violation(policy.audit) {
            outcome.annotate("audit-violations", format!("would violate {text}"));
        }
        // A refused request has the violation in its error.
        if outcome.refusal.is_none() {
            outcome.warnings.extend(violation(policy.warn).map(|text| format!("would violate {text}")));
        }
        outcome
    }
}

/// Whether a list of exemptions contains a name. The empty name is never exempt.
fn has(list: &[String], name: &str) -> bool {
    !name.is_empty() && list.iter().any(|own| own == name)
}

/// Whether objects of a kind are checked by [`Configuration::admit_controller`].
#[must_use]
pub fn is_controller(group: &str, kind: &str) -> bool {
    template_path(group, kind).is_some()
}

/// Where objects of a kind have their Pod template.
fn template_path(group: &str, kind: &str) -> Option<&'static str> {
    match (group, kind) {
        ("", "PodTemplate") => Some("template"),
        ("", "ReplicationController")
        | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job") => Some("spec.template"),
        ("batch", "CronJob") => Some("spec.jobTemplate.spec.template"),
        _ => None,
    }
}

/// Whether an update of a Pod is evaluated: an image changed, or containers were added or removed. The other mutable fields do not affect
/// the checks.
fn is_significant(new: &Value, old: &Value) -> bool {
    let images = |spec: &Value, list: &str| -> Vec<String> {
        spec.items(list).iter().map(|container| container.text("image").to_owned()).collect()
    };
    let known = |container: &Value| {
        let name = container.text("name");
        let before = old.items("ephemeralContainers").iter().find(|before| before.text("name") == name);
        before.is_some_and(|before| before.text("image") == container.text("image"))
    };
    ["containers", "initContainers"].iter().any(|list| images(new, list) != images(old, list))
        || !new.items("ephemeralContainers").iter().all(known)
}

#[cfg(test)]
mod tests;
