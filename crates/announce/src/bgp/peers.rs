//! What BGPPeers mean for this node: to whom it speaks, as whom, and of what.
//!
//! In: objects. Out: a [`Peer`] for each BGPPeer that means this node, and the addresses that this node announces to all of them. Pure.
//! Only addresses of pools are ever announced, whatever the status of a Service says: the pools are the list of what is allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use api::facts::Facts;
use api::kinds::bgppeer::community;
use api::selector;
use api::value::ValueExt as _;
use serde_json::Value;

use super::session::Settings;
use crate::objects::{Node, Objects};
use crate::wanted::wanted;

/// How much our routes are preferred inside of an autonomous system unless it was said; what routers take for absent ones.
const LOCAL_PREF: u32 = 100;
/// More communities than this leave no room for routes in a message.
const COMMUNITIES: usize = 500;

/// To whom this node speaks, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The uid of its object.
    pub uid: Box<str>,
    /// Where it listens.
    pub address: SocketAddr,
    /// From where we speak, if that was said.
    pub source: Option<IpAddr>,
    /// How many hops our packets may make, where that is limited.
    pub ttl: Option<u8>,
    /// Where the password is.
    pub password: Option<SecretRef>,
    /// What the session is to be.
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

/// The peers of a node by the names of their objects; for those that cannot be spoken to, why.
#[must_use]
pub fn peers(objects: &Objects, own: &str) -> BTreeMap<Box<str>, Result<Peer, String>> {
    let unknown = Node::default();
    let node = objects.nodes.get(own).unwrap_or(&unknown);
    let meant = objects.peers.iter().filter(|(_, object)| is_meant(object, own, node));
    meant.map(|(name, object)| (name.clone(), peer(object, own, node))).collect()
}

/// The addresses that a node announces.
#[must_use]
pub fn offer(objects: &Objects, own: &str) -> BTreeSet<IpAddr> {
    let allowed =
        |address: IpAddr| objects.pools.values().flat_map(|pool| &pool.ranges).any(|range| range.contains(&address));
    let all = wanted(objects, own).into_values();
    let ours = all.filter(|wanted| wanted.bgp && wanted.nodes.contains(own));
    ours.map(|wanted| wanted.address).filter(|address| allowed(*address)).collect()
}

/// Whether a BGPPeer is for this node. A selector that means nothing means nobody.
fn is_meant(object: &Value, own: &str, node: &Node) -> bool {
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

fn peer(object: &Value, own: &str, node: &Node) -> Result<Peer, String> {
    let spec = object.at("spec");
    let number = |field: &str| u32::try_from(spec.int(field)).map_err(|_| format!("spec.{field} is out of range"));
    let optional = |field: &str| match spec.text(field) {
        "" => Ok(None),
        text => text.parse::<IpAddr>().map(Some).map_err(|_| format!("spec.{field} {text:?} is no address")),
    };
    let (my_asn, peer_asn) = (number("myASN")?, number("peerASN")?);
    let address = optional("peerAddress")?.ok_or("spec.peerAddress is missing")?;
    let port = u16::try_from(spec.int("peerPort")).map_err(|_| "spec.peerPort is out of range")?;
    let seconds = |field: &str| u16::try_from(spec.int(field)).map_err(|_| format!("spec.{field} is out of range"));
    let graceful = spec.at("gracefulRestart").as_bool().unwrap_or(true);
    let communities = spec.texts("communities");
    if communities.len() > COMMUNITIES {
        return Err(format!("spec.communities has more than {COMMUNITIES} entries"));
    }
    let understood: Option<Vec<u32>> = communities.into_iter().map(community).collect();
    let secret = spec.at("password.secretRef");
    Ok(Peer {
        uid: object.text("metadata.uid").into(),
        address: SocketAddr::new(address, port),
        source: optional("sourceAddress")?,
        // A neighbour of another system is on the same wire, and packets from further away are not from it.
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
            max_prefixes: usize::try_from(spec.int("maxPrefixes")).map_err(|_| "spec.maxPrefixes is out of range")?,
            communities: understood.ok_or("spec.communities has an entry that is none")?,
            local_pref: Some(number("localPref")?).filter(|preference| *preference > 0).unwrap_or(LOCAL_PREF),
        },
        node: node.addresses.clone(),
    })
}

/// Our name among routers: what was said, the node's address of IPv4, or a number from the node's name.
fn identifier(said: &str, own: &str, node: &Node) -> Result<Ipv4Addr, String> {
    if !said.is_empty() {
        return said.parse().map_err(|_| format!("spec.routerID {said:?} has not the form of an IPv4 address"));
    }
    let v4 = node.addresses.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    });
    // FNV-1a: nodes of different names are told apart, and a node is the same one after a restart.
    let hash = || own.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    Ok(v4.unwrap_or_else(|| Ipv4Addr::from(hash().max(1))))
}

#[cfg(test)]
mod tests;
