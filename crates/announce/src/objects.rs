//! The objects of announcers, reduced to the fields in use.
//!
//! In: [`api::view`]. Out: small records; invalid fields are skipped. Services without load-balancer addresses are not kept.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use api::ip::parse_lenient;
use api::value::ValueExt as _;
use api::view;
use api::view::labels::EXCLUDE_FROM_LOAD_BALANCERS;
use ipnet::IpNet;
use serde_json::Value;

use super::lease::Lease;

/// All objects.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Objects {
    /// Services with addresses, by `namespace/name`.
    pub services: BTreeMap<Box<str>, Service>,
    /// EndpointSlices by `namespace/name` of the Service, then of the slice.
    pub slices: BTreeMap<Box<str>, BTreeMap<Box<str>, Slice>>,
    /// Nodes by name.
    pub nodes: BTreeMap<Box<str>, Node>,
    /// Pools by name.
    pub pools: BTreeMap<Box<str>, Pool>,
    /// BGPPeers by name, unparsed.
    pub peers: BTreeMap<Box<str>, Value>,
    /// Leases of announcers by name.
    pub leases: BTreeMap<Box<str>, Lease>,
}

/// A Service with load-balancer addresses.
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
    /// Its load-balancer addresses in VIP mode.
    pub addresses: Vec<IpAddr>,
}

/// Nodes of the endpoints of a slice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slice {
    /// Whether the endpoints are IPv6.
    pub is_ipv6: bool,
    /// Nodes with a ready endpoint.
    pub ready: BTreeSet<Box<str>>,
    /// Nodes with a terminating endpoint that still serves.
    pub terminating: BTreeSet<Box<str>>,
}

/// A Node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Node {
    /// Its uid.
    pub uid: Box<str>,
    /// Whether it is Ready and not being deleted.
    pub ready: bool,
    /// Whether it is excluded from external load balancers.
    pub excluded: bool,
    /// Its own addresses.
    pub addresses: Vec<IpAddr>,
    /// Its labels.
    pub labels: view::StringMap,
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
    /// The record of a Service; none without load-balancer addresses.
    #[must_use]
    pub fn of(service: &view::Service) -> Option<Self> {
        let vips = service.vips().filter(|_| service.is_load_balancer());
        let addresses: Vec<IpAddr> = vips.filter_map(parse_lenient).collect();
        (!addresses.is_empty()).then(|| Self {
            uid: service.metadata.uid.clone(),
            class: service.spec.load_balancer_class.clone().filter(|class| !class.is_empty()),
            local: service.is_external_local(),
            deleting: service.metadata.is_deleting(),
            addresses,
        })
    }
}

impl Slice {
    /// `namespace/name` of its Service, and the record of a slice.
    #[must_use]
    pub fn of(slice: &view::EndpointSlice) -> Option<(Box<str>, Self)> {
        let key = slice.service()?.into();
        let mut kept = Self { is_ipv6: &*slice.address_type == "IPv6", ..Self::default() };
        for endpoint in &slice.endpoints {
            let Some(node) = endpoint.node_name.as_deref().filter(|node| !node.is_empty()) else { continue };
            let conditions = endpoint.conditions;
            if conditions.is_ready() {
                kept.ready.insert(node.into());
            } else if conditions.is_serving() && conditions.is_terminating() {
                kept.terminating.insert(node.into());
            }
        }
        Some((key, kept))
    }
}

impl From<view::Node> for Node {
    fn from(node: view::Node) -> Self {
        let own = node.status.addresses.iter().filter(|address| matches!(&*address.kind, "InternalIP" | "ExternalIP"));
        let addresses = own.filter_map(|address| parse_lenient(&address.address)).collect();
        let is_ready = node.ready().is_some_and(view::Condition::is_true);
        Self {
            ready: is_ready && !node.metadata.is_deleting(),
            // The presence of the label is enough, except with the value false.
            excluded: node.metadata.labels.get(EXCLUDE_FROM_LOAD_BALANCERS).is_some_and(|value| value != "false"),
            addresses,
            uid: node.metadata.uid,
            labels: node.metadata.labels,
        }
    }
}

impl Pool {
    /// Parses an `IPPool`.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let ranges = object.texts("spec.addresses").into_iter().filter_map(range).collect();
        let ways = object.texts("spec.announce");
        let by = |way: &str| ways.is_empty() || ways.contains(&way);
        Self { ranges, l2: by("l2"), bgp: by("bgp") }
    }
}

/// Parses a range: `a.b.c.d/len`, `first-last`, or one address.
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
    // Pools include the first and the last address of a CIDR.
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
