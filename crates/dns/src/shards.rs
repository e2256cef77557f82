//! Sharded hash table for many readers and one writer.
//!
//! Readers load a shard without waiting. The writer copies one shard, changes the copy and swaps it in. There are
//! enough shards that a copy is a few hundred bytes; an empty shard costs one pointer.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use foldhash::fast::RandomState;

/// Sharded hash table.
pub(crate) struct Shards<T> {
    shards: Box<[ArcSwap<Shard<T>>]>,
    hasher: RandomState,
}

/// Shard: items sorted by tag, a part of their hash.
pub(crate) struct Shard<T> {
    tags: Box<[u32]>,
    items: Box<[T]>,
}

/// Position of a key: shard and tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    shard: usize,
    tag: u32,
}

impl<T: Clone> Shards<T> {
    /// Creates an empty table; `count` is rounded up to a power of two.
    #[must_use]
    pub(crate) fn new(count: usize) -> Self {
        let empty = Arc::new(Shard { tags: Box::default(), items: Box::default() });
        let shards = (0..count.next_power_of_two()).map(|_| ArcSwap::new(empty.clone())).collect();
        Self { shards, hasher: RandomState::default() }
    }

    /// Position of a key.
    #[inline]
    #[must_use]
    pub(crate) fn at(&self, key: &[u8]) -> At {
        let hash = self.hasher.hash_one(key);
        let [high, low] = [hash >> 32, hash & 0xffff_ffff].map(|half| u32::try_from(half).expect("half of it"));
        At { shard: high as usize & (self.shards.len() - 1), tag: low }
    }

    /// Loads the shard at a position; the caller compares keys.
    #[inline]
    #[must_use]
    pub(crate) fn load(&self, at: At) -> Guard<Arc<Shard<T>>> {
        self.shards[at.shard].load()
    }

    /// Removes the first item for which `is_old` is true and inserts `new`. Callers must be serialised.
    pub(crate) fn replace(&self, at: At, is_old: impl Fn(&T) -> bool, new: Option<T>) {
        let shard = self.shards[at.shard].load_full();
        let mut pairs: Vec<(u32, T)> = shard.tags.iter().copied().zip(shard.items.iter().cloned()).collect();
        // Only the first: equal items may be present more than once.
        if let Some(old) = pairs.iter().position(|(tag, item)| *tag == at.tag && is_old(item)) {
            pairs.remove(old);
        }
        if let Some(item) = new {
            let place = pairs.partition_point(|(tag, _)| *tag < at.tag);
            pairs.insert(place, (at.tag, item));
        }
        let (tags, items): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        self.shards[at.shard].store(Arc::new(Shard { tags: tags.into(), items: items.into() }));
    }

    /// Calls `see` with every item.
    pub(crate) fn each(&self, mut see: impl FnMut(&T)) {
        for shard in &self.shards {
            shard.load().items.iter().for_each(&mut see);
        }
    }
}

impl<T> Shard<T> {
    /// Items with the tag of a position.
    #[inline]
    pub(crate) fn find(&self, at: At) -> impl Iterator<Item = &T> {
        let from = self.tags.partition_point(|tag| *tag < at.tag);
        let same = self.tags[from..].iter().take_while(move |tag| **tag == at.tag);
        same.zip(&self.items[from..]).map(|(_, item)| item)
    }
}

impl<T> std::fmt::Debug for Shards<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} shards", self.shards.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_until_removed() {
        let table: Shards<(Vec<u8>, u32)> = Shards::new(4);
        let key = |number: u32| format!("key {number}").into_bytes();
        for number in 0..500 {
            table.replace(table.at(&key(number)), |_| false, Some((key(number), number)));
        }
        for number in (0..500).step_by(2) {
            table.replace(table.at(&key(number)), |item| item.1 == number, None);
        }
        for number in 0..500 {
            let at = table.at(&key(number));
            let found: Vec<u32> =
                table.load(at).find(at).filter(|item| item.0 == key(number)).map(|item| item.1).collect();
            assert_eq!(found, if number % 2 == 0 { vec![] } else { vec![number] });
        }
        let mut count = 0;
        table.each(|_| count += 1);
        assert_eq!(count, 250);
    }
}
