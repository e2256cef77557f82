//! Who connects from this node: one of its Pods, or the node itself.
//!
//! In: the Pods of this node, as a watch says; the addresses of the node. Out: the source of a connection, by its address.
//! Listeners of Services at layer 7 can be reached without the rules of the proxy, from other machines too: what is neither
//! the node nor one of its Pods is refused. An address that is not known yet waits for the watch, since a Pod may connect
//! before its status arrives. Waiting connections are few and wait for a short time.

mod pods;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

pub(crate) use pods::{PodSource, PodTable};

use crate::controller::OwnAddresses;

/// How long a connection waits for the Pod of its address to be known.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// Connections that wait, in total and of one address. Others are refused at once.
const MAX_WAITING: usize = 256;
const MAX_WAITING_PER_ADDRESS: usize = 16;

/// What the node itself is called as the source of requests; no namespace has this name with a slash.
static NODE: LazyLock<Arc<str>> = LazyLock::new(|| "node".into());

/// Pods by address.
pub(crate) type Pods = HashMap<IpAddr, Arc<PodSource>>;

/// Where a connection of this node comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// A program of the node, or a Pod in its network.
    Node,
    /// A Pod with an address of its own.
    Pod(Arc<PodSource>),
}

impl Source {
    /// The namespace of the Pod.
    pub(crate) fn namespace(&self) -> Option<&Arc<str>> {
        match self {
            Self::Node => None,
            Self::Pod(pod) => Some(&pod.namespace),
        }
    }

    /// `namespace/name` of the Pod.
    pub(crate) fn pod(&self) -> Option<&str> {
        match self {
            Self::Node => None,
            Self::Pod(pod) => Some(&pod.key),
        }
    }

    /// What the Pod belongs to, as `namespace/name`; `node` for the node.
    pub(crate) fn workload(&self) -> &Arc<str> {
        match self {
            Self::Node => &NODE,
            Self::Pod(pod) => &pod.workload,
        }
    }
}

/// The clients of this node.
pub(crate) struct LocalClients {
    /// Addresses of the Node object, and those of the machine at the start.
    of_node: watch::Receiver<Arc<[IpAddr]>>,
    /// Addresses of the machine now.
    own: OwnAddresses,
    pods: watch::Sender<Arc<Pods>>,
    /// Waiting connections by address.
    waiting: Mutex<HashMap<IpAddr, usize>>,
}

/// The place of a waiting connection.
struct Waiting<'a> {
    clients: &'a LocalClients,
    ip: IpAddr,
}

impl LocalClients {
    pub(crate) fn new(of_node: watch::Receiver<Arc<[IpAddr]>>, own: OwnAddresses) -> Self {
        Self { of_node, own, pods: watch::Sender::default(), waiting: Mutex::default() }
    }

    /// Replaces the Pods.
    pub(crate) fn set_pods(&self, pods: Pods) {
        self.pods.send_replace(Arc::new(pods));
    }

    /// The source of a connection from this address; none if it is not of this node, or not known in time.
    pub(crate) async fn identify(&self, address: IpAddr) -> Option<Source> {
        let ip = address.to_canonical();
        // First: a Pod that shows an address of the node, such as an adopted one, must not be taken for all programs.
        if self.of_node.borrow().contains(&ip) || (self.own)().contains(&ip) {
            return Some(Source::Node);
        }
        let mut pods = self.pods.subscribe();
        if let Some(pod) = pods.borrow_and_update().get(&ip).cloned() {
            return Some(Source::Pod(pod));
        }
        // The kernel drops packets from outside with such a source.
        if ip.is_loopback() {
            return Some(Source::Node);
        }
        let _place = self.wait(ip)?;
        let known = timeout(KNOWN_WITHIN, pods.wait_for(|pods| pods.contains_key(&ip))).await.ok()?.ok()?;
        known.get(&ip).cloned().map(Source::Pod)
    }

    /// A place among the waiting connections, if one is free.
    fn wait(&self, ip: IpAddr) -> Option<Waiting<'_>> {
        let mut waiting = self.waiting.lock();
        let total: usize = waiting.values().sum();
        let of_it = waiting.get(&ip).copied().unwrap_or_default();
        if total >= MAX_WAITING || of_it >= MAX_WAITING_PER_ADDRESS {
            return None;
        }
        waiting.insert(ip, of_it + 1);
        Some(Waiting { clients: self, ip })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.clients.waiting.lock();
        let Some(count) = waiting.get_mut(&self.ip) else { return };
        *count -= 1;
        if *count == 0 {
            waiting.remove(&self.ip);
        }
    }
}

#[cfg(test)]
mod tests;
