//! Load balancing: which endpoint of an upstream gets a request.
//!
//! In: addresses; the settings of a rule, and the hash key or session of a request. Out: an endpoint, counted as in use until
//! the guard is dropped. Endpoints keep their connections and their health across updates; connections of removed
//! endpoints are closed after their last request.
//!
//! Without settings, and while no endpoint is ejected: the less loaded of two, round robin if equal.

use std::collections::HashMap;
use std::iter;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use routing::policy::{Balancing, BalancingMethod, SlowStart};

use crate::ejection::{Ejections, Passes};
use crate::endpoint::{Endpoint, InFlight};
use crate::endpoints::EndpointSet;
use crate::maglev::Maglev;
use crate::session_token::{SessionKey, Tags};

/// Draws before all endpoints are looked at.
const DRAWS: usize = 4;
/// How rules without settings balance.
static DEFAULT: Balancing = Balancing { method: BalancingMethod::LeastRequest, outlier: None, slow_start: None };

/// Endpoints of a port.
pub(crate) struct Backends {
    all: Vec<Arc<Endpoint>>,
    next: AtomicUsize,
    /// Number of endpoints on other nodes that are excluded.
    pub(crate) elsewhere: usize,
    ejections: Arc<Ejections>,
    /// When the first and the last of the endpoints were added.
    ages: Option<(Instant, Instant)>,
    /// The key for sessions, if the Service is known.
    pub(crate) key: Option<Arc<SessionKey>>,
    /// For consistent hashing; made for the first request that needs it, and then with each update.
    table: OnceLock<Maglev>,
    /// For sessions, likewise.
    tags: OnceLock<Tags>,
}

/// How the endpoint of a request is selected, and which one answered it.
pub(crate) struct Selection<'a> {
    pub(crate) balancing: &'a Balancing,
    /// Hash of the value that selects the endpoint.
    pub(crate) hash: Option<u64>,
    /// The endpoint of the session.
    pub(crate) endpoint: Option<SocketAddr>,
    /// The endpoint that answered.
    pub(crate) served: Option<SocketAddr>,
    /// The endpoint that a request with a time limit is sent to, for its policy.
    pub(crate) waiting: Option<Arc<Endpoint>>,
}

impl Default for Selection<'_> {
    fn default() -> Self {
        Self::by(&DEFAULT)
    }
}

impl<'a> Selection<'a> {
    /// By the settings of a rule.
    pub(crate) const fn by(balancing: &'a Balancing) -> Self {
        Self { balancing, hash: None, endpoint: None, served: None, waiting: None }
    }

    /// Whether any endpoint will do.
    const fn is_plain(&self) -> bool {
        self.hash.is_none() && self.endpoint.is_none() && self.balancing.slow_start.is_none()
    }
}

impl Backends {
    /// No endpoints.
    pub(crate) fn new(ejections: Arc<Ejections>) -> Self {
        let (table, tags) = Default::default();
        Self { all: Vec::new(), next: AtomicUsize::new(0), elsewhere: 0, ejections, ages: None, key: None, table, tags }
    }

    /// Replaces the addresses; known endpoints are kept.
    pub(crate) fn updated(&self, found: &EndpointSet, workers: usize, key: Option<Arc<SessionKey>>) -> Self {
        let now = self.ejections.clock.now();
        let mut known: HashMap<SocketAddr, &Arc<Endpoint>> = self.all.iter().map(|one| (one.address, one)).collect();
        let keep = |address: &SocketAddr| match known.remove(address) {
            Some(endpoint) => Arc::clone(endpoint),
            None => Arc::new(Endpoint::new(*address, workers, now, &self.ejections)),
        };
        let all: Vec<Arc<Endpoint>> = found.usable.iter().map(keep).collect();
        known.values().for_each(|endpoint| endpoint.remove());
        self.ejections.set_total(all.len());
        let since = || all.iter().map(|endpoint| endpoint.since);
        let updated = Self {
            next: AtomicUsize::new(self.next.load(Relaxed)),
            elsewhere: found.elsewhere,
            ejections: Arc::clone(&self.ejections),
            ages: since().min().zip(since().max()),
            key,
            table: OnceLock::new(),
            tags: OnceLock::new(),
            all,
        };
        // Here, so that no request waits for it.
        if self.table.get().is_some() {
            updated.table();
        }
        if self.tags.get().is_some() {
            updated.tags();
        }
        updated
    }

    /// Selects an endpoint that is not in `tried`.
    pub(crate) fn choose(&self, selection: &Selection<'_>, tried: &[SocketAddr]) -> Option<InFlight> {
        if self.all.is_empty() {
            return None;
        }
        if tried.is_empty() && selection.is_plain() && self.ejections.is_clear() {
            let chosen = match selection.balancing.method {
                BalancingMethod::RoundRobin => &self.all[self.start()],
                BalancingMethod::Random => &self.all[fastrand::usize(..self.all.len())],
                BalancingMethod::LeastRequest | BalancingMethod::ConsistentHash(_) => {
                    let (first, second) = self.pair(self.start());
                    if second.load() < first.load() { second } else { first }
                }
            };
            return Some(chosen.enter(Passes::USABLE));
        }
        self.choose_open(selection, tried)
    }

    /// Selects an endpoint by everything that matters.
    fn choose_open(&self, selection: &Selection<'_>, tried: &[SocketAddr]) -> Option<InFlight> {
        let now = self.ejections.clock.now();
        let (millis, outlier) = (self.ejections.millis(now), selection.balancing.outlier.as_ref());
        let is_fit = |one: &Arc<Endpoint>| !tried.contains(&one.address) && one.is_open(millis, outlier);
        let of_session = selection.endpoint.and_then(|address| self.find(address)).filter(|one| is_fit(one));
        if let Some(chosen) = of_session.and_then(|one| one.admit(millis, outlier)) {
            return Some(chosen);
        }
        let slow = selection.balancing.slow_start.filter(|slow| selection.hash.is_none() && self.is_mixed(slow, now));
        let takes_turn = |one: &Arc<Endpoint>| {
            slow.is_none_or(|slow| fastrand::f64() < slow.share(now.saturating_duration_since(one.since)))
        };
        let draws = self.draws(selection).filter(|one| is_fit(one) && takes_turn(one));
        let fit = || self.all.iter().filter(|one| is_fit(one));
        let rest = iter::once_with(|| fit().min_by_key(|one| one.load())).flatten().chain(fit());
        let chosen = draws.chain(rest).find_map(|one| one.admit(millis, outlier));
        chosen.or_else(|| {
            // All are ejected: any is better than none.
            let others = self.all.iter().filter(|one| !tried.contains(&one.address));
            others.min_by_key(|one| one.load()).map(|one| one.enter(Passes::FORCED))
        })
    }

    /// Endpoints in the order in which the settings try them; not necessarily all.
    fn draws<'a>(&'a self, selection: &Selection<'_>) -> Box<dyn Iterator<Item = &'a Arc<Endpoint>> + 'a> {
        let count = self.all.len();
        let at = |index: usize| self.all.get(index);
        match (&selection.balancing.method, selection.hash) {
            (_, Some(hash)) => Box::new(self.table().candidates(hash).filter_map(at)),
            (BalancingMethod::RoundRobin, _) => {
                let start = self.start();
                Box::new((start..start + count).filter_map(move |index| at(index % count)))
            }
            (BalancingMethod::Random, _) => {
                Box::new(iter::repeat_with(move || at(fastrand::usize(..count))).take(DRAWS).flatten())
            }
            _ => {
                let pairs = iter::repeat_with(|| self.pair(self.start())).take(DRAWS);
                let by_load = |(one, other): (&'a Arc<Endpoint>, &'a Arc<Endpoint>)| {
                    if other.load() < one.load() { [other, one] } else { [one, other] }
                };
                Box::new(pairs.flat_map(by_load))
            }
        }
    }

    fn start(&self) -> usize {
        self.next.fetch_add(1, Relaxed) % self.all.len().max(1)
    }

    fn pair(&self, start: usize) -> (&Arc<Endpoint>, &Arc<Endpoint>) {
        let count = self.all.len();
        (&self.all[start], &self.all[(start + count / 2) % count])
    }

    /// Whether some endpoints are new, and others are not.
    fn is_mixed(&self, slow: &SlowStart, now: Instant) -> bool {
        let is_new = |since| now.saturating_duration_since(since) < slow.window;
        self.ages.is_some_and(|(first, last)| is_new(last) && !is_new(first))
    }

    fn find(&self, address: SocketAddr) -> Option<&Arc<Endpoint>> {
        let found = self.all.binary_search_by_key(&address, |endpoint| endpoint.address);
        self.all.get(found.ok()?)
    }

    fn table(&self) -> &Maglev {
        self.table.get_or_init(|| Maglev::new(self.all.iter().map(|endpoint| endpoint.address.to_string())))
    }

    fn tags(&self) -> &Tags {
        self.tags.get_or_init(|| Tags::new(self.key.as_deref(), self.all.iter().map(|endpoint| endpoint.address)))
    }

    /// The endpoint with this tag.
    pub(crate) fn tagged(&self, tag: u64) -> Option<SocketAddr> {
        self.tags().find(tag)
    }

    /// The endpoint that a hash leads to.
    pub(crate) fn hashed(&self, hash: u64) -> Option<SocketAddr> {
        let index = self.table().candidates(hash).next()?;
        self.all.get(index).map(|endpoint| endpoint.address)
    }

    pub(crate) fn all(&self) -> &[Arc<Endpoint>] {
        &self.all
    }
}

#[cfg(test)]
mod tests;
