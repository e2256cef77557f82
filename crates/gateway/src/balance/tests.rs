use std::collections::BTreeMap;
use std::time::Duration;

use routing::policy::{HashKey, Outlier};

use super::*;
use crate::clock::Clock;
use crate::ejection::{Cause, Outcome};

/// Endpoints 10.0.0.1 and following, and their clock.
struct Group {
    clock: Clock,
    ejections: Arc<Ejections>,
    backends: Backends,
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 80))
}

fn last(in_flight: &InFlight) -> u8 {
    match in_flight.address.ip() {
        std::net::IpAddr::V4(ip) => ip.octets()[3],
        std::net::IpAddr::V6(_) => 0,
    }
}

impl Group {
    fn new(count: u8) -> Self {
        let clock = Clock::stopped();
        let ejections = Arc::new(Ejections::new(clock.clone(), Arc::default()));
        let mut group = Self { clock, backends: Backends::new(Arc::clone(&ejections)), ejections };
        group.update(1..=count);
        group
    }

    fn update(&mut self, all: impl IntoIterator<Item = u8>) {
        let usable = all.into_iter().map(address).collect();
        self.backends = self.backends.updated(&EndpointSet { usable, elsewhere: 0 }, 1, None);
    }

    fn plain(&self, tried: &[SocketAddr]) -> Option<InFlight> {
        self.backends.choose(&Selection::default(), tried)
    }

    /// The endpoints of so many requests, one after the other.
    fn order(&self, selection: &Selection<'_>, count: usize) -> Vec<u8> {
        (0..count).filter_map(|_| self.backends.choose(selection, &[]).as_ref().map(last)).collect()
    }

    /// The next request of this endpoint ends so.
    fn report(&self, of: u8, outcome: Outcome, outlier: Option<&Outlier>) {
        let endpoint = self.backends.find(address(of)).expect("one of them");
        let now = self.ejections.millis(self.clock.now());
        let mut request = endpoint.admit(now, outlier).unwrap_or_else(|| endpoint.enter(Passes::FORCED));
        request.report(outcome, outlier);
    }

    fn seconds(&self, count: u64) {
        self.clock.advance(Duration::from_secs(count));
    }
}

fn by(method: BalancingMethod) -> Balancing {
    Balancing { method, ..Balancing::default() }
}

fn shares(order: &[u8]) -> BTreeMap<u8, usize> {
    let mut shares = BTreeMap::new();
    order.iter().for_each(|one| *shares.entry(*one).or_default() += 1);
    shares
}

#[test]
fn equal_endpoints_are_used_round_robin() {
    assert_eq!(Group::new(3).order(&Selection::default(), 6), [1, 2, 3, 1, 2, 3]);
    assert!(Group::new(0).plain(&[]).is_none());
}

#[test]
fn the_less_loaded_endpoint_is_selected() {
    let two = Group::new(2);
    let first = two.plain(&[]).expect("one");
    assert_eq!((last(&first), two.order(&Selection::default(), 4)), (1, vec![2, 2, 2, 2]));
    drop(first);
    let again = two.order(&Selection::default(), 2);
    assert!(again.contains(&1) && again.contains(&2), "{again:?}");
}

#[test]
fn tried_endpoints_are_excluded() {
    let two = Group::new(2);
    for method in [BalancingMethod::LeastRequest, BalancingMethod::RoundRobin, BalancingMethod::Random] {
        let balancing = by(method);
        let selection = Selection::by(&balancing);
        let first = two.backends.choose(&selection, &[]).expect("one").address;
        let second = two.backends.choose(&selection, &[first]).expect("another").address;
        assert_ne!(first, second);
        assert!(two.backends.choose(&selection, &[first, second]).is_none());
    }
}

#[test]
fn known_endpoints_are_kept() {
    let mut two = Group::new(2);
    let held = two.plain(&[]).expect("one");
    two.update([1, 9]);
    assert!(two.backends.all().iter().any(|one| Arc::ptr_eq(one, held.endpoint())));
    assert_eq!(two.backends.all().len(), 2);
}

#[test]
fn round_robin_and_random_ignore_load() {
    let three = Group::new(3);
    let _held: Vec<_> = (0..5).map(|_| three.backends.find(address(1)).expect("one").enter(Passes::USABLE)).collect();
    let order = three.order(&Selection::by(&by(BalancingMethod::RoundRobin)), 30);
    assert_eq!(shares(&order), BTreeMap::from([(1, 10), (2, 10), (3, 10)]));
    let order = three.order(&Selection::by(&by(BalancingMethod::Random)), 3000);
    assert!(shares(&order).values().all(|share| (800..1200).contains(share)), "{:?}", shares(&order));
}

#[test]
fn equal_hashes_lead_to_one_endpoint_and_to_another_while_it_is_ejected() {
    let mut five = Group::new(5);
    let balancing = by(BalancingMethod::ConsistentHash(HashKey::Source));
    let selection = |hash| Selection { hash: Some(hash), ..Selection::by(&balancing) };
    let before: Vec<Vec<u8>> = (0..200).map(|hash| five.order(&selection(hash), 3)).collect();
    assert!(before.iter().all(|order| order.iter().all(|one| *one == order[0])));
    five.report(2, Outcome::Refused, None);
    for (hash, before) in (0..).zip(&before) {
        let now = five.order(&selection(hash), 1)[0];
        assert_eq!(now == before[0], before[0] != 2, "only its keys move");
    }
    five.seconds(1);
    five.report(2, Outcome::Connected, None);
    five.update([5, 4, 3, 2, 1]);
    assert!((0..).zip(&before).all(|(hash, before)| five.order(&selection(hash), 1)[0] == before[0]));
    let unkeyed = shares(&five.order(&Selection::by(&balancing), 50));
    assert_eq!(unkeyed.len(), 5, "requests without the value: {unkeyed:?}");
}

#[test]
fn the_endpoint_of_a_session_comes_first_unless_it_is_ejected() {
    let three = Group::new(3);
    let selection = Selection { endpoint: Some(address(2)), ..Selection::default() };
    assert_eq!(three.order(&selection, 4), [2, 2, 2, 2]);
    assert_ne!(three.backends.choose(&selection, &[address(2)]).expect("another").address, address(2));
    three.report(2, Outcome::Refused, None);
    assert!(!three.order(&selection, 6).contains(&2));
}

#[test]
fn endpoints_that_refuse_are_avoided_for_a_time_that_doubles() {
    let three = Group::new(3);
    for time in [1, 2, 4, 8, 16, 30, 30] {
        three.report(1, Outcome::Refused, None);
        assert!(!three.order(&Selection::default(), 30).contains(&1));
        three.clock.advance(Duration::from_millis(time * 1000 - 1));
        assert!(!three.order(&Selection::default(), 30).contains(&1), "{time}");
        three.clock.advance(Duration::from_millis(1));
        // One request is let through; while it has no outcome, there is no other.
        let held: Vec<InFlight> = (0..9).filter_map(|_| three.plain(&[])).collect();
        assert_eq!(held.iter().filter(|one| last(one) == 1).count(), 1, "{time}");
    }
    // Given up without an outcome: the next one is let through.
    assert!(three.order(&Selection::default(), 9).contains(&1));
    three.report(1, Outcome::Connected, None);
    assert!(three.ejections.is_clear());
}

#[test]
fn the_last_usable_endpoint_is_never_ejected() {
    let three = Group::new(3);
    for of in [1, 2, 3, 3, 3] {
        three.report(of, Outcome::Refused, None);
    }
    assert_eq!(three.ejections.count(Cause::Connection), 2);
    assert_eq!(shares(&three.order(&Selection::default(), 9)), BTreeMap::from([(3, 9)]));
    let one = Group::new(1);
    one.report(1, Outcome::Refused, None);
    assert_eq!(one.order(&Selection::default(), 1), [1]);
}

#[test]
fn resets_eject_half_of_the_endpoints_at_most() {
    let four = Group::new(4);
    (1..=4).for_each(|of| four.report(of, Outcome::Reset, None));
    assert_eq!(four.ejections.count(Cause::Connection), 2);
}

#[test]
fn when_all_are_ejected_any_is_used_and_a_success_brings_it_back() {
    let mut three = Group::new(3);
    three.report(1, Outcome::Refused, None);
    three.report(2, Outcome::Refused, None);
    three.update([1, 2]);
    assert_eq!(three.order(&Selection::default(), 6).len(), 6);
    let mut forced = three.plain(&[address(1)]).expect("an endpoint without choice");
    forced.report(Outcome::Answered(200), None);
    drop(forced);
    assert_eq!(shares(&three.order(&Selection::default(), 6)), BTreeMap::from([(2, 6)]));
}

#[test]
fn errors_eject_for_rules_with_a_policy_only() {
    let four = Group::new(4);
    let outlier = Outlier { consecutive_errors: 2, ..Outlier::default() };
    let balancing = Balancing { outlier: Some(outlier.clone()), ..Balancing::default() };
    for outcome in [Outcome::Answered(503), Outcome::Answered(200), Outcome::Answered(502), Outcome::TimedOut] {
        assert!(four.ejections.is_clear());
        four.report(1, outcome, Some(&outlier));
    }
    assert_eq!(four.ejections.count(Cause::Outlier), 1);
    assert!(!four.order(&Selection::by(&balancing), 20).contains(&1));
    assert!(four.order(&Selection::default(), 20).contains(&1), "of another rule");
    for of in [2, 3, 4] {
        four.report(of, Outcome::Failed, Some(&outlier));
        four.report(of, Outcome::Failed, Some(&outlier));
    }
    assert_eq!(four.ejections.count(Cause::Outlier), 2, "half of them");
    four.seconds(30);
    four.report(1, Outcome::Answered(404), Some(&outlier));
    assert!(four.order(&Selection::by(&balancing), 20).contains(&1));
}

#[test]
fn an_endpoint_that_was_removed_and_added_starts_afresh() {
    let mut three = Group::new(3);
    three.report(1, Outcome::Refused, None);
    let held = three.backends.find(address(1)).expect("one").enter(Passes::FORCED);
    three.update([2, 3]);
    assert!(three.ejections.is_clear(), "although a request is still in flight");
    three.update([1, 2, 3]);
    drop(held);
    assert!(three.order(&Selection::default(), 9).contains(&1));
    assert!(three.ejections.is_clear());
}

#[test]
fn the_share_of_a_new_endpoint_grows() {
    let mut group = Group::new(3);
    let balancing =
        Balancing { slow_start: Some(SlowStart { window: Duration::from_secs(100) }), ..Balancing::default() };
    let share = |group: &Group| {
        let order = group.order(&Selection::by(&balancing), 8000);
        shares(&order).get(&4).copied().unwrap_or_default()
    };
    assert!(shares(&group.order(&Selection::by(&balancing), 300)).values().all(|share| *share == 100), "all are new");
    group.seconds(100);
    group.update(1..=4);
    // Of 2000 without it: 10 %, half, all.
    let first = share(&group);
    group.seconds(50);
    let half = share(&group);
    group.seconds(50);
    let all = share(&group);
    assert!((100..400).contains(&first) && (700..1300).contains(&half), "{first} {half}");
    assert_eq!(all, 2000);
}
