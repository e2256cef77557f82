//! The state of this machine: node, proxy, kernel rules, conntrack, firewall, sysctls.
//!
//! In: what the binary reads from the kernel, or why it could not. Out: plain data for the checks.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use ipnet::IpNet;
use plan::Protocol;

use super::evidence::{Measured, Unmeasured};

/// Differences between the kernel rules of this node and the plan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// The proxy mode.
    pub mode: String,
    /// Whether there is no rule at all.
    pub missing: bool,
    /// What concerns all Services.
    pub whole: Vec<String>,
    /// What concerns one, by `namespace/name`.
    pub of: BTreeMap<String, Vec<String>>,
}

/// The state of this machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The name of its Node; an error where it is not a node.
    pub node: Measured<String>,
    /// Whether a proxy runs on it.
    pub proxy: Measured<bool>,
    /// Differences between its kernel rules and the plan.
    pub rules: Measured<Rules>,
    /// Its conntrack entries.
    pub flows: Measured<Vec<Flow>>,
    /// The number of conntrack entries, and the limit.
    pub room: Measured<(u64, u64)>,
    /// The firewall rules of other programs.
    pub firewall: Measured<Arc<dyn Firewall>>,
    /// Why rules of iptables-legacy, which exist besides, are not all among them.
    pub legacy: Option<String>,
    /// Settings by name, as far as they can be read.
    pub settings: BTreeMap<&'static str, String>,
    /// The networks that its interfaces are in; none when they could not be read.
    pub networks: Vec<IpNet>,
    /// The client address to check source ranges for.
    pub from: Option<IpAddr>,
}

impl Machine {
    /// A node of which only the name is known.
    pub fn named(node: &str) -> Self {
        let unseen = || Unmeasured { why: "only its name is known".to_owned(), how: "waypost doctor".to_owned() };
        Self {
            node: Ok(node.to_owned()),
            proxy: Err(unseen()),
            rules: Err(unseen()),
            flows: Err(unseen()),
            room: Err(unseen()),
            firewall: Err(unseen()),
            legacy: None,
            settings: BTreeMap::new(),
            networks: Vec::new(),
            from: None,
        }
    }
}

/// A conntrack entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The number of its protocol.
    pub protocol: u8,
    /// The client.
    pub source: SocketAddr,
    /// The address that the client sent to.
    pub destination: SocketAddr,
    /// The address that answers: an endpoint, after translation.
    pub answering: SocketAddr,
}

/// The first packet of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Its source, if it is known.
    pub source: Option<IpAddr>,
    /// Its destination.
    pub destination: SocketAddr,
    /// Its protocol.
    pub protocol: Protocol,
}

/// A hook of netfilter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// Before routing, of packets that arrive.
    Prerouting,
    /// To this machine.
    Input,
    /// Through this machine.
    Forward,
    /// From this machine.
    Output,
    /// After routing.
    Postrouting,
}

/// A rule or a policy that drops a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropRule {
    /// The rule as text, with its chain and table.
    pub description: String,
    /// Whether it certainly drops the packet; otherwise it matches on something unknown.
    pub certain: bool,
    /// The command that deletes it, or accepts the packet before it.
    pub fix: String,
}

/// Firewall rules of other programs.
pub trait Firewall: Debug + Send + Sync {
    /// The rules of the chains at a hook, with these priorities, that drop a packet or may drop it.
    fn drops(&self, packet: &Packet, hook: Hook, priorities: Range<i32>) -> Vec<DropRule>;

    /// The tables of other programs, as `inet filter`.
    fn tables(&self) -> Vec<String>;
}
