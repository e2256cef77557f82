//! Priority levels: how many seats each has, how many of them it lends, and how its requests queue.
//!
//! In: the number of requests that may be executed at once. Out: the [`Limits`] of every level. A seat is the right to execute one request of
//! width 1. Shares, lendable parts and queues are those of the default PriorityLevelConfigurations of Kubernetes.

/// The largest width of a request.
pub(crate) const MAX_WIDTH: u64 = 10;
/// The part of a level's nominal seats that one request may occupy, in percent.
const WIDEST_PERCENT: u64 = 15;

/// A priority level whose requests are limited, in the order in which levels with the same claim to a seat get it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Level {
    LeaderElection,
    NodeHigh,
    System,
    WorkloadHigh,
    WorkloadLow,
    GlobalDefault,
    CatchAll,
}

/// How requests of a level wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Queuing {
    pub(crate) queues: usize,
    /// How many of the queues one flow may use.
    pub(crate) hand_size: usize,
    /// How many requests may wait in one queue.
    pub(crate) length_limit: usize,
}

/// The configuration of a level.
struct Spec {
    name: &'static str,
    /// Its part of all seats, relative to the shares of the other levels.
    shares: u64,
    /// The part of its nominal seats that other levels may use while it does not, in percent.
    lendable_percent: u64,
    /// None: requests over the limit are rejected at once.
    queuing: Option<Queuing>,
}

/// The seats and queues of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Seats by its shares, rounded up.
    pub(crate) nominal: u64,
    /// Nominal seats that it does not lend, and at least one: free for this level whatever others do.
    pub(crate) guaranteed: u64,
    /// Seats that it may use when others lend theirs. Kubernetes' default levels may borrow as many as there are.
    pub(crate) most: u64,
    /// The largest width of one request.
    pub(crate) widest: u64,
    pub(crate) queuing: Option<Queuing>,
}

impl Level {
    pub(crate) const ALL: [Self; 7] = [
        Self::LeaderElection,
        Self::NodeHigh,
        Self::System,
        Self::WorkloadHigh,
        Self::WorkloadLow,
        Self::GlobalDefault,
        Self::CatchAll,
    ];

    pub(crate) const fn name(self) -> &'static str {
        self.spec().name
    }

    const fn spec(self) -> Spec {
        const fn queued(
            name: &'static str,
            shares: u64,
            lendable_percent: u64,
            queues: usize,
            hand_size: usize,
        ) -> Spec {
            Spec { name, shares, lendable_percent, queuing: Some(Queuing { queues, hand_size, length_limit: 50 }) }
        }
        match self {
            Self::LeaderElection => queued("leader-election", 10, 0, 16, 4),
            Self::NodeHigh => queued("node-high", 40, 25, 64, 6),
            Self::System => queued("system", 30, 33, 64, 6),
            Self::WorkloadHigh => queued("workload-high", 40, 50, 128, 6),
            Self::WorkloadLow => queued("workload-low", 100, 90, 128, 6),
            Self::GlobalDefault => queued("global-default", 20, 50, 128, 6),
            Self::CatchAll => Spec { name: "catch-all", shares: 5, lendable_percent: 0, queuing: None },
        }
    }

    /// The limits of this level when all levels together have `total` seats.
    pub(crate) fn limits(self, total: u64) -> Limits {
        let spec = self.spec();
        let all_shares: u64 = Self::ALL.iter().map(|level| level.spec().shares).sum();
        let nominal = (total * spec.shares).div_ceil(all_shares).max(1);
        let lendable = (nominal * spec.lendable_percent + 50) / 100;
        let hand_size = spec.queuing.map_or(1, |queuing| queuing.hand_size as u64);
        Limits {
            nominal,
            guaranteed: (nominal - lendable).max(1),
            most: nominal + total,
            widest: (nominal * WIDEST_PERCENT).div_ceil(100).min(nominal / hand_size).clamp(1, MAX_WIDTH),
            queuing: spec.queuing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_follow_the_shares_of_kubernetes() {
        let seats = |total| Level::ALL.map(|level| (level.limits(total).nominal, level.limits(total).guaranteed));
        // What kube-apiserver reports as nominal_limit_seats and lower_limit_seats for its default of 600.
        assert_eq!(seats(600), [(25, 25), (98, 73), (74, 50), (98, 49), (245, 24), (49, 24), (13, 13)]);
        assert_eq!(seats(1), [(1, 1); 7], "no level is without a seat");
    }

    #[test]
    fn one_request_occupies_a_small_part_of_a_level() {
        let widest = |total| Level::ALL.map(|level| level.limits(total).widest);
        assert_eq!(widest(600), [4, 10, 10, 10, 10, 8, 2]);
        assert_eq!(widest(1), [1; 7]);
        for level in Level::ALL {
            let limits = level.limits(400);
            assert!(limits.widest <= limits.guaranteed, "{level:?}");
        }
    }
}
