//! Rules of one Service port: in shared chains, and in chains of its own.
//!
//! ```text
//! KUBE-SERVICES ─▶ (KUBE-FW ─▶) KUBE-EXT ─▶ KUBE-SVC │ KUBE-SVL ─▶ KUBE-SEP ─▶ DNAT
//! ```
//! In: a Service port and the frontends it owns. Out: its rules. Pure: the rules of an older version of the port are
//! recomputed instead of stored.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use ipnet::IpNet;
use kernel::iptables::{Match, Name, Rule, Table, Target, Transport};
use plan::{Backend, Balancing, Frontend, Protocol, Role, ServicePort};

use super::context::{Context, Pods};
use super::names::{EXTERNAL_SERVICES, FIREWALL, MARK_MASQ, NODE_PORTS, Names, SERVICES};

/// A rule in a shared chain. The order of these rules does not matter, except that `last` ones come after all others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Shared {
    /// Its table.
    pub(super) table: Table,
    /// Its chain.
    pub(super) chain: &'static str,
    /// Whether it comes after the others.
    pub(super) last: bool,
    /// The rule.
    pub(super) rule: Rule,
}

/// Rules of a Service port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Fragment {
    /// Rules in shared chains.
    pub(super) shared: BTreeSet<Shared>,
    /// Chains of its own, all in the nat table.
    pub(super) chains: BTreeMap<Name, Vec<Rule>>,
}

/// Rules of a Service port that owns these frontends.
pub(super) fn of(context: &Context, port: &ServicePort, owned: &[(Frontend, Role)]) -> Fragment {
    let mut builder = Builder { context, port, names: Names::of(&port.key), fragment: Fragment::default() };
    for (frontend, role) in owned {
        builder.frontend(*frontend, *role);
    }
    builder.fragment
}

/// The kernel crate's type of a protocol.
pub(super) const fn transport(protocol: Protocol) -> Transport {
    match protocol {
        Protocol::Tcp => Transport::Tcp,
        Protocol::Udp => Transport::Udp,
        Protocol::Sctp => Transport::Sctp,
    }
}

struct Builder<'a> {
    context: &'a Context,
    port: &'a ServicePort,
    names: Names,
    fragment: Fragment,
}

impl Builder<'_> {
    fn frontend(&mut self, frontend: Frontend, role: Role) {
        if role == Role::LoadBalancer {
            self.drop_unaccepted(frontend);
        }
        if !self.port.has_any {
            return self.reject(frontend, role);
        }
        let port = self.port;
        let list = if port.internal_local { &port.local } else { &port.cluster };
        if role == Role::Cluster && list.is_empty() {
            return self.handle_untranslated(frontend, role, &Target::Drop, None);
        }
        if role != Role::Cluster && port.external_local && port.local.is_empty() {
            // Traffic of Pods and of the node itself may use other nodes; the rest is dropped.
            self.handle_untranslated(frontend, role, &Target::Drop, None);
        }
        let chain = match role {
            Role::Cluster => self.internal(),
            Role::LoadBalancer if port.source_ranges.is_some() => self.firewall_chain(),
            Role::LoadBalancer | Role::External | Role::NodePort => self.external(),
        };
        let (shared, place) = match frontend {
            Frontend::Address(ip, _, number) => (SERVICES, vec![to(ip.into()), self.at(number)]),
            Frontend::NodePort(_, _, number) => (NODE_PORTS, vec![self.at(number)]),
        };
        let rule = place.into_iter().fold(Rule::jump(&chain), Rule::when);
        let rule = self.context.comment(rule, || self.label(role));
        self.share(Table::Nat, shared, rule);
    }

    /// Comment of a frontend's rules.
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

    /// Rejects traffic of all allowed sources: there is no endpoint.
    fn reject(&mut self, frontend: Frontend, role: Role) {
        // A client reacts to a reset at once, but to an ICMP error for its SYN only at the next retransmission.
        let target = if self.port.key.protocol == Protocol::Tcp { Target::Reset } else { Target::Reject };
        match self.allowed().filter(|_| role == Role::LoadBalancer) {
            Some(ranges) => {
                for range in ranges {
                    self.handle_untranslated(frontend, role, &target, Some(range));
                }
            }
            None => self.handle_untranslated(frontend, role, &target, None),
        }
    }

    /// Adds a filter rule for packets that were not translated.
    fn handle_untranslated(&mut self, frontend: Frontend, role: Role, target: &Target, from: Option<IpNet>) {
        let chain = if role == Role::Cluster { SERVICES } else { EXTERNAL_SERVICES };
        let places = match frontend {
            Frontend::Address(ip, _, number) => vec![vec![to(ip.into()), self.at(number)]],
            Frontend::NodePort(_, _, number) => {
                let with_port = |place: &Vec<Match>| [&place[..], &[self.at(number)]].concat();
                self.context.node_ports.iter().map(with_port).collect()
            }
        };
        let lacks = if *target == Target::Drop { "has no local endpoints" } else { "has no endpoints" };
        for place in places {
            let place = place.into_iter().chain(from.map(|range| Match::Source { range, not: false }));
            let rule = place.fold(Rule::new(target.clone()), Rule::when);
            let rule = self.context.comment(rule, || format!("{} {lacks}", self.names.port));
            self.share(Table::Filter, chain, rule);
        }
    }

    /// Drops packets to a load balancer address that were neither translated nor rejected.
    fn drop_unaccepted(&mut self, frontend: Frontend) {
        let (Some(_), Frontend::Address(ip, _, number)) = (&self.port.source_ranges, frontend) else { return };
        let rule = Rule::new(Target::Drop).when(to(ip.into())).when(self.at(number));
        let rule =
            self.context.comment(rule, || format!("{} traffic not accepted by its load balancer", self.names.port));
        self.share(Table::Filter, FIREWALL, rule);
    }

    /// Allowed sources of the load balancer, including its own addresses where the node may use them.
    fn allowed(&self) -> Option<Vec<IpNet>> {
        let own = self.port.lb_ips.iter().filter(|_| self.port.own_vips_allowed).map(|ip| IpNet::from(*ip));
        let all: Vec<IpNet> = self.port.source_ranges.as_ref()?.iter().copied().chain(own).collect();
        Some(IpNet::aggregate(&all))
    }

    /// The chain that admits only allowed sources.
    fn firewall_chain(&mut self) -> Name {
        let (name, external) = (self.names.firewall(), self.external());
        let from = |range| Rule::jump(&external).when(Match::Source { range, not: false });
        let mut rules: Vec<Rule> = self.allowed().unwrap_or_default().into_iter().map(from).collect();
        // Not through a node port either.
        rules.push(Rule::new(Target::Accept));
        let rules = self.commented(rules, "loadbalancer IP");
        self.fragment.chains.insert(name.clone(), rules);
        name
    }

    fn commented(&self, rules: Vec<Rule>, what: &str) -> Vec<Rule> {
        let comment = |rule| self.context.comment(rule, || format!("{} {what}", self.names.port));
        rules.into_iter().map(comment).collect()
    }

    /// The chain of external traffic.
    fn external(&mut self) -> Name {
        let name = self.names.external();
        if self.fragment.chains.contains_key(&name) {
            return name;
        }
        let anywhere = self.names.cluster();
        self.choose(anywhere.clone(), &self.port.cluster, None);
        let rules = if self.port.external_local {
            let mut rules = self.local_source_rules(&anywhere);
            if !self.port.local.is_empty() {
                let here = self.names.local();
                self.choose(here.clone(), &self.port.local, None);
                rules.push(Rule::jump(&here));
            }
            rules
        } else {
            vec![Rule::jump(MARK_MASQ), Rule::jump(&anywhere)]
        };
        let rules = self.commented(rules, "external destinations");
        self.fragment.chains.insert(name.clone(), rules);
        name
    }

    /// Rules for Pods and the node itself: treated as if they had left the cluster and re-entered through any node.
    fn local_source_rules(&self, anywhere: &str) -> Vec<Rule> {
        let from = |target: &str, range: &IpNet| Rule::jump(target).when(Match::Source { range: *range, not: false });
        let mut rules = Vec::new();
        match &self.context.pods {
            Pods::Unknown => {}
            Pods::Ranges { all, here } => {
                rules.extend(here.iter().map(|range| from(anywhere, range)));
                // A Pod of another node would get replies that bypass this node: masquerade.
                let elsewhere = all.iter().filter(|range| !here.contains(range));
                rules.extend(elsewhere.flat_map(|range| [from(MARK_MASQ, range), from(anywhere, range)]));
            }
            Pods::Interface(name) => {
                rules.push(Rule::jump(anywhere).when(Match::Interface { name: name.clone(), not: false }));
            }
        }
        rules.extend([MARK_MASQ, anywhere].map(|target| Rule::jump(target).when(Match::LocalSource)));
        rules
    }

    /// The chain of cluster IP traffic.
    fn internal(&mut self) -> Name {
        let port = self.port;
        let (name, list) = match port.internal_local {
            true => (self.names.local(), &port.local),
            false => (self.names.cluster(), &port.cluster),
        };
        let hidden = self.context.masquerade_rule().map(|rule| {
            let rule = port.cluster_ip.into_iter().fold(rule, |rule, ip| rule.when(to(ip.into())));
            let rule = rule.when(self.at(port.port));
            self.context.comment(rule, || self.label(Role::Cluster))
        });
        self.choose(name.clone(), list, hidden);
        name
    }

    /// A chain that chooses one of the endpoints, after an optional first rule. It may exist already.
    fn choose(&mut self, name: Name, list: &[Backend], first: Option<Rule>) {
        if let Some(rules) = self.fragment.chains.get_mut(&name) {
            rules.splice(0..0, first);
            return;
        }
        let mut rules: Vec<Rule> = first.into_iter().collect();
        let chains: Vec<Name> = list.iter().map(|backend| self.endpoint(*backend)).collect();
        let explain = |rule: Rule, backend: &Backend| {
            let address = SocketAddr::new(backend.ip, backend.port);
            self.context.comment(rule, || format!("{} -> {address}", self.names.port))
        };
        if let Some(seconds) = self.port.affinity {
            for (chain, backend) in chains.iter().zip(list) {
                let known = Rule::jump(chain).when(Match::RecentCheck { list: chain.clone(), seconds });
                rules.push(explain(known, backend));
            }
        }
        for ((chain, backend), takes) in chains.iter().zip(list).zip(self.shares(list)) {
            let rule = takes.into_iter().fold(Rule::jump(chain), Rule::when);
            rules.push(explain(rule, backend));
        }
        self.fragment.chains.insert(name, rules);
    }

    /// For each of the endpoints which of the packets that reach its rule it takes; the last one takes the rest.
    fn shares(&self, list: &[Backend]) -> Vec<Option<Match>> {
        let weight = |backend: &Backend| match &self.port.balancing {
            Balancing::Weighted(weights) => u32::from(weights.of(backend)),
            _ => 1,
        };
        let mut left: u32 = list.iter().map(weight).sum();
        let mut shares = Vec::with_capacity(list.len());
        for backend in list {
            let part = weight(backend);
            shares.push(match self.port.balancing {
                _ if part >= left => None,
                Balancing::RoundRobin => Some(Match::EveryNth(left)),
                _ => Some(Match::share(part, left)),
            });
            left = left.saturating_sub(part);
        }
        shares
    }

    /// The chain of an endpoint.
    fn endpoint(&mut self, backend: Backend) -> Name {
        let name = self.names.endpoint(backend);
        let mut rules = Vec::new();
        if self.port.hairpin.contains(&backend) {
            // Hairpin traffic: masquerade.
            rules.push(Rule::jump(MARK_MASQ).when(Match::Source { range: backend.ip.into(), not: false }));
        }
        let translate = Target::Translate(SocketAddr::new(backend.ip, backend.port));
        let protocol = Match::Protocol { transport: transport(self.port.key.protocol), not: false };
        let mut rule = Rule::new(translate).when(protocol);
        if self.port.affinity.is_some() {
            rule = rule.when(Match::RecentSet { list: name.clone() });
        }
        rules.push(rule);
        let comment = |rule| self.context.comment(rule, || self.names.port.clone());
        self.fragment.chains.insert(name.clone(), rules.into_iter().map(comment).collect());
        name
    }
}

/// Matches the destination.
fn to(range: IpNet) -> Match {
    Match::Destination { range, not: false }
}
