//! What the command line says to the proxy.

use std::collections::BTreeSet;
use std::net::IpAddr;

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
}

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
    /// Reads the flag: CIDRs and the words `primary` and `all`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        match words {
            [] | ["primary"] => return Ok(Self::Primary),
            ["all"] => return Ok(Self::All),
            _ => {}
        }
        let parse = |word: &&str| match *word {
            "primary" | "all" => Err(format!("`{word}` stands alone; it cannot be joined with other addresses")),
            "localhost" => Err("node ports on loopback are not served by kernel rules".to_owned()),
            _ => lenient_range(word).ok_or_else(|| format!("`{word}` is not a range such as 192.0.2.0/24")),
        };
        let ranges = words.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if ranges.iter().all(|range| range.addr().is_loopback()) {
            return Err("node ports on loopback are not served by kernel rules".to_owned());
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
