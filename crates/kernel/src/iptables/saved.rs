//! The output of `iptables-save`. Rules are parsed on demand: there may be hundreds of thousands, and nearly all are
//! unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::tokens::split;
use super::{Name, Rule, Table};

/// Saved tables.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    text: String,
    /// Position of the rules of each chain in the text.
    chains: BTreeMap<Table, BTreeMap<Name, Vec<Range<usize>>>>,
    /// Built-in chains whose policy is not ACCEPT.
    strict: BTreeSet<(Table, Name)>,
}

impl Saved {
    /// Parses the output of `iptables-save`. Unknown tables are skipped.
    #[must_use]
    pub fn parse(text: String) -> Self {
        let mut chains: BTreeMap<Table, BTreeMap<Name, Vec<Range<usize>>>> = BTreeMap::new();
        let mut strict = BTreeSet::new();
        let mut table = None;
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let place = at..at + line.len();
            at = place.end;
            if let Some(name) = line.strip_prefix('*') {
                table = Table::named(name.trim_end());
                continue;
            }
            let Some(table) = table else { continue };
            if let Some(rest) = line.strip_prefix(':') {
                let mut words = rest.split_whitespace();
                let (name, policy) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                if !["-", "ACCEPT"].contains(&policy) {
                    strict.insert((table, name.into()));
                }
                chains.entry(table).or_default().entry(name.into()).or_default();
            } else if let Some((chain, _)) = line.strip_prefix("-A ").map(chain_and_rule) {
                let Some(places) = chains.entry(table).or_default().get_mut(chain) else { continue };
                match places.last_mut() {
                    Some(last) if last.end == place.start => last.end = place.end,
                    _ => places.push(place),
                }
            }
        }
        Self { text, chains, strict }
    }

    /// Chains of a table.
    pub fn chains(&self, table: Table) -> impl Iterator<Item = &Name> {
        self.chains.get(&table).into_iter().flat_map(BTreeMap::keys)
    }

    /// Whether a table has a chain.
    #[must_use]
    pub fn has_chain(&self, table: Table, chain: &str) -> bool {
        self.chains.get(&table).is_some_and(|chains| chains.contains_key(chain))
    }

    /// Whether a table is unused: no rules, only built-in chains with policy ACCEPT.
    #[must_use]
    pub fn is_bare(&self, table: Table) -> bool {
        let bare = |(name, rules): (&Name, &Vec<_>)| table.built_in().contains(&&**name) && rules.is_empty();
        let lets_pass = !self.strict.iter().any(|(strict, _)| *strict == table);
        lets_pass && self.chains.get(&table).is_some_and(|chains| chains.iter().all(bare))
    }

    /// Whether the policy of a built-in chain is DROP.
    #[must_use]
    pub fn drops(&self, table: Table, chain: &str) -> bool {
        self.strict.iter().any(|(strict, name)| *strict == table && **name == *chain)
    }

    /// Rules of a chain as text, without the chain.
    pub fn lines(&self, table: Table, chain: &str) -> impl Iterator<Item = &str> {
        let places = self.chains.get(&table).and_then(|chains| chains.get(chain));
        let lines = places.into_iter().flatten().flat_map(|place| self.text[place.clone()].lines());
        lines.map(|line| chain_and_rule(line.strip_prefix("-A ").unwrap_or(line)).1)
    }

    /// Rules of a chain; none for foreign ones.
    pub fn rules(&self, table: Table, chain: &str) -> impl Iterator<Item = Option<Rule>> {
        self.lines(table, chain).map(Rule::parse)
    }

    /// Target of a rule.
    #[must_use]
    pub fn leads_to(line: &str) -> Option<String> {
        split(line)?.into_iter().skip_while(|word| word != "-j" && word != "-g").nth(1)
    }

    /// Number of rules.
    #[must_use]
    pub fn count(&self) -> usize {
        let places = self.chains.values().flat_map(BTreeMap::values).flatten();
        places.map(|place| self.text[place.clone()].lines().count()).sum()
    }
}

fn chain_and_rule(line: &str) -> (&str, &str) {
    let line = line.trim_end();
    line.split_once(' ').unwrap_or((line, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_and_their_rules_are_found() {
        let text = "# Generated\n*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j NOTRACK\nCOMMIT\n*nat\n\
                    :PREROUTING ACCEPT [0:0]\n:KUBE-X - [0:0]\n:EMPTY - [0:0]\n-A PREROUTING -j KUBE-X\n\
                    -A PREROUTING -p icmp -j LOG\n-A KUBE-X -j ACCEPT\nCOMMIT\n";
        let saved = Saved::parse(text.to_owned());
        assert_eq!(saved.chains(Table::Nat).map(|name| &**name).collect::<Vec<_>>(), ["EMPTY", "KUBE-X", "PREROUTING"]);
        assert!(saved.has_chain(Table::Nat, "EMPTY") && !saved.has_chain(Table::Filter, "INPUT"));
        assert_eq!(saved.lines(Table::Nat, "PREROUTING").collect::<Vec<_>>(), ["-j KUBE-X", "-p icmp -j LOG"]);
        let rules: Vec<Option<Rule>> = saved.rules(Table::Nat, "PREROUTING").collect();
        assert_eq!(rules, [Some(Rule::jump("KUBE-X")), None]);
        assert_eq!(saved.count(), 3);
        assert!(!saved.is_bare(Table::Nat) && !saved.is_bare(Table::Filter));
        let empty = |policy| Saved::parse(format!("*filter\n:INPUT {policy} [0:0]\nCOMMIT\n")).is_bare(Table::Filter);
        assert!(empty("ACCEPT") && !empty("DROP"));
        let closed = Saved::parse("*filter\n:INPUT DROP [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n".to_owned());
        assert!(closed.drops(Table::Filter, "INPUT") && !closed.drops(Table::Filter, "OUTPUT"));
        assert_eq!(Saved::leads_to("-m comment --comment \"-j A\" -g B").as_deref(), Some("B"));
    }
}
