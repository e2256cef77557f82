//! What rules depend on besides the Service port that they are for: the node, Pods, ranges, options. When it changes, everything is
//! looked through again; it seldom does.

use api::ip::Family;
use ipnet::IpNet;
use kernel::iptables::{Match, Rule};
use plan::{LocalDetector, NodePortAddresses, Plan};

use super::names::{MARK_MASQ, MARK_NOT_POD};

/// What rules of one family depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Around {
    /// The family.
    pub(super) family: Family,
    /// Whether rules say what they are for. With very many they do not: it costs a third of their size.
    pub(super) comments: bool,
    /// Whether all traffic to cluster IPs is masqueraded.
    pub(super) masquerade_all: bool,
    /// Whether packets that fit no connection are dropped before an endpoint's answer is seen untranslated.
    pub(super) drop_invalid: bool,
    /// How Pods are recognised.
    pub(super) pods: Pods,
    /// What packets to addresses with node ports have in common: one of these.
    pub(super) node_ports: Vec<Vec<Match>>,
    /// Addresses that are kept for Services.
    pub(super) ranges: Vec<IpNet>,
}

/// How Pods are recognised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Pods {
    /// Not at all.
    Unknown,
    /// By their addresses.
    Ranges {
        /// Those of all Pods.
        all: Vec<IpNet>,
        /// Those of Pods of this node.
        here: Vec<IpNet>,
    },
    /// By the interface that they use.
    Interface(String),
}

impl Around {
    /// What rules of a family depend on.
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

    /// A rule that says what it is for, where rules do.
    pub(super) fn say(&self, rule: Rule, what: impl FnOnce() -> String) -> Rule {
        if self.comments { rule.says(what()) } else { rule }
    }

    /// The rule that marks traffic to a cluster IP whose sender the endpoint is not to see, if there is such traffic.
    pub(super) fn mark_strangers(&self) -> Option<Rule> {
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

/// Whether a packet goes to an address with node ports.
fn node_ports(plan: &Plan, family: Family) -> Vec<Vec<Match>> {
    if plan.options.node_port_addresses == NodePortAddresses::All {
        // Whatever addresses the machine has or gets. Those of loopback would need the kernel to route them, which lets
        // neighbours in.
        let loopback = match family {
            Family::V4 => IpNet::V4(ipnet::Ipv4Net::new_assert([127, 0, 0, 0].into(), 8)),
            Family::V6 => IpNet::from(std::net::IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)),
        };
        return vec![vec![Match::ToHere, Match::Destination { range: loopback, not: true }]];
    }
    let here = plan.node_port_ips.iter().filter(|ip| Family::of(**ip) == family);
    here.map(|ip| vec![Match::Destination { range: IpNet::from(*ip), not: false }]).collect()
}

/// Addresses that are in both.
fn intersection(these: &[IpNet], those: &[IpNet]) -> Vec<IpNet> {
    let both = |a: &IpNet, b: &IpNet| match () {
        () if a.contains(b) => Some(*b),
        () if b.contains(a) => Some(*a),
        () => None,
    };
    these.iter().flat_map(|a| those.iter().filter_map(|b| both(a, b))).collect()
}
