//! Writer state of [`ZoneSnapshot`]: what is needed of every object to prepare a Service again when a part of it
//! changes.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::view;
use foldhash::fast::RandomState;

use super::{Owner, PodAddress, Update, ZoneSnapshot, address_key, service_key, wire_label};
use crate::records::{Key, Namespace, Port, Service, ServiceFields, Slice, parse_address};

type Map<K, V> = HashMap<K, V, RandomState>;

/// Writer state.
#[derive(Debug, Default)]
pub(super) struct State {
    services: Map<ByWire, ServiceState>,
    /// Namespaces that exist or are referenced by a Service, slice or Pod.
    namespaces: Map<Box<[u8]>, NamespaceState>,
    /// Service key of each slice, by `namespace/name` of the slice.
    slices: Map<Box<str>, Arc<Key>>,
    pods: Map<Box<str>, Vec<PodAddress>>,
    /// Interned port lists.
    ports: HashSet<Arc<[Port]>, RandomState>,
    /// Next Service id, and ids free for reuse.
    next: u32,
    free: Vec<u32>,
}

/// [`Key`] that hashes and compares by its wire form.
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
        // Must equal the hash of the borrowed form.
        (*self.0.wire).hash(state);
    }
}

#[derive(Debug)]
struct NamespaceState {
    namespace: Arc<Namespace>,
    exists: bool,
}

/// Writer state of a Service.
#[derive(Debug)]
pub struct ServiceState {
    key: Arc<Key>,
    namespace: Arc<Namespace>,
    /// Fields of the Service object; `None` while only slices refer to it.
    pub form: Option<ServiceFields>,
    /// Its slices, sorted by name.
    pub slices: Vec<Arc<Slice>>,
    published: Option<Arc<Service>>,
}

impl State {
    pub(super) fn apply(&mut self, snapshot: &ZoneSnapshot, update: Update) -> bool {
        match update {
            Update::Service(form) => self.service(snapshot, &form),
            Update::ServiceDeleted(key) => self.delete_service(snapshot, &key),
            Update::Slice(form) => self.slice(snapshot, &form),
            Update::SliceDeleted(key) => self.delete_slice(snapshot, &key),
            Update::Namespace(name) => self.set_namespace(snapshot, &name, true),
            Update::NamespaceDeleted(name) => self.set_namespace(snapshot, &name, false),
            Update::Pod(form) => self.pod(snapshot, &form),
            Update::PodDeleted(key) => self.delete_pod(snapshot, &key),
        }
    }

    pub(super) fn service_state(&self, key: &[u8]) -> Option<&ServiceState> {
        self.services.get(key)
    }

    /// Whether no state is left.
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

    fn service(&mut self, snapshot: &ZoneSnapshot, form: &view::Service) -> bool {
        let mut fields = ServiceFields::new(form);
        fields.ports = self.intern_ports(fields.ports);
        let Some(wire) = service_key(&form.metadata.namespace, &form.metadata.name) else { return false };
        let state = self.get_or_insert(snapshot, &wire, &form.metadata.namespace);
        state.form = Some(fields);
        state.publish(snapshot)
    }

    fn delete_service(&mut self, snapshot: &ZoneSnapshot, key: &str) -> bool {
        let Some(wire) = key.split_once('/').and_then(|(namespace, name)| service_key(namespace, name)) else {
            return false;
        };
        let Some(state) = self.services.get_mut(&*wire) else { return false };
        state.form = None;
        let changed = state.publish(snapshot);
        self.remove_if_unused(snapshot, &wire);
        changed
    }

    fn slice(&mut self, snapshot: &ZoneSnapshot, form: &view::EndpointSlice) -> bool {
        let name = form.metadata.key();
        let service = form.service_name().filter(|_| snapshot.config.endpoints);
        let Some(wire) = service.and_then(|service| service_key(&form.metadata.namespace, service)) else {
            return self.delete_slice(snapshot, &name);
        };
        let moved = self.slices.get(&*name).is_some_and(|key| key.wire != wire) && self.delete_slice(snapshot, &name);
        let fields = Slice::new(form, &snapshot.config, |ports| self.intern_ports(ports));
        let state = self.get_or_insert(snapshot, &wire, &form.metadata.namespace);
        match state.slices.iter_mut().find(|slice| slice.name == fields.name) {
            Some(slice) if **slice == fields => return moved,
            Some(slice) => *slice = Arc::new(fields),
            None => state.slices.push(Arc::new(fields)),
        }
        let (key, changed) = (state.key.clone(), state.publish(snapshot));
        self.slices.insert(name.into(), key);
        changed || moved
    }

    fn delete_slice(&mut self, snapshot: &ZoneSnapshot, name: &str) -> bool {
        let Some(key) = self.slices.remove(name) else { return false };
        let Some(state) = self.services.get_mut(&*key.wire) else { return false };
        let own = name.split_once('/').map_or(name, |(_, own)| own);
        state.slices.retain(|slice| *slice.name != *own);
        let changed = state.publish(snapshot);
        self.remove_if_unused(snapshot, &key.wire);
        changed
    }

    /// Returns the state of a Service and creates it if needed.
    fn get_or_insert(&mut self, snapshot: &ZoneSnapshot, wire: &[u8], namespace: &str) -> &mut ServiceState {
        if !self.services.contains_key(wire) {
            let namespace = self.namespace(snapshot, namespace).namespace.clone();
            let id = self.free.pop().unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            });
            let key = Arc::new(Key { wire: wire.into(), id });
            let by = ByWire(key.clone());
            let state = ServiceState { key, namespace, form: None, slices: Vec::new(), published: None };
            self.services.insert(by, state);
        }
        self.services.get_mut(wire).expect("just put there")
    }

    /// Removes a Service that has neither an object nor slices.
    fn remove_if_unused(&mut self, snapshot: &ZoneSnapshot, wire: &[u8]) {
        if !self.services.get(wire).is_some_and(|state| state.form.is_none() && state.slices.is_empty()) {
            return;
        }
        let Some(ServiceState { key, namespace, .. }) = self.services.remove(wire) else { return };
        self.free.push(key.id);
        let wire = namespace.wire.clone();
        drop(namespace);
        self.remove_namespace_if_unused(snapshot, &wire);
    }

    /// Returns a shared copy of a port list.
    fn intern_ports(&mut self, ports: Arc<[Port]>) -> Arc<[Port]> {
        if let Some(known) = self.ports.get(&ports) {
            return known.clone();
        }
        if self.ports.len() >= 256 {
            self.ports.retain(|ports| Arc::strong_count(ports) > 1);
        }
        self.ports.insert(ports.clone());
        ports
    }

    fn namespace(&mut self, snapshot: &ZoneSnapshot, name: &str) -> &mut NamespaceState {
        let wire = wire_label(name).unwrap_or_default();
        self.namespaces.entry(wire).or_insert_with_key(|wire| {
            let listed =
                snapshot.config.namespaces.is_empty() || snapshot.config.namespaces.iter().any(|other| other == name);
            let namespace = Arc::new(Namespace { wire: wire.clone(), visible: AtomicBool::new(false), listed });
            snapshot.namespaces.replace(snapshot.namespaces.at(wire), |_| false, Some(namespace.clone()));
            NamespaceState { namespace, exists: false }
        })
    }

    fn set_namespace(&mut self, snapshot: &ZoneSnapshot, name: &str, exists: bool) -> bool {
        let state = self.namespace(snapshot, name);
        state.exists = exists;
        let visible = exists && state.namespace.listed;
        let before = state.namespace.visible.swap(visible, Ordering::AcqRel);
        let wire = state.namespace.wire.clone();
        self.remove_namespace_if_unused(snapshot, &wire);
        before != visible
    }

    /// Removes a namespace that does not exist and is not referenced. Two references remain then: the shard's and ours.
    fn remove_namespace_if_unused(&mut self, snapshot: &ZoneSnapshot, wire: &[u8]) {
        let Some(NamespaceState { namespace, exists: false }) = self.namespaces.get(wire) else { return };
        if Arc::strong_count(namespace) <= 2 {
            snapshot.namespaces.replace(snapshot.namespaces.at(wire), |old| Arc::ptr_eq(old, namespace), None);
            self.namespaces.remove(wire);
        }
    }

    fn pod(&mut self, snapshot: &ZoneSnapshot, form: &view::Pod) -> bool {
        let key = form.metadata.key();
        let status = &form.status;
        let texts = status.pod_ips.iter().map(|ip| &*ip.ip).chain(std::iter::once(&*status.pod_ip));
        // A Pod that has terminated no longer owns its addresses.
        let is_alive = !form.has_ended() && &*status.phase != "Unknown";
        let mut addresses: Vec<IpAddr> = texts.filter_map(parse_address).filter(|_| is_alive).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let before = self.pods.get(&*key).map_or(&[][..], |pods| pods);
        if before.iter().map(|pod| pod.address).eq(addresses.iter().copied()) {
            return false;
        }
        self.delete_pod(snapshot, &key);
        let namespace = self.namespace(snapshot, &form.metadata.namespace).namespace.clone();
        let pods: Vec<PodAddress> =
            addresses.into_iter().map(|address| PodAddress { address, namespace: namespace.clone() }).collect();
        for pod in &pods {
            snapshot.pods.replace(snapshot.pods.at(&address_key(pod.address)), |_| false, Some(pod.clone()));
        }
        self.pods.insert(key.into(), pods);
        true
    }

    fn delete_pod(&mut self, snapshot: &ZoneSnapshot, key: &str) -> bool {
        let pods = self.pods.remove(key).unwrap_or_default();
        for deleted in &pods {
            let same =
                |pod: &PodAddress| pod.address == deleted.address && Arc::ptr_eq(&pod.namespace, &deleted.namespace);
            snapshot.pods.replace(snapshot.pods.at(&address_key(deleted.address)), same, None);
        }
        let namespace = pods.first().map(|pod| pod.namespace.wire.clone());
        let changed = !pods.is_empty();
        drop(pods);
        namespace.into_iter().for_each(|wire| self.remove_namespace_if_unused(snapshot, &wire));
        changed
    }
}

impl ServiceState {
    /// Prepares the Service and publishes it. Returns whether its records changed.
    fn publish(&mut self, snapshot: &ZoneSnapshot) -> bool {
        // Slices arrive in any order; the result must not depend on it.
        self.slices.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let prepare = |form| Arc::new(Service::new(self.key.clone(), self.namespace.clone(), form, &self.slices));
        let new = self.form.as_ref().map(prepare);
        let same = match (&self.published, &new) {
            (None, None) => true,
            (Some(old), Some(new)) => old.same_records(new),
            _ => false,
        };
        if same {
            return false;
        }
        let old = std::mem::replace(&mut self.published, new);
        let (old, new) = (old.as_ref(), self.published.as_ref());
        let [before, after] = [old, new].map(addresses_of);
        // Index entries are added before and removed after the Service is replaced, so that the index never misses an
        // address.
        for (address, own) in after.difference(&before) {
            let owner = Owner::new(self.key.id, *own);
            snapshot.addresses.replace(snapshot.addresses.at(&address_key(*address)), |_| false, Some(owner));
        }
        let number = snapshot.by_id.at(&self.key.id.to_ne_bytes());
        snapshot.by_id.replace(number, |old| old.key == self.key, new.cloned());
        snapshot.services.replace(snapshot.services.at(&self.key.wire), |old| old.key == self.key, new.cloned());
        for (address, own) in before.difference(&after) {
            let old = Owner::new(self.key.id, *own);
            snapshot.addresses.replace(snapshot.addresses.at(&address_key(*address)), |owner| *owner == old, None);
        }
        true
    }
}

fn addresses_of(service: Option<&Arc<Service>>) -> HashSet<(IpAddr, bool), RandomState> {
    service.into_iter().flat_map(|service| service.addresses()).collect()
}
