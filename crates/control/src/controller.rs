//! The interface of a controller: a name, a mapping from changes to keys, and a reconcile function.
//!
//! Both functions are pure. The runner decides when to call them and how to retry failed writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use store::Store;

use crate::cache::{Cache, Change};
use crate::certificate_orders::Wanted;
use crate::settings::Settings;
use crate::write::Write;

/// A controller.
#[derive(Debug)]
pub struct Controller {
    /// The name in logs and metrics.
    pub name: &'static str,
    /// Whether it runs with these settings.
    pub enabled: fn(&Settings) -> bool,
    /// Adds the keys to reconcile after a change.
    pub affected_keys: fn(&View<'_>, &Change, &mut AffectedKeys<'_>),
    /// Reconciles one key.
    pub reconcile: fn(&View<'_>, &str) -> Outcome,
    /// How often [`SINGLETON_KEY`] is reconciled without a change.
    pub resync_period: Option<Duration>,
}

/// The key of controllers that reconcile everything at once.
pub const SINGLETON_KEY: &str = "";

/// For [`Controller::enabled`]: always enabled.
#[must_use]
pub fn always(_: &Settings) -> bool {
    true
}

/// The input of a controller.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The cached cluster state.
    pub cache: &'a Cache,
    /// The store, for objects that are not cached.
    pub store: &'a dyn Store,
    /// The settings.
    pub settings: &'a Settings,
    /// The wall-clock time, for timestamps in objects.
    pub now: Timestamp,
    /// The monotonic time, for durations.
    pub instant: Instant,
    /// The timestamp of the earliest change that led to this reconcile, if known.
    pub trigger: Option<&'a str>,
}

impl View<'_> {
    /// The current time as a metav1.Time.
    #[must_use]
    pub fn now_text(&self) -> String {
        api::lifecycle::seconds(self.now)
    }
}

/// The result of a reconcile.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Transactions, committed one after the other; each is atomic.
    pub transactions: Vec<Vec<Write>>,
    /// Kubernetes Events; failures to write them are ignored.
    pub events: Vec<Write>,
    /// When to reconcile the key again without a change.
    pub requeue_after: Option<Duration>,
    /// All certificates that objects request from the ACME server, if the controller determines them.
    pub certificates: Option<Arc<[Wanted]>>,
}

impl Outcome {
    /// Nothing to write.
    #[must_use]
    pub fn done() -> Self {
        Self::default()
    }

    /// One transaction.
    #[must_use]
    pub fn write(writes: Vec<Write>) -> Self {
        Self { transactions: if writes.is_empty() { Vec::new() } else { vec![writes] }, ..Self::default() }
    }
}

/// Collects the keys that a change affects.
#[derive(Debug)]
pub struct AffectedKeys<'a> {
    keys: &'a mut Vec<QueuedKey>,
}

/// A key to reconcile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuedKey {
    /// The key.
    pub key: Box<str>,
    /// The timestamp of the change, if known.
    pub trigger: Option<Box<str>>,
    /// The delay before the reconcile.
    pub delay: Duration,
}

impl<'a> AffectedKeys<'a> {
    /// Collects keys in this list.
    #[must_use]
    pub const fn new(keys: &'a mut Vec<QueuedKey>) -> Self {
        Self { keys }
    }

    /// Adds a key.
    pub fn add(&mut self, key: &str) {
        self.keys.push(QueuedKey { key: key.into(), trigger: None, delay: Duration::ZERO });
    }

    /// Adds a key with the timestamp of the change.
    pub fn add_triggered(&mut self, key: &str, trigger: Option<&str>) {
        self.keys.push(QueuedKey { key: key.into(), trigger: trigger.map(Box::from), delay: Duration::ZERO });
    }

    /// Adds a key with a delay.
    pub fn add_after(&mut self, key: &str, delay: Duration) {
        self.keys.push(QueuedKey { key: key.into(), trigger: None, delay });
    }
}
