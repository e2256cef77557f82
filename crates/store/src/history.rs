//! The recent events of one table, oldest first.
//!
//! Watches read forward from their revision; a range at an older revision undoes later events. An older version of an entry is
//! held only by the event that replaced it and is dropped with it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::{Event, Revision};

/// How long the encoding of an event is cached for other watches; later ones encode it again. Without this limit, every
/// recent object would be in memory twice.
const ENCODED_TTL: Duration = Duration::from_secs(10);

/// How much history is retained.
#[derive(Clone, Debug)]
pub struct Retention {
    /// Events younger than this are retained.
    pub age: Duration,
    /// This many events are retained in each table, however old.
    pub min_events: usize,
    /// At most this many events in all tables, however young (tables with `min_events` or fewer are not trimmed).
    pub max_events: usize,
    /// At most this many bytes of replaced and deleted values, whatever the other limits are.
    pub max_bytes: usize,
}

impl Default for Retention {
    fn default() -> Self {
        Self { age: Duration::from_secs(300), min_events: 1_000, max_events: 100_000, max_bytes: 32 << 20 }
    }
}

struct Retained {
    event: Arc<Event>,
    at: Instant,
}

/// See the module.
pub(crate) struct History {
    events: VecDeque<Retained>,
    /// The newest dropped revision: the oldest one at which the table can be read.
    floor: Revision,
    /// Bytes of values that only history holds.
    bytes: usize,
    /// How many of the oldest events no longer cache their encoding.
    stripped: usize,
}

impl History {
    pub(crate) fn since(floor: Revision) -> Self {
        Self { events: VecDeque::new(), floor, bytes: 0, stripped: 0 }
    }

    pub(crate) fn push(&mut self, event: Arc<Event>, now: Instant) {
        self.bytes += weight(&event);
        self.events.push_back(Retained { event, at: now });
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) const fn floor(&self) -> Revision {
        self.floor
    }

    /// The revision of the newest event, retained or dropped.
    pub(crate) fn newest(&self) -> Revision {
        self.events.back().map_or(self.floor, |kept| kept.event.revision)
    }

    /// The events after a revision, oldest first.
    pub(crate) fn after(&self, revision: Revision) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let start = self.events.partition_point(|kept| kept.event.revision <= revision);
        self.events.range(start..).map(|kept| &kept.event)
    }

    /// Drops what is too old. Dropped events go to `garbage`, to be freed outside the lock.
    pub(crate) fn expire(&mut self, now: Instant, retention: &Retention, garbage: &mut Vec<Arc<Event>>) {
        while self.events.len() > retention.min_events
            && self.events.front().is_some_and(|oldest| now.duration_since(oldest.at) > retention.age)
        {
            self.drop_oldest(garbage);
        }
        while let Some(kept) = self.events.get_mut(self.stripped)
            && now.duration_since(kept.at) > ENCODED_TTL
        {
            if kept.event.encoded.get().is_some() {
                let Event { revision, entry, previous, deleted, .. } = &*kept.event;
                let stripped = Event::new(*revision, Arc::clone(entry), previous.clone(), *deleted);
                garbage.push(std::mem::replace(&mut kept.event, Arc::new(stripped)));
            }
            self.stripped += 1;
        }
    }

    /// Drops all events of the oldest revision: a revision is never dropped in part.
    pub(crate) fn drop_oldest(&mut self, garbage: &mut Vec<Arc<Event>>) {
        let Some(oldest) = self.events.front() else { return };
        self.floor = oldest.event.revision;
        while let Some(kept) = self.events.pop_front_if(|kept| kept.event.revision == self.floor) {
            self.bytes -= weight(&kept.event);
            self.stripped = self.stripped.saturating_sub(1);
            garbage.push(kept.event);
        }
    }
}

/// The bytes that the event holds in memory and the current state does not.
fn weight(event: &Event) -> usize {
    event.previous.as_ref().map_or(0, |previous| previous.value.len())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Entry, Key, Table};

    fn event(revision: Revision) -> Arc<Event> {
        let key = Key::new(Table::named("tests/history"), "a");
        let value = Bytes::from_static(b"value");
        let entry = Entry { key, created: 2, modified: revision, expires: None, value, facts: Arc::default() };
        Arc::new(Event::new(revision, Arc::new(entry.clone()), Some(Arc::new(entry)), false))
    }

    #[test]
    fn a_revision_is_dropped_whole() {
        let mut history = History::since(1);
        let now = Instant::now();
        for revision in [2, 2, 3] {
            history.push(event(revision), now);
        }
        history.drop_oldest(&mut Vec::new());
        assert_eq!((history.len(), history.floor(), history.bytes()), (1, 2, 5));
    }

    #[test]
    fn age_counts_only_beyond_the_minimum() {
        let mut history = History::since(1);
        let now = Instant::now();
        (2..=6).for_each(|revision| history.push(event(revision), now));
        let retention = Retention { age: Duration::from_secs(300), min_events: 2, ..Retention::default() };
        let mut garbage = Vec::new();
        history.expire(now + Duration::from_secs(299), &retention, &mut garbage);
        assert_eq!(history.len(), 5);
        history.expire(now + Duration::from_secs(301), &retention, &mut garbage);
        assert_eq!((history.len(), history.floor()), (2, 4));
    }

    #[test]
    fn the_cached_encoding_expires_before_the_event() {
        let mut history = History::since(1);
        let now = Instant::now();
        let old = event(2);
        assert!(old.encoded.set(Bytes::from_static(b"{}")).is_ok());
        history.push(Arc::clone(&old), now);
        history.expire(now + ENCODED_TTL * 2, &Retention::default(), &mut Vec::new());
        let kept = history.after(1).next().expect("the event is retained");
        assert_eq!(kept.entry, old.entry);
        assert!(kept.encoded.get().is_none() && old.encoded.get().is_some());
    }
}
