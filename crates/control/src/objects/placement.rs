//! Scheduling constraints of a Pod: requests, host ports, node selector, affinity, tolerations.
//!
//! In: parts of the Pod spec. Out: comparable sums and parsed selectors. Constraints are kept for unscheduled Pods only.

use api::quantity;
use api::selector::{self, Selector};
use api::value::ValueExt as _;
use api::view::node::Taint;
use api::view::pod::{Container, PodSpec};
use api::view::{Protocol, StringMap, taints};
use serde_json::{Value, json};

use super::node::Node;

/// The `schedulerName` of this scheduler.
pub(crate) const SCHEDULER: &str = "default-scheduler";

/// Resource requests of a Pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Requests {
    /// CPU, in millicores.
    pub millicores: u64,
    /// Memory, in bytes.
    pub memory: u64,
}

/// A hostPort of a Pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPort {
    /// Its protocol; none for an unknown one.
    pub protocol: Option<Protocol>,
    /// `hostIP`; empty for all addresses.
    pub address: Box<str>,
    /// The number.
    pub number: u16,
}

/// Node constraints and preferences of a Pod.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// The priority; higher values are scheduled first.
    pub priority: i32,
    /// `nodeSelector`
    pub labels: Selector,
    /// Required node affinity terms, of which one must match.
    pub required: Option<Box<[Term]>>,
    /// Preferred node affinity terms with weights.
    pub preferred: Box<[(i64, Term)]>,
    /// Tolerations.
    pub tolerations: Box<[Toleration]>,
    /// The last message of the PodScheduled condition.
    pub last_message: Option<Box<str>>,
}

/// A node selector term: all requirements must match. An empty term matches no node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Term {
    /// Label requirements; `None` when they are invalid.
    labels: Option<Selector>,
    /// Name requirements: `true` for In, `false` for NotIn.
    names: Vec<(bool, Vec<Box<str>>)>,
    empty: bool,
}

/// A toleration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Toleration {
    key: Box<str>,
    exists: bool,
    value: Box<str>,
    effect: Box<str>,
    /// `tolerationSeconds`; `None` is unlimited.
    pub seconds: Option<i64>,
}

/// The effective requests of a Pod: the maximum of the containers together and each init container, plus overhead.
pub(super) fn requests(spec: &PodSpec) -> Requests {
    let takes = |container: &Container| of(&container.resources.requests);
    let together = spec.running_containers().map(takes).fold(Requests::default(), Requests::plus);
    let most = spec.init_containers.iter().map(takes).fold(together, Requests::most);
    most.plus(of(&spec.overhead))
}

fn of(amounts: &StringMap) -> Requests {
    let get = |name: &str| amounts.get(name).and_then(quantity::thousandths).unwrap_or_default();
    Requests { millicores: get("cpu"), memory: get("memory").div_ceil(1000) }
}

impl Requests {
    /// The sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            millicores: self.millicores.saturating_add(other.millicores),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    /// The difference.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            millicores: self.millicores.saturating_sub(other.millicores),
            memory: self.memory.saturating_sub(other.memory),
        }
    }

    fn most(self, other: Self) -> Self {
        Self { millicores: self.millicores.max(other.millicores), memory: self.memory.max(other.memory) }
    }
}

/// The hostPorts of a Pod.
pub(super) fn host_ports(containers: &[Container]) -> Box<[HostPort]> {
    let ports = containers.iter().flat_map(|container| &container.ports).filter(|port| port.host_port != 0);
    ports
        .map(|port| HostPort { protocol: port.protocol, address: port.host_ip.clone(), number: port.host_port })
        .collect()
}

impl HostPort {
    /// Whether two hostPorts conflict on one node.
    #[must_use]
    pub fn collides(&self, other: &Self) -> bool {
        let any = |address: &str| matches!(address, "" | "0.0.0.0" | "::");
        self.number == other.number
            && self.protocol == other.protocol
            && (self.address == other.address || any(&self.address) || any(&other.address))
    }
}

impl Placement {
    /// Reads the constraints of a Pod.
    pub(crate) fn read(labels: &Value, affinity: &Value, tolerations: &[Value]) -> Self {
        let node = affinity.at("nodeAffinity");
        let required = node.at("requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = node.items("preferredDuringSchedulingIgnoredDuringExecution").iter();
        let terms = |list: &Value| list.items("nodeSelectorTerms").iter().map(Term::read).collect();
        Self {
            labels: selector::from_map(labels),
            required: (!required.is_null()).then(|| terms(required)),
            preferred: preferred.map(|one| (one.int("weight"), Term::read(one.at("preference")))).collect(),
            tolerations: tolerations.iter().map(Toleration::read).collect(),
            ..Self::default()
        }
    }

    /// Whether a node matches the node selector and the required affinity.
    #[must_use]
    pub fn matches(&self, node: &Node) -> bool {
        self.labels.matches(&node.entry.facts, "", node.name())
            && self.required.as_ref().is_none_or(|terms| terms.iter().any(|term| term.holds(node)))
    }

    /// The only node that the required affinity names in a term, as in Pods of DaemonSets.
    #[must_use]
    pub fn named_node(&self) -> Option<&str> {
        let mut names = self.required.iter().flatten().flat_map(|term| &term.names).filter(|(one_of, _)| *one_of);
        match &*names.next()?.1 {
            [name] => Some(name),
            _ => None,
        }
    }

    /// The sum of the weights of matching preferred terms.
    #[must_use]
    pub fn preference(&self, node: &Node) -> i64 {
        self.preferred.iter().filter(|(_, term)| term.holds(node)).map(|(weight, _)| weight).sum()
    }

    /// The first NoSchedule or NoExecute taint that is not tolerated.
    #[must_use]
    pub fn untolerated_taint<'n>(&self, node: &'n Node) -> Option<&'n Taint> {
        let hard = node.taints.iter().filter(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute"));
        hard.into_iter().find(|taint| !self.tolerates(taint))
    }

    /// The number of PreferNoSchedule taints that are not tolerated.
    #[must_use]
    pub fn untolerated_soft_taints(&self, node: &Node) -> usize {
        node.taints.iter().filter(|taint| &*taint.effect == "PreferNoSchedule" && !self.tolerates(taint)).count()
    }

    /// Whether a taint is tolerated.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.covers(taint))
    }
}

impl Term {
    fn read(term: &Value) -> Self {
        let (expressions, fields) = (term.items("matchExpressions"), term.items("matchFields"));
        let names = fields.iter().map(|one| {
            (one.text("operator") == "In", one.texts("values").into_iter().map(Box::from).collect::<Vec<_>>())
        });
        Self {
            labels: selector::from_requirements(expressions),
            names: names.collect(),
            empty: expressions.is_empty() && fields.is_empty(),
        }
    }

    fn holds(&self, node: &Node) -> bool {
        let named =
            |(one_of, names): &(bool, Vec<Box<str>>)| names.iter().any(|name| **name == *node.name()) == *one_of;
        !self.empty
            && self.labels.as_ref().is_some_and(|labels| labels.matches(&node.entry.facts, "", node.name()))
            && self.names.iter().all(named)
    }
}

impl Toleration {
    /// Reads a toleration.
    #[must_use]
    pub fn read(toleration: &Value) -> Self {
        let text = |field: &str| Box::from(toleration.text(field));
        Self {
            key: text("key"),
            exists: toleration.text("operator") == "Exists",
            value: text("value"),
            effect: text("effect"),
            seconds: toleration.at("tolerationSeconds").as_i64(),
        }
    }

    /// Whether it matches a taint.
    #[must_use]
    pub fn covers(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key == taint.key || (self.key.is_empty() && self.exists))
            && (self.exists || self.value == taint.value)
    }
}

/// The taint that corresponds to `spec.unschedulable`.
#[must_use]
pub(crate) fn unschedulable() -> Taint {
    Taint { key: taints::UNSCHEDULABLE.into(), effect: "NoSchedule".into(), ..Taint::default() }
}

/// The taint of a Node that is not ready.
#[must_use]
pub(crate) fn not_ready() -> Taint {
    Taint { key: taints::NOT_READY.into(), effect: "NoSchedule".into(), ..Taint::default() }
}

/// The PodScheduled condition of an unschedulable Pod.
#[must_use]
pub(crate) fn unscheduled(message: &str, now: &str) -> Value {
    json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastProbeTime": null, "lastTransitionTime": now,
    })
}
