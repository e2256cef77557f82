//! What a controller is: a name, which changes concern it, and what it wants written.
//!
//! Both functions are pure: they see the world and answer. When to run them, how often, and what to do when a write fails is
//! the runner's business and the same for all.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use store::Store;

use crate::settings::Settings;
use crate::world::{Change, World};
use crate::write::Write;

/// A controller.
#[derive(Debug)]
pub struct Controller {
    /// Its name, as logs and metrics show it.
    pub name: &'static str,
    /// Whether it runs at all.
    pub enabled: fn(&Settings) -> bool,
    /// Names the keys that must be looked at again after a change.
    pub concerns: fn(&View<'_>, &Change, &mut Wakes<'_>),
    /// Says what should be written so that one key is as it should be.
    pub reconcile: fn(&View<'_>, &str) -> Verdict,
    /// How often the key [`WHOLE`] is looked at without a reason, for controllers that look at everything at once.
    pub every: Option<Duration>,
}

/// The key of controllers that look at everything at once.
pub const WHOLE: &str = "";

/// For [`Controller::enabled`]: always.
#[must_use]
pub fn always(_: &Settings) -> bool {
    true
}

/// What a controller may look at.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The cluster.
    pub world: &'a World,
    /// Objects as they are stored now, for what the world does not hold.
    pub store: &'a dyn Store,
    /// The command line.
    pub settings: &'a Settings,
    /// The time of day, to be written into objects.
    pub now: Timestamp,
    /// The time that never jumps, to measure how long something takes.
    pub instant: Instant,
    /// The time of the earliest change that led here, as objects write it, if it is known.
    pub trigger: Option<&'a str>,
}

impl View<'_> {
    /// Now, as objects write it.
    #[must_use]
    pub fn now_text(&self) -> String {
        api::lifecycle::seconds(self.now)
    }
}

/// What a controller wants.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Verdict {
    /// Transactions: each is carried out as a whole or not at all, one after the other.
    pub transactions: Vec<Vec<Write>>,
    /// Events, for people. They never hold anything up.
    pub events: Vec<Write>,
    /// When to look at the key again without another reason.
    pub again: Option<Duration>,
}

impl Verdict {
    /// Nothing to do.
    #[must_use]
    pub fn settled() -> Self {
        Self::default()
    }

    /// One transaction.
    #[must_use]
    pub fn write(writes: Vec<Write>) -> Self {
        Self { transactions: if writes.is_empty() { Vec::new() } else { vec![writes] }, ..Self::default() }
    }
}

/// Collects the keys that a change concerns.
#[derive(Debug)]
pub struct Wakes<'a> {
    keys: &'a mut Vec<Wake>,
}

/// A key that must be looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wake {
    /// The key.
    pub key: Box<str>,
    /// When the change happened, as objects write it, if it is known.
    pub trigger: Option<Box<str>>,
    /// How long to wait before.
    pub delay: Duration,
}

impl<'a> Wakes<'a> {
    /// Keys go to this list.
    #[must_use]
    pub const fn new(keys: &'a mut Vec<Wake>) -> Self {
        Self { keys }
    }

    /// A key must be looked at.
    pub fn add(&mut self, key: &str) {
        self.keys.push(Wake { key: key.into(), trigger: None, delay: Duration::ZERO });
    }

    /// A key must be looked at because of something that happened at a known time.
    pub fn add_triggered(&mut self, key: &str, trigger: Option<&str>) {
        self.keys.push(Wake { key: key.into(), trigger: trigger.map(Box::from), delay: Duration::ZERO });
    }

    /// A key must be looked at after a while.
    pub fn add_after(&mut self, key: &str, delay: Duration) {
        self.keys.push(Wake { key: key.into(), trigger: None, delay });
    }
}
