//! The cache as the cluster of a diagnosis.

use std::net::IpAddr;
use std::sync::Arc;

use api::view::Protocol;
use diagnose::{Cluster, Detail, Selector, Service, Slice, Standing};

use crate::controller::View;
use crate::objects::pod::Pod;
use crate::objects::split;

impl diagnose::Pod for Pod {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn labels(&self) -> &Selector {
        &self.entry.facts.labels
    }

    fn standing(&self) -> Standing<'_> {
        let Self { node, addresses, ready, finished, deleting, .. } = self;
        Standing { node, addresses, ready: *ready, finished: *finished, deleting: *deleting }
    }

    fn has_port(&self, name: &str, protocol: Option<Protocol>) -> bool {
        self.port(name, protocol).is_some()
    }

    fn detail(&self) -> Detail {
        Detail::read(&self.entry.value)
    }
}

impl Cluster for View<'_> {
    type Pod = Pod;

    fn count(&self, namespace: &str) -> usize {
        self.cache.pods.count(namespace)
    }

    fn matching(&self, namespace: &str, selector: &Selector) -> Vec<&Pod> {
        self.cache.pods.matching(namespace, selector).into_iter().map(Arc::as_ref).collect()
    }

    fn any(&self, namespace: &str, selector: &Selector) -> Option<&Pod> {
        self.cache.pods.any(namespace, selector).map(Arc::as_ref)
    }

    fn values(&self, namespace: &str, key: &str) -> Vec<(&str, usize)> {
        self.cache.pods.values(namespace, key).collect()
    }

    fn keys(&self, namespace: &str) -> Vec<&str> {
        self.cache.pods.keys(namespace).collect()
    }

    fn namespaces(&self) -> Vec<&str> {
        self.cache.pods.namespaces().collect()
    }

    fn has_node(&self, name: &str) -> bool {
        self.cache.nodes.get(name).is_some()
    }

    fn service_at(&self, address: IpAddr) -> Option<&str> {
        self.cache.services.at(address)
    }

    fn is_service_address(&self, address: IpAddr) -> bool {
        self.settings.ranges.addresses.iter().any(|range| range.contains(&address))
    }

    fn slices<'a>(&'a self, service: &'a Service) -> Box<dyn Iterator<Item = Slice> + 'a> {
        let entries: Vec<_> = self.cache.slices.of(&service.metadata.key()).collect();
        Box::new(entries.into_iter().map(|entry| Slice::read(&entry.value, split(&entry.key.name).1)))
    }
}
