//! A table that many read and one writes: readers never wait, and a change costs a small part of it.
//!
//! Items are spread over shards by their hash. A reader loads the shard as it is; the writer copies one shard, changes
//! it and puts it in place of the old one. There are enough shards that a copy is some hundreds of bytes, and a shard
//! that is empty costs one pointer.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use foldhash::fast::RandomState;

/// The table.
pub(crate) struct Shards<T> {
    shards: Box<[ArcSwap<Shard<T>>]>,
    hasher: RandomState,
}

/// A part of it: items ordered by their tags, which are parts of their hashes.
pub(crate) struct Shard<T> {
    tags: Box<[u32]>,
    items: Box<[T]>,
}

/// Where items with a key are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    shard: usize,
    tag: u32,
}

impl<T: Clone> Shards<T> {
    /// Nothing, in this many shards.
    #[must_use]
    pub(crate) fn new(count: usize) -> Self {
        let empty = Arc::new(Shard { tags: Box::default(), items: Box::default() });
        let shards = (0..count.next_power_of_two()).map(|_| ArcSwap::new(empty.clone())).collect();
        Self { shards, hasher: RandomState::default() }
    }

    /// Where items with this key are.
    #[inline]
    #[must_use]
    pub(crate) fn at(&self, key: &[u8]) -> At {
        let hash = self.hasher.hash_one(key);
        let [high, low] = [hash >> 32, hash & 0xffff_ffff].map(|half| u32::try_from(half).expect("half of it"));
        At { shard: high as usize & (self.shards.len() - 1), tag: low }
    }

    /// The items there; the caller compares their keys.
    #[inline]
    #[must_use]
    pub(crate) fn load(&self, at: At) -> Guard<Arc<Shard<T>>> {
        self.shards[at.shard].load()
    }

    /// Takes out what is said to be old and puts something in. Only one may do so at a time.
    pub(crate) fn replace(&self, at: At, is_old: impl Fn(&T) -> bool, new: Option<T>) {
        let shard = self.shards[at.shard].load_full();
        let mut pairs: Vec<(u32, T)> = shard.tags.iter().copied().zip(shard.items.iter().cloned()).collect();
        // One only: the same thing may be there twice, for two reasons.
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

    /// Every item, as it is now.
    pub(crate) fn each(&self, mut see: impl FnMut(&T)) {
        for shard in &self.shards {
            shard.load().items.iter().for_each(&mut see);
        }
    }
}

impl<T> Shard<T> {
    /// The items with this tag.
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
    fn what_is_put_in_is_found_until_it_is_taken_out() {
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
