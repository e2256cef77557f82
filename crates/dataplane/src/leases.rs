//! Follows the Leases that name the leaders of Services.
//!
//! In: the Leases that are needed, watched one by one, and a monotonic clock. Out: [`Update::Leader`] whenever the holder of one
//! changes, and once for each that nobody holds.
//!
//! A Lease is held for its duration after a renewal was observed here, whatever the clocks of nodes and holders say: a holder
//! that cannot renew must have stopped by then. A Lease that is released or deleted has no holder at once. While the API server cannot be
//! reached no renewal is observed, so leaders expire; so do those that cannot reach it either.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use api::kinds::lease;
use api::view::Lease;
use client::watch::{Event, Selection, Source, Watch};
use plan::Update;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::sync::Message;

/// The duration of Leases that have none.
const DEFAULT_DURATION: Duration = Duration::from_secs(15);
/// The longest duration: a day.
const MAX_DURATION: Duration = Duration::from_secs(86_400);
/// How long the first list of a Lease may take, until it counts as held by nobody: the first rules wait for it.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Follows the needed Leases.
pub(crate) async fn follow(
    source: Arc<dyn Source>,
    mut needed: watch::Receiver<BTreeSet<Arc<str>>>,
    out: Sender<Message>,
) {
    let (mut tasks, mut followed): (JoinSet<()>, BTreeMap<Arc<str>, AbortHandle>) = Default::default();
    loop {
        let leases = needed.borrow_and_update().clone();
        followed.retain(|lease, task| {
            let stays = leases.contains(lease);
            if !stays {
                task.abort();
            }
            stays
        });
        for lease in leases {
            if !followed.contains_key(&lease)
                && let Some(selection) = select(&lease)
            {
                let task = tasks.spawn(follow_one(source.watch(selection), Arc::clone(&lease), out.clone()));
                followed.insert(lease, task);
            }
        }
        if needed.changed().await.is_err() {
            return;
        }
        while tasks.try_join_next().is_some() {}
    }
}

/// The selection of one Lease; none for an invalid name.
fn select(lease: &str) -> Option<Selection> {
    let (namespace, name) = lease.split_once('/')?;
    Selection::all(&lease::KIND).within(namespace).optional().named(name).ok()
}

/// Follows a Lease until nobody listens.
async fn follow_one(mut watch: Watch, lease: Arc<str>, out: Sender<Message>) {
    let mut observed = Observed { expires: Instant::now() + FIRST_LIST_TIMEOUT, ..Observed::default() };
    let mut reported = None;
    loop {
        tokio::select! {
            event = watch.next() => observed.apply(&event, Instant::now()),
            () = tokio::time::sleep_until(observed.expires), if !observed.is_expired => observed.is_expired = true,
        }
        if !observed.is_known() {
            continue;
        }
        let holder = observed.holder();
        if reported.as_ref() != Some(&holder) {
            let update = Update::Leader(Arc::clone(&lease), holder.clone());
            if out.send(Message::Update(Box::new(update))).is_err() {
                return;
            }
            reported = Some(holder);
        }
    }
}

/// What is known of a Lease.
#[derive(Debug)]
struct Observed {
    /// The holder and the time of its last renewal, by its clock; none without a Lease.
    record: Option<(Box<str>, Option<Box<str>>)>,
    /// When the holder loses it, or the wait for the first list ends.
    expires: Instant,
    is_expired: bool,
    /// Whether a list was complete.
    is_listed: bool,
    /// Whether the current list has it.
    is_in_list: bool,
}

impl Default for Observed {
    fn default() -> Self {
        Self { record: None, expires: Instant::now(), is_expired: false, is_listed: false, is_in_list: false }
    }
}

impl Observed {
    fn apply(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Init => self.is_in_list = false,
            Event::InitApply(object) | Event::Apply(object) => {
                self.is_in_list = true;
                match api::view::parse::<Lease>(&object.value) {
                    Ok(lease) => self.renew(lease, now),
                    Err(error) => {
                        tracing::warn!(lease = object.key(), %error, "cannot parse Lease; ignoring this version")
                    }
                }
            }
            Event::InitDone => {
                self.is_listed = true;
                if !self.is_in_list {
                    self.record = None;
                }
            }
            Event::Delete(_) => (self.record, self.is_in_list) = (None, false),
        }
    }

    /// Records a version of the Lease. Only another holder or another time is a renewal.
    fn renew(&mut self, lease: Lease, now: Instant) {
        let seconds = lease.spec.lease_duration_seconds.map(|seconds| u64::try_from(seconds).unwrap_or_default());
        let duration = seconds.map_or(DEFAULT_DURATION, |seconds| Duration::from_secs(seconds).min(MAX_DURATION));
        let record = Some((lease.spec.holder_identity, lease.spec.renew_time));
        if self.record != record {
            (self.record, self.expires, self.is_expired) = (record, now + duration, false);
        }
    }

    /// Whether it is known if anybody holds it.
    const fn is_known(&self) -> bool {
        self.is_listed || self.is_expired
    }

    /// Its holder now.
    fn holder(&self) -> Option<Box<str>> {
        let (holder, _) = self.record.as_ref().filter(|_| !self.is_expired)?;
        Some(holder.clone()).filter(|holder| !holder.is_empty())
    }
}

#[cfg(test)]
mod tests;
