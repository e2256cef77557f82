//! Pods by their addresses.

use api::view::Pod;

/// Whether a Pod has an address.
pub(super) fn has(pod: &Pod, address: &str) -> bool {
    pod.status.pod_ips.iter().any(|one| &*one.ip == address)
}

/// The Pod with an address. A terminated Pod may still name an address that another one has by now.
pub(super) fn named(pods: &[Pod], address: &str) -> Option<String> {
    pods.iter().filter(|pod| has(pod, address)).min_by_key(|pod| pod.has_ended()).map(|pod| pod.metadata.key())
}
