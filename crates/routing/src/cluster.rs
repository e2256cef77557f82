//! The incremental engine: objects flow in one by one, states and configurations are derived, and every change says what
//! it has altered. A change costs what depends on it, not the size of the cluster.
//!
//! Routes whose parent is a Service (mesh) are not handled yet: such a parentRef is ignored.

mod change;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use change::{CaState, Change, SecretState, Touched};
pub use state::{
    Address, ClassState, GatewayState, ListenerSetState, ListenerState, ParentState, PolicyState, RouteState, Tri,
    Verdict,
};

use crate::model::{GatewayConfig, ListenerId, RouteId};

/// Settings of a [`Cluster`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The version of the installed definitions: annotation `gateway.networking.k8s.io/bundle-version`.
    pub bundle_version: Box<str>,
}

impl Default for Options {
    fn default() -> Self {
        Self { bundle_version: BUNDLE_VERSION.into() }
    }
}

/// The version of the API that is implemented.
pub const BUNDLE_VERSION: &str = "v1.7.0";

/// Objects, and everything that is derived from them.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    classes: BTreeMap<Arc<str>, ClassState>,
    gateways: BTreeMap<Arc<str>, GatewayState>,
    sets: BTreeMap<Arc<str>, ListenerSetState>,
    routes: BTreeMap<RouteId, RouteState>,
    policies: BTreeMap<Arc<str>, PolicyState>,
    configs: BTreeMap<Arc<str>, Arc<GatewayConfig>>,
    attached: BTreeMap<ListenerId, BTreeMap<RouteId, Arc<[Arc<str>]>>>,
}

impl Cluster {
    /// An empty cluster.
    #[must_use]
    pub fn new(_options: Options) -> Self {
        Self::default()
    }

    /// Applies a change. What differs afterwards is returned.
    pub fn apply(&mut self, _change: Change) -> Touched {
        Touched::default()
    }

    /// Applies changes as one: states in between are never derived. Faster than one by one for a first list.
    pub fn apply_all(&mut self, changes: impl IntoIterator<Item = Change>) -> Touched {
        let mut touched = Touched::default();
        for change in changes {
            touched.extend(self.apply(change));
        }
        touched
    }

    /// The state of a GatewayClass; none unless it is ours.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&ClassState> {
        self.classes.get(name)
    }

    /// The state of a Gateway; none unless its class is ours.
    #[must_use]
    pub fn gateway(&self, key: &str) -> Option<&GatewayState> {
        self.gateways.get(key)
    }

    /// The state of a ListenerSet; none unless its Gateway is ours.
    #[must_use]
    pub fn listener_set(&self, key: &str) -> Option<&ListenerSetState> {
        self.sets.get(key)
    }

    /// The state of a route; every route that exists has one.
    #[must_use]
    pub fn route(&self, id: &RouteId) -> Option<&RouteState> {
        self.routes.get(id)
    }

    /// The state of a BackendTLSPolicy; every policy that exists has one.
    #[must_use]
    pub fn policy(&self, key: &str) -> Option<&PolicyState> {
        self.policies.get(key)
    }

    /// The programmed listeners of a Gateway; none unless it is ours and accepted.
    #[must_use]
    pub fn config(&self, gateway: &str) -> Option<Arc<GatewayConfig>> {
        self.configs.get(gateway).cloned()
    }

    /// The configurations of all Gateways.
    pub fn configs(&self) -> impl Iterator<Item = &Arc<GatewayConfig>> {
        self.configs.values()
    }

    /// The routes that are attached to a listener, each with those of its hostnames that intersect with that of the
    /// listener (none: all hosts), whatever the state of the listener is.
    pub fn attached(&self, listener: &ListenerId) -> impl Iterator<Item = (&RouteId, &RouteState, &[Arc<str>])> {
        let routes = self.attached.get(listener).into_iter().flatten();
        routes.filter_map(|(id, hostnames)| Some((id, self.routes.get(id)?, &**hostnames)))
    }
}

/// Name of the Service of a Gateway: `NAME-waypost`, with a hash where the name of the Gateway is too long for a Service,
/// or has a dot or a digit at its start.
#[must_use]
pub fn service_name(gateway: &str) -> String {
    const SUFFIX: &str = "-waypost";
    const LONGEST: usize = 63;
    let starts_with_letter = gateway.starts_with(|first: char| first.is_ascii_lowercase());
    if gateway.len() + SUFFIX.len() <= LONGEST && starts_with_letter && !gateway.contains('.') {
        return format!("{gateway}{SUFFIX}");
    }
    let hash = format!("{:08x}", api::hash::fnv1a32(gateway.as_bytes()));
    let prefix = if starts_with_letter { "" } else { "gateway-" };
    let kept = format!("{prefix}{}", gateway.replace('.', "-"));
    let kept = kept.get(..LONGEST - SUFFIX.len() - hash.len() - 1).unwrap_or(&kept);
    format!("{}-{hash}{SUFFIX}", kept.trim_end_matches('-'))
}
