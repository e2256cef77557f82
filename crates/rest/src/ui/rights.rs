//! Which objects a user may list, in all namespaces or in some.
//!
//! In: kinds, and how one right is decided. Out: the objects of a kind that the user may list, and what is missing. Each right is decided
//! once for a request.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::kind::Kind;
use store::{Entry, Store, Table};

/// See the module.
pub(super) struct Rights<F> {
    kinds: Vec<&'static Kind>,
    may: F,
    known: RefCell<BTreeMap<(&'static str, Box<str>), bool>>,
}

impl<F: Fn(&'static Kind, &str) -> bool> Rights<F> {
    pub(super) const fn new(kinds: Vec<&'static Kind>, may: F) -> Self {
        Self { kinds, may, known: RefCell::new(BTreeMap::new()) }
    }

    /// Whether the user may list a kind in a namespace; in all, if it is empty. Of kinds that the server does not have, all objects are
    /// known: there are none.
    pub(super) fn has(&self, plural: &str, namespace: &str) -> bool {
        let Some(kind) = self.kinds.iter().copied().find(|kind| kind.plural == plural) else { return true };
        let decide = |namespace: &str| {
            let mut known = self.known.borrow_mut();
            *known.entry((kind.plural, namespace.into())).or_insert_with(|| (self.may)(kind, namespace))
        };
        decide("") || (!namespace.is_empty() && decide(namespace))
    }

    /// The kinds that the user may not list everywhere.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        self.kinds.iter().map(|kind| kind.plural).filter(|plural| !self.has(plural, "")).collect()
    }

    /// The objects of each kind that the user may list, by plural.
    pub(super) fn lists(&self, store: &dyn Store) -> Lists {
        let list = |kind: &&'static Kind| {
            let range = store.range(Table::named(kind.table), "", None);
            let mut entries = range.map_or_else(|_| Vec::new(), |range| range.entries);
            entries.retain(|entry| self.has(kind.plural, entry.key.name.split_once('/').map_or("", |(home, _)| home)));
            (kind.plural, entries)
        };
        self.kinds.iter().map(list).collect()
    }
}

/// Objects by plural.
pub(super) type Lists = BTreeMap<&'static str, Vec<Arc<Entry>>>;

#[cfg(test)]
mod tests {
    use api::kinds;

    use super::*;

    #[test]
    fn b13_rights_in_one_namespace_are_not_rights_in_another() {
        let kinds = vec![&kinds::service::KIND, &kinds::pod::KIND, &kinds::node::KIND];
        let rights = Rights::new(kinds, |kind: &Kind, namespace: &str| match kind.plural {
            "services" => true,
            "pods" => namespace == "shop",
            _ => false,
        });
        assert!(rights.has("services", "") && rights.has("services", "any"));
        assert!(rights.has("pods", "shop") && !rights.has("pods", "") && !rights.has("pods", "bank"));
        assert!(!rights.has("nodes", "") && !rights.has("nodes", "n1"));
        assert!(rights.has("httproutes", "bank"), "this server has none");
        assert_eq!(rights.missing(), ["pods", "nodes"]);
    }
}
