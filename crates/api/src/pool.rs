//! Addresses that Services of type LoadBalancer may have: a parsed IPPool.
//!
//! In: strings like `192.0.2.0/28`, `192.0.2.40-192.0.2.60` or `2001:db8::1`, and IPPool objects. Out: [`Range`]s and [`Pool`]s with their
//! size, membership and first addresses. Ranges are stored as two ends, never as lists, so that a whole /64 costs nothing.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use crate::facts::Facts;
use crate::ip::Family;
use crate::selector::{self, Selector};
use crate::value::ValueExt as _;

/// The annotation by which a Service chooses a pool.
pub const POOL_ANNOTATION: &str = "waypost.dev/pool";

/// Addresses from one to another, both included, of one family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Range {
    family: Family,
    first: u128,
    last: u128,
}

/// An IPPool, read.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub ranges: Vec<Range>,
    /// Whether Services that name no pool get addresses from it.
    pub auto_assign: bool,
    /// Whether it is for Services that ask for an internal load balancer, and for no others.
    pub internal: bool,
    /// Whether IPv4 addresses that end in .0 or .255 are left out.
    pub avoid_buggy: bool,
    /// Lower numbers are used first.
    pub priority: i64,
    /// The namespaces whose Services may have its addresses; none for all.
    pub namespaces: BTreeSet<String>,
    /// The Services that may have its addresses; none for all.
    pub selector: Option<Selector>,
    /// Whether its addresses are announced by ARP and NDP.
    pub l2: bool,
    /// Whether its addresses are announced to the BGPPeers.
    pub bgp: bool,
}

/// What no load balancer may have, and its name.
const SPECIAL: &[(&str, &str)] = &[
    ("0.0.0.0/8", "means \"this network\""),
    ("127.0.0.0/8", "is loopback"),
    ("169.254.0.0/16", "is link-local"),
    ("224.0.0.0/4", "is multicast"),
    ("240.0.0.0/4", "is reserved"),
    ("::", "means \"no address\""),
    ("::1", "is loopback"),
    ("::ffff:0:0/96", "is IPv4 in the form of IPv6"),
    ("fe80::/10", "is link-local"),
    ("ff00::/8", "is multicast"),
];

// === impl Range ===

impl Range {
    /// Reads a prefix, two addresses with `-` between them, or one address.
    ///
    /// # Errors
    /// The error message, to be appended to the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some((first, last)) = text.split_once('-') {
            return Self::between(address(first.trim())?, address(last.trim())?);
        }
        let Some((network, bits)) = text.split_once('/') else {
            let one = address(text)?;
            return Self::between(one, one);
        };
        let (network, plain) = (address(network)?, !bits.starts_with(['0', '+']) || bits == "0");
        let width = width(Family::of(network));
        let bits = bits.parse::<u32>().ok().filter(|bits| plain && *bits <= width);
        let bits = bits.ok_or_else(|| format!("must end in a prefix length from /0 to /{width}"))?;
        let host = if bits == width { 0 } else { u128::MAX >> (128 - (width - bits)) };
        let first = number(network);
        if first & host != 0 {
            let canonical = from_number(Family::of(network), first & !host);
            return Err(format!("has bits set beyond the prefix: write {canonical}/{bits}"));
        }
        Ok(Self { family: Family::of(network), first, last: first | host })
    }

    fn between(first: IpAddr, last: IpAddr) -> Result<Self, String> {
        let (family, other) = (Family::of(first), Family::of(last));
        if family != other {
            return Err("must begin and end in the same IP family".to_owned());
        }
        if first > last {
            return Err(format!("must not end before it begins: write {last}-{first}"));
        }
        Ok(Self { family, first: number(first), last: number(last) })
    }

    /// The family of its addresses.
    #[must_use]
    pub fn family(&self) -> Family {
        self.family
    }

    /// Whether an address is one of these.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        Family::of(address) == self.family && (self.first..=self.last).contains(&number(address))
    }

    /// Whether some address is in both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.family == other.family && self.first <= other.last && other.first <= self.last
    }

    /// Why no load balancer may have some of these addresses.
    #[must_use]
    pub fn special(&self) -> Option<String> {
        let found = SPECIAL.iter().find(|(text, _)| Self::parse(text).is_ok_and(|special| special.overlaps(self)))?;
        Some(format!("must not reach into {}, which {}", found.0, found.1))
    }

    /// Its addresses in order.
    fn addresses(self) -> impl Iterator<Item = IpAddr> {
        (self.first..=self.last).map(move |number| from_number(self.family, number))
    }

    fn count(&self, avoid_buggy: bool) -> u128 {
        let all = (self.last - self.first).saturating_add(1);
        if !avoid_buggy || self.family == Family::V6 {
            return all;
        }
        // How many numbers up to `last` leave this rest when divided by 256.
        let up_to = |last: u128, rest: u128| if last < rest { 0 } else { (last - rest) / 256 + 1 };
        let ending =
            |rest: u128| up_to(self.last, rest) - self.first.checked_sub(1).map_or(0, |before| up_to(before, rest));
        all - ending(0) - ending(255)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", from_number(self.family, self.first))?;
        if self.first == self.last { Ok(()) } else { write!(f, "-{}", from_number(self.family, self.last)) }
    }
}

// === impl Pool ===

impl Pool {
    /// A pool of these ranges that is available to all Services.
    #[must_use]
    pub fn of_ranges(name: &str, ranges: Vec<Range>) -> Self {
        Self {
            name: name.to_owned(),
            ranges,
            auto_assign: true,
            internal: false,
            avoid_buggy: false,
            priority: 0,
            namespaces: BTreeSet::new(),
            selector: None,
            l2: true,
            bgp: true,
        }
    }

    /// The ranges of an IPPool; invalid ones are skipped.
    #[must_use]
    pub fn from_object(object: &Value) -> Self {
        let spec = object.at("spec");
        let announce = spec.texts("announce");
        let is_announced = |how: &str| announce.is_empty() || announce.contains(&how);
        // A selector that means nothing selects nothing.
        let selector = |value: &Value| selector::from_object(value).unwrap_or_else(nobody);
        Self {
            name: object.text("metadata.name").to_owned(),
            ranges: spec.texts("addresses").into_iter().filter_map(|text| Range::parse(text).ok()).collect(),
            auto_assign: spec.at("autoAssign").as_bool().unwrap_or(true),
            internal: spec.flag("internal"),
            avoid_buggy: spec.flag("avoidBuggyIPs"),
            priority: spec.int("priority"),
            namespaces: spec.texts("namespaces").into_iter().map(str::to_owned).collect(),
            selector: spec.has("serviceSelector").then(|| selector(spec.at("serviceSelector"))),
            l2: is_announced("l2"),
            bgp: is_announced("bgp"),
        }
    }

    /// Whether an address may be given out from here.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        !self.avoids(address) && self.ranges.iter().any(|range| range.contains(address))
    }

    /// Whether Services of this namespace with these labels may have addresses from here.
    #[must_use]
    pub fn serves(&self, namespace: &str, name: &str, facts: &Facts) -> bool {
        (self.namespaces.is_empty() || self.namespaces.contains(namespace))
            && self.selector.as_ref().is_none_or(|selector| selector.matches(facts, namespace, name))
    }

    /// Whether it is for some Services only.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        !self.namespaces.is_empty() || self.selector.is_some()
    }

    /// Its addresses of a family, in the order in which they are given out.
    pub fn addresses(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        let ranges = self.ranges.iter().filter(move |range| range.family == family);
        ranges.flat_map(|range| (*range).addresses()).filter(move |address| !self.avoids(*address))
    }

    /// Whether it has addresses of a family.
    #[must_use]
    pub fn has(&self, family: Family) -> bool {
        self.addresses(family).next().is_some()
    }

    /// How many addresses it has.
    #[must_use]
    pub fn capacity(&self) -> u128 {
        self.ranges.iter().fold(0, |sum, range| sum.saturating_add(range.count(self.avoid_buggy)))
    }

    fn avoids(&self, address: IpAddr) -> bool {
        self.avoid_buggy && matches!(address, IpAddr::V4(v4) if matches!(v4.octets()[3], 0 | 255))
    }
}

/// The same addresses in ranges that do not overlap, in order.
#[must_use]
pub fn merged(ranges: &[Range]) -> Vec<Range> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut out: Vec<Range> = Vec::new();
    for range in sorted {
        match out.last_mut().filter(|last| last.overlaps(&range)) {
            Some(last) => last.last = last.last.max(range.last),
            None => out.push(range),
        }
    }
    out
}

/// A selector that nothing satisfies.
fn nobody() -> Selector {
    let never = serde_json::json!([
        {"key": "waypost.dev/none", "operator": "Exists"}, {"key": "waypost.dev/none", "operator": "DoesNotExist"},
    ]);
    selector::from_requirements(never.as_array().map_or(&[], Vec::as_slice)).unwrap_or_default()
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| "must be a prefix (192.0.2.0/28), a range (192.0.2.40-192.0.2.60) or an address".to_owned())
}

fn width(family: Family) -> u32 {
    if family == Family::V4 { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Numbers come from addresses of the family, so those of IPv4 are small.
fn from_number(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX)).into(),
        Family::V6 => Ipv6Addr::from_bits(number).into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn range(text: &str) -> Range {
        Range::parse(text).expect(text)
    }

    fn pool(spec: &Value) -> Pool {
        Pool::from_object(&json!({"metadata": {"name": "p"}, "spec": spec}))
    }

    #[test]
    fn prefixes_ranges_and_addresses_are_read() {
        for (text, shown) in [
            ("192.0.2.0/28", "192.0.2.0-192.0.2.15"),
            ("192.0.2.40-192.0.2.60", "192.0.2.40-192.0.2.60"),
            ("192.0.2.40 - 192.0.2.60", "192.0.2.40-192.0.2.60"),
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("2001:db8::/126", "2001:db8::-2001:db8::3"),
            ("0.0.0.0/0", "0.0.0.0-255.255.255.255"),
            ("::/0", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            assert_eq!(range(text).to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        for (text, wrong) in [
            ("", "must be a prefix"),
            ("x", "must be a prefix"),
            ("192.0.2.1/28", "has bits set beyond the prefix: write 192.0.2.0/28"),
            ("192.0.2.0/33", "must end in a prefix length from /0 to /32"),
            ("192.0.2.0/028", "must end in a prefix length"),
            ("192.0.2.0/", "must end in a prefix length"),
            ("192.0.2.9-192.0.2.1", "must not end before it begins: write 192.0.2.1-192.0.2.9"),
            ("192.0.2.9-::1", "must begin and end in the same IP family"),
            ("192.0.2.9-60", "must be a prefix"),
        ] {
            let said = Range::parse(text).expect_err(text);
            assert!(said.starts_with(wrong), "{text}: {said}");
        }
    }

    #[test]
    fn ranges_that_overlap_become_one() {
        let ranges = ["192.0.2.8/29", "2001:db8::/127", "192.0.2.0-192.0.2.9", "192.0.2.16", "192.0.2.2"].map(range);
        let shown: Vec<String> = merged(&ranges).iter().map(Range::to_string).collect();
        assert_eq!(shown, ["192.0.2.0-192.0.2.15", "192.0.2.16", "2001:db8::-2001:db8::1"]);
    }

    #[test]
    fn special_addresses_are_found() {
        for (text, wrong) in [
            ("126.0.0.0/7", Some("127.0.0.0/8, which is loopback")),
            ("223.255.255.0-224.0.0.1", Some("224.0.0.0/4, which is multicast")),
            ("::/120", Some("::, which means")),
            ("ff02::1", Some("ff00::/8, which is multicast")),
            ("192.0.2.0/24", None),
            ("2001:db8::/64", None),
        ] {
            let said = range(text).special();
            assert_eq!(said.is_some(), wrong.is_some(), "{text}: {said:?}");
            assert!(wrong.is_none_or(|wrong| said.is_some_and(|said| said.contains(wrong))), "{text}");
        }
    }

    #[test]
    fn addresses_come_in_order_and_avoid_what_old_devices_refuse() {
        let spec = json!({"addresses": ["192.0.2.254-192.0.3.1", "2001:db8::/127", "192.0.2.9"]});
        let all: Vec<String> = pool(&spec).addresses(Family::V4).map(|address| address.to_string()).collect();
        assert_eq!(all, ["192.0.2.254", "192.0.2.255", "192.0.3.0", "192.0.3.1", "192.0.2.9"]);
        assert_eq!(pool(&spec).capacity(), 7);
        let mut careful = spec;
        careful["avoidBuggyIPs"] = true.into();
        let careful = pool(&careful);
        let all: Vec<String> = careful.addresses(Family::V4).map(|address| address.to_string()).collect();
        assert_eq!(all, ["192.0.2.254", "192.0.3.1", "192.0.2.9"]);
        assert_eq!(careful.capacity(), 5);
        assert!(!careful.contains("192.0.3.0".parse().expect("an address")));
        assert!(careful.contains("2001:db8::".parse().expect("an address")));
    }

    #[test]
    fn capacities_are_counted_not_listed() {
        let count = |text: &str, careful: bool| range(text).count(careful);
        assert_eq!(count("0.0.0.0/0", false), 1 << 32);
        assert_eq!(count("0.0.0.0/0", true), (1 << 32) - 2 * (1 << 24));
        assert_eq!(count("192.0.2.0/24", true), 254);
        assert_eq!(count("192.0.2.1-192.0.2.254", true), 254);
        assert_eq!(count("192.0.2.255", true), 0);
        assert_eq!(count("::/0", false), u128::MAX);
        assert_eq!(count("2001:db8::/64", true), 1 << 64);
    }

    #[test]
    fn pools_serve_whom_they_are_for() {
        let facts = |labels: &[(&str, &str)]| Facts {
            labels: labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            fields: Box::default(),
        };
        let one = pool(&json!({"addresses": ["192.0.2.1"]}));
        assert!(one.auto_assign && one.l2 && one.bgp && !one.internal && !one.is_reserved());
        assert!(one.serves("any", "s", &facts(&[])));
        let one = pool(&json!({"addresses": [], "namespaces": ["a"], "announce": ["bgp"],
            "serviceSelector": {"matchLabels": {"tier": "web"}}}));
        assert!(one.is_reserved() && one.bgp && !one.l2);
        assert!(one.serves("a", "s", &facts(&[("tier", "web")])));
        assert!(!one.serves("b", "s", &facts(&[("tier", "web")])) && !one.serves("a", "s", &facts(&[])));
        let broken =
            pool(&json!({"addresses": [], "serviceSelector": {"matchExpressions": [{"key": "a", "operator": "?"}]}}));
        assert!(!broken.serves("a", "s", &facts(&[("a", "b")])) && !broken.has(Family::V4));
    }
}
