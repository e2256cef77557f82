//! What decides where a Pod goes: what it takes from a node, and which nodes it wants.
//!
//! In: parts of the spec of a Pod. Out: sums that can be compared, selectors that can be asked. The wishes are kept only
//! for Pods that wait for a node; most Pods have one.

use api::quantity;
use api::selector::{self, Selector};
use api::value::ValueExt as _;
use api::view::node::Taint;
use api::view::pod::{Container, PodSpec};
use api::view::{Protocol, StringMap, taints};
use serde_json::{Value, json};

use super::node::Node;

/// The name of our scheduler in the spec of a Pod.
pub(crate) const SCHEDULER: &str = "default-scheduler";

/// What a Pod takes from its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Requests {
    /// Processors, in thousandths of one.
    pub millicores: u64,
    /// Memory, in bytes.
    pub memory: u64,
}

/// A port of its node that a Pod takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPort {
    /// Its protocol; none for an unknown one.
    pub protocol: Option<Protocol>,
    /// The address, empty for all.
    pub address: Box<str>,
    /// The number.
    pub number: u16,
}

/// Where a Pod may go, and where it would like to go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// Who comes first: the larger.
    pub priority: i32,
    /// Labels that its node must have.
    pub labels: Selector,
    /// One of these must hold for its node; none when any node will do.
    pub required: Option<Box<[Term]>>,
    /// What it would like, and how much.
    pub preferred: Box<[(i64, Term)]>,
    /// What it puts up with.
    pub tolerations: Box<[Toleration]>,
    /// What was last said of why it has no node.
    pub told: Option<Box<str>>,
}

/// What a node must be; all of it. Nothing at all means no node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Term {
    /// Its labels; none when what is asked makes no sense.
    labels: Option<Selector>,
    /// Its name: `true` for one of these, `false` for none of these.
    names: Vec<(bool, Vec<Box<str>>)>,
    empty: bool,
}

/// Something that a Pod puts up with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Toleration {
    key: Box<str>,
    exists: bool,
    value: Box<str>,
    effect: Box<str>,
    /// For how many seconds; none for ever.
    pub seconds: Option<i64>,
}

/// What all containers of a Pod take together. Those that run before the others take it before them.
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
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            millicores: self.millicores.saturating_add(other.millicores),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    /// Without the other.
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

/// The ports of its node that a Pod takes.
pub(super) fn host_ports(containers: &[Container]) -> Box<[HostPort]> {
    let ports = containers.iter().flat_map(|container| &container.ports).filter(|port| port.host_port != 0);
    ports
        .map(|port| HostPort { protocol: port.protocol, address: port.host_ip.clone(), number: port.host_port })
        .collect()
}

impl HostPort {
    /// Whether two Pods with these cannot be on one node.
    #[must_use]
    pub fn collides(&self, other: &Self) -> bool {
        let any = |address: &str| matches!(address, "" | "0.0.0.0" | "::");
        self.number == other.number
            && self.protocol == other.protocol
            && (self.address == other.address || any(&self.address) || any(&other.address))
    }
}

impl Placement {
    /// Reads the wishes of a Pod.
    pub(super) fn read(labels: &Value, affinity: &Value, tolerations: &[Value]) -> Self {
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

    /// Whether the Pod may go to a node, as far as labels and names are concerned.
    #[must_use]
    pub fn wants(&self, node: &Node) -> bool {
        self.labels.matches(&node.entry.facts, "", node.name())
            && self.required.as_ref().is_none_or(|terms| terms.iter().any(|term| term.holds(node)))
    }

    /// How much the Pod would like a node.
    #[must_use]
    pub fn liking(&self, node: &Node) -> i64 {
        self.preferred.iter().filter(|(_, term)| term.holds(node)).map(|(weight, _)| weight).sum()
    }

    /// The first taint of a node that keeps the Pod away.
    #[must_use]
    pub fn repelled<'n>(&self, node: &'n Node) -> Option<&'n Taint> {
        let hard = node.taints.iter().filter(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute"));
        hard.into_iter().find(|taint| !self.tolerates(taint))
    }

    /// How many taints of a node the Pod would rather not meet.
    #[must_use]
    pub fn reluctance(&self, node: &Node) -> usize {
        node.taints.iter().filter(|taint| &*taint.effect == "PreferNoSchedule" && !self.tolerates(taint)).count()
    }

    /// Whether the Pod puts up with a taint.
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
    /// Reads what a Pod puts up with.
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

    /// Whether this is about a taint.
    #[must_use]
    pub fn covers(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key == taint.key || (self.key.is_empty() && self.exists))
            && (self.exists || self.value == taint.value)
    }
}

/// A taint of a node that is not meant to have more Pods, as if it had been written.
#[must_use]
pub(crate) fn unschedulable() -> Taint {
    Taint { key: taints::UNSCHEDULABLE.into(), effect: "NoSchedule".into(), ..Taint::default() }
}

/// The condition of a Pod that found no node.
#[must_use]
pub(crate) fn unscheduled(message: &str, now: &str) -> Value {
    json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastProbeTime": null, "lastTransitionTime": now,
    })
}
