//! The BGP peers of this node, and the addresses that it announces.
//!
//! In: objects. Out: a [`Peer`] for each BGPPeer that selects this node, and the addresses to announce to all of them. Pure.
//! Only addresses of IPPools are announced, whatever the status of a Service contains.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use api::facts::Facts;
use api::hash::fnv1a32;
use api::kinds::bgppeer::community;
use api::selector;
use api::value::ValueExt as _;
use serde_json::Value;

use super::session::Settings;
use crate::objects::{Node, Objects};
use crate::wanted::wanted;

/// Default LOCAL_PREF, as of routers.
const LOCAL_PREF: u32 = 100;
/// Maximum number of communities; more would leave no room for routes in a message.
const MAX_COMMUNITIES: usize = 500;

/// A peer of this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// uid of the BGPPeer.
    pub uid: Box<str>,
    /// Its address and port.
    pub address: SocketAddr,
    /// Configured source address.
    pub source: Option<IpAddr>,
    /// TTL of our packets; none for the default.
    pub ttl: Option<u8>,
    /// Reference to the password.
    pub password: Option<SecretRef>,
    /// Settings of the session.
    pub settings: Settings,
    /// Addresses of this node.
    pub node: Vec<IpAddr>,
}

/// A key of a Secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecretRef {
    /// The namespace of the Secret.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// The key.
    pub key: Box<str>,
}

/// Why a BGPPeer cannot be used. A first text is the field.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PeerError {
    /// The number does not fit.
    #[error("spec.{0} is out of range")]
    OutOfRange(&'static str),
    /// The text is not an IP address.
    #[error("spec.{0} {1:?} is not an IP address")]
    NotAnAddress(&'static str, String),
    /// The address of the peer is missing.
    #[error("spec.peerAddress is missing")]
    NoPeerAddress,
    /// The router ID is not an IPv4 address.
    #[error("spec.routerID {0:?} is not an IPv4 address")]
    RouterId(String),
    /// There are too many communities.
    #[error("spec.communities has more than {MAX_COMMUNITIES} entries")]
    TooManyCommunities,
    /// A community is invalid.
    #[error("spec.communities contains an invalid community")]
    InvalidCommunity,
}

/// Peers of a node by the name of the BGPPeer; the error of an invalid one.
#[must_use]
pub fn peers(objects: &Objects, own: &str) -> BTreeMap<Box<str>, Result<Peer, PeerError>> {
    let unknown = Node::default();
    let node = objects.nodes.get(own).unwrap_or(&unknown);
    let selected = objects.peers.iter().filter(|(_, object)| selects(object, own, node));
    selected.map(|(name, object)| (name.clone(), peer(object, own, node))).collect()
}

/// Addresses that a node announces.
#[must_use]
pub fn offer(objects: &Objects, own: &str) -> BTreeSet<IpAddr> {
    let allowed =
        |address: IpAddr| objects.pools.values().flat_map(|pool| &pool.ranges).any(|range| range.contains(&address));
    let all = wanted(objects, own).into_values();
    let ours = all.filter(|wanted| wanted.bgp && wanted.nodes.contains(own));
    ours.map(|wanted| wanted.address).filter(|address| allowed(*address)).collect()
}

/// Whether a BGPPeer selects this node. An invalid selector selects none.
fn selects(object: &Value, own: &str, node: &Node) -> bool {
    if object.has("metadata.deletionTimestamp") {
        return false;
    }
    let selector = object.at("spec.nodeSelector");
    if selector.is_null() {
        return true;
    }
    let facts = Facts {
        labels: node.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        fields: Box::default(),
    };
    selector::from_object(selector).is_some_and(|selector| selector.matches(&facts, "", own))
}

fn peer(object: &Value, own: &str, node: &Node) -> Result<Peer, PeerError> {
    let spec = object.at("spec");
    let number = |field| u32::try_from(spec.int(field)).map_err(|_| PeerError::OutOfRange(field));
    let optional = |field| match spec.text(field) {
        "" => Ok(None),
        text => text.parse::<IpAddr>().map(Some).map_err(|_| PeerError::NotAnAddress(field, text.to_owned())),
    };
    let (my_asn, peer_asn) = (number("myASN")?, number("peerASN")?);
    let address = optional("peerAddress")?.ok_or(PeerError::NoPeerAddress)?;
    let port = u16::try_from(spec.int("peerPort")).map_err(|_| PeerError::OutOfRange("peerPort"))?;
    let seconds = |field| u16::try_from(spec.int(field)).map_err(|_| PeerError::OutOfRange(field));
    let graceful = spec.at("gracefulRestart").as_bool().unwrap_or(true);
    let communities = spec.texts("communities");
    if communities.len() > MAX_COMMUNITIES {
        return Err(PeerError::TooManyCommunities);
    }
    let understood: Option<Vec<u32>> = communities.into_iter().map(community).collect();
    let secret = spec.at("password.secretRef");
    Ok(Peer {
        uid: object.text("metadata.uid").into(),
        address: SocketAddr::new(address, port),
        source: optional("sourceAddress")?,
        // An eBGP peer is directly connected unless multihop is configured.
        ttl: (my_asn != peer_asn && spec.at("ebgpMultiHop").as_bool() != Some(true)).then_some(1),
        password: (!secret.is_null()).then(|| SecretRef {
            namespace: secret.text("namespace").into(),
            name: secret.text("name").into(),
            key: secret.text("key").into(),
        }),
        settings: Settings {
            my_asn,
            peer_asn,
            id: identifier(spec.text("routerID"), own, node)?,
            hold: seconds("holdTimeSeconds")?,
            restart: if graceful { Some(seconds("restartTimeSeconds")?) } else { None },
            max_prefixes: usize::try_from(spec.int("maxPrefixes")).map_err(|_| PeerError::OutOfRange("maxPrefixes"))?,
            communities: understood.ok_or(PeerError::InvalidCommunity)?,
            local_pref: Some(number("localPref")?).filter(|preference| *preference > 0).unwrap_or(LOCAL_PREF),
        },
        node: node.addresses.clone(),
    })
}

/// Router ID: the configured one, the IPv4 address of the node, or a hash of its name.
fn identifier(configured: &str, own: &str, node: &Node) -> Result<Ipv4Addr, PeerError> {
    if !configured.is_empty() {
        return configured.parse().map_err(|_| PeerError::RouterId(configured.to_owned()));
    }
    let v4 = node.addresses.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    });
    Ok(v4.unwrap_or_else(|| Ipv4Addr::from(fnv1a32(own.as_bytes()).max(1))))
}

#[cfg(test)]
mod tests;
