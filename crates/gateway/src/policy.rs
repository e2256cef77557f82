//! Enforcement of [`routing::policy::Policy`]: what a rule demands beyond the Gateway API, checked for each request.
//!
//! In: a rule's policy, the requests of the rule, the passwords of Secrets. Out: a request that may be forwarded, or the
//! answer to one that may not. What cannot be decided is refused.
//!
//! ```text
//! rule ─▶ Enforcer::compile ─▶ Enforced ─▶ redirects ─▶ admit: ranges, buckets, concurrency, basic_auth, external_auth
//!              │ zones shared by rules          │
//!              └ auth servers, hashing          └▶ refusal (page or gRPC status, counted by reason)
//! Secrets ─▶ routes::trust ─▶ passwords (swapped on change, rules are not compiled again)
//! ```
//! State that requests share is bounded: see [`buckets`], [`concurrency`], [`passwords`], [`destinations`].

mod addresses;
mod basic_auth;
mod buckets;
mod concurrency;
mod destinations;
mod enforce;
mod external_auth;
mod hashes;
mod passwords;
mod refusal;
mod resolver;
mod values;
mod zones;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use routing::model::Target;
use routing::policy::{ExternalAuth, Policy};

pub(crate) use addresses::may_connect;
pub(crate) use concurrency::InUse;
pub(crate) use enforce::{Admitted, Asked, Enforced};
pub(crate) use passwords::PasswordStore;
pub(crate) use refusal::Reason;

use crate::limits::Limits;
use crate::upstream::Upstream;
use basic_auth::Hashing;
use destinations::Destinations;
use enforce::Layer;
use external_auth::AuthServer;
use resolver::Resolver;
use zones::Zones;

/// Whether requests on behalf of a rule may be sent to an address.
pub(crate) type Permits = Box<dyn Fn(SocketAddr) -> bool + Send + Sync>;

/// What the rules of a node share.
pub(crate) struct Enforcer {
    zones: Zones,
    hashing: Hashing,
    resolver: Arc<Resolver>,
    /// By namespace.
    destinations: Mutex<HashMap<Box<str>, Weak<Destinations>>>,
    started: Instant,
}

impl Enforcer {
    /// `permits` says which addresses of servers for external authentication are used, except endpoints of Services.
    pub(crate) fn new(limits: Limits, workers: usize, permits: Permits) -> Arc<Self> {
        Arc::new(Self {
            zones: Zones::default(),
            hashing: Hashing::new(workers),
            resolver: Arc::new(Resolver::new(limits, workers, permits)),
            destinations: Mutex::default(),
            started: Instant::now(),
        })
    }

    /// The policy of a rule in this namespace, ready to be enforced. `upstream` finds the endpoints of Services.
    pub(crate) fn compile(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        namespace: &str,
        passwords: &PasswordStore,
        mut upstream: impl FnMut(&Target) -> Option<Arc<Upstream>>,
    ) -> Enforced {
        let mut auth_server = |auth: &ExternalAuth| {
            let destinations =
                zones::shared(&self.destinations, namespace.into(), || Destinations::new(&self.resolver));
            (auth.clone(), AuthServer::new(auth, destinations, &mut upstream))
        };
        let mut layer = |policy: &Policy| Layer {
            connections: policy.connection_limit.as_ref().map(|limit| (limit.clone(), self.zones.counts(limit))),
            passwords: policy.basic_auth.as_ref().map(|auth| (auth.clone(), passwords.of(&auth.secret, auth.format))),
            auth_server: policy.external_auth.as_ref().map(&mut auth_server),
        };
        let mut layers: Vec<Layer> = policy.layers().map(&mut layer).collect();
        layers.reverse();
        Enforced {
            rate_limits: policy.rate_limits.iter().map(|limit| self.zones.buckets(limit)).collect(),
            layers,
            policy: Arc::clone(policy),
            enforcer: Arc::clone(self),
        }
    }

    /// Closes connections to servers for external authentication that are idle since before `before`.
    pub(crate) fn sweep(&self, before: Instant) {
        let all: Vec<_> = self.destinations.lock().values().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|destinations| destinations.sweep(before));
    }

    /// The time since the start.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}
