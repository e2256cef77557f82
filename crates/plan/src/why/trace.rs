//! Traces one packet on a node, step by step.
//!
//! In: a plan and a packet. Out: the steps in the order in which the node takes them, and the outcome of
//! [`oracle::judge`]; the steps only explain it.

use std::fmt;
use std::net::SocketAddr;

use crate::balancing::Balancing;
use crate::claims::Role;
use crate::oracle::{self, Forward, Outcome, Packet, Rule};
use crate::plan::Plan;
use crate::redirect::RedirectedFrontends;
use crate::service_port::{Backend, ServicePort};
use crate::why::sentences::LAYER7;

/// Weighted endpoints that a step names.
const NAMED: usize = 8;

/// Trace of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The verdict.
    pub outcome: Outcome,
}

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Stage of processing.
    pub at: Stage,
    /// Finding.
    pub says: String,
}

/// Stage of processing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Source.
    Sender,
    /// Frontend lookup.
    Frontend,
    /// loadBalancerSourceRanges.
    SourceRanges,
    /// Endpoints of the Service.
    Endpoints,
    /// Traffic policy.
    Policy,
    /// Selected endpoints.
    Candidates,
    /// Load-balancing policy.
    Balancing,
    /// Session affinity.
    Affinity,
    /// Source address seen by the endpoint.
    Source,
    /// Verdict.
    Verdict,
}

impl Stage {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Frontend => "frontend",
            Self::SourceRanges => "source ranges",
            Self::Endpoints => "endpoints",
            Self::Policy => "policy",
            Self::Candidates => "candidates",
            Self::Balancing => "load balancing",
            Self::Affinity => "affinity",
            Self::Source => "source address",
            Self::Verdict => "verdict",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Traces a packet.
#[must_use]
pub fn trace(plan: &Plan, packet: &Packet) -> Trace {
    let outcome = oracle::judge(plan, packet);
    let mut steps = vec![Step { at: Stage::Sender, says: sender(plan, packet) }];
    match oracle::find(plan, packet) {
        None => steps.push(Step { at: Stage::Frontend, says: "no Service has this address and port".to_owned() }),
        Some((role, port)) => follow(plan, packet, (role, port), &outcome, &mut steps),
    }
    steps.push(Step { at: Stage::Verdict, says: verdict(&outcome) });
    Trace { steps, outcome }
}

fn follow(plan: &Plan, packet: &Packet, (role, port): (Role, &ServicePort), outcome: &Outcome, steps: &mut Vec<Step>) {
    let mut step = |at, says| steps.push(Step { at, says });
    let article = if role == Role::External { "an" } else { "a" };
    step(Stage::Frontend, format!("{} {} is {article} {role} of {}", packet.protocol, place(packet), port.key));
    if role == Role::LoadBalancer
        && let Some(ranges) = &port.source_ranges
    {
        let list: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        let list = if list.is_empty() { "no address of this family".to_owned() } else { list.join(", ") };
        let may = oracle::may_use(plan, port, packet.source);
        let says = if may { "the sender is allowed" } else { "the sender is not allowed" };
        step(Stage::SourceRanges, format!("loadBalancerSourceRanges allow {list}: {says}"));
        if !may {
            return;
        }
    }
    if !port.has_any {
        step(Stage::Endpoints, "no endpoint can serve".to_owned());
        return;
    }
    let treatment = oracle::treatment(plan, role, port, packet);
    step(Stage::Policy, policy(port, treatment.rule));
    let Outcome::Forward(forward) = outcome else {
        step(Stage::Candidates, "none".to_owned());
        return;
    };
    step(Stage::Candidates, shares(forward));
    if port.balancing != Balancing::Random {
        step(Stage::Balancing, balancing(forward));
    }
    if let Some(seconds) = forward.affinity {
        step(Stage::Affinity, format!("a client that connected within the last {seconds} s keeps its endpoint"));
    }
    let says = match treatment.masquerade_reason {
        Some(why) => format!("the endpoint sees the node: {why}"),
        None if forward.hairpin.is_empty() => format!("kept: the endpoint sees {}", packet.source),
        None => format!("kept, except for hairpin traffic: {} then sees the node", packet.source),
    };
    step(Stage::Source, says);
}

/// Which endpoints may answer.
fn policy(port: &ServicePort, rule: Rule) -> String {
    match port.served_by() {
        Some(target) => format!("redirected to {target} without a listener: any of its endpoints may answer"),
        None => match port.key.redirected {
            Some(RedirectedFrontends::LoadBalancer) => {
                "redirected to a listener on this node: no endpoint of the Service may answer".to_owned()
            }
            Some(RedirectedFrontends::ClusterIp) => format!("served at layer 7: {LAYER7}"),
            None => rule.to_string(),
        },
    }
}

/// Destination of a packet.
fn place(packet: &Packet) -> String {
    SocketAddr::new(packet.destination, packet.port).to_string()
}

fn shares(forward: &Forward) -> String {
    match forward.backends.len() {
        1 => "one endpoint, which gets all new connections".to_owned(),
        count if forward.balancing != Balancing::Random => format!("{count} endpoints"),
        count => format!("{count} endpoints, each gets 1 of {count} new connections"),
    }
}

/// How an endpoint is selected.
fn balancing(forward: &Forward) -> String {
    let policy = forward.balancing.policy();
    let selects = match (&forward.balancing, forward.hashed) {
        (Balancing::Random, _) => "any endpoint, each as likely as the others".to_owned(),
        (Balancing::RoundRobin, _) => "each endpoint in turn".to_owned(),
        (Balancing::LeastConnections, _) => "the endpoint with the fewest connections".to_owned(),
        (Balancing::Maglev(_), Some(Backend { ip, port })) => {
            format!("the address of the sender selects {}", SocketAddr::new(ip, port))
        }
        (Balancing::Maglev(_), None) => {
            "the address of the sender selects the endpoint, by a hash of the kernel's scheduler".to_owned()
        }
        (Balancing::Leader, _) => "the endpoint whose Pod holds the Lease".to_owned(),
        (Balancing::Weighted(_), _) => {
            let share = |one: &Backend| {
                let (share, of) = forward.share(one);
                format!("{} gets {share} of {of}", SocketAddr::new(one.ip, one.port))
            };
            let named: Vec<String> = forward.backends.iter().take(NAMED).map(share).collect();
            let rest = if forward.backends.len() > NAMED { ", …" } else { "" };
            format!("any endpoint, by weight: {}{rest}", named.join(", "))
        }
    };
    format!("{policy}: {selects}")
}

/// How the node classifies the source.
fn sender(plan: &Plan, packet: &Packet) -> String {
    let source = packet.source;
    let detector = &plan.options.local;
    if packet.from_node {
        format!("{source} is this node itself")
    } else if detector.is_local(source, packet.interface.as_deref()) {
        match plan.is_pod_elsewhere(source) {
            true => format!("{source} is a Pod of another node"),
            false => format!("{source} is a Pod"),
        }
    } else if detector.knows(source.is_ipv4()) {
        format!("{source} is neither a Pod nor this node")
    } else {
        format!("{source} is not this node; Pods of its family cannot be detected")
    }
}

fn verdict(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Pass => "passed on unchanged: not a Service".to_owned(),
        Outcome::Refuse(why) => format!("rejected: {why}"),
        Outcome::Drop(why) => format!("dropped silently: {why}"),
        Outcome::Forward(forward) => match forward.possible() {
            [only] => format!("forwarded to {}", SocketAddr::new(only.ip, only.port)),
            several => format!("forwarded to one of {} endpoints", several.len()),
        },
    }
}
