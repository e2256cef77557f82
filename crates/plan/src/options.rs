//! Command line options of the proxy.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::address::{frontend_error, lenient_range};
use crate::balancing::DataPlane;

/// Options of a node's proxy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Node name.
    pub node_name: String,
    /// Whether to masquerade all traffic to cluster IPs.
    pub masquerade_all: bool,
    /// How Pod traffic is detected.
    pub local: LocalDetector,
    /// Node addresses that serve node ports.
    pub node_port_addresses: NodePortAddresses,
    /// Loopback addresses that also serve node ports; always by a listener, never by rules.
    pub loopback: Loopback,
    /// Whether cluster IPs and endpoints are IPv4 loopback addresses, served by listeners without rules.
    pub rootless: bool,
    /// What carries the connections.
    pub data_plane: DataPlane,
}

/// Loopback addresses that serve node ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loopback {
    /// 127.0.0.1.
    pub v4: bool,
    /// ::1.
    pub v6: bool,
}

impl Loopback {
    /// Loopback addresses named by the flag: `localhost`, or ranges of loopback addresses. 0.0.0.0/0 and ::/0 do not
    /// count.
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

/// Flag value for loopback.
const LOCALHOST: &str = "localhost";

/// How Pod traffic is detected.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum LocalDetector {
    /// Not detected: cluster IP traffic is not masqueraded, and policies know no Pods.
    #[default]
    None,
    /// By the source address.
    Ranges(Vec<IpNet>),
    /// By the name of the incoming interface.
    Interface(String),
    /// By the name prefix of the incoming interface.
    InterfacePrefix(String),
}

/// Addresses that serve node ports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum NodePortAddresses {
    /// The addresses of the Node object.
    #[default]
    Primary,
    /// All addresses of the machine except loopback.
    All,
    /// Addresses of the machine in these ranges, except loopback. A family without ranges is not served.
    Ranges(Vec<IpNet>),
}

/// Why `--nodeport-addresses` cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodePortAddressesError {
    /// A word that stands alone has others beside it.
    #[error("`{0}` cannot be combined with other addresses")]
    NotAlone(String),
    /// A word is not a CIDR.
    #[error("`{0}` is not a CIDR such as 192.0.2.0/24")]
    NotACidr(String),
    /// A loopback range has no address that can serve.
    #[error("only 127.0.0.1 and ::1 of loopback can serve node ports; `{0}` contains neither")]
    Loopback(IpNet),
}

impl NodePortAddresses {
    /// Parses the flag: CIDRs and keywords `primary`, `all` and `localhost`. For loopback see [`Loopback::named`].
    ///
    /// # Errors
    /// What is wrong with the flag.
    pub fn parse(words: &[&str]) -> Result<Self, NodePortAddressesError> {
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
            "primary" | "all" => Err(NodePortAddressesError::NotAlone((*word).to_owned())),
            _ => lenient_range(word).ok_or_else(|| NodePortAddressesError::NotACidr((*word).to_owned())),
        };
        let ranges = rest.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let unserved = |range: &&IpNet| {
            let served = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            range.addr().is_loopback() && !served.iter().any(|ip: &IpAddr| range.contains(ip))
        };
        if let Some(range) = ranges.iter().find(unserved) {
            return Err(NodePortAddressesError::Loopback(*range));
        }
        // All addresses of one family and no mention of the other means all addresses.
        let everything = ranges.iter().all(|range| range.prefix_len() == 0);
        Ok(if everything { Self::All } else { Self::Ranges(ranges) })
    }

    /// Addresses that serve node ports, from those of the Node and of the machine.
    pub(crate) fn of<'a>(&'a self, node: &'a [IpAddr], machine: &'a BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let wanted: Box<dyn Iterator<Item = &IpAddr>> = match self {
            Self::Primary => Box::new(node.iter()),
            Self::All => Box::new(machine.iter()),
            Self::Ranges(ranges) => {
                Box::new(machine.iter().filter(|ip| ranges.iter().any(|range| range.contains(*ip))))
            }
        };
        // Rules for loopback would require route_localnet, which exposes it to the network.
        wanted.copied().filter(|ip| frontend_error(*ip).is_none()).collect()
    }
}

impl LocalDetector {
    /// Whether a packet comes from a Pod. `interface` is the incoming one; none for packets of the node itself.
    #[must_use]
    pub fn is_local(&self, source: IpAddr, interface: Option<&str>) -> bool {
        match self {
            Self::None => false,
            Self::Ranges(ranges) => ranges.iter().any(|range| range.contains(&source)),
            Self::Interface(name) => interface == Some(name),
            Self::InterfacePrefix(prefix) => interface.is_some_and(|name| name.starts_with(prefix.as_str())),
        }
    }

    /// Whether Pods can be detected in a family.
    #[must_use]
    pub fn knows(&self, is_ipv4: bool) -> bool {
        match self {
            Self::None => false,
            Self::Ranges(ranges) => ranges.iter().any(|range| range.addr().is_ipv4() == is_ipv4),
            Self::Interface(_) | Self::InterfacePrefix(_) => true,
        }
    }
}
