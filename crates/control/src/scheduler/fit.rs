//! Filters: whether a Pod fits on a node, and why not.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use api::view::node::Taint;

use crate::cache::Load;
use crate::controller::View;
use crate::objects::node::Node;
use crate::objects::placement::{HostPort, Placement, not_ready, unschedulable};
use crate::objects::pod::Pod;

/// A node and its load.
pub(super) struct NodeCapacity<'a> {
    pub(super) node: &'a Node,
    pub(super) load: Load,
    ports: Vec<&'a HostPort>,
}

/// Why a Pod does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FilterFailure {
    NotReady,
    Unschedulable,
    Unwanted,
    Tainted(String),
    Ports,
    Cpu,
    Memory,
    Full,
}

impl Display for FilterFailure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("node(s) were not ready"),
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
            Self::Unwanted => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::Tainted(taint) => write!(f, "node(s) had untolerated taint {{{taint}}}"),
            Self::Ports => f.write_str("node(s) didn't have free ports for the requested pod ports"),
            Self::Cpu => f.write_str("Insufficient cpu"),
            Self::Memory => f.write_str("Insufficient memory"),
            Self::Full => f.write_str("Too many pods"),
        }
    }
}

/// The message of an unschedulable Pod: counts of nodes by reason.
pub(super) fn explain(nodes: usize, reasons: Vec<FilterFailure>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason.to_string()).or_default() += 1;
    }
    let mut parts: Vec<String> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort();
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}

impl<'a> NodeCapacity<'a> {
    pub(super) fn of(view: &View<'a>, node: &'a Node) -> Self {
        let pods = view.cache.pods.on_node(node.name()).filter(|pod| !pod.finished);
        let ports = pods.flat_map(|pod| pod.host_ports.iter()).collect();
        Self { node, load: view.cache.pods.load(node.name()), ports }
    }

    /// Whether a Pod fits.
    pub(super) fn accepts(&self, pod: &Pod, placement: &Placement) -> Result<(), FilterFailure> {
        if !self.node.ready && !placement.tolerates(&not_ready()) {
            return Err(FilterFailure::NotReady);
        }
        if self.node.unschedulable && !placement.tolerates(&unschedulable()) {
            return Err(FilterFailure::Unschedulable);
        }
        if !placement.matches(self.node) {
            return Err(FilterFailure::Unwanted);
        }
        if let Some(Taint { key, value, .. }) = placement.untolerated_taint(self.node) {
            return Err(FilterFailure::Tainted(if value.is_empty() {
                format!("{key}: ")
            } else {
                format!("{key}: {value}")
            }));
        }
        let wanted = || pod.host_ports.iter();
        if wanted().any(|port| self.ports.iter().any(|taken| taken.collides(port))) {
            return Err(FilterFailure::Ports);
        }
        self.has_room(pod)
    }

    /// Whether resources suffice; unknown capacity is unlimited.
    fn has_room(&self, pod: &Pod) -> Result<(), FilterFailure> {
        let after = self.load.with(pod);
        if self.node.pods.is_some_and(|limit| after.pods > limit) {
            return Err(FilterFailure::Full);
        }
        let cores = self.node.millicores;
        if cores > 0 && pod.requests.millicores > 0 && after.requests.millicores > cores {
            return Err(FilterFailure::Cpu);
        }
        if pod.requests.memory > 0 && self.node.memory.is_some_and(|limit| after.requests.memory > limit) {
            return Err(FilterFailure::Memory);
        }
        Ok(())
    }

    /// Adds a Pod.
    pub(super) fn take(&mut self, pod: &'a Pod) {
        self.load = self.load.with(pod);
        self.ports.extend(pod.host_ports.iter());
    }
}
