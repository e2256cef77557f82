//! Whether a node takes a Pod, and why not.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use api::view::node::Taint;

use crate::controller::View;
use crate::objects::node::Node;
use crate::objects::placement::{HostPort, Placement, unschedulable};
use crate::objects::pod::Pod;
use crate::world::Load;

/// A node, and what is taken from it.
pub(super) struct Room<'a> {
    pub(super) node: &'a Node,
    pub(super) load: Load,
    ports: Vec<&'a HostPort>,
}

/// Why a node does not take a Pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unfit {
    NotReady,
    Unschedulable,
    Unwanted,
    Tainted(String),
    Ports,
    Cpu,
    Memory,
    Full,
}

impl Display for Unfit {
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

/// What is said to a Pod that finds no node: how many there are, and what is wrong with how many of them.
pub(super) fn explain(nodes: usize, reasons: Vec<Unfit>) -> String {
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

impl<'a> Room<'a> {
    pub(super) fn of(view: &View<'a>, node: &'a Node) -> Self {
        let pods = view.world.pods.on_node(node.name()).filter(|pod| !pod.finished);
        let ports = pods.flat_map(|pod| pod.host_ports.iter()).collect();
        Self { node, load: view.world.pods.load(node.name()), ports }
    }

    /// Whether a Pod may come here.
    pub(super) fn takes(&self, pod: &Pod, placement: &Placement) -> Result<(), Unfit> {
        if !self.node.ready {
            return Err(Unfit::NotReady);
        }
        if self.node.unschedulable && !placement.tolerates(&unschedulable()) {
            return Err(Unfit::Unschedulable);
        }
        if !placement.wants(self.node) {
            return Err(Unfit::Unwanted);
        }
        if let Some(Taint { key, value, .. }) = placement.repelled(self.node) {
            return Err(Unfit::Tainted(if value.is_empty() { format!("{key}: ") } else { format!("{key}: {value}") }));
        }
        let wanted = || pod.host_ports.iter();
        if wanted().any(|port| self.ports.iter().any(|taken| taken.collides(port))) {
            return Err(Unfit::Ports);
        }
        self.has_room(pod)
    }

    /// A node that does not say what it has has enough.
    fn has_room(&self, pod: &Pod) -> Result<(), Unfit> {
        let after = self.load.with(pod);
        if self.node.pods.is_some_and(|limit| after.pods > limit) {
            return Err(Unfit::Full);
        }
        let cores = self.node.millicores;
        if cores > 0 && pod.requests.millicores > 0 && after.requests.millicores > cores {
            return Err(Unfit::Cpu);
        }
        if pod.requests.memory > 0 && self.node.memory.is_some_and(|limit| after.requests.memory > limit) {
            return Err(Unfit::Memory);
        }
        Ok(())
    }

    /// A Pod comes here.
    pub(super) fn take(&mut self, pod: &'a Pod) {
        self.load = self.load.with(pod);
        self.ports.extend(pod.host_ports.iter());
    }
}
