//! The book of all names: written by one, read by many.
//!
//! In: objects in small, one at a time, as they come and go. Out: a [`Book`] that answers look-ups without locks, and
//! in which a change costs what it touches: one Service is prepared again and put in its place, and the addresses it
//! got or lost are written into the index. A second list changes nothing that is the same. What no name shows does not
//! change the serial number.

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

pub use state::Held;
use state::State;

/// How many shards the Services and the addresses are in. A change copies one: at ten thousand Services of ten
/// endpoints a shard has ten Services or twenty-five addresses.
const SERVICES: usize = 1024;
const ADDRESSES: usize = 4096;

/// All names.
#[derive(Debug)]
pub struct Book {
    /// How they are answered.
    pub config: Config,
    /// Where they are.
    pub zones: Zones,
    pub(crate) services: Shards<Arc<Service>>,
    pub(crate) namespaces: Shards<Arc<Namespace>>,
    /// The same by their numbers, to which addresses lead.
    pub(crate) numbers: Shards<Arc<Service>>,
    pub(crate) addresses: Shards<Owner>,
    pub(crate) pods: Shards<PodAddress>,
    serial: AtomicU32,
    ready: AtomicBool,
    /// The same for those who wait for it.
    complete: watch::Sender<bool>,
    state: Mutex<State>,
    /// How many updates were taken in.
    updates: watch::Sender<u64>,
}

/// Whose an address is. There are many, so that this is small: the Service itself says whether it has the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// The number of the Service, and in the lowest bit whether the address is its own or that of an endpoint.
    bits: u32,
}

impl Owner {
    fn new(number: u32, own: bool) -> Self {
        Self { bits: number << 1 | u32::from(own) }
    }

    const fn number(self) -> u32 {
        self.bits >> 1
    }

    const fn is_own(self) -> bool {
        self.bits & 1 == 1
    }
}

/// An address that a Pod of a namespace has.
#[derive(Clone, Debug)]
pub(crate) struct PodAddress {
    pub(crate) address: IpAddr,
    pub(crate) namespace: Arc<Namespace>,
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub enum Update {
    /// A Service is so.
    Service(Box<view::Service>),
    /// `namespace/name` of a Service that is gone.
    ServiceGone(Box<str>),
    /// A slice is so.
    Slice(Box<view::EndpointSlice>),
    /// `namespace/name` of a slice that is gone.
    SliceGone(Box<str>),
    /// A Namespace is so.
    Namespace(Box<str>),
    /// The name of a Namespace that is gone.
    NamespaceGone(Box<str>),
    /// A Pod is so.
    Pod(Box<view::Pod>),
    /// `namespace/name` of a Pod that is gone.
    PodGone(Box<str>),
}

impl Book {
    /// An empty one, not to be answered from yet.
    ///
    /// # Errors
    /// When the zones cannot be read.
    pub fn new(config: Config) -> Result<Arc<Self>, BadZone> {
        let zones = Zones::new(&config)?;
        Ok(Arc::new(Self {
            config,
            zones,
            services: Shards::new(SERVICES),
            namespaces: Shards::new(SERVICES / 4),
            numbers: Shards::new(SERVICES),
            addresses: Shards::new(ADDRESSES),
            pods: Shards::new(ADDRESSES),
            serial: AtomicU32::new(1),
            ready: AtomicBool::new(false),
            complete: watch::Sender::new(false),
            state: Mutex::default(),
            updates: watch::Sender::new(0),
        }))
    }

    /// Whether it is complete.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Says that it is complete.
    pub fn ready(&self) {
        self.ready.store(true, Ordering::Release);
        self.complete.send_replace(true);
        self.updates.send_modify(|count| *count += 1);
    }

    /// Waits until it is complete.
    pub async fn until_ready(&self) {
        // The sender is here as long as we are.
        let _ = self.complete.subscribe().wait_for(|complete| *complete).await;
    }

    /// When a name last changed, in seconds.
    #[must_use]
    pub fn serial(&self) -> u32 {
        self.serial.load(Ordering::Relaxed)
    }

    /// Takes in what happened, at this many seconds of the clock. True when a name changed by it.
    pub fn apply(&self, update: Update, now: u32) -> bool {
        let changed = self.state.lock().apply(self, update);
        if changed {
            self.serial.store(now, Ordering::Relaxed);
        }
        self.updates.send_modify(|count| *count += 1);
        changed
    }

    /// How many updates were taken in, for those who wait for one: when the number is seen, so are its answers.
    #[must_use]
    pub fn updates(&self) -> watch::Receiver<u64> {
        self.updates.subscribe()
    }

    /// Looks at what is kept of a Service beside its answers: for people who ask why.
    pub fn held<T>(&self, key: &[u8], look: impl FnOnce(Option<&Held>) -> T) -> T {
        look(self.state.lock().held(key))
    }

    /// Every Service with its name in text (`namespace/name`) and its number.
    pub fn each_service(&self, mut see: impl FnMut(&str, u32)) {
        self.services.each(|service| see(&text_of(&service.key.wire), service.key.number));
    }

    /// How many Services there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let mut count = 0;
        self.services.each(|_| count += 1);
        count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The Service with this key, if its namespace is shown.
    pub(crate) fn service(&self, key: &[u8]) -> Option<Arc<Service>> {
        let at = self.services.at(key);
        let shard = self.services.load(at);
        shard.find(at).find(|service| *service.key.wire == *key).cloned()
    }

    /// Whether a namespace exists and is shown.
    pub(crate) fn is_shown(&self, namespace: &[u8]) -> bool {
        let at = self.namespaces.at(namespace);
        let shard = self.namespaces.load(at);
        shard.find(at).any(|found| *found.wire == *namespace && found.is_shown())
    }

    /// The Services that have an address, and whether as their own.
    pub(crate) fn owners(&self, address: IpAddr) -> Vec<(bool, Arc<Service>)> {
        let at = self.addresses.at(&bytes_of(address));
        let shard = self.addresses.load(at);
        let services = shard.find(at).filter_map(|owner| {
            let service = self.numbered(owner.number())?;
            service.has(address, owner.is_own()).then_some((owner.is_own(), service))
        });
        services.collect()
    }

    fn numbered(&self, number: u32) -> Option<Arc<Service>> {
        let at = self.numbers.at(&number.to_ne_bytes());
        self.numbers.load(at).find(at).find(|service| service.key.number == number).cloned()
    }

    /// `namespace/name` of the Pods of a namespace that have an address: for people who ask why.
    pub(crate) fn pods_with(&self, namespace: &[u8], address: IpAddr) -> Vec<String> {
        self.state.lock().pods_with(namespace, address)
    }

    /// The namespace of the Pods that have an address, when it is the same for all: whose search list a question came
    /// from. Known only when names of Pods are verified.
    #[must_use]
    pub fn namespace_of(&self, address: IpAddr) -> Option<String> {
        let at = self.pods.at(&bytes_of(address));
        let shard = self.pods.load(at);
        let mut found = shard.find(at).filter(|pod| pod.address == address).map(|pod| &pod.namespace.wire);
        let first = found.next()?;
        found.all(|other| other == first).then(|| String::from_utf8_lossy(&first[1..]).into_owned())
    }

    /// Whether a Pod of a namespace has an address.
    pub(crate) fn has_pod(&self, namespace: &[u8], address: IpAddr) -> bool {
        let at = self.pods.at(&bytes_of(address));
        let shard = self.pods.load(at);
        shard.find(at).any(|pod| pod.address == address && *pod.namespace.wire == *namespace)
    }
}

/// An address as a key.
pub(crate) fn bytes_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// `namespace/name` of two labels.
pub(crate) fn text_of(wire: &[u8]) -> String {
    let name = wire.split_first().and_then(|(len, rest)| rest.get(..usize::from(*len)));
    let name = String::from_utf8_lossy(name.unwrap_or_default());
    let namespace = String::from_utf8_lossy(wire.get(2 + name.len()..).unwrap_or_default());
    format!("{namespace}/{name}")
}

/// The labels of `name` and `namespace` on the wire; none when they cannot be labels.
pub(crate) fn wire_of(namespace: &str, name: &str) -> Option<Box<[u8]>> {
    let mut wire = Vec::with_capacity(name.len() + namespace.len() + 2);
    for label in [name, namespace] {
        wire.extend_from_slice(&label_of(label)?);
    }
    Some(wire.into())
}

/// A label on the wire, in lower case.
pub(crate) fn label_of(text: &str) -> Option<Box<[u8]>> {
    let len = u8::try_from(text.len()).ok().filter(|len| (1..=63).contains(len))?;
    let mut wire = vec![len];
    wire.extend(text.bytes().map(|byte| byte.to_ascii_lowercase()));
    Some(wire.into())
}
