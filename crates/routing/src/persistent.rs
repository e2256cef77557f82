//! A hash map whose clones share their contents: the tables of the gateway are published as clones while they change.
//!
//! A trie over the bits of the hash, with 16 children for each branch and small leaves. A clone is one reference. Reading
//! costs about log16(n) steps. A change copies the nodes on the way to its key, and only those that a clone still
//! shares: a few hundred bytes, whatever the size of the map.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, LazyLock};

use foldhash::quality::RandomState;

/// Seeded for each process: the keys are chosen by users.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);

const BITS: u32 = 4;
const CHILDREN: usize = 1 << BITS;
/// Items of a leaf before it is split.
const LEAF: usize = 8;

#[derive(Clone, Debug)]
struct Item<K, V> {
    hash: u64,
    key: K,
    value: V,
}

#[derive(Clone, Debug)]
enum Node<K, V> {
    Leaf(Vec<Item<K, V>>),
    Branch(Box<[Slot<K, V>; CHILDREN]>),
}

type Slot<K, V> = Option<Arc<Node<K, V>>>;

/// A persistent hash map.
#[derive(Debug)]
pub(crate) struct Map<K, V> {
    root: Slot<K, V>,
    len: usize,
}

// Not derived: a clone does not need clones of keys and values.
impl<K, V> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len }
    }
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self { root: None, len: 0 }
    }
}

fn child(hash: u64, shift: u32) -> usize {
    usize::try_from((hash >> shift) & (CHILDREN as u64 - 1)).unwrap_or(0)
}

impl<K: Eq + Hash, V> Map<K, V> {
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let mut node = self.root.as_deref()?;
        let hash = HASHER.hash_one(key);
        let mut shift = 0;
        loop {
            match node {
                Node::Leaf(items) => {
                    return items
                        .iter()
                        .find(|item| item.hash == hash && item.key.borrow() == key)
                        .map(|item| &item.value);
                }
                Node::Branch(children) => node = children[child(hash, shift)].as_deref()?,
            }
            shift += BITS;
        }
    }

    /// All values, in no particular order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        let mut nodes: Vec<&Node<K, V>> = self.root.as_deref().into_iter().collect();
        let mut items: std::slice::Iter<'_, Item<K, V>> = [].iter();
        std::iter::from_fn(move || {
            loop {
                if let Some(item) = items.next() {
                    return Some(&item.value);
                }
                match nodes.pop()? {
                    Node::Leaf(leaf) => items = leaf.iter(),
                    Node::Branch(children) => nodes.extend(children.iter().flatten().map(|node| &**node)),
                }
            }
        })
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Map<K, V> {
    /// The value of a key, after inserting one if there is none.
    pub(crate) fn get_mut_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let hash = HASHER.hash_one(&key);
        let (value, inserted) = reach(&mut self.root, 0, hash, key, make);
        self.len += usize::from(inserted);
        value
    }

    /// Sets the value of a key and returns the one before.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let mut new = Some(value);
        let place = self.get_mut_or_insert_with(key, || new.take().expect("it is called once"));
        new.map(|value| std::mem::replace(place, value))
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        // Nothing is copied for a key that is not there.
        self.get(key)?;
        let removed = take(&mut self.root, 0, HASHER.hash_one(key), key);
        self.len -= usize::from(removed.is_some());
        removed
    }
}

/// The place of a key below a slot, and whether it is new.
fn reach<K: Eq + Clone, V: Clone>(
    slot: &mut Slot<K, V>,
    shift: u32,
    hash: u64,
    key: K,
    make: impl FnOnce() -> V,
) -> (&mut V, bool) {
    let node = Arc::make_mut(slot.get_or_insert_with(|| Arc::new(Node::Leaf(Vec::with_capacity(1)))));
    if let Node::Leaf(items) = node
        && items.len() >= LEAF
        && shift < u64::BITS
        && !items.iter().any(|item| item.hash == hash && item.key == key)
    {
        *node = split(std::mem::take(items), shift);
    }
    match node {
        Node::Leaf(items) => {
            let found = items.iter().position(|item| item.hash == hash && item.key == key);
            let place = found.unwrap_or_else(|| {
                items.push(Item { hash, key, value: make() });
                items.len() - 1
            });
            (&mut items[place].value, found.is_none())
        }
        Node::Branch(children) => reach(&mut children[child(hash, shift)], shift + BITS, hash, key, make),
    }
}

fn split<K, V>(items: Vec<Item<K, V>>, shift: u32) -> Node<K, V> {
    let mut parts: [Vec<Item<K, V>>; CHILDREN] = Default::default();
    for item in items {
        parts[child(item.hash, shift)].push(item);
    }
    Node::Branch(Box::new(parts.map(|part| (!part.is_empty()).then(|| Arc::new(Node::Leaf(part))))))
}

fn take<K, V, Q>(slot: &mut Slot<K, V>, shift: u32, hash: u64, key: &Q) -> Option<V>
where
    K: Borrow<Q> + Clone,
    V: Clone,
    Q: Eq + ?Sized,
{
    let node = Arc::make_mut(slot.as_mut()?);
    let (removed, empty) = match node {
        Node::Leaf(items) => {
            let place = items.iter().position(|item| item.hash == hash && item.key.borrow() == key)?;
            let removed = items.swap_remove(place).value;
            (Some(removed), items.is_empty())
        }
        Node::Branch(children) => {
            let removed = take(&mut children[child(hash, shift)], shift + BITS, hash, key);
            (removed, children.iter().all(Option::is_none))
        }
    };
    if empty {
        *slot = None;
    }
    removed
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::Map;

    proptest! {
        #[test]
        fn it_equals_a_hash_map_and_clones_do_not_change(
            steps in proptest::collection::vec((0u16..300, any::<bool>(), any::<u8>(), 0u8..10), 0..600),
        ) {
            let mut map: Map<u16, u8> = Map::default();
            let mut expected: HashMap<u16, u8> = HashMap::new();
            let mut clones = Vec::new();
            for (key, add, value, clone) in steps {
                if add {
                    prop_assert_eq!(map.insert(key, value), expected.insert(key, value));
                } else {
                    prop_assert_eq!(map.remove(&key), expected.remove(&key));
                }
                prop_assert_eq!(map.len(), expected.len());
                prop_assert_eq!(map.get(&key), expected.get(&key));
                if clone == 0 {
                    clones.push((map.clone(), expected.clone()));
                }
            }
            clones.push((map, expected));
            for (map, expected) in clones {
                let mut values: Vec<u8> = map.values().copied().collect();
                let mut wanted: Vec<u8> = expected.values().copied().collect();
                values.sort_unstable();
                wanted.sort_unstable();
                prop_assert_eq!(values, wanted);
                prop_assert!(expected.iter().all(|(key, value)| map.get(key) == Some(value)));
                prop_assert_eq!(map.is_empty(), expected.is_empty());
            }
        }
    }

    #[test]
    fn an_empty_map_has_no_nodes() {
        let mut map: Map<u32, ()> = Map::default();
        for key in 0..10_000 {
            map.insert(key, ());
        }
        for key in 0..10_000 {
            assert_eq!(map.remove(&key), Some(()));
        }
        assert!(map.root.is_none());
    }
}
