//! Which objects a listener knows of, so that a second list also says what is gone.
//!
//! In: the five events. Out: at `InitDone`, the keys that the list before had and this one has not. Whoever keeps objects by key
//! takes every `InitApply` and `Apply` in, drops what `Delete` names, and drops these.

use std::collections::HashSet;

use super::{Event, Object};

/// See the module.
#[derive(Debug, Default)]
pub struct Known {
    keys: HashSet<Box<str>>,
    /// What the list under way has brought so far.
    listing: Option<HashSet<Box<str>>>,
    complete: bool,
}

impl Known {
    /// Follows an event. What it answers is gone, and no other event will say so.
    pub fn follow(&mut self, event: &Event) -> Vec<Box<str>> {
        match event {
            Event::Init => self.listing = Some(HashSet::new()),
            Event::InitApply(object) => {
                let key = key(object);
                self.listing.get_or_insert_default().insert(key.clone());
                // A list that breaks off has still been heard: the next one must say what of it is gone.
                self.keys.insert(key);
            }
            Event::InitDone => {
                self.complete = true;
                let listed = self.listing.take().unwrap_or_default();
                let before = std::mem::replace(&mut self.keys, listed);
                let mut gone: Vec<_> = before.into_iter().filter(|key| !self.keys.contains(key)).collect();
                gone.sort_unstable();
                return gone;
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

    /// Whether a whole list was heard: before that, nothing may be done.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.complete
    }
}

fn key(object: &Object) -> Box<str> {
    object.key().into()
}
