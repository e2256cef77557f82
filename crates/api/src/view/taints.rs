//! Keys of taints that more than one place uses.

/// The Node is not ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The Node does not report its state.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// The Node is cordoned.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// The cluster autoscaler is about to delete the Node.
pub const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
