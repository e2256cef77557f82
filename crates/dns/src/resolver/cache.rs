//! Answers that were given before, bounded in number and bytes.
//!
//! In: answers with the time they hold. Out: the same, with their age, as long as they hold, and for a while after that when
//! nobody knows better. Each shard is a S3-FIFO: a small queue that new answers must survive by being asked for again, and a
//! main one. A flood of names that are asked for once passes through the small queue and leaves the main one alone.

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
/// Bytes an answer may take on average; many large ones make room sooner.
const AVERAGE: usize = 1024;

/// What an answer is an answer to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    /// Lower-cased, wire form.
    pub(super) name: Box<[u8]>,
    pub(super) qtype: u16,
    pub(super) qclass: u16,
    pub(super) dnssec: bool,
    pub(super) checking_disabled: bool,
}

/// The same, borrowed.
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

/// A remembered answer.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) answer: Answer,
    pub(super) since: Instant,
    /// How long it holds.
    pub(super) holds: Duration,
    /// How often it was given.
    pub(super) hits: AtomicU32,
    /// When it was last given, in milliseconds since `since`.
    pub(super) last: AtomicU64,
    /// Until when nobody is asked again after a failure, in milliseconds since `since`.
    pub(super) quiet_until: AtomicU64,
}

impl Entry {
    pub(super) fn new(answer: Answer, since: Instant, holds: Duration) -> Self {
        let zero = || AtomicU64::new(0);
        Self { answer, since, holds, hits: AtomicU32::new(0), last: zero(), quiet_until: zero() }
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.age(now) < self.holds
    }

    /// Whole seconds since it came.
    pub(super) fn seconds(&self, now: Instant) -> u32 {
        u32::try_from(self.age(now).as_secs()).unwrap_or(u32::MAX)
    }

    pub(super) fn millis(&self, now: Instant) -> u64 {
        u64::try_from(self.age(now).as_millis()).unwrap_or(u64::MAX)
    }
}

/// A table of answers.
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

    /// Answers, bytes, and how many had to go.
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

/// Hashes are already mixed.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only whole numbers are hashed")
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
    /// How often it was asked for, up to 3.
    uses: u8,
    in_main: bool,
    /// Which of several insertions under this hash the queues mean.
    turn: u64,
}

#[derive(Debug)]
struct Shard {
    capacity: usize,
    items: HashMap<u64, Item, BuildHasherDefault<AsItIs>>,
    small: VecDeque<(u64, u64)>,
    main: VecDeque<(u64, u64)>,
    /// Hashes that the small queue dropped lately; whoever comes back goes to the main one.
    ghosts: VecDeque<u64>,
    is_ghost: HashSet<u64, BuildHasherDefault<AsItIs>>,
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
        item.uses = (item.uses + 1).min(3);
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
            // The same question, or one that shares its hash: the newer stays, in the place of the older.
            self.bytes = self.bytes - item.weight + weight;
            (item.key, item.entry, item.weight) = (key, entry, weight);
            return self.make_room();
        }
        let in_main = self.is_ghost.contains(&hash);
        self.turn += 1;
        let queue = if in_main { &mut self.main } else { &mut self.small };
        queue.push_back((hash, self.turn));
        self.items.insert(hash, Item { key, entry, weight, uses: 0, in_main, turn: self.turn });
        self.bytes += weight;
        if self.small.len() + self.main.len() > 2 * self.capacity {
            self.sweep();
        }
        self.make_room()
    }

    /// Takes out of the queues what is no longer there; removals leave that behind.
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

    /// Takes the oldest of the small queue: to the main one when it was asked for, out otherwise.
    fn shrink_small(&mut self) {
        let Some((hash, turn)) = self.small.pop_front() else { return };
        let Some(item) = self.items.get_mut(&hash).filter(|item| item.turn == turn && !item.in_main) else { return };
        if item.uses > 0 {
            (item.uses, item.in_main) = (0, true);
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

    /// Takes the oldest of the main queue: back to its end when it was asked for, out otherwise.
    fn shrink_main(&mut self) {
        let Some((hash, turn)) = self.main.pop_front() else { return };
        let Some(item) = self.items.get_mut(&hash).filter(|item| item.turn == turn) else { return };
        if item.uses > 0 {
            item.uses -= 1;
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
    fn what_was_put_in_comes_out() {
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
    fn coming_and_going_leaves_nothing_behind() {
        let table = Table::new(64);
        for _ in 0..10_000 {
            table.insert(key(1), entry(10));
            table.remove(key(1).as_ref());
        }
        let queued: usize = table.shards.iter().map(|shard| shard.lock().small.len()).sum();
        assert!(queued < 10, "{queued}");
    }

    #[test]
    fn a_flood_leaves_what_is_used() {
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
