//! What happens to one packet on a node, step by step.
//!
//! In: a plan and a packet. Out: the steps in the order in which the node takes them, and the verdict of
//! [`oracle::judge`], which is asked itself: the steps only say how it comes about.

use std::fmt;

use crate::claims::Role;
use crate::oracle::{self, Forward, Outcome, Packet};
use crate::plan::Plan;
use crate::service_port::ServicePort;

/// What happens to a packet.
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
    /// What is looked at.
    pub at: At,
    /// What is found.
    pub says: String,
}

/// What is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum At {
    /// Who sends.
    Sender,
    /// Where it is sent.
    Frontend,
    /// Who may use the load balancer.
    SourceRanges,
    /// Whether there is an endpoint at all.
    Endpoints,
    /// The traffic policy.
    Policy,
    /// Who may answer.
    Candidates,
    /// Whether the sender stays with whom it had.
    Affinity,
    /// Whom the endpoint sees.
    Source,
    /// The end.
    Verdict,
}

impl At {
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
            Self::Affinity => "affinity",
            Self::Source => "source address",
            Self::Verdict => "verdict",
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Follows a packet.
#[must_use]
pub fn trace(plan: &Plan, packet: &Packet) -> Trace {
    let outcome = oracle::judge(plan, packet);
    let mut steps = vec![Step { at: At::Sender, says: sender(plan, packet) }];
    match oracle::find(plan, packet) {
        None => steps.push(Step { at: At::Frontend, says: "no Service has this address and port".to_owned() }),
        Some((role, port)) => follow(plan, packet, (role, port), &outcome, &mut steps),
    }
    steps.push(Step { at: At::Verdict, says: verdict(&outcome) });
    Trace { steps, outcome }
}

fn follow(plan: &Plan, packet: &Packet, (role, port): (Role, &ServicePort), outcome: &Outcome, steps: &mut Vec<Step>) {
    let mut step = |at, says| steps.push(Step { at, says });
    let article = if role == Role::External { "an" } else { "a" };
    step(At::Frontend, format!("{} {} is {article} {role} of {}", packet.protocol, place(packet), port.key));
    if role == Role::LoadBalancer
        && let Some(ranges) = &port.source_ranges
    {
        let list: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        let list = if list.is_empty() { "nobody of this family".to_owned() } else { list.join(", ") };
        let may = oracle::may_use(plan, port, packet.source);
        let says = if may { "the sender is among them" } else { "the sender is not among them" };
        step(At::SourceRanges, format!("loadBalancerSourceRanges let in {list}: {says}"));
        if !may {
            return;
        }
    }
    if !port.has_any {
        step(At::Endpoints, "there is no endpoint that could answer".to_owned());
        return;
    }
    let course = oracle::course(plan, role, port, packet);
    step(At::Policy, course.rule.to_string());
    let Outcome::Forward(forward) = outcome else {
        step(At::Candidates, "none".to_owned());
        return;
    };
    step(At::Candidates, shares(forward));
    if let Some(seconds) = forward.affinity {
        step(At::Affinity, format!("a sender that was here in the last {seconds} s keeps the endpoint it had"));
    }
    let says = match course.masked {
        Some(why) => format!("the endpoint sees the node: {why}"),
        None if forward.hairpin.is_empty() => format!("kept: the endpoint sees {}", packet.source),
        None => format!("kept, unless the sender meets itself: {} then sees the node", packet.source),
    };
    step(At::Source, says);
}

/// Where a packet is sent.
fn place(packet: &Packet) -> String {
    std::net::SocketAddr::new(packet.destination, packet.port).to_string()
}

fn shares(forward: &Forward) -> String {
    match forward.backends.len() {
        1 => "one endpoint, which gets all new connections".to_owned(),
        count => format!("{count} endpoints, each gets 1 of {count} new connections"),
    }
}

/// How the node sees the sender.
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
        format!("{source} is no Pod, and not this node")
    } else {
        format!("{source} is not this node; this node does not tell Pods from others in its family")
    }
}

fn verdict(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Pass => "passed on untouched: it is no business of the proxy".to_owned(),
        Outcome::Refuse(why) => format!("refused at once: {why}"),
        Outcome::Drop(why) => format!("dropped without an answer: {why}"),
        Outcome::Forward(forward) => match &forward.backends[..] {
            [only] => format!("forwarded to {}", std::net::SocketAddr::new(only.ip, only.port)),
            several => format!("forwarded to one of {} endpoints", several.len()),
        },
    }
}
