//! Changes of tables. A batch is a value that can be printed, compared, counted and applied.

use super::key::Key;
use super::model::{Base, Name, Rule, Set, Value};
use crate::Family;

/// One change; family and table come first. Adding or deleting an empty list is a no-op: its set or chain need not
/// exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Creates a table with a tag. An existing table and its tag stay.
    AddTable(Family, Name, String),
    /// Deletes a table and everything in it.
    DeleteTable(Family, Name),
    /// Creates a chain. An existing one with the same base stays.
    AddChain(Family, Name, Name, Option<Base>),
    /// Deletes a chain and its rules. It must not be referenced.
    DeleteChain(Family, Name, Name),
    /// Deletes the rules of a chain.
    FlushChain(Family, Name, Name),
    /// Appends rules to a chain.
    AddRules(Family, Name, Name, Vec<Rule>),
    /// Creates a set. Its elements are ignored: use [`Change::AddElements`].
    AddSet(Family, Name, Name, Set),
    /// Deletes a set. No rule may refer to it.
    DeleteSet(Family, Name, Name),
    /// Adds elements. An existing one must have the same value: to change a value, delete and add.
    AddElements(Family, Name, Name, Vec<(Key, Value)>),
    /// Deletes elements, which must exist.
    DeleteElements(Family, Name, Name, Vec<Key>),
}

impl Change {
    /// The table it changes.
    #[must_use]
    pub fn table(&self) -> (Family, &Name) {
        match self {
            Self::AddTable(family, table, _)
            | Self::DeleteTable(family, table)
            | Self::AddChain(family, table, _, _)
            | Self::DeleteChain(family, table, _)
            | Self::FlushChain(family, table, _)
            | Self::AddRules(family, table, _, _)
            | Self::AddSet(family, table, _, _)
            | Self::DeleteSet(family, table, _)
            | Self::AddElements(family, table, _, _)
            | Self::DeleteElements(family, table, _, _) => (*family, table),
        }
    }

    /// Size: elements and rules count one each.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::AddRules(_, _, _, rules) => rules.len(),
            Self::AddElements(_, _, _, elements) => elements.len(),
            Self::DeleteElements(_, _, _, keys) => keys.len(),
            _ => 1,
        }
    }
}

/// Changes that are applied in this order, atomically.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// The changes.
    pub changes: Vec<Change>,
}
