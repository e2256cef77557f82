//! The Pod network: a bridge, a veth pair to each Pod's namespace, and routes to Pods of other Nodes.
//!
//! In: desired state. Out: links, addresses and routes; requests are idempotent. A Pod has a host prefix: even traffic
//! to its neighbours is routed through this machine, so that Service rules see all of its packets. Bridge ports have
//! hairpin mode, so that a Pod reaches itself through a Service. Frames with forged addresses are dropped ([`guard`]).

pub mod fake;
pub mod guard;
pub mod linux;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use rustix::io::Errno;
use thiserror::Error;

/// Interface name inside a Pod.
pub const INSIDE: &str = "eth0";

/// The bridge of a machine's Pods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// Its addresses with their networks.
    pub addresses: Vec<IpNet>,
}

/// A veth pair from the bridge to a Pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wire {
    /// Interface name at the bridge: 1 to 15 bytes.
    pub name: String,
    /// The bridge.
    pub bridge: String,
    /// Path of the Pod's network namespace.
    pub namespace: PathBuf,
    /// The Pod's addresses, at most one per family.
    pub addresses: Vec<IpAddr>,
    /// Addresses of the bridge: the default gateways.
    pub gateways: Vec<IpAddr>,
    /// MTU; the kernel's default when none is given.
    pub mtu: Option<u32>,
    /// MAC address of a new interface in the Pod.
    pub hardware: [u8; 6],
}

/// A bridge port and the source addresses allowed for its Pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Interface name at the bridge.
    pub name: String,
    /// The Pod's MAC address.
    pub hardware: [u8; 6],
    /// The Pod's addresses.
    pub addresses: Vec<IpAddr>,
}

/// A route to Pods of another Node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Route {
    /// Pod CIDR.
    pub to: IpNet,
    /// Address of the Node.
    pub via: IpAddr,
}

/// A request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the network of Pods, {doing} {what}: {errno}")]
pub struct PodNetworkError {
    /// Error number of the kernel.
    pub errno: Errno,
    /// The failed operation.
    pub doing: &'static str,
    /// Its object.
    pub what: String,
}

/// Access to the Pod network.
pub trait PodNetwork: Send {
    /// Creates the bridge with exactly these addresses.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn bridge(&mut self, bridge: &Bridge) -> Result<(), PodNetworkError>;

    /// Enables source address checks for these ports and for later ones. Returns whether the kernel supports it;
    /// otherwise Pods can forge addresses.
    ///
    /// # Errors
    /// When the kernel refuses; then nothing can be plugged until it succeeds.
    fn guard(&mut self, ports: &[Port]) -> Result<bool, PodNetworkError>;

    /// The MAC address of a Pod, by its network namespace.
    ///
    /// # Errors
    /// When it cannot be read.
    fn hardware(&mut self, namespace: &Path) -> Result<[u8; 6], PodNetworkError>;

    /// Connects a Pod to the bridge and sets its addresses and routes. An existing connection is kept.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn plug(&mut self, wire: &Wire) -> Result<(), PodNetworkError>;

    /// Deletes a link; returns whether it existed.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn delete(&mut self, link: &str) -> Result<bool, PodNetworkError>;

    /// MTU of the link with this address; none if there is no such link.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn mtu(&mut self, of: IpAddr) -> Result<Option<u32>, PodNetworkError>;

    /// Sets the routes to Pods of other Nodes and removes our other ones. Returns those that failed (the Node is on no
    /// local network).
    ///
    /// # Errors
    /// When routes cannot be read.
    fn routes(&mut self, wanted: &BTreeSet<Route>) -> Result<Vec<(Route, Errno)>, PodNetworkError>;
}
