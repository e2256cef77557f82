//! Differences between saved and desired tables.
//!
//! In: saved rules, and the desired chains one by one. Out: a script with the differences, empty if there are none.
//! Desired chains are compared and dropped, so that hundreds of thousands of rules are never held twice.

use std::collections::{BTreeMap, BTreeSet};

use kernel::iptables::{Name, Rule, Saved, Script, Step, Table};

use super::base;
use super::fragment::Shared;
use super::names::is_ours;

/// Collects differences.
pub(super) struct Diff<'a> {
    saved: &'a Saved,
    /// Desired chains.
    wanted: BTreeSet<(Table, Name)>,
    edits: BTreeMap<Table, Edit>,
}

/// Changes to a table, in order of execution.
#[derive(Default)]
pub(super) struct Edit {
    /// Chains to create or flush.
    pub(super) empty: Vec<Step>,
    /// Rules to delete.
    pub(super) delete: Vec<Step>,
    /// Rules to add.
    pub(super) add: Vec<Step>,
    /// Chains to delete.
    pub(super) remove: Vec<Step>,
}

impl Edit {
    /// Replaces the rules of a chain.
    pub(super) fn rewrite(&mut self, chain: &Name, rules: impl IntoIterator<Item = Rule>) {
        self.empty.push(Step::Empty(chain.clone()));
        self.add.extend(rules.into_iter().map(|rule| Step::Append(chain.clone(), rule)));
    }

    /// Flushes and deletes a chain.
    pub(super) fn discard(&mut self, chain: &Name) {
        self.empty.push(Step::Empty(chain.clone()));
        self.remove.push(Step::Remove(chain.clone()));
    }

    /// All steps in order.
    pub(super) fn steps(self) -> Vec<Step> {
        [self.empty, self.delete, self.add, self.remove].concat()
    }
}

impl<'a> Diff<'a> {
    /// A diff without desired chains.
    pub(super) fn of(saved: &'a Saved) -> Self {
        Self { saved, wanted: BTreeSet::new(), edits: BTreeMap::new() }
    }

    /// Sets the desired rules of a chain.
    pub(super) fn chain(&mut self, table: Table, name: Name, rules: Vec<Rule>) {
        let saved = self.saved;
        let there = saved.has_chain(table, &name);
        let same = there && saved.rules(table, &name).map(Some).eq(rules.iter().cloned().map(|rule| Some(Some(rule))));
        if !same {
            self.edits.entry(table).or_default().rewrite(&name, rules);
        }
        self.wanted.insert((table, name));
    }

    /// Sets the desired rules of the shared chains.
    pub(super) fn shared(&mut self, rules: BTreeSet<Shared>) {
        let mut by_chain: BTreeMap<(Table, &str), [BTreeSet<Rule>; 2]> =
            base::SHARED.into_iter().map(|place| (place, Default::default())).collect();
        for Shared { table, chain, last, rule } in rules {
            by_chain.entry((table, chain)).or_default()[usize::from(last)].insert(rule);
        }
        for ((table, chain), [first, last]) in by_chain {
            let name = Name::from(chain);
            if !self.has_in_any_order(table, chain, &first, &last) {
                self.edits.entry(table).or_default().rewrite(&name, first.into_iter().chain(last));
            }
            self.wanted.insert((table, name));
        }
    }

    /// Whether a chain consists of the first rules in any order, followed by the last ones in any order.
    fn has_in_any_order(&self, table: Table, chain: &str, first: &BTreeSet<Rule>, last: &BTreeSet<Rule>) -> bool {
        if !self.saved.has_chain(table, chain) {
            return false;
        }
        let mut rules = self.saved.rules(table, chain);
        let mut next = |count| rules.by_ref().take(count).collect::<Option<Vec<Rule>>>();
        let same = |have: Option<Vec<Rule>>, wanted: &BTreeSet<Rule>| {
            have.is_some_and(|have| have.len() == wanted.len() && have.into_iter().collect::<BTreeSet<_>>() == *wanted)
        };
        same(next(first.len()), first) && same(next(last.len()), last) && rules.next().is_none()
    }

    /// Makes the jumps into our chains exactly these, in this order.
    fn jumps(&mut self) {
        for (table, chain, wanted) in base::jumps() {
            let ours = entry_rules(self.saved, table, chain);
            let same = ours.iter().map(|line| Rule::parse(line)).eq(wanted.iter().cloned().map(Some));
            if same {
                continue;
            }
            let edit = self.edits.entry(table).or_default();
            edit.delete.extend(ours.iter().map(|line| Step::DeleteListed(chain.into(), (*line).to_owned())));
            edit.add.extend(wanted.into_iter().rev().map(|rule| Step::Insert(chain.into(), rule)));
        }
    }

    /// Deletes our chains that are not desired.
    fn delete_unwanted(&mut self) {
        for table in Table::ALL {
            let used = used_by_others(self.saved, table);
            for name in self.saved.chains(table).filter(|name| is_ours(name)) {
                if !self.wanted.contains(&(table, name.clone())) && !used.contains(&**name) {
                    self.edits.entry(table).or_default().discard(name);
                }
            }
        }
    }

    /// The script. Packets are led to endpoints before the reject rules change; the canary is written last and marks
    /// completeness.
    pub(super) fn finish(mut self) -> Script {
        self.jumps();
        self.delete_unwanted();
        let mut script = Script::default();
        for table in [Table::Nat, Table::Filter, Table::Mangle] {
            script.section(table, self.edits.remove(&table).unwrap_or_default().steps());
        }
        script
    }
}

/// Rules of a built-in chain that jump into our chains, as listed.
pub(super) fn entry_rules<'a>(saved: &'a Saved, table: Table, chain: &str) -> Vec<&'a str> {
    saved.lines(table, chain).filter(|line| Saved::leads_to(line).is_some_and(|name| is_ours(&name))).collect()
}

/// Our chains that chains of other programs jump to: they must exist, even if empty.
pub(super) fn used_by_others(saved: &Saved, table: Table) -> BTreeSet<String> {
    let foreign = saved.chains(table).filter(|name| !is_ours(name) && !table.built_in().contains(&&***name));
    foreign.flat_map(|name| saved.lines(table, name)).filter_map(Saved::leads_to).filter(|name| is_ours(name)).collect()
}
