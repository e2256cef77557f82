//! Which names are ours, and how they are to be answered.
//!
//! In: zones as people write them (names, or ranges of addresses that stand for reverse zones) and options. Out:
//! [`Zones`], which finds the longest one that a name is in.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::reverse_zones;
use crate::wire::{BadName, Name, from_text};

pub use crate::config::Pods;

/// Whose habits are followed where they differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Quirks {
    /// What the standards say.
    #[default]
    None,
    /// What CoreDNS answers.
    CoreDns,
}

/// For which names of ours that do not exist somebody else is asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Fallthrough {
    /// For none.
    #[default]
    Never,
    /// For all.
    Always,
    /// For those below these names.
    Below(Vec<String>),
}

/// For how many seconds answers may be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ttl {
    /// Of addresses that stay, and of names.
    pub cluster: u32,
    /// Of addresses of endpoints and Pods.
    pub headless: u32,
    /// Of what does not exist.
    pub negative: u32,
}

impl Ttl {
    /// One time for all.
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

/// How our names are answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Our zones: names, or ranges of addresses. The first that is not a reverse zone is the one that addresses point
    /// to.
    pub zones: Vec<String>,
    /// Whom to ask for what we do not know.
    pub fallthrough: Fallthrough,
    /// Names of Pods.
    pub pods: Pods,
    /// Whether Pods are known as clients, so that their search path can be walked.
    pub clients: bool,
    /// Whether endpoints without a name of their own are named after their Pod.
    pub endpoint_pod_names: bool,
    /// Whether endpoints are known at all.
    pub endpoints: bool,
    /// Whether a Service with an address but without a ready endpoint is as if it were not there.
    pub ignore_empty_service: bool,
    /// The namespaces that are shown; all if empty.
    pub namespaces: Vec<String>,
    /// A selector of the namespaces that are shown.
    pub namespace_labels: String,
    /// A selector of Services, slices and Pods.
    pub labels: String,
    /// How long answers may be kept.
    pub ttl: Ttl,
    /// Whose habits are followed.
    pub quirks: Quirks,
    /// The addresses under which this server is known.
    pub own: Vec<IpAddr>,
    /// Addresses that it answers at because it answers at all of its machine: a Service may lead there, and names it then. Nobody
    /// said that clients can reach them, so they are not told.
    pub others: Vec<IpAddr>,
    /// Whether names that are not ours are answered too.
    pub recursion: bool,
    /// The most bytes of an answer by UDP, whatever a client can take.
    pub largest: u16,
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
            own: Vec::new(),
            others: Vec::new(),
            recursion: false,
            largest: u16::MAX,
        }
    }
}

/// A configuration that cannot be followed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadZone {
    /// A zone that is neither a name nor a range.
    #[error("zone `{0}` is neither a name nor a range of addresses")]
    Name(String),
    /// Only reverse zones.
    #[error("at least one zone must not be a reverse zone")]
    NoForward,
    /// Both ways to say which namespaces are shown.
    #[error("`namespaces` and `namespace_labels` exclude each other")]
    Namespaces,
}

/// What a zone is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Names.
    Forward,
    /// IPv4 addresses.
    Reverse4,
    /// IPv6 addresses.
    Reverse6,
}

/// A zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zone {
    /// Its name on the wire, in lower case.
    pub wire: Box<[u8]>,
    /// How many labels that has.
    pub labels: usize,
    /// What it is about.
    pub side: Side,
    /// Its place among all.
    pub index: usize,
    /// Whether what does not exist anywhere in it may exist elsewhere.
    falls: bool,
}

/// All zones of ours.
#[derive(Clone, Debug)]
pub struct Zones {
    /// The longest first.
    all: Vec<Zone>,
    primary: usize,
    falls: Vec<(Box<[u8]>, usize)>,
}

impl Zones {
    /// Reads them.
    ///
    /// # Errors
    /// When a zone cannot be read, or none is for names.
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
        let primary = all.iter().find(|zone| zone.side == Side::Forward).ok_or(BadZone::NoForward)?.wire.clone();
        all.sort_by_key(|zone| std::cmp::Reverse(zone.labels));
        all.dedup();
        let primary = all.iter().position(|zone| zone.wire == primary).ok_or(BadZone::NoForward)?;
        let below: &[String] = match &config.fallthrough {
            Fallthrough::Below(names) => names,
            Fallthrough::Never | Fallthrough::Always => &[],
        };
        let read = |text: &String| zone(text).map_err(|_| BadZone::Name(text.clone()));
        let falls: Vec<Zone> = below.iter().map(read).collect::<Result<_, _>>()?;
        for (index, zone) in all.iter_mut().enumerate() {
            zone.index = index;
            let name = Name::parse(&zone.wire).map_err(|_| BadZone::NoForward)?;
            let covered = falls.iter().any(|above| name.is_below(&above.wire, above.labels));
            zone.falls = covered || config.fallthrough == Fallthrough::Always;
        }
        Ok(Self { all, primary, falls: falls.into_iter().map(|zone| (zone.wire, zone.labels)).collect() })
    }

    /// The longest zone that a name is in.
    #[inline]
    #[must_use]
    pub fn of(&self, name: &Name) -> Option<&Zone> {
        self.all.iter().find(|zone| name.is_below(&zone.wire, zone.labels))
    }

    /// The zone that addresses point to.
    #[must_use]
    pub fn primary(&self) -> &Zone {
        &self.all[self.primary]
    }

    /// Whether somebody else is asked for a name of this zone that does not exist.
    #[must_use]
    pub fn falls(&self, zone: &Zone, name: &Name) -> bool {
        zone.falls || self.falls.iter().any(|(wire, labels)| name.is_below(wire, *labels))
    }

    /// All of them, the longest first.
    pub fn iter(&self) -> impl Iterator<Item = &Zone> {
        self.all.iter()
    }
}

fn zone(text: &str) -> Result<Zone, BadName> {
    let name = Name::parse(&from_text(text)?)?;
    let side = if name.is_below(b"\x07in-addr\x04arpa\0", 2) {
        Side::Reverse4
    } else if name.is_below(b"\x03ip6\x04arpa\0", 2) {
        Side::Reverse6
    } else {
        Side::Forward
    };
    Ok(Zone { wire: name.wire().into(), labels: name.count(), side, index: 0, falls: false })
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
    fn the_longest_zone_has_the_name() {
        let names = ["k8s.example", "sub.k8s.example", "in-addr.arpa"].map(str::to_owned).to_vec();
        let config = Config { zones: names, ..Config::default() };
        let zones = Zones::new(&config).expect("zones");
        let of = |text: &str| {
            let name = Name::parse(&from_text(text).expect("text")).expect("a name");
            zones.of(&name).map(|zone| (to_text(&zone.wire), zones.falls(zone, &name)))
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
