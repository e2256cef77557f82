//! The schedulers of the kernel, by name, and what each is good for.

use super::{Flags, Settings};

/// Who gets the next connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scheduler {
    /// Each in turn.
    Rr,
    /// Each in turn, as often as its weight says.
    Wrr,
    /// Whoever has the fewest connections.
    Lc,
    /// Whoever has the fewest connections for its weight.
    Wlc,
    /// The one that served this destination address last, unless it has too much to do.
    Lblc,
    /// The same, with several for one address.
    Lblcr,
    /// The one that the address of the client stands for.
    Sh,
    /// The one that the address of the server stands for.
    Dh,
    /// Whoever would be done first.
    Sed,
    /// Somebody who is idle, else whoever would be done first.
    Nq,
    /// The one that the client stands for, with few changes when destinations come and go.
    Mh,
}

impl Scheduler {
    /// All of them.
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

    /// Whether it looks past destinations that take no new connections. `dh` refuses instead, so under it a destination must be
    /// deleted at once.
    #[must_use]
    pub const fn can_drain(self) -> bool {
        !matches!(self, Self::Dh)
    }

    /// The settings of a server that uses it. `sh` is told to look past destinations that take no new connections, and `mh` to
    /// tell the connections of one client apart, as it would else send all of a large client to one place.
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
