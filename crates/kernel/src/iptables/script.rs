//! Changes of tables, formatted as input of `iptables-restore --noflush`.

use std::fmt;

use super::{Name, Rule, Table};

/// A change of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Creates or flushes a chain.
    Empty(Name),
    /// Appends a rule.
    Append(Name, Rule),
    /// Inserts a rule at the start of a chain.
    Insert(Name, Rule),
    /// Deletes a rule.
    Delete(Name, Rule),
    /// Deletes a foreign rule, as it was listed.
    DeleteListed(Name, String),
    /// Deletes an empty, unreferenced chain.
    Remove(Name),
}

/// Sections of changes; each concerns one table and is atomic.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    sections: Vec<(Table, Vec<Step>)>,
}

impl Script {
    /// Adds a section, unless it is empty.
    pub fn section(&mut self, table: Table, steps: Vec<Step>) {
        if !steps.is_empty() {
            self.sections.push((table, steps));
        }
    }

    /// All changes, with their tables.
    pub fn steps(&self) -> impl Iterator<Item = (Table, &Step)> {
        self.sections.iter().flat_map(|(table, steps)| steps.iter().map(|step| (*table, step)))
    }

    /// Whether it changes nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// Number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sections.iter().map(|(_, steps)| steps.len()).sum()
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (table, steps) in &self.sections {
            writeln!(f, "*{table}")?;
            // Chains come first: they must be declared before rules.
            for step in steps {
                if let Step::Empty(chain) = step {
                    writeln!(f, ":{chain} - [0:0]")?;
                }
            }
            for step in steps {
                match step {
                    Step::Empty(_) => {}
                    Step::Append(chain, rule) => writeln!(f, "-A {chain} {rule}")?,
                    Step::Insert(chain, rule) => writeln!(f, "-I {chain} {rule}")?,
                    Step::Delete(chain, rule) => writeln!(f, "-D {chain} {rule}")?,
                    Step::DeleteListed(chain, rule) => writeln!(f, "-D {chain} {rule}")?,
                    Step::Remove(chain) => writeln!(f, "-X {chain}")?,
                }
            }
            writeln!(f, "COMMIT")?;
        }
        Ok(())
    }
}
