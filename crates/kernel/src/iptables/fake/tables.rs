//! Tables of one family, and scripts that change them. A section is applied to a copy of its table, which replaces the
//! table only if every line succeeds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::iptables::{IptablesError, LONGEST_NAME, Match, Name, Rule, Table, Target, Transport};

/// The rules of the chains of a table.
type Chains = BTreeMap<Name, Arc<Vec<Rule>>>;

/// Tables.
#[derive(Clone, Default)]
pub(super) struct Tables {
    tables: BTreeMap<Table, Chains>,
}

/// Result of a line.
type Line = Result<(), Complaint>;

/// What `iptables-restore` prints about a line.
struct Complaint(String);

impl From<&str> for Complaint {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Tables {
    pub(super) fn chain(&self, table: Table, name: &str) -> Option<&Arc<Vec<Rule>>> {
        self.tables.get(&table)?.get(name)
    }

    /// Keeps only these tables.
    pub(super) fn retain(&mut self, keep: impl Fn(Table) -> bool) {
        self.tables.retain(|table, _| keep(*table));
    }

    /// Runs a script.
    pub(super) fn restore(&mut self, script: &str) -> Result<(), IptablesError> {
        let mut open: Option<(Table, Chains)> = None;
        for line in script.lines() {
            let done = match line.strip_prefix('*') {
                Some(name) => begin(&self.tables, &mut open, name),
                None if line == "COMMIT" => self.commit(open.take()),
                None => open
                    .as_mut()
                    .ok_or(Complaint::from("no table"))
                    .and_then(|(table, chains)| edit(*table, chains, line)),
            };
            done.map_err(|complaint| refused(line, complaint))?;
        }
        open.map_or(Ok(()), |_| Err(refused("", "COMMIT expected".into())))
    }

    fn commit(&mut self, open: Option<(Table, Chains)>) -> Line {
        let (table, chains) = open.ok_or("no table")?;
        check_loops(table, &chains)?;
        self.tables.insert(table, chains);
        Ok(())
    }
}

fn refused(line: &str, Complaint(said): Complaint) -> IptablesError {
    IptablesError::Refused { program: "iptables-restore".to_owned(), line: Some(line.to_owned()), said }
}

fn begin(tables: &BTreeMap<Table, Chains>, open: &mut Option<(Table, Chains)>, name: &str) -> Line {
    if open.is_some() {
        return Err("COMMIT expected".into());
    }
    let table = Table::named(name).ok_or("no such table")?;
    let fresh = || table.built_in().iter().map(|chain| (Name::from(*chain), Arc::default())).collect();
    *open = Some((table, tables.get(&table).cloned().unwrap_or_else(fresh)));
    Ok(())
}

/// Applies a line.
fn edit(table: Table, chains: &mut Chains, line: &str) -> Line {
    if let Some(declared) = line.strip_prefix(':') {
        let name = declared.strip_suffix(" - [0:0]").ok_or("not a chain of one's own")?;
        if name.is_empty() || name.len() > LONGEST_NAME || table.built_in().contains(&name) {
            return Err("not a name for a chain".into());
        }
        chains.insert(name.into(), Arc::default());
        return Ok(());
    }
    let (verb, rest) = line.split_once(' ').ok_or("nothing to do")?;
    let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
    if verb == "-X" {
        return remove(table, chains, name);
    }
    let rule = Rule::parse(text).ok_or("not a rule")?;
    check(table, chains, name, &rule)?;
    let rules = Arc::make_mut(chains.get_mut(name).ok_or("no chain of that name")?);
    match verb {
        "-A" => rules.push(rule),
        "-I" => rules.insert(0, rule),
        "-D" => {
            let place = rules.iter().position(|one| *one == rule).ok_or("no such rule")?;
            rules.remove(place);
        }
        _ => return Err("unknown option".into()),
    }
    Ok(())
}

fn remove(table: Table, chains: &mut Chains, name: &str) -> Line {
    let leads_here = |rule: &Rule| matches!(rule.target(), Target::Chain(target) if **target == *name);
    if table.built_in().contains(&name) || chains.values().any(|rules| rules.iter().any(leads_here)) {
        return Err("in use".into());
    }
    match chains.get(name) {
        Some(rules) if rules.is_empty() => drop(chains.remove(name)),
        Some(_) => return Err("not empty".into()),
        None => return Err("no chain of that name".into()),
    }
    Ok(())
}

/// Whether a rule is valid in a chain.
fn check(table: Table, chains: &Chains, chain: &str, rule: &Rule) -> Line {
    let fine = match rule.target() {
        Target::Chain(name) if !chains.contains_key(name) => return Err(Complaint(format!("no target {name}"))),
        Target::Chain(_) => true,
        Target::Reject | Target::Drop => table == Table::Filter,
        Target::Reset => table == Table::Filter && is_tcp(rule),
        Target::Translate(_) => table == Table::Nat && chain != "POSTROUTING" && has_transport(rule),
        Target::Masquerade => table == Table::Nat && !["PREROUTING", "OUTPUT"].contains(&chain),
        Target::Nothing | Target::Accept | Target::Return | Target::Mark(_) | Target::XorMark(_) => true,
    };
    let named = rule.matches().iter().any(|one| matches!(one, Match::Interface { .. }));
    let blind = ["OUTPUT", "POSTROUTING"].contains(&chain) && named;
    (fine && !blind).then_some(()).ok_or_else(|| "not there".into())
}

fn is_tcp(rule: &Rule) -> bool {
    rule.matches().iter().any(|one| {
        matches!(one, Match::Port(Transport::Tcp, _) | Match::Protocol { transport: Transport::Tcp, not: false })
    })
}

fn has_transport(rule: &Rule) -> bool {
    rule.matches().iter().any(|one| matches!(one, Match::Port(..) | Match::Protocol { not: false, .. }))
}

/// Chains reachable from built-in ones must not loop.
fn check_loops(table: Table, chains: &Chains) -> Line {
    fn visit<'a>(chains: &'a Chains, name: &'a str, above: &mut Vec<&'a str>, fine: &mut BTreeSet<&'a str>) -> Line {
        if fine.contains(name) {
            return Ok(());
        }
        if above.contains(&name) {
            return Err(Complaint(format!("{name} leads to itself")));
        }
        above.push(name);
        for rule in chains.get(name).into_iter().flat_map(|rules| rules.iter()) {
            if let Target::Chain(target) = rule.target() {
                visit(chains, target, above, fine)?;
            }
        }
        above.pop();
        fine.insert(name);
        Ok(())
    }
    let mut fine = BTreeSet::new();
    table.built_in().iter().try_for_each(|name| visit(chains, name, &mut Vec::new(), &mut fine))
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (table, chains) in &self.tables {
            writeln!(f, "*{table}")?;
            for name in chains.keys() {
                let policy = if table.built_in().contains(&&**name) { "ACCEPT" } else { "-" };
                writeln!(f, ":{name} {policy} [0:0]")?;
            }
            for (name, rules) in chains {
                for rule in rules.iter() {
                    writeln!(f, "-A {name} {rule}")?;
                }
            }
            writeln!(f, "COMMIT")?;
        }
        Ok(())
    }
}
