//! Upstreams of routes: one for each Service port, protocol and reach, shared by all rules that refer to it.
//!
//! In: EndpointSlices, and the targets of rules. Out: upstreams, whose endpoints follow the slices. An upstream lives as
//! long as a rule uses it; a change of its endpoints swaps one pointer and touches no rule.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use api::ip::{Family, parse_lenient};
use api::view::{EndpointSlice, Protocol, Service};
use plan::NodeLocation;
use routing::model::{BackendProtocol, ServiceTarget};

use super::trust::Trust;
use crate::clock::Clock;
use crate::endpoints::{self, Locality};
use crate::limits::Limits;
use crate::metrics::GatewayMetrics;
use crate::session_token::SessionKey;
use crate::upstream::{Counters, Upstream};

/// In place of the name of a port: it is that of the port of the Service with the number of the target. No port has this
/// name.
pub(crate) const BY_NUMBER: &str = "#";

/// Which endpoints of a Service requests may reach.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Reach {
    /// All: clients are outside the cluster.
    Anywhere,
    /// Those that the proxy of this node would select for the cluster IP, by internalTrafficPolicy and topology hints.
    AsProxy,
}

/// Identity of an upstream: its target, the Secret with the certificate that it is shown, and its reach.
type Key = (Arc<ServiceTarget>, Option<Arc<str>>, Reach);

/// Numbers and names of the TCP ports of a Service.
type Ports = Box<[(u16, Box<str>)]>;

/// All upstreams of routes.
pub(super) struct Pools {
    limits: Limits,
    workers: usize,
    metrics: GatewayMetrics,
    upstreams: HashMap<Key, Weak<Upstream>>,
    /// Keys of the upstreams of each Service.
    by_service: HashMap<Arc<str>, BTreeSet<Key>>,
    slices: HashMap<Box<str>, BTreeMap<Box<str>, EndpointSlice>>,
    /// The Service of each slice.
    owners: HashMap<Box<str>, Box<str>>,
    /// Services whose first family is IPv6.
    six_first: BTreeSet<Box<str>>,
    /// Their uids.
    uids: HashMap<Box<str>, Box<str>>,
    /// Numbers and names of the TCP ports of each Service.
    ports: HashMap<Box<str>, Ports>,
    /// The cluster IPs of each Service, and how many Services have each. They are no endpoints, as in the proxy: requests to
    /// them might come back here, without end.
    cluster_ips: HashMap<Box<str>, Box<[IpAddr]>>,
    cluster_ip_counts: HashMap<IpAddr, usize>,
    /// Services whose internalTrafficPolicy is Local.
    internal_local: BTreeSet<Box<str>>,
    /// Services whose endpoints changed.
    dirty: BTreeSet<Box<str>>,
    clock: Clock,
    /// This node, and its zone.
    node: Box<str>,
    zone: Option<Box<str>>,
}

impl Pools {
    pub(super) fn new(limits: Limits, workers: usize, metrics: GatewayMetrics) -> Self {
        let (upstreams, by_service, slices, owners) = Default::default();
        let (six_first, uids, ports, internal_local, dirty, clock, node, zone) = Default::default();
        let (cluster_ips, cluster_ip_counts) = Default::default();
        Self {
            limits,
            workers,
            metrics,
            upstreams,
            by_service,
            slices,
            owners,
            six_first,
            uids,
            ports,
            cluster_ips,
            cluster_ip_counts,
            internal_local,
            dirty,
            clock,
            node,
            zone,
        }
    }

    /// The upstreams of this node.
    pub(super) fn at_node(self, node: &str) -> Self {
        Self { node: node.into(), ..self }
    }

    /// Sets the zone of the node.
    pub(super) fn set_zone(&mut self, zone: Option<Box<str>>) {
        if self.zone != zone {
            self.zone = zone;
            self.dirty.extend(self.by_service.keys().map(|service| (**service).into()));
        }
    }

    /// Uses this clock for upstreams that are made from now on.
    #[cfg(test)]
    pub(super) fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    /// The upstream of a target, with all its endpoints.
    pub(super) fn upstream(
        &mut self,
        target: &Arc<ServiceTarget>,
        client: Option<&Arc<str>>,
        trust: &Trust,
    ) -> Arc<Upstream> {
        self.reached(target, client, Reach::Anywhere, trust)
    }

    /// The upstream of a target.
    pub(super) fn reached(
        &mut self,
        target: &Arc<ServiceTarget>,
        client: Option<&Arc<str>>,
        reach: Reach,
        trust: &Trust,
    ) -> Arc<Upstream> {
        let key = (Arc::clone(target), client.filter(|_| target.tls.is_some()).cloned(), reach);
        if let Some(known) = self.upstreams.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let tls = target.tls.as_ref().map(|tls| trust.towards(tls, key.1.as_ref()));
        let counters = Counters {
            failures: self.metrics.routing().for_backend(&target.service, target.port),
            health: self.metrics.health().for_service(&target.service),
        };
        let is_h2 = target.protocol == BackendProtocol::Http2;
        let upstream = Arc::new(Upstream::new(&target.service, is_h2, self.limits, tls, counters, self.clock.clone()));
        self.fill(&key, &upstream);
        self.upstreams.insert(key.clone(), Arc::downgrade(&upstream));
        self.by_service.entry(Arc::clone(&target.service)).or_default().insert(key);
        upstream
    }

    pub(super) fn apply_slice(&mut self, name: &str, slice: Option<EndpointSlice>) {
        let owner = slice.as_ref().and_then(EndpointSlice::service);
        if let Some(before) = self.owners.remove(name) {
            if let Some(slices) = self.slices.get_mut(&before) {
                slices.remove(name);
                if slices.is_empty() {
                    self.slices.remove(&before);
                }
            }
            self.dirty.insert(before);
        }
        let (Some(slice), Some(owner)) = (slice, owner) else { return };
        let owner: Box<str> = (*owner).into();
        self.owners.insert(name.into(), owner.clone());
        self.slices.entry(owner.clone()).or_default().insert(name.into(), slice);
        self.dirty.insert(owner);
    }

    pub(super) fn apply_service(&mut self, key: &str, service: Option<&Service>) {
        let first = service.and_then(|service| service.spec.ip_families.first());
        let is_six_first = first.is_some_and(|family| &**family == Family::V6.as_str());
        let changed = match is_six_first {
            true => self.six_first.insert(key.into()),
            false => self.six_first.remove(key),
        };
        let uid = service.map(|service| &service.metadata.uid);
        let is_other = self.uids.get(key) != uid;
        if is_other {
            match uid {
                Some(uid) => drop(self.uids.insert(key.into(), uid.clone())),
                None => drop(self.uids.remove(key)),
            }
        }
        let is_local = match service.is_some_and(Service::is_internal_local) {
            true => self.internal_local.insert(key.into()),
            false => self.internal_local.remove(key),
        };
        self.set_cluster_ips(key, service);
        if self.set_ports(key, service) || changed || is_other || is_local {
            self.dirty.insert(key.into());
        }
    }

    /// Remembers the cluster IPs of a Service. Any upstream may have a new one as an endpoint, or an old one again.
    fn set_cluster_ips(&mut self, key: &str, service: Option<&Service>) {
        let service = service.filter(|service| !service.is_external_name());
        let ips: Box<[IpAddr]> = service.into_iter().flat_map(Service::cluster_ips).filter_map(parse_lenient).collect();
        let before = match ips.is_empty() {
            true => self.cluster_ips.remove(key),
            false => self.cluster_ips.insert(key.into(), ips.clone()),
        };
        let before = before.unwrap_or_default();
        if before == ips {
            return;
        }
        for ip in &ips {
            *self.cluster_ip_counts.entry(*ip).or_default() += 1;
        }
        for ip in &before {
            if let Some(count) = self.cluster_ip_counts.get_mut(ip) {
                *count -= 1;
                if *count == 0 {
                    self.cluster_ip_counts.remove(ip);
                }
            }
        }
        self.dirty.extend(self.by_service.keys().map(|service| (**service).into()));
    }

    /// Remembers the ports of a Service; whether they differ.
    fn set_ports(&mut self, key: &str, service: Option<&Service>) -> bool {
        let ports = service.into_iter().flat_map(|service| &service.spec.ports);
        let ports = ports.filter(|port| port.protocol == Some(Protocol::Tcp));
        let ports: Ports = ports.map(|port| (port.port, port.name.clone())).collect();
        let before = match ports.is_empty() {
            true => self.ports.remove(key),
            false => self.ports.insert(key.into(), ports.clone()),
        };
        before.unwrap_or_default() != ports
    }

    /// The name of the port of a target; none if the Service has no such port.
    fn port_name<'a>(&'a self, target: &'a ServiceTarget) -> Option<&'a str> {
        if &*target.port_name != BY_NUMBER {
            return Some(&target.port_name);
        }
        let ports = self.ports.get(&*target.service)?;
        ports.iter().find(|(number, _)| *number == target.port).map(|(_, name)| &**name)
    }

    /// Updates the endpoints of upstreams whose slices changed.
    pub(super) fn update(&mut self) {
        for service in std::mem::take(&mut self.dirty) {
            self.of_service(&service, |pools, key, upstream| pools.fill(key, upstream));
        }
    }

    /// Replaces the TLS configuration of upstreams that use a Secret or ConfigMap, and closes their idle connections.
    pub(super) fn trust_changed(&self, changed: &BTreeSet<Arc<str>>, trust: &Trust) {
        for (key, upstream) in &self.upstreams {
            let (Some(tls), Some(upstream)) = (&key.0.tls, upstream.upgrade()) else { continue };
            if tls.authorities.iter().chain(&key.1).any(|name| changed.contains(name)) {
                upstream.tls.store(Some(trust.towards(tls, key.1.as_ref())));
                upstream.close_idle();
            }
        }
    }

    /// Closes connections that are idle since before `before`, and forgets upstreams that no rule uses.
    pub(super) fn sweep(&mut self, before: Instant) {
        let by_service = &mut self.by_service;
        self.upstreams.retain(|key, upstream| {
            let Some(upstream) = upstream.upgrade() else {
                if let Some(keys) = by_service.get_mut(&key.0.service) {
                    keys.remove(key);
                    if keys.is_empty() {
                        by_service.remove(&key.0.service);
                    }
                }
                return false;
            };
            upstream.sweep(before);
            true
        });
        self.metrics.health().sweep();
    }

    fn of_service(&self, service: &str, act: impl Fn(&Self, &Key, &Upstream)) {
        for key in self.by_service.get(service).into_iter().flatten() {
            if let Some(upstream) = self.upstreams.get(key).and_then(Weak::upgrade) {
                act(self, key, &upstream);
            }
        }
    }

    fn fill(&self, (target, _, reach): &Key, upstream: &Upstream) {
        let none = BTreeMap::new();
        let slices = self.slices.get(&*target.service).unwrap_or(&none);
        let first = if self.six_first.contains(&*target.service) { Family::V6 } else { Family::V4 };
        let protocol = match target.protocol {
            BackendProtocol::Datagram => Protocol::Udp,
            _ => Protocol::Tcp,
        };
        let key = self.uids.get(&*target.service).map(|uid| Arc::new(SessionKey::of_service(&target.service, uid)));
        upstream.session_key.store(key);
        let locality = match reach {
            Reach::Anywhere => Locality::Anywhere,
            Reach::AsProxy if self.internal_local.contains(&*target.service) => Locality::Node(&self.node),
            Reach::AsProxy => Locality::Hinted(NodeLocation { node: &self.node, zone: self.zone.as_deref() }),
        };
        let find = |name| endpoints::select(&slices.values(), (name, protocol), &[first.as_str().into()], locality);
        let mut found = self.port_name(target).map(find).unwrap_or_default();
        found.usable.retain(|endpoint| !self.cluster_ip_counts.contains_key(&endpoint.ip()));
        upstream.update(&found, self.workers);
    }
}
