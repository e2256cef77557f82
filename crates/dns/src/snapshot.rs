//! Published records of the cluster zones: one writer, many readers.
//!
//! In: object updates, one at a time. Out: a [`ZoneSnapshot`] whose lookups take no locks. The cost of a change is
//! proportional to what it touches: one Service is prepared again and replaced in its shard, and the address index is
//! updated for the addresses it gained or lost. A relist of unchanged objects changes nothing. The SOA serial changes
//! only when a record changes.

mod state;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use api::view;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::records::{Namespace, Service};
use crate::shards::Shards;
use crate::zone::{BadZone, Config, Zones};

pub use state::ServiceState;
use state::State;

/// Number of shards of Services and of addresses. A change copies one shard: with 10 000 Services of 10 endpoints a
/// shard holds 10 Services or 25 addresses.
const SERVICE_SHARDS: usize = 1024;
const ADDRESS_SHARDS: usize = 4096;

/// Records of the cluster zones.
#[derive(Debug)]
pub struct ZoneSnapshot {
    /// Zone configuration.
    pub config: Config,
    /// Zones served.
    pub zones: Zones,
    pub(crate) services: Shards<Arc<Service>>,
    pub(crate) namespaces: Shards<Arc<Namespace>>,
    /// Services by id, the target of [`Owner`].
    pub(crate) by_id: Shards<Arc<Service>>,
    pub(crate) addresses: Shards<Owner>,
    pub(crate) pods: Shards<PodAddress>,
    serial: AtomicU32,
    ready: AtomicBool,
    /// Same as `ready`, for tasks that wait.
    ready_signal: watch::Sender<bool>,
    state: Mutex<State>,
    /// Number of updates applied.
    updates: watch::Sender<u64>,
}

/// Owner of an address, kept small because there are many. [`Service::has`] confirms that the Service still has the
/// address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// Service id, shifted left by one; the lowest bit is set for a cluster IP and clear for an endpoint address.
    bits: u32,
}

impl Owner {
    fn new(id: u32, own: bool) -> Self {
        Self { bits: id << 1 | u32::from(own) }
    }

    const fn service_id(self) -> u32 {
        self.bits >> 1
    }

    const fn is_cluster_ip(self) -> bool {
        self.bits & 1 == 1
    }
}

/// IP address of a Pod.
#[derive(Clone, Debug)]
pub(crate) struct PodAddress {
    pub(crate) address: IpAddr,
    pub(crate) namespace: Arc<Namespace>,
}

/// Change of an object.
#[derive(Clone, Debug)]
pub enum Update {
    /// Service created or updated.
    Service(Box<view::Service>),
    /// Service deleted; `namespace/name`.
    ServiceDeleted(Box<str>),
    /// EndpointSlice created or updated.
    Slice(Box<view::EndpointSlice>),
    /// EndpointSlice deleted; `namespace/name`.
    SliceDeleted(Box<str>),
    /// Namespace created or updated.
    Namespace(Box<str>),
    /// Namespace deleted.
    NamespaceDeleted(Box<str>),
    /// Pod created or updated.
    Pod(Box<view::Pod>),
    /// Pod deleted; `namespace/name`.
    PodDeleted(Box<str>),
}

impl ZoneSnapshot {
    /// Creates an empty snapshot that is not ready yet.
    ///
    /// # Errors
    /// When the zones cannot be parsed.
    pub fn new(config: Config) -> Result<Arc<Self>, BadZone> {
        let zones = Zones::new(&config)?;
        Ok(Arc::new(Self {
            config,
            zones,
            services: Shards::new(SERVICE_SHARDS),
            namespaces: Shards::new(SERVICE_SHARDS / 4),
            by_id: Shards::new(SERVICE_SHARDS),
            addresses: Shards::new(ADDRESS_SHARDS),
            pods: Shards::new(ADDRESS_SHARDS),
            serial: AtomicU32::new(1),
            ready: AtomicBool::new(false),
            ready_signal: watch::Sender::new(false),
            state: Mutex::default(),
            updates: watch::Sender::new(0),
        }))
    }

    /// Whether the initial lists are complete.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Marks the initial lists as complete.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
        self.ready_signal.send_replace(true);
        self.updates.send_modify(|count| *count += 1);
    }

    /// Waits until the initial lists are complete.
    pub async fn wait_ready(&self) {
        // Cannot fail: `self` owns the sender.
        let _ = self.ready_signal.subscribe().wait_for(|ready| *ready).await;
    }

    /// SOA serial: Unix time in seconds of the last record change.
    #[must_use]
    pub fn serial(&self) -> u32 {
        self.serial.load(Ordering::Relaxed)
    }

    /// Applies an update at Unix time `now` (seconds). Returns whether a record changed.
    pub fn apply(&self, update: Update, now: u32) -> bool {
        let changed = self.state.lock().apply(self, update);
        if changed {
            self.serial.store(now, Ordering::Relaxed);
        }
        self.updates.send_modify(|count| *count += 1);
        changed
    }

    /// Number of updates applied, for waiting. An update is visible to queries before it is counted here.
    #[must_use]
    pub fn updates(&self) -> watch::Receiver<u64> {
        self.updates.subscribe()
    }

    /// Calls `look` with the writer's state of a Service; used by [`crate::explain`].
    pub fn service_state<T>(&self, key: &[u8], look: impl FnOnce(Option<&ServiceState>) -> T) -> T {
        look(self.state.lock().service_state(key))
    }

    /// Calls `see` with the key (`namespace/name`) and id of every Service.
    pub fn for_each_service(&self, mut see: impl FnMut(&str, u32)) {
        self.services.each(|service| see(&key_text(&service.key.wire), service.key.id));
    }

    /// Number of Services.
    #[must_use]
    pub fn len(&self) -> usize {
        let mut count = 0;
        self.services.each(|_| count += 1);
        count
    }

    /// Whether there are no Services.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Service with this key, whether or not its namespace is visible.
    pub(crate) fn service(&self, key: &[u8]) -> Option<Arc<Service>> {
        let at = self.services.at(key);
        let shard = self.services.load(at);
        shard.find(at).find(|service| *service.key.wire == *key).cloned()
    }

    /// Whether a namespace exists and is visible.
    pub(crate) fn is_visible(&self, namespace: &[u8]) -> bool {
        let at = self.namespaces.at(namespace);
        let shard = self.namespaces.load(at);
        shard.find(at).any(|found| *found.wire == *namespace && found.is_visible())
    }

    /// Services that have an address, each with whether it is a cluster IP of the Service.
    pub(crate) fn owners(&self, address: IpAddr) -> Vec<(bool, Arc<Service>)> {
        let at = self.addresses.at(&address_key(address));
        let shard = self.addresses.load(at);
        let services = shard.find(at).filter_map(|owner| {
            let service = self.service_by_id(owner.service_id())?;
            service.has(address, owner.is_cluster_ip()).then_some((owner.is_cluster_ip(), service))
        });
        services.collect()
    }

    fn service_by_id(&self, id: u32) -> Option<Arc<Service>> {
        let at = self.by_id.at(&id.to_ne_bytes());
        self.by_id.load(at).find(at).find(|service| service.key.id == id).cloned()
    }

    /// `namespace/name` of the Pods of a namespace that have an address; used by [`crate::explain`].
    pub(crate) fn pods_with(&self, namespace: &[u8], address: IpAddr) -> Vec<String> {
        self.state.lock().pods_with(namespace, address)
    }

    /// Namespace of the Pods that have an address, if it is the same for all of them. Only known if Pods are watched.
    #[must_use]
    pub fn namespace_of(&self, address: IpAddr) -> Option<String> {
        let at = self.pods.at(&address_key(address));
        let shard = self.pods.load(at);
        let mut found = shard.find(at).filter(|pod| pod.address == address).map(|pod| &pod.namespace.wire);
        let first = found.next()?;
        found.all(|other| other == first).then(|| String::from_utf8_lossy(&first[1..]).into_owned())
    }

    /// Whether a Pod of a namespace has an address.
    pub(crate) fn has_pod(&self, namespace: &[u8], address: IpAddr) -> bool {
        let at = self.pods.at(&address_key(address));
        let shard = self.pods.load(at);
        shard.find(at).any(|pod| pod.address == address && *pod.namespace.wire == *namespace)
    }
}

/// Shard key of an address.
pub(crate) fn address_key(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// `namespace/name` of a key in wire form.
pub(crate) fn key_text(wire: &[u8]) -> String {
    let name = wire.split_first().and_then(|(len, rest)| rest.get(..usize::from(*len)));
    let name = String::from_utf8_lossy(name.unwrap_or_default());
    let namespace = String::from_utf8_lossy(wire.get(2 + name.len()..).unwrap_or_default());
    format!("{namespace}/{name}")
}

/// Key of a Service in wire form: the labels of `name` and `namespace`. `None` if they are not valid labels.
pub(crate) fn service_key(namespace: &str, name: &str) -> Option<Box<[u8]>> {
    let mut wire = Vec::with_capacity(name.len() + namespace.len() + 2);
    for label in [name, namespace] {
        wire.extend_from_slice(&wire_label(label)?);
    }
    Some(wire.into())
}

/// Label in wire form, lower-cased.
pub(crate) fn wire_label(text: &str) -> Option<Box<[u8]>> {
    let len = u8::try_from(text.len()).ok().filter(|len| (1..=63).contains(len))?;
    let mut wire = vec![len];
    wire.extend(text.bytes().map(|byte| byte.to_ascii_lowercase()));
    Some(wire.into())
}
