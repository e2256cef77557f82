//! IPVS schedulers.

use super::{Flags, Settings};

/// An IPVS scheduler.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scheduler {
    /// Round robin.
    Rr,
    /// Weighted round robin.
    Wrr,
    /// Least connections.
    Lc,
    /// Weighted least connections.
    Wlc,
    /// Locality-based least connections: keeps the destination address at its server, unless overloaded.
    Lblc,
    /// The same, with several servers per address.
    Lblcr,
    /// Source hashing.
    Sh,
    /// Destination hashing.
    Dh,
    /// Shortest expected delay.
    Sed,
    /// Never queue: an idle server, else the shortest expected delay.
    Nq,
    /// Maglev hashing: few changes when destinations change.
    Mh,
}

impl Scheduler {
    /// All schedulers.
    pub const ALL: [Self; 11] = [
        Self::Rr,
        Self::Wrr,
        Self::Lc,
        Self::Wlc,
        Self::Lblc,
        Self::Lblcr,
        Self::Sh,
        Self::Dh,
        Self::Sed,
        Self::Nq,
        Self::Mh,
    ];

    /// The scheduler of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheduler| scheduler.name() == name)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rr => "rr",
            Self::Wrr => "wrr",
            Self::Lc => "lc",
            Self::Wlc => "wlc",
            Self::Lblc => "lblc",
            Self::Lblcr => "lblcr",
            Self::Sh => "sh",
            Self::Dh => "dh",
            Self::Sed => "sed",
            Self::Nq => "nq",
            Self::Mh => "mh",
        }
    }

    /// Whether it skips destinations with weight 0. `dh` refuses instead, so its destinations must be deleted at once.
    #[must_use]
    pub const fn can_drain(self) -> bool {
        !matches!(self, Self::Dh)
    }

    /// Settings of a server that uses it. `sh` falls back from destinations with weight 0, and `mh` hashes ports, or it
    /// would send all connections of a client to one destination.
    #[must_use]
    pub fn settings(self, persistence: Option<u32>) -> Settings {
        let flags = Flags { fallback: self == Self::Sh, ports: self == Self::Mh };
        Settings { scheduler: self.name().to_owned(), flags, persistence }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheduler_is_found_by_its_name() {
        for scheduler in Scheduler::ALL {
            assert_eq!(Scheduler::named(scheduler.name()), Some(scheduler));
        }
        assert_eq!(Scheduler::named("random"), None);
        assert_eq!(Scheduler::Mh.settings(None).flags, Flags { fallback: false, ports: true });
    }
}
