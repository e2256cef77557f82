//! Aggregated ClusterRoles: their rules are those of all selected ClusterRoles.
//!
//! In: ClusterRoles. Out: the rules of those with an `aggregationRule`. Nested aggregation converges, because each write triggers the next reconcile. All
//! are reconciled together, because any ClusterRole may be part of any other.

#[cfg(test)]
mod tests;

use api::kinds::role::CLUSTER_ROLE;
use api::object;
use api::selector::{self, Selector};
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Range, Store, Table};

use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, SINGLETON_KEY, View, always};
use crate::write::Write;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "clusterrole-aggregation", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(_: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if change.is_of(CLUSTER_ROLE.table) {
        affected.add(SINGLETON_KEY);
    }
}

fn reconcile(view: &View<'_>, _: &str) -> Outcome {
    let transactions = outdated(view.store).into_iter().map(|write| vec![write]).collect();
    Outcome { transactions, ..Outcome::done() }
}

/// The writes that update aggregated roles; nested aggregation needs further rounds.
pub(crate) fn outdated(store: &dyn Store) -> Vec<Write> {
    let Ok(range) = store.range(Table::named(CLUSTER_ROLE.table), "", None) else { return Vec::new() };
    let mut writes = Vec::new();
    for entry in &range.entries {
        let mut role = object::decode_bare(&entry.value);
        let selectors: Vec<Selector> =
            role.items("aggregationRule.clusterRoleSelectors").iter().filter_map(selector::from_object).collect();
        if selectors.is_empty() {
            continue;
        }
        let rules = aggregate(&range, &selectors, &entry.key.name);
        if role.items("rules") != rules {
            role.put("rules", rules);
            let object = Box::new(role);
            writes.push(Write::Object { table: CLUSTER_ROLE.table, object, modified: entry.modified });
        }
    }
    writes
}

/// The distinct rules of all selected roles except `name`, in order of names, so that the result is deterministic.
fn aggregate(range: &Range, selectors: &[Selector], name: &str) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    for part in &range.entries {
        let own = &*part.key.name;
        if own == name || !selectors.iter().any(|selector| selector.matches(&part.facts, "", own)) {
            continue;
        }
        for rule in object::decode_light(&part.value).items("rules") {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    rules
}
