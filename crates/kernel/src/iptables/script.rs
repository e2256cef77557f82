//! Changes to tables, as data that prints as the input of `iptables-restore --noflush`.

use std::fmt;

use super::{Name, Rule, Table};

/// A change to a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// The chain is there, and empty.
    Empty(Name),
    /// A rule at the end of a chain.
    Append(Name, Rule),
    /// A rule at the beginning of a chain.
    Insert(Name, Rule),
    /// A rule leaves a chain.
    Delete(Name, Rule),
    /// A rule of somebody else leaves a chain, in the words in which it was listed.
    DeleteListed(Name, String),
    /// The chain goes, which must be empty and which nothing leads to.
    Remove(Name),
}

/// Sections of changes; each is of one table, and happens as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    sections: Vec<(Table, Vec<Step>)>,
}

impl Script {
    /// Adds a section, unless it has nothing to say.
    pub fn section(&mut self, table: Table, steps: Vec<Step>) {
        if !steps.is_empty() {
            self.sections.push((table, steps));
        }
    }

    /// Every change, and the table that it is made in.
    pub fn steps(&self) -> impl Iterator<Item = (Table, &Step)> {
        self.sections.iter().flat_map(|(table, steps)| steps.iter().map(|step| (*table, step)))
    }

    /// Whether it changes nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// How many changes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sections.iter().map(|(_, steps)| steps.len()).sum()
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (table, steps) in &self.sections {
            writeln!(f, "*{table}")?;
            // Chains come first: the programs want them declared before rules.
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
