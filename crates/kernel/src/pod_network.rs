//! The network of Pods: a bridge of this machine, a wire from it into each Pod's namespace, and routes to Pods of other Nodes.
//!
//! In: values that say what there should be. Out: links, addresses and routes; asking twice changes nothing. A Pod is alone on its
//! address (a single host): even to its neighbour it talks through this machine, so that the rules of Services see all of its
//! packets. The wires' ports at the bridge have hairpin mode on, so that a Pod reaches itself through a Service. Frames with the addresses of
//! somebody else do not pass ([`guard`]).

pub mod fake;
pub mod guard;
pub mod linux;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use rustix::io::Errno;
use thiserror::Error;

/// What a wire is called inside a Pod.
pub const INSIDE: &str = "eth0";

/// The bridge of a machine's Pods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// Its addresses, each with the network that lies behind it.
    pub addresses: Vec<IpNet>,
}

/// A wire from the bridge into a Pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wire {
    /// What it is called at the bridge: 1 to 15 bytes.
    pub name: String,
    /// The bridge.
    pub bridge: String,
    /// The file of the Pod's network namespace.
    pub namespace: PathBuf,
    /// The Pod's addresses, one of each family at most.
    pub addresses: Vec<IpAddr>,
    /// The addresses of the bridge, to which everything goes.
    pub gateways: Vec<IpAddr>,
    /// The longest packet that it carries; what the kernel thinks best when nothing is said.
    pub mtu: Option<u32>,
    /// The hardware address that a new one gets inside the Pod.
    pub hardware: [u8; 6],
}

/// A port of the bridge, and the addresses with which its Pod may send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// What the wire is called at the bridge.
    pub name: String,
    /// The Pod's hardware address.
    pub hardware: [u8; 6],
    /// The Pod's addresses.
    pub addresses: Vec<IpAddr>,
}

/// Pods elsewhere, and who leads to them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Route {
    /// Where the Pods are.
    pub to: IpNet,
    /// The Node that has them.
    pub via: IpAddr,
}

/// A request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the network of Pods, {doing} {what}: {errno}")]
pub struct PodNetworkError {
    /// What the kernel said.
    pub errno: Errno,
    /// What was being done.
    pub doing: &'static str,
    /// To what.
    pub what: String,
}

/// Somebody who can make networks of Pods.
pub trait PodNetwork: Send {
    /// Makes the bridge with exactly these addresses.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn bridge(&mut self, bridge: &Bridge) -> Result<(), PodNetworkError>;

    /// Drops what Pods send with addresses that are not theirs, from now on: from these ports, and from those that are plugged later. Says
    /// whether this kernel can; where it cannot, Pods can forge addresses.
    ///
    /// # Errors
    /// When the kernel refuses; then nothing can be plugged until it does not.
    fn guard(&mut self, ports: &[Port]) -> Result<bool, PodNetworkError>;

    /// The hardware address that a Pod has, by its network namespace.
    ///
    /// # Errors
    /// When it cannot be read.
    fn hardware(&mut self, namespace: &Path) -> Result<[u8; 6], PodNetworkError>;

    /// Puts a wire between the bridge and a Pod, and gives the Pod its addresses and routes. One that is there already is kept.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn plug(&mut self, wire: &Wire) -> Result<(), PodNetworkError>;

    /// Deletes a link of this machine, a wire or the bridge. Says whether there was one.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn delete(&mut self, link: &str) -> Result<bool, PodNetworkError>;

    /// The longest packet that the link with this address of the machine carries; nothing when there is no such link.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn mtu(&mut self, of: IpAddr) -> Result<Option<u32>, PodNetworkError>;

    /// Makes these the routes to Pods elsewhere; others that were made here before go. Those that cannot be had (the Node is not
    /// on a network of this machine) are answered.
    ///
    /// # Errors
    /// When routes cannot be read.
    fn routes(&mut self, wanted: &BTreeSet<Route>) -> Result<Vec<(Route, Errno)>, PodNetworkError>;
}
