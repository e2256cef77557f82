//! Evaluators: which quota resources the objects of a kind use, and how much of them one object uses.
//!
//! In: a kind and an object of it. Out: amounts by quota resource. Pods, Services and volume claims have resources of
//! their own; objects of every other kind are only counted.

#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::scope::{self, Subject};
use crate::quantity::Amount;
use crate::resources::pod::{self, Part};
use crate::resources::{ResourceList, names};
use crate::value::ValueExt as _;

/// Kinds that are exempt from quotas, as group and plural: those that are not stored, and Events.
const IGNORED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];
/// Kinds of the core group that are also counted under their plural without `count/`.
const ALIASES: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];
const CLAIMS: &str = "persistentvolumeclaims";
const STORAGE_REQUESTS: &str = "requests.storage";
/// Separates the name of a storage class from the resource of its claims.
const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
/// The former place of the storage class of a claim.
const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// Resources that each container must specify if a quota limits them.
const REQUIRED: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// Measures the objects of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evaluator<'k> {
    /// Pods.
    Pods,
    /// Services.
    Services,
    /// Volume claims.
    Claims,
    /// Objects that are only counted: group and plural.
    Count(&'k str, &'k str),
}

impl<'k> Evaluator<'k> {
    /// The evaluator of a kind; `None` for kinds that are exempt.
    #[must_use]
    pub fn find(group: &'k str, plural: &'k str) -> Option<Self> {
        match (group, plural) {
            kind if IGNORED.contains(&kind) => None,
            ("", "pods") => Some(Self::Pods),
            ("", "services") => Some(Self::Services),
            ("", CLAIMS) => Some(Self::Claims),
            _ => Some(Self::Count(group, plural)),
        }
    }

    /// Whether objects of the kind use this quota resource.
    #[must_use]
    pub fn tracks(self, resource: &str) -> bool {
        match self {
            Self::Pods => {
                let plain =
                    resource.strip_prefix(names::REQUESTS_PREFIX).or(resource.strip_prefix(names::LIMITS_PREFIX));
                matches!(resource, "pods" | "count/pods")
                    || matches!(plain.unwrap_or(resource), "cpu" | "memory" | "ephemeral-storage")
                    || names::is_quota_huge_pages(resource)
                    || names::is_quota_extended(resource)
            }
            Self::Services => {
                matches!(resource, "count/services" | "services" | "services.nodeports" | "services.loadbalancers")
            }
            Self::Claims => {
                let of_class = resource.rsplit_once(STORAGE_CLASS).map(|(_, counted)| counted);
                resource == "count/persistentvolumeclaims"
                    || [CLAIMS, STORAGE_REQUESTS].contains(&of_class.unwrap_or(resource))
            }
            Self::Count(group, plural) => {
                resource == count_name(group, plural)
                    || (group.is_empty() && ALIASES.contains(&plural) && resource == plural)
            }
        }
    }

    /// The usage of an object. The content matters only if [`Self::depends_on_content`].
    #[must_use]
    pub fn usage(self, object: &Value, now: Timestamp) -> ResourceList {
        match self {
            Self::Pods => pod_usage(object, now),
            Self::Services => service_usage(object),
            Self::Claims => claim_usage(object),
            Self::Count(group, plural) => {
                let mut usage = counted(&count_name(group, plural));
                if group.is_empty() && ALIASES.contains(&plural) {
                    usage.set(plural, Amount::whole(1));
                }
                usage
            }
        }
    }

    /// Whether the usage of an object depends on its content.
    #[must_use]
    pub const fn depends_on_content(self) -> bool {
        !matches!(self, Self::Count(..))
    }

    /// Whether all scopes of a quota match an object.
    #[must_use]
    pub fn is_in_scope(self, quota_spec: &Value, object: &Value) -> bool {
        let subject = match self {
            Self::Pods => Subject::Pod,
            Self::Claims => Subject::Claim,
            Self::Services | Self::Count(..) => Subject::Other,
        };
        scope::matches(quota_spec, subject, object)
    }

    /// Whether an update may change which scopes match the object.
    #[must_use]
    pub fn is_rescoped(self, old: &Value, new: &Value) -> bool {
        match self {
            Self::Pods => scope::is_terminating(old) != scope::is_terminating(new),
            Self::Claims => scope::volume_attributes_classes(old) != scope::volume_attributes_classes(new),
            Self::Services | Self::Count(..) => false,
        }
    }

    /// Resources that an object must specify for a quota of these resources, but does not; as the message lists them.
    pub(super) fn missing<'r>(self, resources: impl Iterator<Item = &'r str>, object: &Value) -> Option<String> {
        if self != Self::Pods || pod::is_pod_level_set(object) {
            return None;
        }
        let mut missing: Vec<String> = Vec::new();
        for resource in resources.filter(|resource| REQUIRED.contains(resource)) {
            let containers = object.items("spec.containers").iter().chain(object.items("spec.initContainers"));
            let silent = containers.filter(|container| compute_usage(container).get(resource).is_none());
            let mut silent: Vec<&str> = silent.map(|container| container.text("name")).collect();
            silent.sort_unstable();
            silent.dedup();
            if !silent.is_empty() {
                missing.push(format!("{resource} for: {}", silent.join(",")));
            }
        }
        (!missing.is_empty()).then(|| format!("must specify {}", missing.join("; ")))
    }
}

/// `count/deployments.apps`.
fn count_name(group: &str, plural: &str) -> String {
    if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") }
}

fn counted(name: &str) -> ResourceList {
    let mut usage = ResourceList::default();
    usage.set(name, Amount::whole(1));
    usage
}

/// When a Pod that is being deleted stops using quota even if it still exists: after its grace period.
#[must_use]
pub fn counts_until(pod: &Value) -> Option<Timestamp> {
    let since: Timestamp = pod.text("metadata.deletionTimestamp").parse().ok()?;
    let grace = pod.at("metadata.deletionGracePeriodSeconds").as_i64()?;
    since.checked_add(SignedDuration::from_secs(grace)).ok()
}

/// Terminal Pods, and Pods past their grace period, only count as objects.
fn pod_usage(pod: &Value, now: Timestamp) -> ResourceList {
    let mut usage = counted("count/pods");
    let is_over = matches!(pod.text("status.phase"), "Failed" | "Succeeded");
    if !is_over && counts_until(pod).is_none_or(|end| now <= end) {
        usage.add(&quota_names(&pod::charged(pod, Part::Requests), &pod::charged(pod, Part::Limits)));
    }
    usage
}

/// The usage of one container.
fn compute_usage(container: &Value) -> ResourceList {
    quota_names(&pod::of(container, Part::Requests), &pod::of(container, Part::Limits))
}

/// Requests and limits by quota resource.
fn quota_names(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut usage = counted("pods");
    for (name, amount) in &requests.0 {
        let is_compute = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if is_compute || names::is_huge_pages(name) {
            usage.set(name, amount.clone());
        }
        if is_compute || names::is_huge_pages(name) || names::is_extended_or_device(name) {
            usage.set(format!("{}{name}", names::REQUESTS_PREFIX), amount.clone());
        }
    }
    for (name, amount) in &limits.0 {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.set(format!("{}{name}", names::LIMITS_PREFIX), amount.clone());
        }
    }
    usage
}

/// Node ports are counted by intent: they are not allocated yet when a Service is admitted.
fn service_usage(service: &Value) -> ResourceList {
    let ports = service.items("spec.ports");
    let is_balanced = service.text("spec.type") == "LoadBalancer";
    let node_ports = match service.text("spec.type") {
        "LoadBalancer" if service.at("spec.allocateLoadBalancerNodePorts") == false => {
            ports.iter().filter(|port| port.int("nodePort") != 0).count()
        }
        "LoadBalancer" | "NodePort" => ports.len(),
        _ => 0,
    };
    let mut usage = counted("count/services");
    usage.set("services", Amount::whole(1));
    usage.set("services.loadbalancers", Amount::whole(is_balanced.into()));
    usage.set("services.nodeports", Amount::whole(i64::try_from(node_ports).unwrap_or(i64::MAX)));
    usage
}

fn claim_usage(claim: &Value) -> ResourceList {
    let mut usage = counted("count/persistentvolumeclaims");
    usage.set(CLAIMS, Amount::whole(1));
    let annotation = claim.at("metadata.annotations").get(STORAGE_CLASS_ANNOTATION).and_then(Value::as_str);
    let class = annotation.unwrap_or_else(|| claim.text("spec.storageClassName"));
    if !class.is_empty() {
        usage.set(format!("{class}{STORAGE_CLASS}{CLAIMS}"), Amount::whole(1));
    }
    if let Some(storage) = storage_of(claim) {
        if !class.is_empty() {
            usage.set(format!("{class}{STORAGE_CLASS}{STORAGE_REQUESTS}"), storage.clone());
        }
        usage.set(STORAGE_REQUESTS, storage);
    }
    usage
}

/// The storage of a claim in whole bytes: the requested or the allocated amount, whichever is greater.
fn storage_of(claim: &Value) -> Option<Amount> {
    let asked = claim.at("spec.resources.requests").get("storage").map(|amount| Amount::of(amount).rounded())?;
    let given = claim.at("status.allocatedResources").get("storage").map(Amount::of);
    Some(given.filter(|given| *given > asked).map_or(asked, Amount::rounded))
}
