//! Leaders: the endpoint of a Service whose Pod holds a Lease.
//!
//! In: the Leases that Services name, and who holds them now ([`crate::Update::Leader`]); expiry is decided before, by who has a clock.
//! Out: the endpoints that remain, and which Leases are needed. Without a holder no endpoint remains, and connections are
//! refused: there are never two leaders, at times none.
//!
//! A Pod holds a Lease if `spec.holderIdentity` is its name, or begins with it followed by `_`, as client-go writes it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::hash::mixed64;

use crate::balancing::Policy;
use crate::endpoints::{PortEndpoint, of_port};
use crate::planner::{Planner, ServiceState};
use crate::service_port::PortKey;

/// Leases of a namespace that a node follows; Services that name further ones, by name, have no leader.
const MAX_LEASES: usize = 64;

/// The name of a Pod, as a hash: there may be a hundred thousand endpoints, and names are only compared, within one Service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PodName(u64);

impl PodName {
    /// The name.
    pub(crate) fn new(name: &str) -> Self {
        Self(mixed64(name.as_bytes()))
    }

    /// The Pod of a holder identity; none of an empty one. Names of Pods contain no `_`.
    fn of_holder(identity: &str) -> Option<Self> {
        identity.split('_').next().filter(|name| !name.is_empty()).map(Self::new)
    }
}

/// Leases and their holders.
#[derive(Debug, Default)]
pub(crate) struct Leaders {
    /// The holder identity of each Lease that was observed; none of one without a holder.
    holders: BTreeMap<Arc<str>, Option<Box<str>>>,
    /// Services by the Lease that they name.
    services: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The Lease of each Service.
    leases: HashMap<Arc<str>, Arc<str>>,
    /// Whether other Leases may be needed than those that were returned last.
    has_changed: bool,
}

impl Leaders {
    /// Records the Lease that a Service names.
    pub(crate) fn set_lease(&mut self, service: &Arc<str>, lease: Option<&Arc<str>>) {
        if self.leases.get(service) == lease {
            return;
        }
        self.has_changed = true;
        if let Some(before) = self.leases.remove(service)
            && let Some(services) = self.services.get_mut(&before)
        {
            services.remove(service);
            if services.is_empty() {
                self.services.remove(&before);
                self.holders.remove(&before);
            }
        }
        if let Some(lease) = lease {
            self.leases.insert(Arc::clone(service), Arc::clone(lease));
            self.services.entry(Arc::clone(lease)).or_default().insert(Arc::clone(service));
        }
    }

    /// Records the holder of a Lease; returns the Services that it concerns. Leases that no Service names any longer are
    /// ignored.
    pub(crate) fn set_holder(&mut self, lease: &str, holder: Option<Box<str>>) -> Vec<Arc<str>> {
        let Some((lease, services)) = self.services.get_key_value(lease) else { return Vec::new() };
        let before = self.holders.get(lease).and_then(Option::as_deref);
        let has_changed = before != holder.as_deref();
        self.holders.insert(Arc::clone(lease), holder);
        if has_changed { services.iter().cloned().collect() } else { Vec::new() }
    }

    /// The Leases that are needed: at most so many of a namespace, the first by name.
    pub(crate) fn needed(&self) -> BTreeSet<Arc<str>> {
        let mut needed = BTreeSet::new();
        let (mut namespace, mut count) = ("", 0);
        for lease in self.services.keys() {
            let its = lease.split('/').next().unwrap_or_default();
            if its != namespace {
                (namespace, count) = (its, 0);
            }
            count += 1;
            if count <= MAX_LEASES {
                needed.insert(Arc::clone(lease));
            }
        }
        needed
    }

    /// Whether all needed Leases were observed, with or without a holder.
    pub(crate) fn are_known(&self) -> bool {
        self.needed().iter().all(|lease| self.holders.contains_key(lease))
    }

    /// The Leases that were observed and their holders.
    pub(crate) fn holders(&self) -> impl Iterator<Item = (&Arc<str>, Option<&str>)> {
        self.holders.iter().map(|(lease, holder)| (lease, holder.as_deref()))
    }

    /// The holder of the Lease that a Service names.
    pub(crate) fn holder_of(&self, service: &str) -> Option<&str> {
        self.holders.get(self.leases.get(service)?)?.as_deref()
    }

    /// Keeps the endpoint of the leader of a Service.
    pub(crate) fn retain(&self, service: &str, found: &mut Vec<PortEndpoint<'_>>) {
        let leader = self.holder_of(service).and_then(PodName::of_holder);
        found.retain(|seen| leader.is_some() && seen.endpoint.pod == leader);
    }
}

impl Planner {
    /// The Leases (`namespace/name`) whose holders the plan depends on.
    #[must_use]
    pub fn leases(&self) -> BTreeSet<Arc<str>> {
        self.leaders.needed()
    }

    /// The same if it may have changed since the last call.
    pub fn changed_leases(&mut self) -> Option<BTreeSet<Arc<str>>> {
        std::mem::take(&mut self.leaders.has_changed).then(|| self.leaders.needed())
    }

    /// Whether all of these Leases were observed.
    #[must_use]
    pub fn knows_leases(&self) -> bool {
        self.leaders.are_known()
    }

    /// The Leases that were observed, and their holder identities.
    pub fn leaders(&self) -> impl Iterator<Item = (&Arc<str>, Option<&str>)> {
        self.leaders.holders()
    }

    /// Endpoints of a port in the slices of its Service; of one with the policy `leader` that of the leader.
    pub(crate) fn of_slices<'a>(&'a self, state: &'a ServiceState, key: &'a PortKey) -> Vec<PortEndpoint<'a>> {
        let mut found = of_port(&state.slices, key);
        if state.requested.as_ref().is_some_and(|requested| requested.policy == Policy::Leader) {
            self.leaders.retain(&key.service, &mut found);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_pods_by_name_or_by_name_and_suffix() {
        let pod = PodName::new("db-0");
        for (identity, is_it) in
            [("db-0", true), ("db-0_1b4e28ba", true), ("db-0_", true), ("db-01", false), ("", false)]
        {
            assert_eq!(PodName::of_holder(identity) == Some(pod), is_it, "{identity}");
        }
        assert_eq!(PodName::of_holder("_x"), None);
    }

    #[test]
    fn a_namespace_needs_a_bounded_number_of_leases() {
        let mut leaders = Leaders::default();
        for number in 0..100 {
            leaders.set_lease(&format!("many/s{number}").into(), Some(&format!("many/l{number}").into()));
        }
        leaders.set_lease(&"one/s".into(), Some(&"one/l".into()));
        assert_eq!(leaders.needed().len(), 65);
        assert!(!leaders.are_known());
        for lease in leaders.needed() {
            leaders.set_holder(&lease, None);
        }
        assert!(leaders.are_known());
        leaders.set_lease(&"one/s".into(), None);
        assert_eq!(leaders.needed().len(), 64);
        assert_eq!(leaders.set_holder("one/l", Some("x".into())), Vec::<Arc<str>>::new(), "no longer needed");
    }
}
