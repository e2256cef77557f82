//! What the writer keeps: enough of every object to prepare a Service again when any part of it changes.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::view;
use foldhash::fast::RandomState;

use super::{Book, Owner, PodAddress, Update, bytes_of, label_of, wire_of};
use crate::records::{Form, Key, Namespace, Port, Service, Slice, parse_address};

type Map<K, V> = HashMap<K, V, RandomState>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct State {
    services: Map<ByWire, Held>,
    /// Those that exist, and those that somebody speaks of.
    namespaces: Map<Box<[u8]>, Spoken>,
    /// `namespace/name` of each slice, and the key of the Service it is of.
    slices: Map<Box<str>, Arc<Key>>,
    pods: Map<Box<str>, Vec<PodAddress>>,
    /// Lists of ports that several have.
    ports: HashSet<Arc<[Port]>, RandomState>,
    /// The next number of a Service, and those that are free again.
    next: u32,
    free: Vec<u32>,
}

/// A key that is found by its labels.
#[derive(Debug)]
struct ByWire(Arc<Key>);

impl Borrow<[u8]> for ByWire {
    fn borrow(&self) -> &[u8] {
        &self.0.wire
    }
}

impl PartialEq for ByWire {
    fn eq(&self, other: &Self) -> bool {
        self.0.wire == other.0.wire
    }
}

impl Eq for ByWire {}

impl Hash for ByWire {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As the labels alone, by which it is looked for.
        (*self.0.wire).hash(state);
    }
}

#[derive(Debug)]
struct Spoken {
    namespace: Arc<Namespace>,
    exists: bool,
}

/// What is kept of a Service.
#[derive(Debug)]
pub struct Held {
    key: Arc<Key>,
    namespace: Arc<Namespace>,
    /// Its object in small; none while only slices speak of it.
    pub form: Option<Form>,
    /// Its slices in small, by name.
    pub slices: Vec<Arc<Slice>>,
    published: Option<Arc<Service>>,
}

impl State {
    pub(super) fn apply(&mut self, book: &Book, update: Update) -> bool {
        match update {
            Update::Service(form) => self.service(book, &form),
            Update::ServiceGone(key) => self.service_gone(book, &key),
            Update::Slice(form) => self.slice(book, &form),
            Update::SliceGone(key) => self.slice_gone(book, &key),
            Update::Namespace(name) => self.show(book, &name, true),
            Update::NamespaceGone(name) => self.show(book, &name, false),
            Update::Pod(form) => self.pod(book, &form),
            Update::PodGone(key) => self.pod_gone(book, &key),
        }
    }

    pub(super) fn held(&self, key: &[u8]) -> Option<&Held> {
        self.services.get(key)
    }

    /// Whether nothing is kept of anything.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.services.is_empty() && self.namespaces.is_empty() && self.slices.is_empty() && self.pods.is_empty()
    }

    pub(super) fn pods_with(&self, namespace: &[u8], address: IpAddr) -> Vec<String> {
        let has = |pod: &PodAddress| pod.address == address && *pod.namespace.wire == *namespace;
        let mut found: Vec<String> =
            self.pods.iter().filter(|(_, pods)| pods.iter().any(has)).map(|(key, _)| key.to_string()).collect();
        found.sort_unstable();
        found
    }

    fn service(&mut self, book: &Book, form: &view::Service) -> bool {
        let mut small = Form::new(form);
        small.ports = self.shared(small.ports);
        let Some(wire) = wire_of(&form.metadata.namespace, &form.metadata.name) else { return false };
        let held = self.hold(book, &wire, &form.metadata.namespace);
        held.form = Some(small);
        held.publish(book)
    }

    fn service_gone(&mut self, book: &Book, key: &str) -> bool {
        let Some(wire) = key.split_once('/').and_then(|(namespace, name)| wire_of(namespace, name)) else {
            return false;
        };
        let Some(held) = self.services.get_mut(&*wire) else { return false };
        held.form = None;
        let changed = held.publish(book);
        self.forget(book, &wire);
        changed
    }

    fn slice(&mut self, book: &Book, form: &view::EndpointSlice) -> bool {
        let name = form.metadata.key();
        let service = form.service_name().filter(|_| book.config.endpoints);
        let Some(wire) = service.and_then(|service| wire_of(&form.metadata.namespace, service)) else {
            return self.slice_gone(book, &name);
        };
        let moved = self.slices.get(&*name).is_some_and(|key| key.wire != wire) && self.slice_gone(book, &name);
        let small = Slice::new(form, &book.config, |ports| self.shared(ports));
        let held = self.hold(book, &wire, &form.metadata.namespace);
        match held.slices.iter_mut().find(|slice| slice.name == small.name) {
            Some(slice) if **slice == small => return moved,
            Some(slice) => *slice = Arc::new(small),
            None => held.slices.push(Arc::new(small)),
        }
        let (key, changed) = (held.key.clone(), held.publish(book));
        self.slices.insert(name.into(), key);
        changed || moved
    }

    fn slice_gone(&mut self, book: &Book, name: &str) -> bool {
        let Some(key) = self.slices.remove(name) else { return false };
        let Some(held) = self.services.get_mut(&*key.wire) else { return false };
        let own = name.split_once('/').map_or(name, |(_, own)| own);
        held.slices.retain(|slice| *slice.name != *own);
        let changed = held.publish(book);
        self.forget(book, &key.wire);
        changed
    }

    /// What is kept of a Service, from now on if nothing was.
    fn hold(&mut self, book: &Book, wire: &[u8], namespace: &str) -> &mut Held {
        if !self.services.contains_key(wire) {
            let namespace = self.namespace(book, namespace).namespace.clone();
            let number = self.free.pop().unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            });
            let key = Arc::new(Key { wire: wire.into(), number });
            let by = ByWire(key.clone());
            let held = Held { key, namespace, form: None, slices: Vec::new(), published: None };
            self.services.insert(by, held);
        }
        self.services.get_mut(wire).expect("just put there")
    }

    /// Forgets a Service of which nothing is left.
    fn forget(&mut self, book: &Book, wire: &[u8]) {
        if !self.services.get(wire).is_some_and(|held| held.form.is_none() && held.slices.is_empty()) {
            return;
        }
        let Some(Held { key, namespace, .. }) = self.services.remove(wire) else { return };
        self.free.push(key.number);
        let wire = namespace.wire.clone();
        drop(namespace);
        self.forget_namespace(book, &wire);
    }

    /// One list of ports for all that have the same.
    fn shared(&mut self, ports: Arc<[Port]>) -> Arc<[Port]> {
        if let Some(known) = self.ports.get(&ports) {
            return known.clone();
        }
        if self.ports.len() >= 256 {
            self.ports.retain(|ports| Arc::strong_count(ports) > 1);
        }
        self.ports.insert(ports.clone());
        ports
    }

    fn namespace(&mut self, book: &Book, name: &str) -> &mut Spoken {
        let wire = label_of(name).unwrap_or_default();
        self.namespaces.entry(wire).or_insert_with_key(|wire| {
            let listed = book.config.namespaces.is_empty() || book.config.namespaces.iter().any(|other| other == name);
            let namespace = Arc::new(Namespace { wire: wire.clone(), shown: AtomicBool::new(false), listed });
            book.namespaces.replace(book.namespaces.at(wire), |_| false, Some(namespace.clone()));
            Spoken { namespace, exists: false }
        })
    }

    fn show(&mut self, book: &Book, name: &str, exists: bool) -> bool {
        let spoken = self.namespace(book, name);
        spoken.exists = exists;
        let shown = exists && spoken.namespace.listed;
        let before = spoken.namespace.shown.swap(shown, Ordering::AcqRel);
        let wire = spoken.namespace.wire.clone();
        self.forget_namespace(book, &wire);
        before != shown
    }

    /// Forgets a namespace that does not exist and that nobody speaks of: only the table and we hold it.
    fn forget_namespace(&mut self, book: &Book, wire: &[u8]) {
        let Some(Spoken { namespace, exists: false }) = self.namespaces.get(wire) else { return };
        if Arc::strong_count(namespace) <= 2 {
            book.namespaces.replace(book.namespaces.at(wire), |old| Arc::ptr_eq(old, namespace), None);
            self.namespaces.remove(wire);
        }
    }

    fn pod(&mut self, book: &Book, form: &view::Pod) -> bool {
        let key = form.metadata.key();
        let status = &form.status;
        let texts = status.pod_ips.iter().map(|ip| &*ip.ip).chain(std::iter::once(&*status.pod_ip));
        // One that has ended has given its addresses back.
        let is_alive = !form.has_ended() && &*status.phase != "Unknown";
        let mut addresses: Vec<IpAddr> = texts.filter_map(parse_address).filter(|_| is_alive).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let before = self.pods.get(&*key).map_or(&[][..], |pods| pods);
        if before.iter().map(|pod| pod.address).eq(addresses.iter().copied()) {
            return false;
        }
        self.pod_gone(book, &key);
        let namespace = self.namespace(book, &form.metadata.namespace).namespace.clone();
        let pods: Vec<PodAddress> =
            addresses.into_iter().map(|address| PodAddress { address, namespace: namespace.clone() }).collect();
        for pod in &pods {
            book.pods.replace(book.pods.at(&bytes_of(pod.address)), |_| false, Some(pod.clone()));
        }
        self.pods.insert(key.into(), pods);
        true
    }

    fn pod_gone(&mut self, book: &Book, key: &str) -> bool {
        let pods = self.pods.remove(key).unwrap_or_default();
        for gone in &pods {
            let same = |pod: &PodAddress| pod.address == gone.address && Arc::ptr_eq(&pod.namespace, &gone.namespace);
            book.pods.replace(book.pods.at(&bytes_of(gone.address)), same, None);
        }
        let namespace = pods.first().map(|pod| pod.namespace.wire.clone());
        let changed = !pods.is_empty();
        drop(pods);
        namespace.into_iter().for_each(|wire| self.forget_namespace(book, &wire));
        changed
    }
}

impl Held {
    /// Prepares the Service and puts it in the place of what was there; true when it says something else.
    fn publish(&mut self, book: &Book) -> bool {
        // Slices come in any order; names do not depend on it.
        self.slices.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let prepare = |form| Arc::new(Service::new(self.key.clone(), self.namespace.clone(), form, &self.slices));
        let new = self.form.as_ref().map(prepare);
        let same = match (&self.published, &new) {
            (None, None) => true,
            (Some(old), Some(new)) => old.says_the_same(new),
            _ => false,
        };
        if same {
            return false;
        }
        let old = std::mem::replace(&mut self.published, new);
        let (old, new) = (old.as_ref(), self.published.as_ref());
        let [before, after] = [old, new].map(addresses_of);
        // An address leads to a Service before that has it, or after: never to one that says nothing of it and stays.
        for (address, own) in after.difference(&before) {
            let owner = Owner::new(self.key.number, *own);
            book.addresses.replace(book.addresses.at(&bytes_of(*address)), |_| false, Some(owner));
        }
        let number = book.numbers.at(&self.key.number.to_ne_bytes());
        book.numbers.replace(number, |old| old.key == self.key, new.cloned());
        book.services.replace(book.services.at(&self.key.wire), |old| old.key == self.key, new.cloned());
        for (address, own) in before.difference(&after) {
            let old = Owner::new(self.key.number, *own);
            book.addresses.replace(book.addresses.at(&bytes_of(*address)), |owner| *owner == old, None);
        }
        true
    }
}

fn addresses_of(service: Option<&Arc<Service>>) -> HashSet<(IpAddr, bool), RandomState> {
    service.into_iter().flat_map(|service| service.addresses()).collect()
}
