//! Shuffle sharding: which queues of a level a flow may use.
//!
//! In: a hash of the flow. Out: a hand of distinct queues, every hand as probable as any other. A flow that fills its own queues leaves almost
//! every other flow at least one queue that it does not share: of 128 queues with hands of 6, two flows have the same hand once in five
//! thousand million times.

/// The largest hand.
const MAX_HAND: usize = 8;
/// Marks a place without a queue; greater than the number of any queue.
const NONE: usize = usize::MAX;

/// Distinct queues in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hand([usize; MAX_HAND]);

impl Hand {
    /// Deals `size` of the queues `0..queues`, at most eight. Uses log2(queues) × size bits of the hash.
    pub(crate) fn deal(flow: u64, queues: usize, size: usize) -> Self {
        let (mut hand, mut entropy) = ([NONE; MAX_HAND], flow);
        for dealt in 0..size.min(queues).min(MAX_HAND) {
            let left = (queues - dealt) as u64;
            // The place among the queues that are not dealt yet.
            let mut queue = usize::try_from(entropy % left).unwrap_or_default();
            entropy /= left;
            for taken in &mut hand {
                if queue < *taken {
                    // Insert it here, and move the rest by one place.
                    std::mem::swap(taken, &mut queue);
                } else if queue != NONE {
                    queue += 1;
                }
            }
        }
        Self(hand)
    }

    /// The queues.
    pub(crate) fn queues(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied().take_while(|queue| *queue != NONE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dealt(flow: u64, queues: usize, size: usize) -> Vec<usize> {
        Hand::deal(flow, queues, size).queues().collect()
    }

    #[test]
    fn every_hand_is_dealt_equally_often() {
        let mut times = std::collections::BTreeMap::new();
        for flow in 0..6 * 5 * 4 {
            *times.entry(dealt(flow, 6, 3)).or_insert(0) += 1;
        }
        assert_eq!(times.len(), 20, "the number of ways to choose 3 of 6");
        assert!(times.values().all(|count| *count == 6), "{times:?}");
    }

    proptest! {
        #[test]
        fn a_hand_has_distinct_queues(flow: u64, queues in 0usize..200, size in 0usize..12) {
            let hand = dealt(flow, queues, size);
            prop_assert_eq!(hand.len(), size.min(queues).min(MAX_HAND));
            prop_assert!(hand.is_sorted_by(|a, b| a < b), "{:?}", hand);
            prop_assert!(hand.iter().all(|queue| *queue < queues));
        }
    }
}
