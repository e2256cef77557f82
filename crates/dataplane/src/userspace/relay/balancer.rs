//! Chooses the endpoint of a connection: by session affinity, else by the load-balancing policy of its port.
//!
//! In: the endpoints of a Service port, and clients. Out: an endpoint per connection. There are two lists, all
//! endpoints and those on this node, for the traffic policies `Cluster` and `Local`; affinity is shared by both, as in
//! the other modes.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plan::Scope;
use tokio::sync::watch;

use super::rotation::{Rotation, Selection};

/// Maximum number of affinity entries; further clients are served without affinity.
const MAX_CLIENTS: usize = 65_536;

/// Endpoints of a Service port, one per slot ([`plan::ServicePort::slots`]).
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
    /// How a slot is selected.
    pub selection: Selection,
    /// Whether connections end when their endpoint no longer serves.
    pub exclusive: bool,
}

/// Chooses among the endpoints of one Service port.
#[derive(Debug)]
pub struct Balancer {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    /// The same for ports whose connections may have to end: those of others are not woken.
    excluding: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    cluster: Rotation,
    local: Rotation,
    serving: Vec<SocketAddr>,
    affinity: Option<Duration>,
    exclusive: bool,
    clients: HashMap<IpAddr, (SocketAddr, Instant)>,
    /// Connections of each endpoint that has some.
    open: HashMap<SocketAddr, usize>,
}

/// A connection to an endpoint, counted until it is dropped.
pub(super) struct OpenConnection<'a> {
    balancer: &'a Balancer,
    endpoint: SocketAddr,
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        let open = &mut self.balancer.state.lock().open;
        if let Some(count) = open.get_mut(&self.endpoint) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.endpoint);
            }
        }
    }
}

impl Balancer {
    /// A balancer for these endpoints.
    #[must_use]
    pub fn new(endpoints: Endpoints) -> Self {
        let balancer =
            Self { state: Mutex::default(), changed: watch::Sender::new(()), excluding: watch::Sender::new(()) };
        balancer.set(endpoints);
        balancer
    }

    /// Replaces the endpoints. Established connections stay.
    pub fn set(&self, endpoints: Endpoints) {
        let mut state = self.state.lock();
        let State { cluster, local, serving, affinity, exclusive, clients, .. } = &mut *state;
        cluster.set(endpoints.cluster, endpoints.selection);
        local.set(endpoints.local, endpoints.selection);
        (*serving, *affinity, *exclusive) = (endpoints.serving, endpoints.affinity, endpoints.exclusive);
        let there = |endpoint: &SocketAddr| cluster.contains(endpoint) || local.contains(endpoint);
        clients.retain(|_, (endpoint, _)| affinity.is_some() && there(endpoint));
        let is_exclusive = *exclusive;
        drop(state);
        self.changed.send_replace(());
        if is_exclusive {
            self.excluding.send_replace(());
        }
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
        let State { cluster, local, affinity, clients, open, .. } = &mut *state;
        let list = match scope {
            Scope::Cluster => cluster,
            Scope::Local => local,
        };
        let before = affinity.and_then(|longest| {
            let (endpoint, last) = clients.get(&client)?;
            let fresh = now.saturating_duration_since(*last) < longest;
            (fresh && list.contains(endpoint) && !tried.contains(endpoint)).then_some(*endpoint)
        });
        let endpoint = before.or_else(|| list.next(client, tried, open))?;
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

    /// Counts a connection to an endpoint.
    pub(super) fn opened(&self, endpoint: SocketAddr) -> OpenConnection<'_> {
        *self.state.lock().open.entry(endpoint).or_default() += 1;
        OpenConnection { balancer: self, endpoint }
    }

    /// Waits until connections to an endpoint must end: another one is exclusive now.
    pub(super) async fn excluded(&self, endpoint: SocketAddr) {
        let mut changes = self.excluding.subscribe();
        let is_excluded = || {
            let state = self.state.lock();
            state.exclusive && !state.serving.contains(&endpoint)
        };
        while !is_excluded() {
            if changes.changed().await.is_err() {
                return;
            }
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
        if scope == Scope::Local { state.local.endpoints() } else { state.cluster.endpoints() }
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
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn connections_of_an_exclusive_port_end_with_the_leadership_of_their_endpoint() {
        let leader = |number| Endpoints { exclusive: true, ..endpoints(&[number], None) };
        let balancer = Balancer::new(leader(1));
        let mut excluded = std::pin::pin!(balancer.excluded(at(1)));
        let mut is_cut = || excluded.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!is_cut());
        balancer.set(leader(1));
        assert!(!is_cut(), "still the leader");
        balancer.set(leader(2));
        assert!(is_cut());
    }

    #[test]
    fn the_endpoint_with_the_fewest_connections_is_chosen() {
        let balancer =
            Balancer::new(Endpoints { selection: Selection::LeastConnections, ..endpoints(&[1, 2, 3], None) });
        let choose = || balancer.choose(Scope::Cluster, client(1), Instant::now(), &[]).expect("there are endpoints");
        let held: Vec<_> = (0..6).map(|_| balancer.opened(choose())).collect();
        let counts = |balancer: &Balancer| balancer.state.lock().open.values().copied().collect::<Vec<_>>();
        assert_eq!(counts(&balancer), [2, 2, 2]);
        let idle = held[4].endpoint;
        drop(held.into_iter().filter(|one| one.endpoint != idle).collect::<Vec<_>>());
        assert_eq!(balancer.state.lock().open.len(), 0, "all are closed");
    }

    fn at(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 80))
    }

    fn client(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    fn endpoints(numbers: &[u8], affinity: Option<u64>) -> Endpoints {
        let all: Vec<_> = numbers.iter().copied().map(at).collect();
        let affinity = affinity.map(Duration::from_secs);
        Endpoints { cluster: all.clone(), local: all[..1].to_vec(), serving: all, affinity, ..Endpoints::default() }
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
