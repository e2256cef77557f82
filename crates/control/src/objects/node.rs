//! A reduced Node.

use std::net::IpAddr;
use std::sync::Arc;

use api::view;
use api::view::labels::{CONTROL_PLANE, ZONE};
use api::view::node::{NodeAddress, Taint};
use store::Entry;

/// A Node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The stored form: key and labels.
    pub entry: Arc<Entry>,
    /// The Ready condition.
    pub ready: bool,
    /// The heartbeat time of the Ready condition.
    pub heartbeat: Option<Box<str>>,
    /// Allocatable CPU, in millicores.
    pub millicores: u64,
    /// Allocatable memory, in bytes.
    pub memory: Option<u64>,
    /// Allocatable Pods.
    pub pods: Option<u64>,
    /// Pod CIDRs.
    pub pod_cidrs: Box<[Box<str>]>,
    /// `spec.unschedulable`
    pub unschedulable: bool,
    /// Taints.
    pub taints: Box<[Taint]>,
    /// Addresses with their types.
    pub addresses: Box<[NodeAddress]>,
}

impl Node {
    /// Reads a stored Node.
    #[must_use]
    pub fn read(entry: &Arc<Entry>) -> Self {
        let view::Node { spec, status, .. } = super::read(&entry.value);
        let ready = view::condition::find(&status.conditions, "Ready");
        let allocatable = |resource: &str| status.allocatable.get(resource);
        Self {
            entry: Arc::clone(entry),
            ready: ready.is_some_and(view::Condition::is_true),
            heartbeat: ready.and_then(|condition| condition.last_heartbeat_time.clone()),
            millicores: allocatable("cpu").map_or(0, millicores),
            memory: whole(allocatable("memory")),
            pods: whole(allocatable("pods")),
            pod_cidrs: spec.pod_cidrs,
            unschedulable: spec.unschedulable,
            taints: spec.taints,
            addresses: status.addresses,
        }
    }

    /// Addresses of a type.
    pub fn ips<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = IpAddr> + 'a {
        let of_kind = self.addresses.iter().filter(move |address| &*address.kind == kind);
        of_kind.filter_map(|address| address.address.parse().ok())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.key.name
    }

    /// The zone label.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.entry.facts.label(ZONE).filter(|zone| !zone.is_empty())
    }

    /// Whether it has a control plane label.
    #[must_use]
    pub fn is_control_plane(&self) -> bool {
        [CONTROL_PLANE, "node-role.kubernetes.io/master"].iter().any(|label| self.entry.facts.label(label).is_some())
    }
}

fn whole(quantity: Option<&str>) -> Option<u64> {
    api::quantity::thousandths(quantity?).map(|thousandths| thousandths / 1000)
}

/// A CPU quantity (`4`, `2500m`, `1.5`) in millicores. Stored quantities are canonical.
fn millicores(text: &str) -> u64 {
    let (number, factor) = text.strip_suffix('m').map_or((text, 1000.0), |number| (number, 1.0));
    let value = number.parse::<f64>().unwrap_or_default() * factor;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "no machine has 2^53 processors")]
    let whole = value.max(0.0).round() as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_quantities_are_read_as_millicores() {
        assert_eq!(["4", "2500m", "1.5", "0", "much"].map(millicores), [4000, 2500, 1500, 0, 0]);
    }
}
