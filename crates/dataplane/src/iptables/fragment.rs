//! What one Service port adds: rules in the chains that Services share, and chains of its own.
//!
//! ```text
//! KUBE-SERVICES ─▶ (KUBE-FW ─▶) KUBE-EXT ─▶ KUBE-SVC │ KUBE-SVL ─▶ KUBE-SEP ─▶ DNAT
//! ```
//! In: a Service port and the frontends it has. Out: everything that must be there because of it. Pure, so what was written for an
//! older version of the port is known by computing it again, and need not be kept.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use ipnet::IpNet;
use kernel::iptables::{Match, Name, Rule, Table, Target, Transport};
use plan::{Backend, Frontend, Protocol, Role, ServicePort};

use super::around::{Around, Pods};
use super::names::{EXTERNAL_SERVICES, FIREWALL, MARK_MASQ, NODE_PORTS, Names, SERVICES};

/// A rule in a chain that Services share. The order of such rules says nothing, but that the last come after all others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Shared {
    /// The table.
    pub(super) table: Table,
    /// The chain.
    pub(super) chain: &'static str,
    /// Whether it is one of the last.
    pub(super) last: bool,
    /// The rule.
    pub(super) rule: Rule,
}

/// What a Service port adds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Fragment {
    /// Rules in shared chains.
    pub(super) shared: BTreeSet<Shared>,
    /// Chains of its own, all of them in the table that translates.
    pub(super) chains: BTreeMap<Name, Vec<Rule>>,
}

/// What a Service port adds, given the frontends that are its own.
pub(super) fn of(around: &Around, port: &ServicePort, owned: &[(Frontend, Role)]) -> Fragment {
    let mut draft = Draft { around, port, names: Names::of(&port.key), fragment: Fragment::default() };
    for (frontend, role) in owned {
        draft.frontend(*frontend, *role);
    }
    draft.fragment
}

/// The transport of a protocol.
pub(super) const fn transport(protocol: Protocol) -> Transport {
    match protocol {
        Protocol::Tcp => Transport::Tcp,
        Protocol::Udp => Transport::Udp,
        Protocol::Sctp => Transport::Sctp,
    }
}

struct Draft<'a> {
    around: &'a Around,
    port: &'a ServicePort,
    names: Names,
    fragment: Fragment,
}

impl Draft<'_> {
    fn frontend(&mut self, frontend: Frontend, role: Role) {
        if role == Role::LoadBalancer {
            self.guard(frontend);
        }
        if !self.port.has_any {
            return self.refuse(frontend, role);
        }
        let port = self.port;
        let list = if port.internal_local { &port.local } else { &port.cluster };
        if role == Role::Cluster && list.is_empty() {
            return self.close(frontend, role, &Target::Drop, None);
        }
        if role != Role::Cluster && port.external_local && port.local.is_empty() {
            // Pods and the node itself may go elsewhere; what remains after that is lost.
            self.close(frontend, role, &Target::Drop, None);
        }
        let chain = match role {
            Role::Cluster => self.internal(),
            Role::LoadBalancer if port.source_ranges.is_some() => self.guarded(),
            Role::LoadBalancer | Role::External | Role::NodePort => self.external(),
        };
        let (shared, place) = match frontend {
            Frontend::Address(ip, _, number) => (SERVICES, vec![to(ip.into()), self.at(number)]),
            Frontend::NodePort(_, _, number) => (NODE_PORTS, vec![self.at(number)]),
        };
        let rule = place.into_iter().fold(Rule::jump(&chain), Rule::when);
        let rule = self.around.say(rule, || self.label(role));
        self.share(Table::Nat, shared, rule);
    }

    /// What a frontend is called.
    fn label(&self, role: Role) -> String {
        let kind = match role {
            Role::Cluster => " cluster IP",
            Role::LoadBalancer => " loadbalancer IP",
            Role::External => " external IP",
            Role::NodePort => "",
        };
        format!("{}{kind}", self.names.port)
    }

    fn at(&self, number: u16) -> Match {
        Match::Port(transport(self.port.key.protocol), number)
    }

    fn share(&mut self, table: Table, chain: &'static str, rule: Rule) {
        self.fragment.shared.insert(Shared { table, chain, last: false, rule });
    }

    /// Tells everybody who may ask that nobody is there.
    fn refuse(&mut self, frontend: Frontend, role: Role) {
        // A client heeds a reset at once, but an error message to its first packet only when it sends that again.
        let target = if self.port.key.protocol == Protocol::Tcp { Target::Reset } else { Target::Reject };
        match self.allowed().filter(|_| role == Role::LoadBalancer) {
            Some(ranges) => {
                for range in ranges {
                    self.close(frontend, role, &target, Some(range));
                }
            }
            None => self.close(frontend, role, &target, None),
        }
    }

    /// What happens to packets that were not translated.
    fn close(&mut self, frontend: Frontend, role: Role, target: &Target, from: Option<IpNet>) {
        let chain = if role == Role::Cluster { SERVICES } else { EXTERNAL_SERVICES };
        let places = match frontend {
            Frontend::Address(ip, _, number) => vec![vec![to(ip.into()), self.at(number)]],
            Frontend::NodePort(_, _, number) => {
                let with_port = |place: &Vec<Match>| [&place[..], &[self.at(number)]].concat();
                self.around.node_ports.iter().map(with_port).collect()
            }
        };
        let lacks = if *target == Target::Drop { "has no local endpoints" } else { "has no endpoints" };
        for place in places {
            let place = place.into_iter().chain(from.map(|range| Match::Source { range, not: false }));
            let rule = place.fold(Rule::new(target.clone()), Rule::when);
            let rule = self.around.say(rule, || format!("{} {lacks}", self.names.port));
            self.share(Table::Filter, chain, rule);
        }
    }

    /// Drops what uses a load balancer's address and was not let through to be translated, or refused in a kinder way.
    fn guard(&mut self, frontend: Frontend) {
        let (Some(_), Frontend::Address(ip, _, number)) = (&self.port.source_ranges, frontend) else { return };
        let rule = Rule::new(Target::Drop).when(to(ip.into())).when(self.at(number));
        let rule = self.around.say(rule, || format!("{} traffic not accepted by its load balancer", self.names.port));
        self.share(Table::Filter, FIREWALL, rule);
    }

    /// Who may use the load balancer: its own addresses too, where the node that has them may.
    fn allowed(&self) -> Option<Vec<IpNet>> {
        let own = self.port.lb_ips.iter().filter(|_| self.port.own_vips_allowed).map(|ip| IpNet::from(*ip));
        let all: Vec<IpNet> = self.port.source_ranges.as_ref()?.iter().copied().chain(own).collect();
        Some(IpNet::aggregate(&all))
    }

    /// The chain that lets only some use the load balancer.
    fn guarded(&mut self) -> Name {
        let (name, external) = (self.names.guarded(), self.external());
        let from = |range| Rule::jump(&external).when(Match::Source { range, not: false });
        let mut rules: Vec<Rule> = self.allowed().unwrap_or_default().into_iter().map(from).collect();
        // Not by way of a node port either.
        rules.push(Rule::new(Target::Accept));
        let rules = self.explained(rules, "loadbalancer IP");
        self.fragment.chains.insert(name.clone(), rules);
        name
    }

    fn explained(&self, rules: Vec<Rule>, what: &str) -> Vec<Rule> {
        let say = |rule| self.around.say(rule, || format!("{} {what}", self.names.port));
        rules.into_iter().map(say).collect()
    }

    /// The chain of traffic from outside.
    fn external(&mut self) -> Name {
        let name = self.names.external();
        if self.fragment.chains.contains_key(&name) {
            return name;
        }
        let anywhere = self.names.cluster();
        self.choose(anywhere.clone(), &self.port.cluster, None);
        let rules = if self.port.external_local {
            let mut rules = self.short_cuts(&anywhere);
            if !self.port.local.is_empty() {
                let here = self.names.local();
                self.choose(here.clone(), &self.port.local, None);
                rules.push(Rule::jump(&here));
            }
            rules
        } else {
            vec![Rule::jump(MARK_MASQ), Rule::jump(&anywhere)]
        };
        let rules = self.explained(rules, "external destinations");
        self.fragment.chains.insert(name.clone(), rules);
        name
    }

    /// What comes from a Pod or from the node itself is treated as if it had left the cluster and come back, by way of any node.
    fn short_cuts(&self, anywhere: &str) -> Vec<Rule> {
        let from = |target: &str, range: &IpNet| Rule::jump(target).when(Match::Source { range: *range, not: false });
        let mut rules = Vec::new();
        match &self.around.pods {
            Pods::Unknown => {}
            Pods::Ranges { all, here } => {
                rules.extend(here.iter().map(|range| from(anywhere, range)));
                // What goes from here to the Pod's own node would be answered past us: it must see us.
                let elsewhere = all.iter().filter(|range| !here.contains(range));
                rules.extend(elsewhere.flat_map(|range| [from(MARK_MASQ, range), from(anywhere, range)]));
            }
            Pods::Interface(name) => {
                rules.push(Rule::jump(anywhere).when(Match::Interface { name: name.clone(), not: false }));
            }
        }
        rules.extend([MARK_MASQ, anywhere].map(|target| Rule::jump(target).when(Match::FromHere)));
        rules
    }

    /// The chain of traffic to the cluster IP.
    fn internal(&mut self) -> Name {
        let port = self.port;
        let (name, list) = match port.internal_local {
            true => (self.names.local(), &port.local),
            false => (self.names.cluster(), &port.cluster),
        };
        let hidden = self.around.mark_strangers().map(|rule| {
            let rule = rule.when(to(port.cluster_ip.into())).when(self.at(port.port));
            self.around.say(rule, || self.label(Role::Cluster))
        });
        self.choose(name.clone(), list, hidden);
        name
    }

    /// A chain that chooses one of these, after a first rule. It may be there already, for traffic from elsewhere.
    fn choose(&mut self, name: Name, list: &[Backend], first: Option<Rule>) {
        if let Some(rules) = self.fragment.chains.get_mut(&name) {
            rules.splice(0..0, first);
            return;
        }
        let mut rules: Vec<Rule> = first.into_iter().collect();
        let chains: Vec<Name> = list.iter().map(|backend| self.endpoint(*backend)).collect();
        let explain = |rule: Rule, backend: &Backend| {
            let address = SocketAddr::new(backend.ip, backend.port);
            self.around.say(rule, || format!("{} -> {address}", self.names.port))
        };
        if let Some(seconds) = self.port.affinity {
            for (chain, backend) in chains.iter().zip(list) {
                let known = Rule::jump(chain).when(Match::Remembered { list: chain.clone(), seconds });
                rules.push(explain(known, backend));
            }
        }
        let counts = (1..=u32::try_from(list.len()).unwrap_or(u32::MAX)).rev();
        for ((chain, backend), left) in chains.iter().zip(list).zip(counts) {
            let rule = Rule::jump(chain);
            // The last of them takes what the others have left.
            let rule = if left > 1 { rule.when(Match::OneIn(left)) } else { rule };
            rules.push(explain(rule, backend));
        }
        self.fragment.chains.insert(name, rules);
    }

    /// The chain of an endpoint.
    fn endpoint(&mut self, backend: Backend) -> Name {
        let name = self.names.endpoint(backend);
        let mut rules = Vec::new();
        if self.port.hairpin.contains(&backend) {
            // It meets itself: it must not see its own address as the sender.
            rules.push(Rule::jump(MARK_MASQ).when(Match::Source { range: backend.ip.into(), not: false }));
        }
        let translate = Target::Translate(SocketAddr::new(backend.ip, backend.port));
        let protocol = Match::Protocol { transport: transport(self.port.key.protocol), not: false };
        let mut rule = Rule::new(translate).when(protocol);
        if self.port.affinity.is_some() {
            rule = rule.when(Match::Remember { list: name.clone() });
        }
        rules.push(rule);
        let say = |rule| self.around.say(rule, || self.names.port.clone());
        self.fragment.chains.insert(name.clone(), rules.into_iter().map(say).collect());
        name
    }
}

/// Whether a packet goes there.
fn to(range: IpNet) -> Match {
    Match::Destination { range, not: false }
}
