//! Services by name, by selector and by cluster IP.
//!
//! Each Service with a selector is indexed under one label of its selector, the one with the fewest Services; the Services of a Pod are found under
//! its labels.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::facts::Facts;
use store::Entry;

use super::Versions;
use super::labels::ByLabel;
use crate::objects::service::{Service, selects};

/// All Services.
#[derive(Debug, Default)]
pub struct Services {
    services: HashMap<Box<str>, Arc<Service>>,
    /// The label under which each Service is indexed.
    indexed: HashMap<Box<str>, (Box<str>, Box<str>)>,
    by_label: ByLabel<Box<str>>,
    /// Services by cluster IP.
    by_address: HashMap<IpAddr, Box<str>>,
}

impl Services {
    pub(super) fn apply(&mut self, entry: &Arc<Entry>, deleted: bool) -> Versions<Service> {
        let key = &entry.key.name;
        let old = self.services.remove(key);
        if let Some(old) = &old {
            self.unindex(key, old);
        }
        if deleted {
            return Versions { old, new: None };
        }
        let new = Arc::new(Service::read(entry));
        self.index(key, &new);
        self.services.insert(key.clone(), Arc::clone(&new));
        Versions { old, new: Some(new) }
    }

    fn index(&mut self, key: &str, service: &Service) {
        for address in addresses(service) {
            self.by_address.insert(address, key.into());
        }
        let namespace = service.namespace();
        let labels = service.selector.iter().flatten();
        let rarest =
            labels.min_by_key(|(label, value)| self.by_label.get(namespace, label, value).map_or(0, BTreeSet::len));
        if let Some((label, value)) = rarest {
            self.by_label.insert(namespace, label, value, key.into());
            self.indexed.insert(key.into(), (label.clone(), value.clone()));
        }
    }

    fn unindex(&mut self, key: &str, service: &Service) {
        for address in addresses(service) {
            if self.by_address.get(&address).is_some_and(|owner| **owner == *key) {
                self.by_address.remove(&address);
            }
        }
        if let Some((label, value)) = self.indexed.remove(key) {
            self.by_label.remove(service.namespace(), &label, &value, key);
        }
    }

    /// The Service of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<Service>> {
        self.services.get(key)
    }

    /// The key of the Service with a cluster IP.
    #[must_use]
    pub fn at(&self, address: IpAddr) -> Option<&str> {
        self.by_address.get(&address).map(|key| &**key)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.services.values()
    }

    /// The Services of a namespace that select an object with these labels.
    pub fn selecting<'a>(&'a self, namespace: &'a str, facts: &'a Facts) -> impl Iterator<Item = &'a Arc<Service>> {
        let under = |(key, value): &'a (Box<str>, Box<str>)| self.by_label.get(namespace, key, value);
        let candidates = facts.labels.iter().filter_map(under).flatten().filter_map(|key| self.services.get(key));
        candidates.filter(|service| service.selector.as_ref().is_some_and(|selector| selects(selector, facts)))
    }
}

fn addresses(service: &Service) -> impl Iterator<Item = IpAddr> {
    let has_address = !service.is_external_name;
    service.cluster_ips.iter().filter(move |_| has_address).filter_map(|text| api::ip::parse_lenient(text))
}
