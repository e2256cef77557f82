//! The keys of the objects that a consumer knows, so that a relist also yields deletions.
//!
//! In: the events of a watch. Out: at `InitDone`, the keys that were known before and are not in the new list.

use std::collections::HashSet;

use super::{Event, Object};

/// See the module.
#[derive(Debug, Default)]
pub struct KnownKeys {
    keys: HashSet<Box<str>>,
    /// The keys of the list in progress.
    listing: Option<HashSet<Box<str>>>,
    complete: bool,
}

impl KnownKeys {
    /// Applies an event. The returned keys were deleted without a `Delete` event.
    pub fn apply(&mut self, event: &Event) -> Vec<Box<str>> {
        match event {
            Event::Init => self.listing = Some(HashSet::new()),
            Event::InitApply(object) => {
                let key = key(object);
                self.listing.get_or_insert_default().insert(key.clone());
                // The consumer has the objects of an interrupted list, too: the next list must yield their deletion.
                self.keys.insert(key);
            }
            Event::InitDone => {
                self.complete = true;
                let listed = self.listing.take().unwrap_or_default();
                let before = std::mem::replace(&mut self.keys, listed);
                let mut deleted: Vec<_> = before.into_iter().filter(|key| !self.keys.contains(key)).collect();
                deleted.sort_unstable();
                return deleted;
            }
            Event::Apply(object) => {
                self.keys.insert(key(object));
            }
            Event::Delete(object) => {
                let key = key(object);
                self.keys.remove(&key);
                self.listing.as_mut().map(|listing| listing.remove(&key));
            }
        }
        Vec::new()
    }

    /// Whether a list was complete; nothing may be decided before.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.complete
    }
}

fn key(object: &Object) -> Box<str> {
    object.key().into()
}
