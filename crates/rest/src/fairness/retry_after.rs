//! When a rejected client should retry: the longer a level has been rejecting requests, the later.
//!
//! In: rejections of one priority level, with their times. Out: seconds for `Retry-After`. By the rules of Kubernetes: in the first rejection of a
//! second, the value is doubled (to 32 at most) if there were at least three rejections for each of its seconds within as many seconds
//! before, and so long has passed since it was last doubled; it is decreased by one if there was less than one for each of its seconds.

use std::collections::VecDeque;

/// The largest value.
const MAX: u32 = 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct RetryAfter {
    seconds: u32,
    /// When it was last doubled.
    doubled: Option<u64>,
    /// Seconds with rejections, and their number; those that no longer count are removed.
    history: VecDeque<(u64, u64)>,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self { seconds: 1, doubled: None, history: VecDeque::new() }
    }
}

impl RetryAfter {
    /// A request is rejected in this second, counted from an arbitrary start; returns the value of its `Retry-After`.
    pub(crate) fn rejected(&mut self, now: u64) -> u32 {
        match self.history.back_mut() {
            Some((second, count)) if *second >= now => *count += 1,
            _ => {
                self.update(now);
                self.history.push_back((now, 1));
            }
        }
        self.seconds
    }

    /// Adapts the value to the seconds before this one.
    fn update(&mut self, now: u64) {
        self.history.retain(|(second, _)| now - second <= u64::from(MAX));
        let seconds = u64::from(self.seconds);
        let recent = self.history.iter().filter(|(second, _)| now - second <= seconds);
        let rejected: u64 = recent.map(|(_, count)| count).sum();
        let may_double = self.doubled.is_none_or(|last| now - last >= seconds);
        if may_double && rejected >= 3 * seconds {
            self.seconds = (2 * self.seconds).min(MAX);
            self.doubled = Some(now);
        } else if rejected < seconds && self.seconds > 1 {
            self.seconds -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value after so many rejections in each of these seconds.
    fn values(retry: &mut RetryAfter, counts: impl IntoIterator<Item = (u64, u64)>) -> Vec<u32> {
        let second = |(now, count)| (0..count).map(|_| retry.rejected(now)).last().unwrap_or_default();
        counts.into_iter().map(second).collect()
    }

    #[test]
    fn it_doubles_while_a_level_is_overloaded() {
        let mut retry = RetryAfter::default();
        let many = values(&mut retry, (0..70).map(|now| (now, 200)));
        assert_eq!(many[..8], [1, 2, 2, 4, 4, 4, 4, 8], "after as many seconds as the value");
        assert_eq!((many[15], many[31], many[69]), (16, 32, 32));
    }

    #[test]
    fn a_few_rejections_change_nothing() {
        assert_eq!(values(&mut RetryAfter::default(), (0..10).map(|now| (now, 2))), [1; 10]);
    }

    #[test]
    fn it_decreases_by_one_with_each_second_of_few_rejections() {
        let mut retry = RetryAfter::default();
        let _ = values(&mut retry, (0..8).map(|now| (now, 200)));
        assert_eq!(values(&mut retry, (10..22).step_by(2).map(|now| (20 * now, 1))), [7, 6, 5, 4, 3, 2]);
        assert_eq!(values(&mut retry, [(1000, 1), (2000, 1), (3000, 1)]), [1, 1, 1]);
    }
}
