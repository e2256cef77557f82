//! State that rules share by the name of a zone: it outlives the rules that are replaced, and not the last of them.
//!
//! In: limits. Out: the buckets or counts of their zone.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use routing::policy::{ConnectionLimit, RateKey, RateLimit};

use super::buckets::{Buckets, Budget};
use super::concurrency::Counts;

/// Identity of buckets: zone, rate, and the header that is the key.
type RateZone = (Arc<str>, u32, Duration, Option<Box<str>>);

/// All zones of a node.
#[derive(Default)]
pub(super) struct Zones {
    rates: Mutex<HashMap<RateZone, Weak<Buckets>>>,
    connections: Mutex<HashMap<Arc<str>, Weak<Counts>>>,
    budget: Budget,
}

impl Zones {
    /// The buckets of a limit.
    pub(super) fn buckets(&self, limit: &RateLimit) -> Arc<Buckets> {
        let header = match &limit.key {
            RateKey::Client => None,
            RateKey::Header(name) => Some(name.to_ascii_lowercase().into()),
        };
        let key = (Arc::clone(&limit.zone), limit.requests, limit.per, header);
        shared(&self.rates, key, || Buckets::new(limit.interval(), self.budget.clone()))
    }

    /// The counts of a limit.
    pub(super) fn counts(&self, limit: &ConnectionLimit) -> Arc<Counts> {
        shared(&self.connections, Arc::clone(&limit.zone), Counts::default)
    }
}

/// The value that is known by a key, or a new one. Values that nobody uses are forgotten whenever the map would grow.
pub(super) fn shared<K: Eq + std::hash::Hash, V>(
    known: &Mutex<HashMap<K, Weak<V>>>,
    key: K,
    new: impl FnOnce() -> V,
) -> Arc<V> {
    let mut known = known.lock();
    if let Some(value) = known.get(&key).and_then(Weak::upgrade) {
        return value;
    }
    if known.len() == known.capacity() {
        known.retain(|_, value| value.strong_count() > 0);
    }
    let value = Arc::new(new());
    known.insert(key, Arc::downgrade(&value));
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(zone: &str, requests: u32, key: RateKey) -> RateLimit {
        let per = Duration::from_secs(1);
        RateLimit { zone: zone.into(), requests, per, burst: 0, key, exempt: Vec::new(), status: 503 }
    }

    #[test]
    fn rules_with_the_same_zone_and_rate_share_buckets() {
        let zones = Zones::default();
        let header = |name: &str| RateKey::Header(name.into());
        let first = zones.buckets(&limit("a", 10, RateKey::Client));
        let burst = RateLimit { burst: 9, ..limit("a", 10, RateKey::Client) };
        assert!(Arc::ptr_eq(&first, &zones.buckets(&burst)));
        for other in [limit("b", 10, RateKey::Client), limit("a", 11, RateKey::Client), limit("a", 10, header("x-a"))] {
            assert!(!Arc::ptr_eq(&first, &zones.buckets(&other)), "{other:?}");
        }
        let one = zones.buckets(&limit("a", 10, header("X-A")));
        assert!(Arc::ptr_eq(&one, &zones.buckets(&limit("a", 10, header("x-a")))));
    }

    #[test]
    fn zones_without_rules_are_forgotten() {
        let zones = Zones::default();
        for number in 0..10_000 {
            drop(zones.buckets(&limit(&number.to_string(), 1, RateKey::Client)));
        }
        assert!(zones.rates.lock().len() < 100);
    }
}
