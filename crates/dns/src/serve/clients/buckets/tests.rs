//! Bounds that hold for any sequence of queries, and what evictions, clock skew, wrapped times and threads do to them.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const MILLISECOND: u64 = ticks_of(Duration::from_millis(1));
const SECOND: u64 = 1000 * MILLISECOND;

/// Takes a token of a client. Clients have distinct tags and share one set.
fn take(buckets: &Buckets, client: u64, rate: Rate, now: Ticks) -> bool {
    buckets.take_hashed((client + 1) << TIME_BITS, rate, now)
}

/// Takes all available tokens, up to a bound.
fn drain(buckets: &Buckets, client: u64, rate: Rate, now: Ticks) -> usize {
    (0..1_000_000).take_while(|_| take(buckets, client, rate, now)).count()
}

proptest! {
    /// In every interval a client gets at most the tokens refilled in it and one burst, even if its bucket is evicted
    /// repeatedly: all clients share one set, and there are more clients than buckets.
    #[test]
    fn no_client_ever_gets_more_than_its_rate_and_burst(
        tokens in 1_u32..20,
        queries in proptest::collection::vec((0_u64..20, 0_u64..100), 1..400),
    ) {
        let (buckets, rate) = (Buckets::new(1), Rate::per_second(tokens));
        let (mut now, mut taken) = (0, HashMap::<u64, Vec<u64>>::new());
        for (client, milliseconds) in queries {
            now += milliseconds * MILLISECOND;
            if take(&buckets, client, rate, Ticks(now)) {
                taken.entry(client).or_default().push(now);
            }
        }
        for times in taken.values() {
            for (first, start) in times.iter().enumerate() {
                for (last, end) in times.iter().enumerate().skip(first) {
                    let (got, most) = (last - first + 1, (end - start) / rate.interval + u64::from(tokens));
                    prop_assert!(got as u64 <= most, "{times:?}");
                }
            }
        }
    }

    /// While a set has no more clients than buckets, each gets its full rate.
    #[test]
    fn clients_within_their_rate_are_not_affected_by_a_flood(
        queries in proptest::collection::vec((1_u64..8, 0_u64..50), 1..200),
    ) {
        let (buckets, rate) = (Buckets::new(1), Rate::per_second(10));
        let mut now = 0;
        let mut next = HashMap::<u64, u64>::new();
        for (client, milliseconds) in queries {
            now += milliseconds * MILLISECOND;
            drain(&buckets, 0, rate, Ticks(now));
            let due = next.entry(client).or_default();
            if now >= *due {
                prop_assert!(take(&buckets, client, rate, Ticks(now)), "client {client} at {now}");
                *due = now + rate.interval;
            }
        }
    }
}

#[test]
fn a_flooder_gains_nothing_from_evictions() {
    let (buckets, rate) = (Buckets::new(1), Rate::per_second(100));
    let now = Ticks(5 * SECOND);
    assert_eq!(drain(&buckets, 0, rate, now), 100);
    for other in 1..200 {
        // Other clients of the same set; all but the first few evict a bucket.
        take(&buckets, other, rate, now);
        assert!(!take(&buckets, 0, rate, now), "after {other} others");
    }
    assert_eq!(drain(&buckets, 0, rate, Ticks(now.0 + SECOND / 10)), 10, "only what filled in");
}

#[test]
fn a_flood_from_more_clients_than_buckets_is_bounded_by_the_buckets() {
    let (buckets, rate) = (Buckets::new(1), Rate::per_second(100));
    let taken: usize = (0..1000).map(|client| drain(&buckets, client, rate, Ticks(0))).sum();
    assert_eq!(taken, WAYS * 100);
    assert!(!take(&buckets, 5000, rate, Ticks(0)), "the debt is passed on");
    assert!(take(&buckets, 5000, rate, Ticks(rate.interval)), "but no more than that");
}

#[test]
fn addresses_and_networks_of_the_same_number_have_buckets_of_their_own() {
    let (buckets, rate) = (Buckets::new(64), Rate::per_second(5));
    assert_eq!((0..9).filter(|_| buckets.take(7_u128, rate, Ticks(0))).count(), 5);
    assert!(buckets.take(7_u64, rate, Ticks(0)));
}

#[test]
fn a_stale_clock_reading_grants_no_extra_tokens() {
    let (buckets, rate) = (Buckets::new(1), Rate::per_second(100));
    let now = 10 * SECOND;
    assert_eq!(drain(&buckets, 0, rate, Ticks(now)), 100);
    for behind in [1, MILLISECOND, 500 * MILLISECOND, SECOND] {
        assert!(!take(&buckets, 0, rate, Ticks(now - behind)), "{behind} ticks behind");
    }
    assert!(!take(&buckets, 0, rate, Ticks(now)), "and breaks nothing");
}

#[test]
fn times_may_wrap() {
    let (buckets, rate) = (Buckets::new(1), Rate::per_second(10));
    let before = Ticks(TIME_MASK - SECOND / 2);
    assert_eq!(drain(&buckets, 0, rate, before), 10);
    assert_eq!(drain(&buckets, 0, rate, Ticks(before.0 + SECOND * 8 / 10)), 8, "the time is smaller now");
    buckets.sweep(Ticks(before.0 + SECOND * 8 / 10));
    assert!(!take(&buckets, 0, rate, Ticks(before.0 + SECOND * 8 / 10)), "debt is not swept away");
}

/// At any time within a week, a client that was idle has its full burst, and debt persists.
#[test]
fn old_times_are_not_mistaken_for_debt_after_wrapping() {
    let (buckets, rate) = (Buckets::new(1), Rate::per_second(10));
    let hours = SWEEP_PERIOD.as_secs() * SECOND;
    assert_eq!(drain(&buckets, 0, rate, Ticks(0)), 10);
    for hour in 1..=7 * 24 {
        let now = Ticks(hour * hours);
        let visitor = 1 + hour % 90;
        assert_eq!(drain(&buckets, visitor, rate, now), 10, "hour {hour}");
        assert!(!take(&buckets, visitor, rate, now));
        buckets.sweep(now);
        assert!(!take(&buckets, visitor, rate, now), "hour {hour}: debt is not swept away");
    }
    assert_eq!(drain(&buckets, 0, rate, Ticks(7 * 24 * hours)), 10);
}

#[test]
fn concurrent_threads_do_not_exceed_the_rate() {
    let (buckets, rate) = (Buckets::new(16), Rate::per_second(10_000));
    let taken: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| drain(&buckets, 1, rate, Ticks(0)))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a count")).sum()
    });
    assert_eq!(taken, 10_000);
}

#[test]
fn a_rate_is_never_exceeded_by_rounding() {
    for tokens in [1, 3, 7, 999, 20_000, 333_333, 1_000_000, u32::MAX] {
        let rate = Rate::per_second(tokens);
        assert!(rate.interval * u64::from(tokens) >= SECOND, "{tokens}");
        assert_eq!(rate.depth / rate.interval, u64::from(tokens), "the burst");
    }
}
