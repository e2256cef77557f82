//! Cache of upstream answers, bounded in entries and bytes.
//!
//! In: answers with their TTL; NXDOMAIN and NODATA, too (a negative cache, RFC 2308). Out: the same with their age, until they expire and as stale answers for some time
//! after. Each shard uses S3-FIFO: new answers enter a small queue and move to the main queue only if they are used
//! again, so a scan of many names used once does not evict popular ones.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::answer::Answer;
use super::message::{Query, flag};

const SHARDS: usize = 64;
/// Average answer size in bytes; capacity times this bounds the memory of a shard.
const AVERAGE: usize = 1024;

/// Cache key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    /// Lower-cased wire form.
    pub(super) name: Box<[u8]>,
    pub(super) qtype: u16,
    pub(super) qclass: u16,
    pub(super) dnssec: bool,
    pub(super) checking_disabled: bool,
}

/// Borrowed cache key.
#[derive(Clone, Copy)]
pub(super) struct KeyRef<'a> {
    pub(super) name: &'a [u8],
    pub(super) qtype: u16,
    pub(super) qclass: u16,
    pub(super) dnssec: bool,
    pub(super) checking_disabled: bool,
}

impl Key {
    pub(super) fn as_ref(&self) -> KeyRef<'_> {
        let Self { name, qtype, qclass, dnssec, checking_disabled } = self;
        KeyRef { name, qtype: *qtype, qclass: *qclass, dnssec: *dnssec, checking_disabled: *checking_disabled }
    }
}

impl<'a> KeyRef<'a> {
    pub(super) fn of(query: &'a Query<'_>) -> Self {
        Self {
            name: query.name.as_wire(),
            qtype: query.qtype,
            qclass: query.qclass,
            dnssec: query.dnssec(),
            checking_disabled: query.has(flag::CD),
        }
    }

    pub(super) fn to_key(self) -> Key {
        let Self { name, qtype, qclass, dnssec, checking_disabled } = self;
        Key { name: name.into(), qtype, qclass, dnssec, checking_disabled }
    }

    fn is(self, key: &Key) -> bool {
        self.name == &*key.name
            && (self.qtype, self.qclass) == (key.qtype, key.qclass)
            && (self.dnssec, self.checking_disabled) == (key.dnssec, key.checking_disabled)
    }
}

/// Cached answer.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) answer: Answer,
    pub(super) since: Instant,
    /// Time to live.
    pub(super) ttl: Duration,
    /// Number of hits, for prefetching.
    pub(super) hits: AtomicU32,
    /// Time of the last hit, in milliseconds since `since`.
    pub(super) last: AtomicU64,
    /// No new attempt after a failure before this time, in milliseconds since `since`.
    pub(super) retry_after: AtomicU64,
}

impl Entry {
    pub(super) fn new(answer: Answer, since: Instant, ttl: Duration) -> Self {
        let zero = || AtomicU64::new(0);
        Self { answer, since, ttl, hits: AtomicU32::new(0), last: zero(), retry_after: zero() }
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.age(now) < self.ttl
    }

    /// Age in seconds.
    pub(super) fn seconds(&self, now: Instant) -> u32 {
        u32::try_from(self.age(now).as_secs()).unwrap_or(u32::MAX)
    }

    pub(super) fn millis(&self, now: Instant) -> u64 {
        u64::try_from(self.age(now).as_millis()).unwrap_or(u64::MAX)
    }
}

/// Sharded cache.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    evictions: AtomicU64,
}

impl Table {
    pub(super) fn new(capacity: usize) -> Self {
        let each = capacity.div_ceil(SHARDS).max(2);
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(each))).collect();
        Self { shards, hasher: RandomState::new(), evictions: AtomicU64::new(0) }
    }

    fn locate(&self, key: KeyRef<'_>) -> (u64, &Mutex<Shard>) {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key.name);
        let bits = u64::from(key.dnssec) | u64::from(key.checking_disabled) << 1;
        hasher.write_u64(u64::from(key.qtype) << 32 | u64::from(key.qclass) << 2 | bits);
        let hash = hasher.finish();
        let shard = usize::try_from(hash >> 58).expect("six bits");
        (hash, &self.shards[shard])
    }

    pub(super) fn get(&self, key: KeyRef<'_>) -> Option<Arc<Entry>> {
        let (hash, shard) = self.locate(key);
        shard.lock().get(hash, key)
    }

    pub(super) fn insert(&self, key: Key, entry: Arc<Entry>) {
        let (hash, shard) = self.locate(key.as_ref());
        let evicted = shard.lock().insert(hash, key, entry);
        self.evictions.fetch_add(evicted, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, key: KeyRef<'_>) {
        let (hash, shard) = self.locate(key);
        shard.lock().remove(hash, key);
    }

    /// Entries, bytes and evictions.
    pub(super) fn usage(&self) -> (usize, usize, u64) {
        let (mut entries, mut bytes) = (0, 0);
        for shard in &self.shards {
            let shard = shard.lock();
            entries += shard.items.len();
            bytes += shard.bytes;
        }
        (entries, bytes, self.evictions.load(Ordering::Relaxed))
    }
}

/// Hasher for keys that are hashes already.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only u64 keys are hashed")
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

#[derive(Debug)]
struct Item {
    key: Key,
    entry: Arc<Entry>,
    weight: usize,
    /// Use count, up to 3 (S3-FIFO).
    counters: u8,
    in_main: bool,
    /// Sequence number that identifies the insertion in the queues.
    turn: u64,
}

#[derive(Debug)]
struct Shard {
    capacity: usize,
    items: HashMap<u64, Item, BuildHasherDefault<IdentityHasher>>,
    small: VecDeque<(u64, u64)>,
    main: VecDeque<(u64, u64)>,
    /// Ghost queue: hashes that the small queue evicted recently; if inserted again they go to the main queue.
    ghosts: VecDeque<u64>,
    is_ghost: HashSet<u64, BuildHasherDefault<IdentityHasher>>,
    bytes: usize,
    turn: u64,
}

impl Shard {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            items: HashMap::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            is_ghost: HashSet::default(),
            bytes: 0,
            turn: 0,
        }
    }

    fn get(&mut self, hash: u64, key: KeyRef<'_>) -> Option<Arc<Entry>> {
        let item = self.items.get_mut(&hash).filter(|item| key.is(&item.key))?;
        item.counters = (item.counters + 1).min(3);
        Some(item.entry.clone())
    }

    fn remove(&mut self, hash: u64, key: KeyRef<'_>) {
        if self.items.get(&hash).is_some_and(|item| key.is(&item.key)) {
            self.forget(hash);
        }
    }

    fn forget(&mut self, hash: u64) {
        if let Some(item) = self.items.remove(&hash) {
            self.bytes -= item.weight;
        }
    }

    fn insert(&mut self, hash: u64, key: Key, entry: Arc<Entry>) -> u64 {
        let weight = entry.answer.weight() + size_of::<Item>() + size_of::<Entry>() + key.name.len();
        if let Some(item) = self.items.get_mut(&hash) {
            // Same question, or a hash collision: the newer entry replaces the older one.
            self.bytes = self.bytes - item.weight + weight;
            (item.key, item.entry, item.weight) = (key, entry, weight);
            return self.make_room();
        }
        let in_main = self.is_ghost.contains(&hash);
        self.turn += 1;
        let queue = if in_main { &mut self.main } else { &mut self.small };
        queue.push_back((hash, self.turn));
        self.items.insert(hash, Item { key, entry, weight, counters: 0, in_main, turn: self.turn });
        self.bytes += weight;
        if self.small.len() + self.main.len() > 2 * self.capacity {
            self.sweep();
        }
        self.make_room()
    }

    /// Removes queue entries of items that were removed.
    fn sweep(&mut self) {
        let Self { items, small, main, .. } = self;
        let items = &*items;
        let there = |in_main: bool| {
            move |(hash, turn): &(u64, u64)| {
                items.get(hash).is_some_and(|item| item.turn == *turn && item.in_main == in_main)
            }
        };
        small.retain(there(false));
        main.retain(there(true));
    }

    fn is_full(&self) -> bool {
        self.items.len() > self.capacity || self.bytes > self.capacity * AVERAGE
    }

    fn make_room(&mut self) -> u64 {
        let before = self.items.len();
        while self.is_full() && !self.items.is_empty() {
            let small_limit = (self.capacity / 10).max(1);
            if self.small.len() > small_limit || self.main.is_empty() {
                self.shrink_small();
            } else {
                self.shrink_main();
            }
        }
        u64::try_from(before - self.items.len()).unwrap_or(0)
    }

    /// Evicts the oldest item of the small queue, or moves it to the main queue if it was used.
    fn shrink_small(&mut self) {
        let Some((hash, turn)) = self.small.pop_front() else { return };
        let Some(item) = self.items.get_mut(&hash).filter(|item| item.turn == turn && !item.in_main) else { return };
        if item.counters > 0 {
            (item.counters, item.in_main) = (0, true);
            self.main.push_back((hash, turn));
            return;
        }
        self.forget(hash);
        if self.is_ghost.insert(hash) {
            self.ghosts.push_back(hash);
        }
        if self.ghosts.len() > self.capacity
            && let Some(oldest) = self.ghosts.pop_front()
        {
            self.is_ghost.remove(&oldest);
        }
    }

    /// Evicts the oldest item of the main queue, or requeues it if it was used.
    fn shrink_main(&mut self) {
        let Some((hash, turn)) = self.main.pop_front() else { return };
        let Some(item) = self.items.get_mut(&hash).filter(|item| item.turn == turn) else { return };
        if item.counters > 0 {
            item.counters -= 1;
            self.main.push_back((hash, turn));
        } else {
            self.forget(hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolver::message::rcode;

    fn key(number: usize) -> Key {
        let name = format!("\x08{number:08}\0").into_bytes().into();
        Key { name, qtype: 1, qclass: 1, dnssec: false, checking_disabled: false }
    }

    fn entry(bytes: usize) -> Arc<Entry> {
        let answer = Answer { body: vec![0; bytes].into(), ..Answer::empty(rcode::NOERROR) };
        Arc::new(Entry::new(answer, Instant::now(), Duration::from_secs(60)))
    }

    #[test]
    fn inserted_answers_are_found() {
        let table = Table::new(1000);
        table.insert(key(1), entry(10));
        assert!(table.get(key(1).as_ref()).is_some());
        assert!(table.get(key(2).as_ref()).is_none());
        let other = Key { dnssec: true, ..key(1) };
        assert!(table.get(other.as_ref()).is_none(), "signatures are another question");
        table.remove(key(1).as_ref());
        assert!(table.get(key(1).as_ref()).is_none());
        assert_eq!(table.usage(), (0, 0, 0));
    }

    #[test]
    fn number_and_bytes_are_bounded() {
        let table = Table::new(640);
        for number in 0..20_000 {
            table.insert(key(number), entry(100));
        }
        let (entries, bytes, evicted) = table.usage();
        assert!(entries <= 640 && evicted as usize == 20_000 - entries, "{entries} {evicted}");
        for number in 0..2_000 {
            table.insert(key(number), entry(60_000));
        }
        let (_, large, _) = table.usage();
        assert!(bytes <= 640 * AVERAGE && large <= 640 * AVERAGE, "{bytes} {large}");
        let queued = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.small.len() + shard.main.len()
        };
        let queued: usize = table.shards.iter().map(queued).sum();
        assert!(queued <= 2 * 640, "queues do not grow without items: {queued}");
    }

    #[test]
    fn inserts_and_removals_do_not_grow_the_queues() {
        let table = Table::new(64);
        for _ in 0..10_000 {
            table.insert(key(1), entry(10));
            table.remove(key(1).as_ref());
        }
        let queued: usize = table.shards.iter().map(|shard| shard.lock().small.len()).sum();
        assert!(queued < 10, "{queued}");
    }

    #[test]
    fn a_scan_does_not_evict_popular_answers() {
        let table = Table::new(1280);
        for round in 0..3 {
            for number in 0..200 {
                if table.get(key(number).as_ref()).is_none() {
                    table.insert(key(number), entry(50));
                }
                assert!(round == 0 || table.get(key(number).as_ref()).is_some());
            }
        }
        for number in 1_000..50_000 {
            table.insert(key(number), entry(50));
            if number % 10 == 0 {
                table.get(key(number / 10 % 200).as_ref());
            }
        }
        let kept = (0..200).filter(|number| table.get(key(*number).as_ref()).is_some()).count();
        assert!(kept >= 190, "only {kept} of 200 names in use survived");
    }
}
