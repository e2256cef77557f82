//! What is there whatever the Services: the chains that they share, those that mark, masquerade and forward, and how packets get
//! into them.

use std::net::IpAddr;

use ipnet::IpNet;
use kernel::iptables::{Match, Rule, State, Table, Target, Transport};
use plan::Plan;

use super::around::{Around, Pods};
use super::fragment::Shared;
use super::names::{
    CANARY, EXTERNAL_SERVICES, FIREWALL, FORWARD, MARK_MASQ, MARK_NOT_POD, NODE_PORTS, POSTROUTING, SERVICES,
};

/// The bit that says: masquerade this connection.
const MARK: u32 = 0x4000;
/// What the canary sings: the rules are ours and not of another program that uses the same names.
const SONG: &str = "waypost";

/// The chains that Services share.
pub(super) const SHARED: [(Table, &str); 6] = [
    (Table::Nat, SERVICES),
    (Table::Nat, NODE_PORTS),
    (Table::Filter, SERVICES),
    (Table::Filter, EXTERNAL_SERVICES),
    (Table::Filter, NODE_PORTS),
    (Table::Filter, FIREWALL),
];

/// The only rule of the canary.
pub(super) fn canary() -> Rule {
    Rule::new(Target::Nothing).says(SONG)
}

/// The chains whose rules follow from no Service.
pub(super) fn chains(around: &Around) -> Vec<(Table, &'static str, Vec<Rule>)> {
    let marked = |not| Match::Marked { bits: MARK, not };
    let masquerade = vec![
        Rule::new(Target::Return).when(marked(true)),
        // Should the packet come by again, it is not to be masqueraded twice.
        Rule::new(Target::Turn(MARK)),
        Rule::new(Target::Masquerade),
    ];
    let mut forward = Vec::new();
    if around.drop_invalid {
        forward.push(Rule::new(Target::Drop).when(Match::State(State::Invalid)));
    }
    forward.push(Rule::new(Target::Accept).when(marked(false)));
    forward.push(Rule::new(Target::Accept).when(Match::State(State::Known)));
    let mut chains = vec![
        (Table::Nat, MARK_MASQ, vec![Rule::new(Target::Mark(MARK))]),
        (Table::Nat, POSTROUTING, masquerade),
        (Table::Filter, FORWARD, forward),
    ];
    if let Pods::Ranges { all, .. } = &around.pods
        && all.len() > 1
    {
        let pods = all.iter().map(|range| Rule::new(Target::Return).when(Match::Source { range: *range, not: false }));
        chains.push((Table::Nat, MARK_NOT_POD, pods.chain([Rule::jump(MARK_MASQ)]).collect()));
    }
    chains.extend(Table::ALL.map(|table| (table, CANARY, vec![canary()])));
    chains
}

/// Rules in shared chains that follow from no single Service port.
pub(super) fn shared(plan: &Plan, around: &Around) -> Vec<Shared> {
    let last = |table, chain, rule| Shared { table, chain, last: true, rule };
    let mut rules = Vec::new();
    for place in &around.node_ports {
        let rule = place.iter().cloned().fold(Rule::jump(NODE_PORTS), Rule::when);
        rules.push(last(Table::Nat, SERVICES, around.say(rule, || "node ports".to_owned())));
    }
    rules.extend(around.ranges.iter().flat_map(|range| unknown(around, *range)));
    for ((service, family), health) in &plan.health {
        if *family == around.family {
            let rule = Rule::new(Target::Accept).when(Match::Port(Transport::Tcp, health.port));
            let rule = around.say(rule, || format!("{service} health check node port"));
            rules.push(Shared { table: Table::Filter, chain: NODE_PORTS, last: false, rule });
        }
    }
    rules
}

/// Refuses what is sent to addresses of Services and was not translated: no Service has the address, or it lacks the port.
pub(super) fn unknown(around: &Around, range: IpNet) -> [Shared; 2] {
    let refuse = |target, not| {
        let tcp = Match::Protocol { transport: Transport::Tcp, not };
        let rule = Rule::new(target).when(Match::Destination { range, not: false }).when(tcp);
        let rule = around.say(rule, || "no such Service, or no such port".to_owned());
        Shared { table: Table::Filter, chain: SERVICES, last: true, rule }
    };
    [refuse(Target::Reset, false), refuse(Target::Reject, true)]
}

/// Whether a cluster IP lies outside all ranges, and needs rules of its own to be refused.
pub(super) fn is_odd(around: &Around, ip: IpAddr) -> bool {
    api::ip::Family::of(ip) == around.family && !around.ranges.iter().any(|range| range.contains(&ip))
}

/// How packets get into our chains: per chain of the kernel, in this order before everything else.
pub(super) fn jumps() -> Vec<(Table, &'static str, Vec<Rule>)> {
    let new = |chain| Rule::jump(chain).when(Match::State(State::New));
    let portals = |chain| vec![Rule::jump(chain).says("kubernetes service portals")];
    let external = || new(EXTERNAL_SERVICES).says("kubernetes externally-visible service portals");
    let services = || new(SERVICES).says("kubernetes service portals");
    // After those that refuse: whoever may use a load balancer is told that nobody is there, and is not left to wait.
    let firewall = || new(FIREWALL).says("kubernetes load balancer firewall");
    let health = Rule::jump(NODE_PORTS).says("kubernetes health check service ports");
    let forward = Rule::jump(FORWARD).says("kubernetes forwarding rules");
    vec![
        (Table::Nat, "PREROUTING", portals(SERVICES)),
        (Table::Nat, "OUTPUT", portals(SERVICES)),
        (Table::Nat, "POSTROUTING", vec![Rule::jump(POSTROUTING).says("kubernetes postrouting rules")]),
        (Table::Filter, "INPUT", vec![external(), health, firewall()]),
        (Table::Filter, "FORWARD", vec![external(), services(), firewall(), forward]),
        (Table::Filter, "OUTPUT", vec![external(), services(), firewall()]),
    ]
}
