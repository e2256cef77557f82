//! The objects that announcers look at, in small forms.
//!
//! In: JSON of any server. Out: the few members that matter; what cannot be read is left out. Services without addresses of a load
//! balancer are not kept at all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use api::ip::parse_lenient;
use api::value::ValueExt as _;
use ipnet::IpNet;
use serde_json::Value;

use super::lease::Lease;

/// Nodes with this label carry no traffic from outside.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The label with the name of a slice's Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Everything that is known.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Objects {
    /// Services with addresses, by `namespace/name`.
    pub services: BTreeMap<Box<str>, Service>,
    /// Where the endpoints of Services are: by `namespace/name` of the Service, then of the slice.
    pub slices: BTreeMap<Box<str>, BTreeMap<Box<str>, Slice>>,
    /// Nodes by name.
    pub nodes: BTreeMap<Box<str>, Node>,
    /// Pools by name.
    pub pools: BTreeMap<Box<str>, Pool>,
    /// BGP peers by name, as their objects are.
    pub peers: BTreeMap<Box<str>, Value>,
    /// Leases of announcers by name.
    pub leases: BTreeMap<Box<str>, Lease>,
}

/// A Service with addresses of a load balancer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Service {
    /// Its uid, for Events.
    pub uid: Box<str>,
    /// `spec.loadBalancerClass`.
    pub class: Option<Box<str>>,
    /// Whether `externalTrafficPolicy` is Local.
    pub local: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The addresses that packets arrive with.
    pub addresses: Vec<IpAddr>,
}

/// Where endpoints are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slice {
    /// Whether they have addresses of IPv6.
    pub is_ipv6: bool,
    /// Nodes with an endpoint that is ready.
    pub ready: BTreeSet<Box<str>>,
    /// Nodes with an endpoint that is about to go and still serves.
    pub leaving: BTreeSet<Box<str>>,
}

/// A Node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Node {
    /// Its uid.
    pub uid: Box<str>,
    /// Whether it says that it is ready.
    pub ready: bool,
    /// Whether it is to carry no traffic from outside.
    pub excluded: bool,
    /// Its own addresses.
    pub addresses: Vec<IpAddr>,
    /// Its labels.
    pub labels: BTreeMap<Box<str>, Box<str>>,
}

/// A pool of addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pool {
    /// Its addresses.
    pub ranges: Vec<RangeInclusive<IpAddr>>,
    /// Whether they are announced by layer 2.
    pub l2: bool,
    /// Whether they are announced by BGP.
    pub bgp: bool,
}

impl Service {
    /// Reads a Service; nothing when it has no address of a load balancer.
    #[must_use]
    pub fn read(object: &Value) -> Option<Self> {
        if object.text("spec.type") != "LoadBalancer" {
            return None;
        }
        let vip = |ingress: &&Value| matches!(ingress.text("ipMode"), "" | "VIP");
        let ingress = object.items("status.loadBalancer.ingress").iter().filter(vip);
        let addresses: Vec<IpAddr> = ingress.filter_map(|ingress| parse_lenient(ingress.text("ip"))).collect();
        (!addresses.is_empty()).then(|| Self {
            uid: object.text("metadata.uid").into(),
            class: Some(object.text("spec.loadBalancerClass")).filter(|class| !class.is_empty()).map(Into::into),
            local: object.text("spec.externalTrafficPolicy") == "Local",
            deleting: object.has("metadata.deletionTimestamp"),
            addresses,
        })
    }
}

impl Slice {
    /// Reads a slice: `namespace/name` of its Service, and where its endpoints are.
    #[must_use]
    pub fn read(object: &Value) -> Option<(Box<str>, Self)> {
        let labels = object.map("metadata.labels")?;
        let service = labels.get(SERVICE_NAME)?.as_str().filter(|name| !name.is_empty())?;
        let key = format!("{}/{service}", object.text("metadata.namespace")).into();
        let mut slice = Self { is_ipv6: object.text("addressType") == "IPv6", ..Self::default() };
        for endpoint in object.items("endpoints") {
            let node = endpoint.text("nodeName");
            let is = |condition: &str| endpoint.at(condition).as_bool();
            if node.is_empty() {
                continue;
            }
            if is("conditions.ready").unwrap_or(true) {
                slice.ready.insert(node.into());
            } else if is("conditions.serving").unwrap_or(true) && is("conditions.terminating").unwrap_or(false) {
                slice.leaving.insert(node.into());
            }
        }
        Some((key, slice))
    }
}

impl Node {
    /// Reads a Node.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(Into::into);
        let labels = object.map("metadata.labels").into_iter().flatten();
        let labels: BTreeMap<Box<str>, Box<str>> =
            labels.filter_map(|(key, value)| Some((key.as_str().into(), text(value)?))).collect();
        let is_ready = |condition: &Value| condition.text("type") == "Ready" && condition.text("status") == "True";
        let own = |address: &&Value| matches!(address.text("type"), "InternalIP" | "ExternalIP");
        let addresses = object.items("status.addresses").iter().filter(own);
        Self {
            uid: object.text("metadata.uid").into(),
            ready: object.items("status.conditions").iter().any(is_ready) && !object.has("metadata.deletionTimestamp"),
            // As others read it: the label is enough, unless it says that it means nothing.
            excluded: labels.get(EXCLUDED).is_some_and(|value| &**value != "false"),
            addresses: addresses.filter_map(|address| parse_lenient(address.text("address"))).collect(),
            labels,
        }
    }
}

impl Pool {
    /// Reads an `IPPool`.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let ranges = object.texts("spec.addresses").into_iter().filter_map(range).collect();
        let ways = object.texts("spec.announce");
        let by = |way: &str| ways.is_empty() || ways.contains(&way);
        Self { ranges, l2: by("l2"), bgp: by("bgp") }
    }
}

/// Reads a range: `a.b.c.d/len`, `first-last`, or one address.
#[must_use]
pub fn range(text: &str) -> Option<RangeInclusive<IpAddr>> {
    let text = text.trim();
    if let Some((first, last)) = text.split_once('-') {
        let (first, last) = (parse_lenient(first.trim())?, parse_lenient(last.trim())?);
        return (first.is_ipv4() == last.is_ipv4() && first <= last).then_some(first..=last);
    }
    if let Some(one) = parse_lenient(text) {
        return Some(one..=one);
    }
    let net: IpNet = text.parse().ok()?;
    // Pools have all addresses of a range, also the first and the last.
    Some(match net {
        IpNet::V4(net) => {
            let (first, last): (Ipv4Addr, Ipv4Addr) = (net.network(), net.broadcast());
            first.into()..=last.into()
        }
        IpNet::V6(net) => {
            let (first, last): (Ipv6Addr, Ipv6Addr) = (net.network(), net.broadcast());
            first.into()..=last.into()
        }
    })
}
