//! Consistent hashing by a lookup table (Maglev, Eisenbud et al. 2016). Pure.
//!
//! In: names of endpoints, in any order; a hash of a request. Out: indexes of endpoints in the order in which they are
//! tried, the same on all nodes. Each endpoint has the same share of the table to within one entry. When an endpoint goes,
//! its keys are spread over the others, and less than 1 % of all other keys move. A table takes 128 KiB and about two
//! milliseconds to build, with up to 1000 endpoints; a lookup takes one read.

use api::hash::{mix, mixed64};

/// Number of entries: a prime much larger than the number of endpoints, so that shares are equal and few keys move.
const SIZE: u32 = 65_537;
/// Entries that are tried before all endpoints are.
const MAX_STEPS: usize = 64;
/// No endpoint.
const NONE: u16 = u16::MAX;

/// A lookup table.
pub(crate) struct Maglev(Box<[u16]>);

/// Where an endpoint puts itself next: a position and a step, coprime to the size.
struct Turn {
    index: u16,
    position: u32,
    step: u32,
}

impl Maglev {
    /// The table of these endpoints. At most 65 535 of them get requests.
    pub(crate) fn new(names: impl Iterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut hashed: Vec<(u64, u16)> = names.map(|name| mixed64(name.as_ref())).zip(0..NONE).collect();
        // The order of turns decides about entries that several endpoints want.
        hashed.sort_unstable();
        let mut turns: Vec<Turn> = hashed
            .into_iter()
            .map(|(hash, index)| Turn {
                index,
                position: remainder(hash, SIZE),
                step: 1 + remainder(mix(hash), SIZE - 1),
            })
            .collect();
        let mut table = vec![NONE; SIZE as usize].into_boxed_slice();
        let mut free = if turns.is_empty() { 0 } else { table.len() };
        'full: while free > 0 {
            for turn in &mut turns {
                if free == 0 {
                    break 'full;
                }
                // There is a free entry, and the steps visit all of them.
                while let Some(entry) = table.get_mut(turn.next()) {
                    if *entry == NONE {
                        *entry = turn.index;
                        free -= 1;
                        break;
                    }
                }
            }
        }
        Self(table)
    }

    /// The endpoints for a hash, best first; some occur more than once, and not all occur.
    pub(crate) fn candidates(&self, hash: u64) -> impl Iterator<Item = usize> {
        let start = remainder(mix(hash), SIZE) as usize;
        let entries = (start..start + MAX_STEPS).filter_map(|entry| self.0.get(entry % SIZE as usize));
        entries.filter(|index| **index != NONE).map(|index| usize::from(*index))
    }
}

impl Turn {
    fn next(&mut self) -> usize {
        let here = self.position;
        // Both are less than the size: no overflow.
        self.position = (here + self.step) % SIZE;
        here as usize
    }
}

fn remainder(hash: u64, size: u32) -> u32 {
    u32::try_from(hash % u64::from(size)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("10.{}.{}.{}:8080", number % 3, number / 250, number % 250)).collect()
    }

    fn table(names: &[String]) -> Maglev {
        Maglev::new(names.iter())
    }

    /// The name that each entry leads to.
    fn owners<'a>(names: &'a [String], table: &Maglev) -> Vec<&'a str> {
        table.0.iter().map(|index| &*names[usize::from(*index)]).collect()
    }

    /// The definition of the paper, straight: permutations as lists, endpoints in the order of their hashes.
    fn oracle(names: &[String]) -> Vec<&str> {
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_by_key(|name| mixed64(name.as_bytes()));
        let size = u64::from(SIZE);
        let permutation = |name: &str| {
            let first = mixed64(name.as_bytes());
            let (offset, skip) = (first % size, mix(first) % (size - 1) + 1);
            (0..size).map(move |turn| (offset + turn * skip) % size)
        };
        let mut wishes: Vec<_> = sorted.iter().map(|name| permutation(name)).collect();
        let mut entries = BTreeMap::new();
        loop {
            for (name, wishes) in sorted.iter().zip(&mut wishes) {
                let Some(free) = wishes.find(|entry| !entries.contains_key(entry)) else {
                    return entries.into_values().collect();
                };
                entries.insert(free, &***name);
            }
        }
    }

    #[test]
    fn the_table_is_that_of_the_paper() {
        for count in [1, 2, 7, 50] {
            let names = names(count);
            assert!(owners(&names, &table(&names)) == oracle(&names), "{count}");
        }
    }

    #[test]
    fn keys_without_endpoints_lead_nowhere() {
        assert_eq!(table(&[]).candidates(7).count(), 0);
        assert_eq!(table(&names(1)).candidates(7).next(), Some(0));
    }

    #[test]
    fn few_keys_move_when_one_of_a_hundred_endpoints_goes() {
        let all = names(100);
        let before = table(&all);
        let before = owners(&all, &before);
        for gone in [0, 17, 50, 99] {
            let rest: Vec<String> = all.iter().filter(|name| **name != all[gone]).cloned().collect();
            let after = table(&rest);
            let after = owners(&rest, &after);
            let pairs = || before.iter().zip(&after);
            let own = pairs().filter(|(before, _)| **before == all[gone]).count();
            let moved = pairs().filter(|(before, after)| before != after).count();
            let beyond = (moved - own) * 100;
            assert!(beyond <= 2 * before.len(), "{gone}: {beyond}");
            assert!(own.abs_diff(before.len() / 100) <= 1, "its share is a hundredth: {own}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn any_order_of_endpoints_gives_the_same_choice(count in 1usize..40, seed in any::<u64>()) {
            let names = names(count);
            let mut shuffled = names.clone();
            fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
            let (one, other) = (table(&names), table(&shuffled));
            prop_assert!(owners(&names, &one) == owners(&shuffled, &other));
            for key in 0..100 {
                let named = |names: &[String], table: &Maglev| -> Vec<String> {
                    table.candidates(seed ^ key).map(|index| names[index].clone()).collect()
                };
                prop_assert_eq!(named(&names, &one), named(&shuffled, &other));
            }
        }

        #[test]
        fn shares_are_equal_to_within_one_entry(count in 1usize..200) {
            let names = names(count);
            let table = table(&names);
            let mut shares = vec![0usize; count];
            table.0.iter().for_each(|index| shares[usize::from(*index)] += 1);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            prop_assert!(most - least <= 1);
        }
    }
}
