//! What rules depend on besides their Service port: node, Pod ranges, options. A change requires a full resync; it is
//! rare.

use api::ip::Family;
use ipnet::IpNet;
use kernel::iptables::{Match, Rule};
use plan::{LocalDetector, NodePortAddresses, Plan};

use super::names::{MARK_MASQ, MARK_NOT_POD};

/// Context of the rules of one family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Context {
    /// Address family.
    pub(super) family: Family,
    /// Whether rules have comments. Omitted with very many endpoints: they are a third of the size.
    pub(super) comments: bool,
    /// Whether all traffic to cluster IPs is masqueraded.
    pub(super) masquerade_all: bool,
    /// Whether to drop packets in conntrack state INVALID.
    pub(super) drop_invalid: bool,
    /// How Pods are detected.
    pub(super) pods: Pods,
    /// Alternative matches for the addresses that serve node ports.
    pub(super) node_ports: Vec<Vec<Match>>,
    /// Service CIDRs.
    pub(super) ranges: Vec<IpNet>,
}

/// How Pods are detected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Pods {
    /// Not detected.
    Unknown,
    /// By source address.
    Ranges {
        /// Ranges of all Pods.
        all: Vec<IpNet>,
        /// Ranges of the Pods of this node.
        here: Vec<IpNet>,
    },
    /// By incoming interface.
    Interface(String),
}

impl Context {
    /// Context of a family.
    pub(super) fn of(plan: &Plan, family: Family, comments: bool, drop_invalid: bool) -> Self {
        let ours = |ranges: &[IpNet]| -> Vec<IpNet> {
            let here: Vec<IpNet> = ranges.iter().filter(|range| Family::of(range.addr()) == family).copied().collect();
            IpNet::aggregate(&here)
        };
        let options = &plan.options;
        let pods = match &options.local {
            local if !local.knows(family == Family::V4) => Pods::Unknown,
            LocalDetector::None => Pods::Unknown,
            LocalDetector::Ranges(ranges) => {
                let all = ours(ranges);
                let here = intersection(&all, &ours(plan.own_pods(family)));
                Pods::Ranges { all, here }
            }
            LocalDetector::Interface(name) => Pods::Interface(name.clone()),
            LocalDetector::InterfacePrefix(name) => Pods::Interface(format!("{name}+")),
        };
        Self {
            family,
            comments,
            masquerade_all: options.masquerade_all,
            drop_invalid,
            pods,
            node_ports: node_ports(plan, family),
            ranges: ours(&plan.ranges),
        }
    }

    /// Adds a comment, if comments are enabled.
    pub(super) fn comment(&self, rule: Rule, what: impl FnOnce() -> String) -> Rule {
        if self.comments { rule.with_comment(what()) } else { rule }
    }

    /// The rule that marks cluster IP traffic to masquerade, if any is.
    pub(super) fn masquerade_rule(&self) -> Option<Rule> {
        let mark = Rule::jump(MARK_MASQ);
        if self.masquerade_all {
            return Some(mark);
        }
        match &self.pods {
            Pods::Unknown => None,
            Pods::Ranges { all, .. } => Some(match all[..] {
                [range] => mark.when(Match::Source { range, not: true }),
                _ => Rule::jump(MARK_NOT_POD),
            }),
            Pods::Interface(name) => Some(mark.when(Match::Interface { name: name.clone(), not: true })),
        }
    }
}

/// Matches for the addresses that serve node ports.
fn node_ports(plan: &Plan, family: Family) -> Vec<Vec<Match>> {
    if plan.options.node_port_addresses == NodePortAddresses::All {
        // All addresses of the machine except loopback, which would require route_localnet and expose it to the
        // network.
        let loopback = match family {
            Family::V4 => IpNet::V4(ipnet::Ipv4Net::new_assert([127, 0, 0, 0].into(), 8)),
            Family::V6 => IpNet::from(std::net::IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)),
        };
        return vec![vec![Match::LocalDestination, Match::Destination { range: loopback, not: true }]];
    }
    let here = plan.node_port_ips.iter().filter(|ip| Family::of(**ip) == family);
    here.map(|ip| vec![Match::Destination { range: IpNet::from(*ip), not: false }]).collect()
}

/// Ranges that are in both lists.
fn intersection(these: &[IpNet], those: &[IpNet]) -> Vec<IpNet> {
    let both = |a: &IpNet, b: &IpNet| match () {
        () if a.contains(b) => Some(*b),
        () if b.contains(a) => Some(*a),
        () => None,
    };
    these.iter().flat_map(|a| those.iter().filter_map(|b| both(a, b))).collect()
}
