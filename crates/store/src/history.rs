//! The recent events of one table, oldest first.
//!
//! Events flow in when they are published; watchers read forward from where they were, and a range at an older
//! revision reads backward and undoes. So an older version of an entry is kept by nothing but the event that replaced
//! it: when the event is forgotten, the version goes with it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::{Event, Revision};

/// How long an encoded event is kept for watchers that have not read it yet; later ones encode it again. Without
/// this limit, a busy server would hold every recent object twice.
const LINE_LIFE: Duration = Duration::from_secs(10);

/// How much history is kept.
#[derive(Clone, Debug)]
pub struct Keep {
    /// Events younger than this are kept.
    pub age: Duration,
    /// So many events are kept in each table, however old.
    pub min_events: usize,
    /// Never more events than this in all tables, however young (tables with `min_events` or fewer are left alone).
    pub max_events: usize,
    /// Never more bytes of replaced and deleted values than this, whatever the other limits say.
    pub max_bytes: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self { age: Duration::from_secs(300), min_events: 1_000, max_events: 100_000, max_bytes: 32 << 20 }
    }
}

struct Kept {
    event: Arc<Event>,
    at: Instant,
}

/// See the module.
pub(crate) struct History {
    kept: VecDeque<Kept>,
    /// The newest forgotten revision: the state at it is known, the state before it is not.
    floor: Revision,
    /// Bytes of values that only history keeps.
    bytes: usize,
    /// How many of the oldest events have already given up their encoded line.
    bare: usize,
}

impl History {
    pub(crate) fn since(floor: Revision) -> Self {
        Self { kept: VecDeque::new(), floor, bytes: 0, bare: 0 }
    }

    pub(crate) fn push(&mut self, event: Arc<Event>, now: Instant) {
        self.bytes += weight(&event);
        self.kept.push_back(Kept { event, at: now });
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) const fn floor(&self) -> Revision {
        self.floor
    }

    /// The revision of the newest event, kept or forgotten.
    pub(crate) fn newest(&self) -> Revision {
        self.kept.back().map_or(self.floor, |kept| kept.event.revision)
    }

    /// The events after a revision, oldest first.
    pub(crate) fn after(&self, revision: Revision) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let start = self.kept.partition_point(|kept| kept.event.revision <= revision);
        self.kept.range(start..).map(|kept| &kept.event)
    }

    /// Forgets what is too old. What is dropped goes to `garbage`, to be freed when no lock is held.
    pub(crate) fn expire(&mut self, now: Instant, keep: &Keep, garbage: &mut Vec<Arc<Event>>) {
        while self.kept.len() > keep.min_events
            && self.kept.front().is_some_and(|oldest| now.duration_since(oldest.at) > keep.age)
        {
            self.forget_oldest(garbage);
        }
        while let Some(kept) = self.kept.get_mut(self.bare)
            && now.duration_since(kept.at) > LINE_LIFE
        {
            if kept.event.line.get().is_some() {
                let Event { revision, entry, previous, deleted, .. } = &*kept.event;
                let bare = Event::new(*revision, Arc::clone(entry), previous.clone(), *deleted);
                garbage.push(std::mem::replace(&mut kept.event, Arc::new(bare)));
            }
            self.bare += 1;
        }
    }

    /// Forgets the oldest revision, which may be several events: half a revision is never kept.
    pub(crate) fn forget_oldest(&mut self, garbage: &mut Vec<Arc<Event>>) {
        let Some(oldest) = self.kept.front() else { return };
        self.floor = oldest.event.revision;
        while let Some(kept) = self.kept.pop_front_if(|kept| kept.event.revision == self.floor) {
            self.bytes -= weight(&kept.event);
            self.bare = self.bare.saturating_sub(1);
            garbage.push(kept.event);
        }
    }
}

/// What the event keeps in memory that the present state does not.
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
    fn a_revision_is_forgotten_whole() {
        let mut history = History::since(1);
        let now = Instant::now();
        for revision in [2, 2, 3] {
            history.push(event(revision), now);
        }
        history.forget_oldest(&mut Vec::new());
        assert_eq!((history.len(), history.floor(), history.bytes()), (1, 2, 5));
    }

    #[test]
    fn age_counts_only_beyond_the_minimum() {
        let mut history = History::since(1);
        let now = Instant::now();
        (2..=6).for_each(|revision| history.push(event(revision), now));
        let keep = Keep { age: Duration::from_secs(300), min_events: 2, ..Keep::default() };
        let mut garbage = Vec::new();
        history.expire(now + Duration::from_secs(299), &keep, &mut garbage);
        assert_eq!(history.len(), 5);
        history.expire(now + Duration::from_secs(301), &keep, &mut garbage);
        assert_eq!((history.len(), history.floor()), (2, 4));
    }

    #[test]
    fn an_encoded_line_is_given_up_but_the_event_stays() {
        let mut history = History::since(1);
        let now = Instant::now();
        let old = event(2);
        assert!(old.line.set(Bytes::from_static(b"{}")).is_ok());
        history.push(Arc::clone(&old), now);
        history.expire(now + LINE_LIFE * 2, &Keep::default(), &mut Vec::new());
        let kept = history.after(1).next().expect("the event is kept");
        assert_eq!(kept.entry, old.entry);
        assert!(kept.line.get().is_none() && old.line.get().is_some());
    }
}
