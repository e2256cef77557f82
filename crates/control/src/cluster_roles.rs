//! ClusterRoles that aggregate others: their rules are the rules of all that their selectors select.
//!
//! In: ClusterRoles. Out: the rules of those with an `aggregationRule`. Roles may aggregate aggregated ones: a write is a change that leads to the
//! next look. All of them are looked at together, because any ClusterRole may be a part of any other.

#[cfg(test)]
mod tests;

use api::kinds::role::CLUSTER_ROLE;
use api::object;
use api::selector::{self, Selector};
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Range, Store, Table};

use crate::controller::{Controller, Verdict, View, WHOLE, Wakes, always};
use crate::world::Change;
use crate::write::Write;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "clusterrole-aggregation", enabled: always, concerns, reconcile, every: None };

fn concerns(_: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    if change.is_of(CLUSTER_ROLE.table) {
        wakes.add(WHOLE);
    }
}

fn reconcile(view: &View<'_>, _: &str) -> Verdict {
    let transactions = outdated(view.store).into_iter().map(|write| vec![write]).collect();
    Verdict { transactions, ..Verdict::settled() }
}

/// The writes that give aggregated roles their rules. Those that aggregate aggregated ones need another look after that.
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

/// The rules of all roles but one that a selector selects, each once, in the order of names: the same parts always make the same role.
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
