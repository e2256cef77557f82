//! Eviction of Pods that use more ephemeral storage than their limits. Pure.
//!
//! In: the Pod and its measured usage. Out: the message of the eviction, in the words of the kubelet, which end with a space. As in the kubelet,
//! the limit of the Pod is the sum of the limits that its containers set, even if other containers set none.

use api::quantity::Amount;
use api::resources::pod::{Part, of, specified};
use api::value::ValueExt as _;
use serde_json::Value;

use crate::facts::StorageUsage;

/// The resource.
const STORAGE: &str = "ephemeral-storage";
/// The grace period of evicted Pods, in seconds.
pub(super) const GRACE: u32 = 1;
/// The reason of the status and of the Event.
pub const REASON: &str = "Evicted";
/// Pods with this priority or a higher one are not evicted.
const CRITICAL_PRIORITY: i64 = 2_000_000_000;

/// Whether the Pod limits ephemeral storage, so that its usage must be measured.
#[must_use]
pub fn is_limited(pod: &Value) -> bool {
    limit_of_pod(pod).is_some() || pod.items("spec.volumes").iter().any(|volume| size_limit(volume).is_some())
}

/// The volumes whose usage counts: emptyDir on disk. Those in memory have their size limit in the kernel.
pub fn measured_volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    let on_disk = |volume: &&Value| volume.has("emptyDir") && volume.text("emptyDir.medium") != "Memory";
    pod.items("spec.volumes").iter().filter(on_disk)
}

/// Why the Pod must be evicted, if it must.
pub(super) fn message(pod: &Value, usage: &StorageUsage) -> Option<String> {
    if pod.int("spec.priority") >= CRITICAL_PRIORITY {
        return None;
    }
    volume_message(pod, usage).or_else(|| pod_message(pod, usage)).or_else(|| container_message(pod, usage))
}

fn volume_message(pod: &Value, usage: &StorageUsage) -> Option<String> {
    measured_volumes(pod).find_map(|volume| {
        let (name, limit) = (volume.text("name"), size_limit(volume)?);
        let is_exceeded = exceeds(*usage.volumes.get(name)?, &limit);
        is_exceeded.then(|| format!("Usage of EmptyDir volume \"{name}\" exceeds the limit \"{limit}\". "))
    })
}

fn pod_message(pod: &Value, usage: &StorageUsage) -> Option<String> {
    let limit = limit_of_pod(pod)?;
    let is_exceeded = exceeds(usage.total(), &limit);
    is_exceeded.then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "))
}

fn container_message(pod: &Value, usage: &StorageUsage) -> Option<String> {
    let sidecars = pod.items("spec.initContainers").iter().filter(|init| init.text("restartPolicy") == "Always");
    pod.items("spec.containers").iter().chain(sidecars).find_map(|container| {
        let (name, limits) = (container.text("name"), of(container, Part::Limits));
        let limit = limits.get(STORAGE).filter(|limit| !limit.is_zero())?;
        let is_exceeded = exceeds(*usage.containers.get(name)?, limit);
        is_exceeded.then(|| format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "))
    })
}

fn limit_of_pod(pod: &Value) -> Option<Amount> {
    specified(pod, Part::Limits, |_| false).get(STORAGE).cloned()
}

/// `sizeLimit` of an emptyDir; zero is no limit.
fn size_limit(volume: &Value) -> Option<Amount> {
    let limit = Some(volume.at("emptyDir.sizeLimit")).filter(|limit| !limit.is_null()).map(Amount::of)?;
    (limit > Amount::ZERO && volume.text("emptyDir.medium") != "Memory").then_some(limit)
}

fn exceeds(bytes: u64, limit: &Amount) -> bool {
    Amount::whole(i64::try_from(bytes).unwrap_or(i64::MAX)) > *limit
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn pod() -> Value {
        let limited = |name: &str, limit: &str| json!({"name": name, "resources": {"limits": {STORAGE: limit}}});
        json!({"spec": {
            "containers": [limited("a", "10Mi"), limited("b", "20Mi"), {"name": "c"}],
            "initContainers": [{"name": "i"}],
            "volumes": [
                {"name": "cache", "emptyDir": {"sizeLimit": "5Mi"}}, {"name": "free", "emptyDir": {}},
                {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}, {"name": "map", "configMap": {}},
            ],
        }})
    }

    fn usage(volumes: &[(&str, u64)], containers: &[(&str, u64)]) -> StorageUsage {
        let map = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, mib)| ((*name).to_owned(), mib * MIB)).collect();
        StorageUsage { volumes: map(volumes), containers: map(containers) }
    }

    #[test]
    fn limits_of_volumes_pod_and_containers_are_compared() {
        let found = |volumes: &[(&str, u64)], containers: &[(&str, u64)]| message(&pod(), &usage(volumes, containers));
        assert_eq!(found(&[], &[]), None);
        assert_eq!(found(&[("cache", 5), ("free", 5)], &[("a", 10), ("b", 5), ("c", 5)]), None, "exactly the limits");
        let volume = "Usage of EmptyDir volume \"cache\" exceeds the limit \"5Mi\". ";
        assert_eq!(found(&[("cache", 6)], &[]).as_deref(), Some(volume));
        let sum = "Pod ephemeral local storage usage exceeds the total limit of containers 30Mi. ";
        assert_eq!(found(&[("free", 20)], &[("c", 11)]).as_deref(), Some(sum));
        let container = "Container a exceeded its local ephemeral storage limit \"10Mi\". ";
        assert_eq!(found(&[], &[("a", 11)]).as_deref(), Some(container));
        assert_eq!(found(&[("memory", 2)], &[]), None, "the kernel limits it");
    }

    #[test]
    fn only_limits_of_storage_on_disk_are_measured() {
        assert!(is_limited(&pod()));
        let volumes: Vec<String> = measured_volumes(&pod()).map(|volume| volume.text("name").to_owned()).collect();
        assert_eq!(volumes, ["cache", "free"]);
        assert!(!is_limited(&json!({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]}})));
        let volume = |empty: Value| json!({"spec": {"volumes": [{"name": "v", "emptyDir": empty}]}});
        assert!(is_limited(&volume(json!({"sizeLimit": "1Gi"}))));
        assert!(!is_limited(&volume(json!({}))) && !is_limited(&volume(json!({"sizeLimit": "0"}))));
        assert!(!is_limited(&volume(json!({"medium": "Memory", "sizeLimit": "1Gi"}))));
    }

    #[test]
    fn critical_pods_are_not_evicted() {
        let mut critical = pod();
        critical.put("spec.priority", 2_000_000_000);
        assert_eq!(message(&critical, &usage(&[("cache", 6)], &[])), None);
    }
}
