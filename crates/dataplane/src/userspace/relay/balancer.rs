//! Whom the next connection goes to: in turn, or to where its client went before.
//!
//! In: the endpoints of a Service port, again whenever they change; clients. Out: an endpoint for each. Two lists are kept, one
//! of endpoints anywhere and one of those on this node, since traffic of one Service port may be bound to either; clients are
//! remembered for both together, as they are in every other mode.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

/// How many clients are remembered at most; more are served all the same.
const CLIENTS: usize = 65_536;

/// Which endpoints a connection may go to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// Any.
    Anywhere,
    /// Those on this node.
    Here,
}

/// The endpoints of a Service port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Places {
    /// For connections that may go anywhere.
    pub anywhere: Vec<SocketAddr>,
    /// For connections that stay on this node.
    pub here: Vec<SocketAddr>,
    /// Those that still answer, wanted or not: UDP sessions with them go on.
    pub serving: Vec<SocketAddr>,
    /// How long clients stay with an endpoint after their last connection.
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
    anywhere: Ring,
    here: Ring,
    serving: Vec<SocketAddr>,
    affinity: Option<Duration>,
    clients: HashMap<IpAddr, (SocketAddr, Instant)>,
}

/// Endpoints in the order in which they have their turn.
#[derive(Debug, Default)]
struct Ring {
    order: Vec<SocketAddr>,
    next: usize,
}

impl Ring {
    /// Gives it other endpoints, in an order of its own, so that the relays of many nodes do not all begin with the same.
    fn set(&mut self, mut endpoints: Vec<SocketAddr>) {
        let mut before = self.order.clone();
        before.sort_unstable();
        endpoints.sort_unstable();
        endpoints.dedup();
        if before != endpoints {
            fastrand::shuffle(&mut endpoints);
            (self.order, self.next) = (endpoints, 0);
        }
    }

    /// The one whose turn it is, of those that were not tried.
    fn turn(&mut self, tried: &[SocketAddr]) -> Option<SocketAddr> {
        for _ in 0..self.order.len() {
            let endpoint = *self.order.get(self.next)?;
            self.next = (self.next + 1) % self.order.len();
            if !tried.contains(&endpoint) {
                return Some(endpoint);
            }
        }
        None
    }
}

impl Balancer {
    /// One for these endpoints.
    #[must_use]
    pub fn new(places: Places) -> Self {
        let balancer = Self { state: Mutex::default(), changed: watch::Sender::new(()) };
        balancer.set(places);
        balancer
    }

    /// Gives it other endpoints. Connections that run are left alone.
    pub fn set(&self, places: Places) {
        let mut state = self.state.lock();
        let State { anywhere, here, serving, affinity, clients } = &mut *state;
        anywhere.set(places.anywhere);
        here.set(places.here);
        (*serving, *affinity) = (places.serving, places.affinity);
        let there = |endpoint: &SocketAddr| anywhere.order.contains(endpoint) || here.order.contains(endpoint);
        clients.retain(|_, (endpoint, _)| affinity.is_some() && there(endpoint));
        drop(state);
        self.changed.send_replace(());
    }

    /// Whom a client goes to, of those that were not tried for it.
    pub(super) fn choose(
        &self,
        scope: Scope,
        client: IpAddr,
        now: Instant,
        tried: &[SocketAddr],
    ) -> Option<SocketAddr> {
        let mut state = self.state.lock();
        let State { anywhere, here, affinity, clients, .. } = &mut *state;
        let ring = match scope {
            Scope::Anywhere => anywhere,
            Scope::Here => here,
        };
        let before = affinity.and_then(|longest| {
            let (endpoint, last) = clients.get(&client)?;
            let fresh = now.saturating_duration_since(*last) < longest;
            (fresh && ring.order.contains(endpoint) && !tried.contains(endpoint)).then_some(*endpoint)
        });
        let endpoint = before.or_else(|| ring.turn(tried))?;
        state.remember(client, endpoint, now);
        Some(endpoint)
    }

    /// A client is with an endpoint.
    pub(super) fn remember(&self, client: IpAddr, endpoint: SocketAddr, now: Instant) {
        self.state.lock().remember(client, endpoint, now);
    }

    /// An endpoint did not answer a client, which shall be with it no longer.
    pub(super) fn failed(&self, client: IpAddr, endpoint: SocketAddr) {
        let clients = &mut self.state.lock().clients;
        if clients.get(&client).is_some_and(|(with, _)| *with == endpoint) {
            clients.remove(&client);
        }
    }

    /// Whether UDP sessions with an endpoint may go on.
    pub(super) fn serves(&self, endpoint: SocketAddr) -> bool {
        self.state.lock().serving.contains(&endpoint)
    }

    /// The endpoints of a list, in order.
    #[cfg(test)]
    pub(crate) fn list(&self, scope: Scope) -> Vec<SocketAddr> {
        let state = self.state.lock();
        let mut list = if scope == Scope::Here { state.here.order.clone() } else { state.anywhere.order.clone() };
        list.sort_unstable();
        list
    }

    /// Tells of changes.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

impl State {
    fn remember(&mut self, client: IpAddr, endpoint: SocketAddr, now: Instant) {
        let Some(longest) = self.affinity else { return };
        if self.clients.len() >= CLIENTS && !self.clients.contains_key(&client) {
            self.clients.retain(|_, (_, last)| now.saturating_duration_since(*last) < longest);
            if self.clients.len() >= CLIENTS {
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

    fn places(numbers: &[u8], affinity: Option<u64>) -> Places {
        let all: Vec<_> = numbers.iter().copied().map(at).collect();
        let affinity = affinity.map(Duration::from_secs);
        Places { anywhere: all.clone(), here: all[..1].to_vec(), serving: all, affinity }
    }

    #[test]
    fn everybody_has_a_turn() {
        let balancer = Balancer::new(places(&[1, 2, 3], None));
        let now = Instant::now();
        let round = || -> Vec<SocketAddr> {
            (0..3).filter_map(|number| balancer.choose(Scope::Anywhere, client(number), now, &[])).collect()
        };
        let first = round();
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 3);
        assert_eq!(round(), first);
        // The same endpoints in another order are no change; fewer are.
        balancer.set(places(&[1, 3, 2], None));
        assert_eq!(round(), first);
        balancer.set(Places { anywhere: vec![at(2), at(3)], ..places(&[1], None) });
        assert_eq!(round().into_iter().collect::<BTreeSet<_>>(), [at(2), at(3)].into());
        assert_eq!(balancer.choose(Scope::Here, client(1), now, &[]), Some(at(1)));
        assert_eq!(balancer.choose(Scope::Here, client(1), now, &[at(1)]), None);
        balancer.set(Places::default());
        assert_eq!(round(), []);
    }

    #[test]
    fn the_order_is_shuffled_when_endpoints_change() {
        let numbers: Vec<u8> = (1..=30).collect();
        let orders: BTreeSet<Vec<SocketAddr>> = (0..4)
            .map(|_| {
                let balancer = Balancer::new(places(&numbers, None));
                let choose = |_| balancer.choose(Scope::Anywhere, client(1), Instant::now(), &[]);
                (0..30).filter_map(choose).collect()
            })
            .collect();
        assert!(orders.len() > 1, "30 endpoints came four times in one order");
    }

    #[test]
    fn a_client_stays_as_long_as_it_comes_back_in_time() {
        let balancer = Balancer::new(places(&[1, 2, 3], Some(10)));
        let begun = Instant::now();
        let choose = |seconds, scope| {
            let now = begun + Duration::from_secs(seconds);
            balancer.choose(scope, client(1), now, &[]).expect("there are endpoints")
        };
        let first = choose(0, Scope::Anywhere);
        for seconds in [9, 18, 27] {
            assert_eq!(choose(seconds, Scope::Anywhere), first, "after {seconds} s");
        }
        assert_ne!(choose(37, Scope::Anywhere), first, "forgotten");
        let other = choose(38, Scope::Anywhere);
        // What is only here is asked only for what is here; then that is where the client is.
        assert_eq!(choose(38, Scope::Here), at(1));
        assert_eq!(choose(38, Scope::Anywhere), at(1));
        balancer.failed(client(1), other);
        assert_eq!(choose(39, Scope::Anywhere) == at(1), other != at(1), "only its own failure is held against it");
    }

    #[test]
    fn a_client_leaves_an_endpoint_that_left_or_failed() {
        let balancer = Balancer::new(places(&[1, 2], Some(100)));
        let now = Instant::now();
        let choose = || balancer.choose(Scope::Anywhere, client(1), now, &[]).expect("there are endpoints");
        let first = choose();
        balancer.failed(client(1), first);
        let second = choose();
        assert_ne!(second, first, "it is the turn of the other");
        balancer.set(Places { anywhere: vec![first], ..places(&[1], Some(100)) });
        assert_eq!(choose(), first);
        balancer.set(places(&[1, 2], None));
        assert_eq!(balancer.state.lock().clients.len(), 0, "without affinity nobody is remembered");
    }
}
