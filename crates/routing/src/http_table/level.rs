//! The matches of one hostname, by path.

use std::sync::Arc;

use super::RequestView;
use super::entry::{Entry, Path};
use crate::persistent::Map;
use crate::table::{Level, insert_sorted, remove_entry, remove_from};

type List<R> = Arc<[Arc<Entry<R>>]>;

/// Matches by path.
#[derive(Debug)]
pub(crate) struct Paths<R> {
    exact: Map<Box<str>, List<R>>,
    regexes: List<R>,
    prefixes: Map<Box<str>, List<R>>,
    /// How many matches have a prefix of 0, 1, 2 … elements: a path of many elements costs no more lookups than there
    /// are such lengths.
    lengths: Arc<Vec<u32>>,
}

impl<R> Clone for Paths<R> {
    fn clone(&self) -> Self {
        Self {
            exact: self.exact.clone(),
            regexes: self.regexes.clone(),
            prefixes: self.prefixes.clone(),
            lengths: self.lengths.clone(),
        }
    }
}

impl<R> Default for Paths<R> {
    fn default() -> Self {
        Self {
            exact: Map::default(),
            regexes: List::<R>::from([]),
            prefixes: Map::default(),
            lengths: Arc::new(Vec::new()),
        }
    }
}

/// Number of elements of a prefix without `/` at its end.
fn elements(prefix: &str) -> usize {
    prefix.bytes().filter(|byte| *byte == b'/').count()
}

impl<R> Level for Paths<R> {
    type Entry = Entry<R>;

    fn insert(&mut self, entry: &Arc<Entry<R>>) {
        let empty = || List::<R>::from([]);
        let list = match &entry.compiled.path {
            Path::Exact(path) => self.exact.get_mut_or_insert_with(path.clone(), empty),
            Path::Regex(_) => &mut self.regexes,
            Path::Prefix(prefix) => {
                let (lengths, length) = (Arc::make_mut(&mut self.lengths), elements(prefix));
                lengths.resize(lengths.len().max(length + 1), 0);
                lengths[length] += 1;
                self.prefixes.get_mut_or_insert_with(prefix.clone(), empty)
            }
        };
        insert_sorted(list, entry, Entry::order);
    }

    fn remove(&mut self, entry: &Arc<Entry<R>>) {
        match &entry.compiled.path {
            Path::Exact(path) => remove_from(&mut self.exact, path, entry),
            Path::Regex(_) => remove_entry(&mut self.regexes, entry),
            Path::Prefix(prefix) => {
                remove_from(&mut self.prefixes, prefix, entry);
                let lengths = Arc::make_mut(&mut self.lengths);
                if let Some(count) = lengths.get_mut(elements(prefix)) {
                    *count = count.saturating_sub(1);
                }
                while lengths.last() == Some(&0) {
                    lengths.pop();
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.regexes.is_empty() && self.prefixes.is_empty()
    }
}

impl<R> Paths<R> {
    /// The match for a request; `labels` is what the `*` of the hostname stands for.
    pub(super) fn find(&self, request: &RequestView<'_>, labels: usize) -> Option<&Entry<R>> {
        let takes = |entry: &&Arc<Entry<R>>| entry.conditions_hold(request, labels);
        if let Some(list) = self.exact.get(request.path)
            && let Some(entry) = list.iter().find(takes)
        {
            return Some(entry);
        }
        let regex = |entry: &&Arc<Entry<R>>| entry.compiled.path_holds(request.path) && takes(entry);
        if let Some(entry) = self.regexes.iter().find(regex) {
            return Some(entry);
        }
        self.longest_prefix(request.path, |list| list.iter().find(takes).map(|entry| &**entry))
    }

    /// The first result for a prefix of the path, longest first.
    fn longest_prefix<'a, T>(&'a self, path: &str, mut result: impl FnMut(&'a List<R>) -> Option<T>) -> Option<T> {
        let longest = self.lengths.len().checked_sub(1)?;
        // The end of the longest prefix that can be in the map: before the slash that follows its last element.
        let slashes = || path.bytes().enumerate().filter(|(_, byte)| *byte == b'/').map(|(at, _)| at);
        let mut end = slashes().nth(longest).unwrap_or(path.len());
        let mut length = slashes().take(longest).count();
        loop {
            let prefix = &path[..end];
            // The empty prefix covers everything, also `*` and the empty path.
            let key = if length == 0 { "" } else { prefix };
            if self.lengths[length] > 0
                && let Some(list) = self.prefixes.get(key)
                && let Some(found) = result(list)
            {
                return Some(found);
            }
            if length == 0 {
                return None;
            }
            end = prefix.rfind('/').unwrap_or(0);
            length -= 1;
        }
    }

    /// All matches, in no particular order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry<R>>> {
        let lists = self.exact.values().chain(self.prefixes.values()).chain(std::iter::once(&self.regexes));
        lists.flat_map(|list| list.iter())
    }
}
