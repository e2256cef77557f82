//! From what tables hold to what they should hold.
//!
//! In: what was listed, and chain after chain what is wanted. Out: a script that changes what differs, and nothing when nothing
//! does. Chains are compared as they come and then forgotten, so that hundreds of thousands of rules are never held twice.

use std::collections::{BTreeMap, BTreeSet};

use kernel::iptables::{Name, Rule, Saved, Script, Step, Table};

use super::fragment::Shared;
use super::frame;
use super::names::is_ours;

/// What is to be changed.
pub(super) struct Correction<'a> {
    saved: &'a Saved,
    /// Chains that are wanted.
    wanted: BTreeSet<(Table, Name)>,
    edits: BTreeMap<Table, Edit>,
}

/// Changes to a table, in the order in which they must be made.
#[derive(Default)]
pub(super) struct Edit {
    /// Chains that are made, or emptied.
    pub(super) empty: Vec<Step>,
    /// Rules that go.
    pub(super) delete: Vec<Step>,
    /// Rules that come.
    pub(super) add: Vec<Step>,
    /// Chains that go.
    pub(super) remove: Vec<Step>,
}

impl Edit {
    /// A chain has these rules and no others.
    pub(super) fn rewrite(&mut self, chain: &Name, rules: impl IntoIterator<Item = Rule>) {
        self.empty.push(Step::Empty(chain.clone()));
        self.add.extend(rules.into_iter().map(|rule| Step::Append(chain.clone(), rule)));
    }

    /// A chain goes.
    pub(super) fn discard(&mut self, chain: &Name) {
        self.empty.push(Step::Empty(chain.clone()));
        self.remove.push(Step::Remove(chain.clone()));
    }

    /// All of it.
    pub(super) fn steps(self) -> Vec<Step> {
        [self.empty, self.delete, self.add, self.remove].concat()
    }
}

impl<'a> Correction<'a> {
    /// Nothing is wanted yet.
    pub(super) fn of(saved: &'a Saved) -> Self {
        Self { saved, wanted: BTreeSet::new(), edits: BTreeMap::new() }
    }

    /// A chain is to have these rules.
    pub(super) fn chain(&mut self, table: Table, name: Name, rules: Vec<Rule>) {
        let saved = self.saved;
        let there = saved.has_chain(table, &name);
        let same = there && saved.rules(table, &name).map(Some).eq(rules.iter().cloned().map(|rule| Some(Some(rule))));
        if !same {
            self.edits.entry(table).or_default().rewrite(&name, rules);
        }
        self.wanted.insert((table, name));
    }

    /// The chains that Services share are to have these rules.
    pub(super) fn shared(&mut self, rules: BTreeSet<Shared>) {
        let mut by_chain: BTreeMap<(Table, &str), [BTreeSet<Rule>; 2]> =
            frame::SHARED.into_iter().map(|place| (place, Default::default())).collect();
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

    /// Whether a chain has the first rules in any order, and then the last in any order.
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

    /// Packets are to get into our chains: by these rules, in this order, and by no others.
    fn jumps(&mut self) {
        for (table, chain, wanted) in frame::jumps() {
            let ours = ways_in(self.saved, table, chain);
            let same = ours.iter().map(|line| Rule::parse(line)).eq(wanted.iter().cloned().map(Some));
            if same {
                continue;
            }
            let edit = self.edits.entry(table).or_default();
            edit.delete.extend(ours.iter().map(|line| Step::DeleteListed(chain.into(), (*line).to_owned())));
            edit.add.extend(wanted.into_iter().rev().map(|rule| Step::Insert(chain.into(), rule)));
        }
    }

    /// Removes chains of ours that nobody wants.
    fn discard_others(&mut self) {
        for table in Table::ALL {
            let used = used_by_others(self.saved, table);
            for name in self.saved.chains(table).filter(|name| is_ours(name)) {
                if !self.wanted.contains(&(table, name.clone())) && !used.contains(&**name) {
                    self.edits.entry(table).or_default().discard(name);
                }
            }
        }
    }

    /// The script that changes what differs. Packets are led to endpoints before any are refused for want of that; the
    /// canary comes last, and says that all the rest is there.
    pub(super) fn finish(mut self) -> Script {
        self.jumps();
        self.discard_others();
        let mut script = Script::default();
        for table in [Table::Nat, Table::Filter, Table::Mangle] {
            script.section(table, self.edits.remove(&table).unwrap_or_default().steps());
        }
        script
    }
}

/// Rules of a chain of the kernel that lead into chains of ours, as they were listed.
pub(super) fn ways_in<'a>(saved: &'a Saved, table: Table, chain: &str) -> Vec<&'a str> {
    saved.lines(table, chain).filter(|line| Saved::leads_to(line).is_some_and(|name| is_ours(&name))).collect()
}

/// Chains of ours to which chains of others lead: they must stay, be they empty.
pub(super) fn used_by_others(saved: &Saved, table: Table) -> BTreeSet<String> {
    let foreign = saved.chains(table).filter(|name| !is_ours(name) && !table.built_in().contains(&&***name));
    foreign.flat_map(|name| saved.lines(table, name)).filter_map(Saved::leads_to).filter(|name| is_ours(name)).collect()
}
