//! Zones of the cluster and their settings.
//!
//! In: zones as configured (names, or address ranges for reverse zones) and options. Out: [`Zones`], which finds the
//! longest zone that contains a name.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::reverse_zones;
use crate::wire::{BadName, Name, from_text};

pub use crate::config::Pods;

/// Behaviour where CoreDNS deviates from the specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Quirks {
    /// Follow the DNS RFCs and the Kubernetes DNS specification.
    #[default]
    None,
    /// Follow CoreDNS.
    CoreDns,
}

/// Names in our zones that are forwarded if they do not exist.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Fallthrough {
    /// None.
    #[default]
    Never,
    /// All.
    Always,
    /// Names below these zones.
    Below(Vec<String>),
}

/// TTLs in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ttl {
    /// Of cluster IPs, PTR, NS and CNAME records.
    pub cluster: u32,
    /// Of endpoint and Pod addresses.
    pub headless: u32,
    /// Of negative answers.
    pub negative: u32,
}

impl Ttl {
    /// The same TTL for all.
    #[must_use]
    pub const fn all(seconds: u32) -> Self {
        Self { cluster: seconds, headless: seconds, negative: seconds }
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self { cluster: 30, headless: 5, negative: 5 }
    }
}

/// Configuration of the cluster zones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Zones: names or address ranges. PTR records point into the first forward zone.
    pub zones: Vec<String>,
    /// Names that are forwarded if they do not exist.
    pub fallthrough: Fallthrough,
    /// Which Pod names resolve.
    pub pods: Pods,
    /// Whether Pods are watched to map client addresses to namespaces (`autopath`).
    pub clients: bool,
    /// Whether endpoints without a hostname are named after their Pod.
    pub endpoint_pod_names: bool,
    /// Whether EndpointSlices are watched.
    pub endpoints: bool,
    /// Whether a Service with a cluster IP but without ready endpoints does not exist (NXDOMAIN).
    pub ignore_empty_service: bool,
    /// Namespaces served; all if empty.
    pub namespaces: Vec<String>,
    /// Label selector of the namespaces served.
    pub namespace_labels: String,
    /// Label selector of Services, EndpointSlices and Pods.
    pub labels: String,
    /// TTLs.
    pub ttl: Ttl,
    /// CoreDNS compatibility.
    pub quirks: Quirks,
    /// Addresses of this server, returned for `ns.dns`.
    pub server_addresses: Vec<IpAddr>,
    /// Addresses covered by a wildcard listener. They only identify the Service in front of this server; they are not
    /// returned, because clients may not reach them.
    pub wildcard_addresses: Vec<IpAddr>,
    /// Whether queries for other names are forwarded; sets the RA flag.
    pub recursion: bool,
    /// Largest UDP response in bytes, regardless of the client's EDNS buffer size.
    pub max_udp_size: u16,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            zones: ["cluster.local", "in-addr.arpa", "ip6.arpa"].map(str::to_owned).to_vec(),
            fallthrough: Fallthrough::Below(vec!["in-addr.arpa".to_owned(), "ip6.arpa".to_owned()]),
            pods: Pods::Insecure,
            clients: false,
            endpoint_pod_names: false,
            endpoints: true,
            ignore_empty_service: false,
            namespaces: Vec::new(),
            namespace_labels: String::new(),
            labels: String::new(),
            ttl: Ttl::default(),
            quirks: Quirks::None,
            server_addresses: Vec::new(),
            wildcard_addresses: Vec::new(),
            recursion: false,
            max_udp_size: u16::MAX,
        }
    }
}

/// Invalid zone configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadZone {
    /// Neither a name nor an address range.
    #[error("zone `{0}` is neither a domain name nor an address range")]
    Name(String),
    /// Only reverse zones.
    #[error("at least one zone must not be a reverse zone")]
    NoForward,
    /// Both `namespaces` and `namespace_labels` are set.
    #[error("`namespaces` and `namespace_labels` exclude each other")]
    Namespaces,
}

/// Kind of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneKind {
    /// Forward zone.
    Forward,
    /// Reverse zone of IPv4.
    Reverse4,
    /// Reverse zone of IPv6.
    Reverse6,
}

/// Zone of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zone {
    /// Name in wire form, lower-cased.
    pub wire: Box<[u8]>,
    /// Number of labels.
    pub labels: usize,
    /// Kind.
    pub kind: ZoneKind,
    /// Index in [`Zones::iter`].
    pub index: usize,
    /// Whether all names that do not exist in it are forwarded.
    falls_through: bool,
}

/// All zones of the cluster.
#[derive(Clone, Debug)]
pub struct Zones {
    /// Longest name first.
    all: Vec<Zone>,
    primary: usize,
    falls_through: Vec<(Box<[u8]>, usize)>,
}

impl Zones {
    /// Parses the zones.
    ///
    /// # Errors
    /// When a zone is invalid, or no zone is a forward zone.
    pub fn new(config: &Config) -> Result<Self, BadZone> {
        if !config.namespaces.is_empty() && !config.namespace_labels.is_empty() {
            return Err(BadZone::Namespaces);
        }
        let mut all = Vec::new();
        for text in &config.zones {
            let bad = |_| BadZone::Name(text.clone());
            match text.parse::<IpNet>() {
                Ok(range) => {
                    for name in reverse_zones(range) {
                        all.push(zone(&name.to_string()).map_err(bad)?);
                    }
                }
                Err(_) => all.push(zone(text).map_err(bad)?),
            }
        }
        let primary = all.iter().find(|zone| zone.kind == ZoneKind::Forward).ok_or(BadZone::NoForward)?.wire.clone();
        all.sort_by_key(|zone| std::cmp::Reverse(zone.labels));
        all.dedup();
        let primary = all.iter().position(|zone| zone.wire == primary).ok_or(BadZone::NoForward)?;
        let below: &[String] = match &config.fallthrough {
            Fallthrough::Below(names) => names,
            Fallthrough::Never | Fallthrough::Always => &[],
        };
        let read = |text: &String| zone(text).map_err(|_| BadZone::Name(text.clone()));
        let falls_through: Vec<Zone> = below.iter().map(read).collect::<Result<_, _>>()?;
        for (index, zone) in all.iter_mut().enumerate() {
            zone.index = index;
            let name = Name::parse(&zone.wire).map_err(|_| BadZone::NoForward)?;
            let covered = falls_through.iter().any(|above| name.is_below(&above.wire, above.labels));
            zone.falls_through = covered || config.fallthrough == Fallthrough::Always;
        }
        Ok(Self {
            all,
            primary,
            falls_through: falls_through.into_iter().map(|zone| (zone.wire, zone.labels)).collect(),
        })
    }

    /// Longest zone that contains a name.
    #[inline]
    #[must_use]
    pub fn of(&self, name: &Name) -> Option<&Zone> {
        self.all.iter().find(|zone| name.is_below(&zone.wire, zone.labels))
    }

    /// Zone that PTR records point into.
    #[must_use]
    pub fn primary(&self) -> &Zone {
        &self.all[self.primary]
    }

    /// Whether a name of this zone is forwarded if it does not exist.
    #[must_use]
    pub fn falls_through(&self, zone: &Zone, name: &Name) -> bool {
        zone.falls_through || self.falls_through.iter().any(|(wire, labels)| name.is_below(wire, *labels))
    }

    /// All zones, longest name first.
    pub fn iter(&self) -> impl Iterator<Item = &Zone> {
        self.all.iter()
    }
}

fn zone(text: &str) -> Result<Zone, BadName> {
    let name = Name::parse(&from_text(text)?)?;
    let kind = if name.is_below(b"\x07in-addr\x04arpa\0", 2) {
        ZoneKind::Reverse4
    } else if name.is_below(b"\x03ip6\x04arpa\0", 2) {
        ZoneKind::Reverse6
    } else {
        ZoneKind::Forward
    };
    Ok(Zone { wire: name.wire().into(), labels: name.count(), kind, index: 0, falls_through: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::to_text;

    fn zones(names: &[&str]) -> Vec<String> {
        let config = Config { zones: names.iter().map(|name| (*name).to_owned()).collect(), ..Config::default() };
        Zones::new(&config).expect("zones").iter().map(|zone| to_text(&zone.wire)).collect()
    }

    #[test]
    fn ranges_are_reverse_zones() {
        let found = zones(&["Cluster.Local.", "10.96.0.0/16", "172.17.0.0/22", "fd00:10:96::/112", "10.0.0.0/7"]);
        let long = "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.1.0.0.0.0.d.f.ip6.arpa.";
        let wanted = [
            long,
            "0.17.172.in-addr.arpa.",
            "1.17.172.in-addr.arpa.",
            "2.17.172.in-addr.arpa.",
            "3.17.172.in-addr.arpa.",
            "96.10.in-addr.arpa.",
            "10.in-addr.arpa.",
            "11.in-addr.arpa.",
            "cluster.local.",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_longest_matching_zone_is_selected() {
        let names = ["k8s.example", "sub.k8s.example", "in-addr.arpa"].map(str::to_owned).to_vec();
        let config = Config { zones: names, ..Config::default() };
        let zones = Zones::new(&config).expect("zones");
        let of = |text: &str| {
            let name = Name::parse(&from_text(text).expect("text")).expect("a name");
            zones.of(&name).map(|zone| (to_text(&zone.wire), zones.falls_through(zone, &name)))
        };
        assert_eq!(of("a.SUB.k8s.Example"), Some(("sub.k8s.example.".to_owned(), false)));
        assert_eq!(of("k8s.example"), Some(("k8s.example.".to_owned(), false)));
        assert_eq!(of("xk8s.example"), None);
        assert_eq!(of("1.in-addr.arpa"), Some(("in-addr.arpa.".to_owned(), true)));
        assert_eq!(to_text(&zones.primary().wire), "k8s.example.");
        let only = Config { zones: vec!["in-addr.arpa".to_owned()], ..Config::default() };
        assert_eq!(Zones::new(&only).err(), Some(BadZone::NoForward));
        let odd = Config { zones: vec!["a..b".to_owned()], ..Config::default() };
        assert_eq!(Zones::new(&odd).err(), Some(BadZone::Name("a..b".to_owned())));
    }
}
