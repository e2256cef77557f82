//! Chooses the endpoint of a connection: round-robin, or by session affinity.
//!
//! In: the endpoints of a Service port, and clients. Out: an endpoint per connection. There are two lists, all
//! endpoints and those on this node, for the traffic policies `Cluster` and `Local`; affinity is shared by both, as in
//! the other modes.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

/// Maximum number of affinity entries; further clients are served without affinity.
const MAX_CLIENTS: usize = 65_536;

/// Endpoints that a connection may use, by traffic policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// All endpoints.
    Cluster,
    /// Endpoints on this node.
    Local,
}

/// Endpoints of a Service port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Endpoints {
    /// Endpoints for the policy `Cluster`.
    pub cluster: Vec<SocketAddr>,
    /// Endpoints for the policy `Local`.
    pub local: Vec<SocketAddr>,
    /// Endpoints that still serve, including terminating ones: their UDP sessions continue.
    pub serving: Vec<SocketAddr>,
    /// Session affinity timeout after the last connection.
    pub affinity: Option<Duration>,
}

/// Chooses among the endpoints of one Service port.
#[derive(Debug)]
pub struct Balancer {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    cluster: RoundRobin,
    local: RoundRobin,
    serving: Vec<SocketAddr>,
    affinity: Option<Duration>,
    clients: HashMap<IpAddr, (SocketAddr, Instant)>,
}

/// Endpoints in round-robin order.
#[derive(Debug, Default)]
struct RoundRobin {
    order: Vec<SocketAddr>,
    position: usize,
}

impl RoundRobin {
    /// Replaces the endpoints. The order is random, so that the relays of many nodes do not start with the same
    /// endpoint.
    fn set(&mut self, mut endpoints: Vec<SocketAddr>) {
        let mut before = self.order.clone();
        before.sort_unstable();
        endpoints.sort_unstable();
        endpoints.dedup();
        if before != endpoints {
            fastrand::shuffle(&mut endpoints);
            (self.order, self.position) = (endpoints, 0);
        }
    }

    /// The next endpoint that has not been tried.
    fn next(&mut self, tried: &[SocketAddr]) -> Option<SocketAddr> {
        for _ in 0..self.order.len() {
            let endpoint = *self.order.get(self.position)?;
            self.position = (self.position + 1) % self.order.len();
            if !tried.contains(&endpoint) {
                return Some(endpoint);
            }
        }
        None
    }
}

impl Balancer {
    /// A balancer for these endpoints.
    #[must_use]
    pub fn new(endpoints: Endpoints) -> Self {
        let balancer = Self { state: Mutex::default(), changed: watch::Sender::new(()) };
        balancer.set(endpoints);
        balancer
    }

    /// Replaces the endpoints. Established connections stay.
    pub fn set(&self, endpoints: Endpoints) {
        let mut state = self.state.lock();
        let State { cluster, local, serving, affinity, clients } = &mut *state;
        cluster.set(endpoints.cluster);
        local.set(endpoints.local);
        (*serving, *affinity) = (endpoints.serving, endpoints.affinity);
        let there = |endpoint: &SocketAddr| cluster.order.contains(endpoint) || local.order.contains(endpoint);
        clients.retain(|_, (endpoint, _)| affinity.is_some() && there(endpoint));
        drop(state);
        self.changed.send_replace(());
    }

    /// Chooses an endpoint for a client, except those already tried.
    pub(super) fn choose(
        &self,
        scope: Scope,
        client: IpAddr,
        now: Instant,
        tried: &[SocketAddr],
    ) -> Option<SocketAddr> {
        let mut state = self.state.lock();
        let State { cluster, local, affinity, clients, .. } = &mut *state;
        let list = match scope {
            Scope::Cluster => cluster,
            Scope::Local => local,
        };
        let before = affinity.and_then(|longest| {
            let (endpoint, last) = clients.get(&client)?;
            let fresh = now.saturating_duration_since(*last) < longest;
            (fresh && list.order.contains(endpoint) && !tried.contains(endpoint)).then_some(*endpoint)
        });
        let endpoint = before.or_else(|| list.next(tried))?;
        state.record(client, endpoint, now);
        Some(endpoint)
    }

    /// Records the endpoint of a client for session affinity.
    pub(super) fn record(&self, client: IpAddr, endpoint: SocketAddr, now: Instant) {
        self.state.lock().record(client, endpoint, now);
    }

    /// Ends the affinity of a client to an endpoint that failed.
    pub(super) fn failed(&self, client: IpAddr, endpoint: SocketAddr) {
        let clients = &mut self.state.lock().clients;
        if clients.get(&client).is_some_and(|(with, _)| *with == endpoint) {
            clients.remove(&client);
        }
    }

    /// Whether UDP sessions with an endpoint may continue.
    pub(super) fn serves(&self, endpoint: SocketAddr) -> bool {
        self.state.lock().serving.contains(&endpoint)
    }

    /// The endpoints of a list, sorted.
    #[cfg(test)]
    pub(crate) fn list(&self, scope: Scope) -> Vec<SocketAddr> {
        let state = self.state.lock();
        let mut list = if scope == Scope::Local { state.local.order.clone() } else { state.cluster.order.clone() };
        list.sort_unstable();
        list
    }

    /// Notifies of endpoint changes.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

impl State {
    fn record(&mut self, client: IpAddr, endpoint: SocketAddr, now: Instant) {
        let Some(longest) = self.affinity else { return };
        if self.clients.len() >= MAX_CLIENTS && !self.clients.contains_key(&client) {
            self.clients.retain(|_, (_, last)| now.saturating_duration_since(*last) < longest);
            if self.clients.len() >= MAX_CLIENTS {
                return;
            }
        }
        self.clients.insert(client, (endpoint, now));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn at(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 80))
    }

    fn client(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    fn endpoints(numbers: &[u8], affinity: Option<u64>) -> Endpoints {
        let all: Vec<_> = numbers.iter().copied().map(at).collect();
        let affinity = affinity.map(Duration::from_secs);
        Endpoints { cluster: all.clone(), local: all[..1].to_vec(), serving: all, affinity }
    }

    #[test]
    fn endpoints_are_chosen_round_robin() {
        let balancer = Balancer::new(endpoints(&[1, 2, 3], None));
        let now = Instant::now();
        let round = || -> Vec<SocketAddr> {
            (0..3).filter_map(|number| balancer.choose(Scope::Cluster, client(number), now, &[])).collect()
        };
        let first = round();
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 3);
        assert_eq!(round(), first);
        // The same endpoints in another order are no change.
        balancer.set(endpoints(&[1, 3, 2], None));
        assert_eq!(round(), first);
        balancer.set(Endpoints { cluster: vec![at(2), at(3)], ..endpoints(&[1], None) });
        assert_eq!(round().into_iter().collect::<BTreeSet<_>>(), [at(2), at(3)].into());
        assert_eq!(balancer.choose(Scope::Local, client(1), now, &[]), Some(at(1)));
        assert_eq!(balancer.choose(Scope::Local, client(1), now, &[at(1)]), None);
        balancer.set(Endpoints::default());
        assert_eq!(round(), []);
    }

    #[test]
    fn the_order_is_shuffled_when_endpoints_change() {
        let numbers: Vec<u8> = (1..=30).collect();
        let orders: BTreeSet<Vec<SocketAddr>> = (0..4)
            .map(|_| {
                let balancer = Balancer::new(endpoints(&numbers, None));
                let choose = |_| balancer.choose(Scope::Cluster, client(1), Instant::now(), &[]);
                (0..30).filter_map(choose).collect()
            })
            .collect();
        assert!(orders.len() > 1, "30 endpoints came four times in one order");
    }

    #[test]
    fn affinity_lasts_while_the_client_reconnects_within_the_timeout() {
        let balancer = Balancer::new(endpoints(&[1, 2, 3], Some(10)));
        let started = Instant::now();
        let choose = |seconds, scope| {
            let now = started + Duration::from_secs(seconds);
            balancer.choose(scope, client(1), now, &[]).expect("there are endpoints")
        };
        let first = choose(0, Scope::Cluster);
        for seconds in [9, 18, 27] {
            assert_eq!(choose(seconds, Scope::Cluster), first, "after {seconds} s");
        }
        assert_ne!(choose(37, Scope::Cluster), first, "forgotten");
        let other = choose(38, Scope::Cluster);
        // A choice with scope Local moves the affinity.
        assert_eq!(choose(38, Scope::Local), at(1));
        assert_eq!(choose(38, Scope::Cluster), at(1));
        balancer.failed(client(1), other);
        assert_eq!(choose(39, Scope::Cluster) == at(1), other != at(1), "only its own failure is held against it");
    }

    #[test]
    fn affinity_ends_when_the_endpoint_is_removed_or_fails() {
        let balancer = Balancer::new(endpoints(&[1, 2], Some(100)));
        let now = Instant::now();
        let choose = || balancer.choose(Scope::Cluster, client(1), now, &[]).expect("there are endpoints");
        let first = choose();
        balancer.failed(client(1), first);
        let second = choose();
        assert_ne!(second, first, "it is the turn of the other");
        balancer.set(Endpoints { cluster: vec![first], ..endpoints(&[1], Some(100)) });
        assert_eq!(choose(), first);
        balancer.set(endpoints(&[1, 2], None));
        assert_eq!(balancer.state.lock().clients.len(), 0, "without affinity nobody is remembered");
    }
}
