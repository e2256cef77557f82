//! Workloads by namespace, to find possible owners of orphaned Pods and ReplicaSets.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::facts::Facts;
use store::{Entry, Table};

use crate::objects::split;
use crate::objects::workload::Workload;

/// The tables of workloads.
pub(super) const TABLES: [&str; 6] =
    ["controllers", "daemonsets", "deployments", "jobs", "replicasets", "statefulsets"];

/// The workloads of a namespace, by table and key.
type Here = BTreeMap<(&'static str, Box<str>), Workload>;

/// All of them.
#[derive(Debug, Default)]
pub struct Workloads {
    namespaces: HashMap<Box<str>, Here>,
}

impl Workloads {
    pub(super) fn apply(&mut self, entry: &Arc<Entry>, deleted: bool) {
        let (namespace, _) = split(&entry.key.name);
        let place = (entry.key.table.as_str(), entry.key.name.clone());
        if !deleted {
            self.namespaces.entry(namespace.into()).or_default().insert(place, Workload::read(entry));
            return;
        }
        if let Some(here) = self.namespaces.get_mut(namespace) {
            here.remove(&place);
            if here.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }

    /// The keys of one table in a namespace whose selectors match.
    pub fn selecting<'a>(&'a self, namespace: &str, table: &'a str, facts: &'a Facts) -> impl Iterator<Item = &'a str> {
        let here = self.namespaces.get(namespace).into_iter().flatten();
        here.filter(move |((kind, _), workload)| {
            *kind == table && workload.selector.as_ref().is_some_and(|selector| selector.matches(facts, "", ""))
        })
        .map(|((_, key), _)| &**key)
    }

    /// The keys of one table.
    pub fn keys(&self, table: &'static str) -> impl Iterator<Item = &str> {
        let rows = self.namespaces.values().flat_map(move |here| {
            here.range((table, Box::default())..).take_while(move |((kind, _), _)| *kind == table)
        });
        rows.map(|((_, key), _)| &**key)
    }
}

/// Whether a table contains workloads.
pub(super) fn holds(table: Table) -> bool {
    TABLES.contains(&table.as_str())
}
