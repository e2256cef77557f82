//! Static rules: shared chains, marking, masquerading, forwarding, and the jumps into them.

use std::net::IpAddr;

use ipnet::IpNet;
use kernel::iptables::{Match, Rule, State, Table, Target, Transport};
use plan::Plan;

use super::context::{Context, Pods};
use super::fragment::Shared;
use super::names::{
    CANARY, EXTERNAL_SERVICES, FIREWALL, FORWARD, MARK_MASQ, MARK_NOT_POD, NODE_PORTS, POSTROUTING, SERVICES,
};

/// Mark bit of connections to masquerade.
const MARK: u32 = 0x4000;
/// Comment of the canary rule: distinguishes our rules from foreign rules in chains of the same name.
const CANARY_COMMENT: &str = "waypost";

/// Chains shared by Services.
pub(super) const SHARED: [(Table, &str); 6] = [
    (Table::Nat, SERVICES),
    (Table::Nat, NODE_PORTS),
    (Table::Filter, SERVICES),
    (Table::Filter, EXTERNAL_SERVICES),
    (Table::Filter, NODE_PORTS),
    (Table::Filter, FIREWALL),
];

/// The rule of the canary chain.
pub(super) fn canary() -> Rule {
    Rule::new(Target::Nothing).with_comment(CANARY_COMMENT)
}

/// Chains that do not depend on Services.
pub(super) fn chains(context: &Context) -> Vec<(Table, &'static str, Vec<Rule>)> {
    let marked = |not| Match::Marked { bits: MARK, not };
    let masquerade = vec![
        Rule::new(Target::Return).when(marked(true)),
        // Clear the mark, so that the packet is not masqueraded twice.
        Rule::new(Target::XorMark(MARK)),
        Rule::new(Target::Masquerade),
    ];
    let mut forward = Vec::new();
    if context.drop_invalid {
        forward.push(Rule::new(Target::Drop).when(Match::State(State::Invalid)));
    }
    forward.push(Rule::new(Target::Accept).when(marked(false)));
    forward.push(Rule::new(Target::Accept).when(Match::State(State::Known)));
    let mut chains = vec![
        (Table::Nat, MARK_MASQ, vec![Rule::new(Target::Mark(MARK))]),
        (Table::Nat, POSTROUTING, masquerade),
        (Table::Filter, FORWARD, forward),
    ];
    if let Pods::Ranges { all, .. } = &context.pods
        && all.len() > 1
    {
        let pods = all.iter().map(|range| Rule::new(Target::Return).when(Match::Source { range: *range, not: false }));
        chains.push((Table::Nat, MARK_NOT_POD, pods.chain([Rule::jump(MARK_MASQ)]).collect()));
    }
    chains.extend(Table::ALL.map(|table| (table, CANARY, vec![canary()])));
    chains
}

/// Rules in shared chains that do not belong to a Service port.
pub(super) fn shared(plan: &Plan, context: &Context) -> Vec<Shared> {
    let last = |table, chain, rule| Shared { table, chain, last: true, rule };
    let mut rules = Vec::new();
    for place in &context.node_ports {
        let rule = place.iter().cloned().fold(Rule::jump(NODE_PORTS), Rule::when);
        rules.push(last(Table::Nat, SERVICES, context.comment(rule, || "node ports".to_owned())));
    }
    rules.extend(context.ranges.iter().flat_map(|range| reject_unknown(context, *range)));
    for ((service, family), health) in &plan.health {
        if *family == context.family {
            let rule = Rule::new(Target::Accept).when(Match::Port(Transport::Tcp, health.port));
            let rule = context.comment(rule, || format!("{service} health check node port"));
            rules.push(Shared { table: Table::Filter, chain: NODE_PORTS, last: false, rule });
        }
    }
    rules
}

/// Rejects packets to Service addresses that were not translated: unknown address or port.
pub(super) fn reject_unknown(context: &Context, range: IpNet) -> [Shared; 2] {
    let refuse = |target, not| {
        let tcp = Match::Protocol { transport: Transport::Tcp, not };
        let rule = Rule::new(target).when(Match::Destination { range, not: false }).when(tcp);
        let rule = context.comment(rule, || "no such Service, or no such port".to_owned());
        Shared { table: Table::Filter, chain: SERVICES, last: true, rule }
    };
    [refuse(Target::Reset, false), refuse(Target::Reject, true)]
}

/// Whether a cluster IP is outside all ranges and needs its own reject rule.
pub(super) fn is_outside_ranges(context: &Context, ip: IpAddr) -> bool {
    api::ip::Family::of(ip) == context.family && !context.ranges.iter().any(|range| range.contains(&ip))
}

/// Jumps into our chains, per built-in chain, in order, before all other rules.
pub(super) fn jumps() -> Vec<(Table, &'static str, Vec<Rule>)> {
    let new = |chain| Rule::jump(chain).when(Match::State(State::New));
    let portals = |chain| vec![Rule::jump(chain).with_comment("kubernetes service portals")];
    let external = || new(EXTERNAL_SERVICES).with_comment("kubernetes externally-visible service portals");
    let services = || new(SERVICES).with_comment("kubernetes service portals");
    // After the rejects: allowed clients of a load balancer without endpoints are rejected, not dropped.
    let firewall = || new(FIREWALL).with_comment("kubernetes load balancer firewall");
    let health = Rule::jump(NODE_PORTS).with_comment("kubernetes health check service ports");
    let forward = Rule::jump(FORWARD).with_comment("kubernetes forwarding rules");
    vec![
        (Table::Nat, "PREROUTING", portals(SERVICES)),
        (Table::Nat, "OUTPUT", portals(SERVICES)),
        (Table::Nat, "POSTROUTING", vec![Rule::jump(POSTROUTING).with_comment("kubernetes postrouting rules")]),
        (Table::Filter, "INPUT", vec![external(), health, firewall()]),
        (Table::Filter, "FORWARD", vec![external(), services(), firewall(), forward]),
        (Table::Filter, "OUTPUT", vec![external(), services(), firewall()]),
    ]
}
