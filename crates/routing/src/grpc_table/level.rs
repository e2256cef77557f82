//! The matches of one hostname, by service.

use std::sync::Arc;

use http::HeaderMap;

use super::entry::{Call, Entry};
use crate::persistent::Map;
use crate::table::{Level, insert_sorted, remove_entry, remove_from};

type List<R> = Arc<[Arc<Entry<R>>]>;

/// Matches by service.
#[derive(Debug)]
pub(crate) struct Methods<R> {
    services: Map<Box<str>, List<R>>,
    /// Matches for several services.
    others: List<R>,
}

impl<R> Clone for Methods<R> {
    fn clone(&self) -> Self {
        Self { services: self.services.clone(), others: self.others.clone() }
    }
}

impl<R> Default for Methods<R> {
    fn default() -> Self {
        Self { services: Map::default(), others: List::<R>::from([]) }
    }
}

impl<R> Level for Methods<R> {
    type Entry = Entry<R>;

    fn insert(&mut self, entry: &Arc<Entry<R>>) {
        let list = match entry.compiled.service() {
            Some(service) => self.services.get_mut_or_insert_with(service.into(), || List::<R>::from([])),
            None => &mut self.others,
        };
        insert_sorted(list, entry, Entry::order);
    }

    fn remove(&mut self, entry: &Arc<Entry<R>>) {
        match entry.compiled.service() {
            Some(service) => remove_from(&mut self.services, service, entry),
            None => remove_entry(&mut self.others, entry),
        }
    }

    fn is_empty(&self) -> bool {
        self.services.is_empty() && self.others.is_empty()
    }
}

impl<R> Methods<R> {
    /// The match for a call.
    pub(super) fn find(&self, call: &Call<'_>, headers: &HeaderMap) -> Option<&Entry<R>> {
        let exact = self.services.get(call.service).into_iter().flat_map(|list| list.iter());
        exact.chain(self.others.iter()).find(|entry| entry.holds(call, headers)).map(|entry| &**entry)
    }

    /// All matches, in no particular order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry<R>>> {
        self.services.values().chain(std::iter::once(&self.others)).flat_map(|list| list.iter())
    }
}
