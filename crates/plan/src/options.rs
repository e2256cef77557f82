//! What the command line says to the proxy.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::address::{lenient_range, unfit_frontend};

/// Options of a node's proxy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The name of this node.
    pub node_name: String,
    /// Whether all traffic to cluster IPs is masqueraded.
    pub masquerade_all: bool,
    /// How traffic of Pods of this cluster is told from other traffic.
    pub local: LocalDetector,
    /// On which addresses of the node its node ports are served.
    pub node_port_addresses: NodePortAddresses,
    /// On which loopback addresses they are served besides. Rules never do that: a program must listen there.
    pub loopback: Loopback,
    /// Whether Services live on loopback addresses of IPv4, as do their endpoints: no rule is needed then, only somebody who
    /// listens.
    pub rootless: bool,
}

/// On which loopback addresses node ports are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loopback {
    /// On 127.0.0.1.
    pub v4: bool,
    /// On ::1.
    pub v6: bool,
}

impl Loopback {
    /// What a flag that names loopback says of it: `localhost`, or ranges of loopback addresses. Ranges of everything do not
    /// name it.
    #[must_use]
    pub fn named(words: &[&str]) -> Self {
        let everywhere = words.contains(&LOCALHOST);
        let named = |ip: IpAddr| {
            let ranges = words.iter().filter_map(|word| lenient_range(word));
            everywhere || ranges.filter(|range| range.addr().is_loopback()).any(|range| range.contains(&ip))
        };
        Self { v4: named(Ipv4Addr::LOCALHOST.into()), v6: named(Ipv6Addr::LOCALHOST.into()) }
    }

    /// The addresses.
    pub fn addresses(self) -> impl Iterator<Item = IpAddr> {
        let v4 = self.v4.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        v4.into_iter().chain(self.v6.then_some(IpAddr::V6(Ipv6Addr::LOCALHOST)))
    }
}

/// The word for loopback.
const LOCALHOST: &str = "localhost";

/// How traffic of Pods is recognised.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum LocalDetector {
    /// Not at all: no traffic to cluster IPs is masqueraded, and policies know no Pods.
    #[default]
    None,
    /// By the source address.
    Ranges(Vec<IpNet>),
    /// By the interface it comes in on: its whole name.
    Interface(String),
    /// By the interface it comes in on: how its name begins.
    InterfacePrefix(String),
}

/// On which addresses node ports are served.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum NodePortAddresses {
    /// On the addresses that the Node object names.
    #[default]
    Primary,
    /// On every address of the machine but loopback.
    All,
    /// On the addresses of the machine that lie in these ranges, loopback excepted. A family that no range names is not
    /// served.
    Ranges(Vec<IpNet>),
}

impl NodePortAddresses {
    /// Reads the flag: CIDRs and the words `primary`, `all` and `localhost`. What it says of loopback is told by
    /// [`Loopback::named`].
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let rest: Vec<&str> = words.iter().copied().filter(|word| *word != LOCALHOST).collect();
        if rest.is_empty() && !words.is_empty() {
            return Ok(Self::Ranges(Vec::new()));
        }
        match rest[..] {
            [] | ["primary"] => return Ok(Self::Primary),
            ["all"] => return Ok(Self::All),
            _ => {}
        }
        let parse = |word: &&str| match *word {
            "primary" | "all" => Err(format!("`{word}` stands alone; it cannot be joined with other addresses")),
            _ => lenient_range(word).ok_or_else(|| format!("`{word}` is not a range such as 192.0.2.0/24")),
        };
        let ranges = rest.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let unserved = |range: &&IpNet| {
            let served = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            range.addr().is_loopback() && !served.iter().any(|ip: &IpAddr| range.contains(ip))
        };
        if let Some(range) = ranges.iter().find(unserved) {
            return Err(format!(
                "of loopback addresses only 127.0.0.1 and ::1 have node ports, and `{range}` has neither"
            ));
        }
        // Everything of one family and not a word about the other is everything.
        let everything = ranges.iter().all(|range| range.prefix_len() == 0);
        Ok(if everything { Self::All } else { Self::Ranges(ranges) })
    }

    /// Of the addresses that the Node names and those the machine has, the ones on which node ports are served.
    pub(crate) fn of<'a>(&'a self, node: &'a [IpAddr], machine: &'a BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let wanted: Box<dyn Iterator<Item = &IpAddr>> = match self {
            Self::Primary => Box::new(node.iter()),
            Self::All => Box::new(machine.iter()),
            Self::Ranges(ranges) => {
                Box::new(machine.iter().filter(|ip| ranges.iter().any(|range| range.contains(*ip))))
            }
        };
        // Rules for loopback addresses would need the kernel to route them, which lets neighbours in.
        wanted.copied().filter(|ip| unfit_frontend(*ip).is_none()).collect()
    }
}

impl LocalDetector {
    /// Whether a packet comes from a Pod. `interface` is where it came in; nothing for packets of the node itself.
    #[must_use]
    pub fn is_local(&self, source: IpAddr, interface: Option<&str>) -> bool {
        match self {
            Self::None => false,
            Self::Ranges(ranges) => ranges.iter().any(|range| range.contains(&source)),
            Self::Interface(name) => interface == Some(name),
            Self::InterfacePrefix(prefix) => interface.is_some_and(|name| name.starts_with(prefix.as_str())),
        }
    }

    /// Whether Pods are recognised at all, in packets of a family.
    #[must_use]
    pub fn knows(&self, is_ipv4: bool) -> bool {
        match self {
            Self::None => false,
            Self::Ranges(ranges) => ranges.iter().any(|range| range.addr().is_ipv4() == is_ipv4),
            Self::Interface(_) | Self::InterfacePrefix(_) => true,
        }
    }
}
