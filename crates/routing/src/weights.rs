//! Selection by weight: in, the weights of backends; out, for each draw the index of one.
//!
//! The sum of the weights is a circle, divided into an arc for each index. Each draw advances by a fixed step that is
//! coprime to the sum and close to its golden section. So any window of as many draws as the (reduced) sum visits
//! every point once, and each index has exactly its share; and within the window the draws of each index are spread
//! evenly. That needs one atomic addition, whatever the weights are, and no schedule in memory.

use std::sync::atomic::{AtomicU64, Ordering};

/// Selects indexes in proportion to weights, from any number of threads.
#[derive(Debug)]
pub struct Rotation {
    /// Where the arc of each index ends.
    ends: Box<[u64]>,
    step: u64,
    draws: AtomicU64,
}

impl Rotation {
    /// A rotation over these weights.
    #[must_use]
    pub fn new(weights: &[u32]) -> Self {
        Self::starting_at(weights, 0)
    }

    /// The same, with this draw as the first: rules that are replaced often, or on many nodes, should not all begin with
    /// the same backend.
    #[must_use]
    pub fn starting_at(weights: &[u32], draw: u64) -> Self {
        let divisor = weights.iter().fold(0, |divisor, weight| gcd(divisor, u64::from(*weight))).max(1);
        let ends: Box<[u64]> = weights
            .iter()
            .scan(0, |end, weight| {
                *end += u64::from(*weight) / divisor;
                Some(*end)
            })
            .collect();
        let sum = ends.last().copied().unwrap_or(0);
        Self { step: step(sum), ends, draws: AtomicU64::new(draw) }
    }

    /// The next index; none if all weights are 0.
    pub fn next(&self) -> Option<usize> {
        let sum = self.ends.last().copied().filter(|sum| *sum > 0)?;
        if self.ends.len() == 1 {
            return Some(0);
        }
        let draw = u128::from(self.draws.fetch_add(1, Ordering::Relaxed));
        let point = u64::try_from(draw * u128::from(self.step) % u128::from(sum)).unwrap_or(0);
        self.at(point)
    }

    /// The index of a point of the circle, always the same; none if all weights are 0. For random points, each index has its
    /// share.
    #[must_use]
    pub fn at(&self, point: u64) -> Option<usize> {
        let sum = self.ends.last().copied().filter(|sum| *sum > 0)?;
        Some(self.ends.partition_point(|end| *end <= point % sum))
    }
}

const fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// The number closest to the golden section of a sum that is coprime to it.
fn step(sum: u64) -> u64 {
    let golden = u64::try_from(u128::from(sum) * 618_033_989 / 1_000_000_000).unwrap_or(1);
    let candidates = (0..sum).flat_map(|distance| [golden.checked_sub(distance), Some(golden + distance)]);
    candidates.flatten().find(|step| *step > 0 && gcd(*step, sum) == 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Rotation, gcd};

    #[test]
    fn nothing_is_selected_without_weights() {
        assert_eq!(Rotation::new(&[]).next(), None);
        assert_eq!(Rotation::new(&[0, 0]).next(), None);
        assert_eq!(Rotation::new(&[0, 1_000_000, 0]).next(), Some(1));
        assert_eq!(Rotation::new(&[7]).next(), Some(0));
    }

    #[test]
    fn each_point_has_its_index() {
        let rotation = Rotation::new(&[10, 0, 30]);
        assert_eq!([0, 1, 2, 3, 4, u64::MAX].map(|point| rotation.at(point)), [0, 2, 2, 2, 0, 2].map(Some));
        assert_eq!(Rotation::new(&[0]).at(7), None);
    }

    #[test]
    fn equal_weights_alternate() {
        let rotation = Rotation::new(&[50, 50]);
        let draws: Vec<_> = (0..6).filter_map(|_| rotation.next()).collect();
        assert!(draws == [0, 1, 0, 1, 0, 1] || draws == [1, 0, 1, 0, 1, 0], "{draws:?}");
    }

    #[test]
    fn threads_share_one_rotation() {
        let rotation = Rotation::new(&[70, 20, 10, 0]);
        let draw = || {
            let mut counts = [0; 4];
            (0..2500).filter_map(|_| rotation.next()).for_each(|index| counts[index] += 1);
            counts
        };
        let counts = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).fold([0; 4], |mut sum, counts| {
                sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
                sum
            })
        });
        assert_eq!(counts, [7000, 2000, 1000, 0]);
    }

    proptest! {
        #[test]
        fn any_window_of_the_reduced_sum_has_exact_shares(
            weights in proptest::collection::vec(0u32..60, 1..8),
            factor in 1u32..1000,
            start in any::<u32>(),
        ) {
            let scaled: Vec<u32> = weights.iter().map(|weight| weight * factor).collect();
            let sum: u32 = weights.iter().sum();
            prop_assume!(sum > 0);
            let divisor = weights.iter().fold(0, |divisor, weight| gcd(divisor, u64::from(*weight)));
            let rotation = Rotation::starting_at(&scaled, start.into());
            let mut counts = vec![0u64; weights.len()];
            for _ in 0..u64::from(sum) / divisor {
                counts[rotation.next().unwrap()] += 1;
            }
            let expected: Vec<u64> = weights.iter().map(|weight| u64::from(*weight) / divisor).collect();
            prop_assert_eq!(counts, expected);
        }

        #[test]
        fn shares_are_close_after_any_number_of_draws(
            weights in proptest::collection::vec(0u32..=1_000_000, 1..16),
            start in any::<u32>(),
        ) {
            let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            prop_assume!(sum > 0);
            let rotation = Rotation::starting_at(&weights, start.into());
            let mut counts = vec![0u64; weights.len()];
            for draws in 1..=500u64 {
                counts[rotation.next().unwrap()] += 1;
                for (count, weight) in counts.iter().zip(&weights) {
                    let exact = draws * u64::from(*weight) / sum;
                    prop_assert!(count.abs_diff(exact) <= 6, "{count} of {draws} for {weight} of {sum}");
                }
            }
        }
    }
}
