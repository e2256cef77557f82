//! Changes to tables. A batch of them is a value that can be printed, compared, counted and applied.

use super::key::Key;
use super::model::{Base, Name, Rule, Set, Value};
use crate::Family;

/// One change. Each names its family and table first. Adding or deleting nothing is no change: nobody looks whether what it
/// names is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Makes a table with a tag. A table that is there already stays as it is, with the tag it has.
    AddTable(Family, Name, String),
    /// Deletes a table and everything in it.
    DeleteTable(Family, Name),
    /// Makes a chain. One that is there already stays as it is, if it has the same base.
    AddChain(Family, Name, Name, Option<Base>),
    /// Deletes a chain and its rules. Nothing may lead to it.
    DeleteChain(Family, Name, Name),
    /// Deletes the rules of a chain.
    FlushChain(Family, Name, Name),
    /// Appends rules to a chain.
    AddRules(Family, Name, Name, Vec<Rule>),
    /// Makes a set. Elements in it are not looked at: [`Change::AddElements`] adds them.
    AddSet(Family, Name, Name, Set),
    /// Deletes a set. No rule may look into it.
    DeleteSet(Family, Name, Name),
    /// Adds elements. One that is there already must have the same value: to change a value, delete and add.
    AddElements(Family, Name, Name, Vec<(Key, Value)>),
    /// Deletes elements, which must be there.
    DeleteElements(Family, Name, Name, Vec<Key>),
}

impl Change {
    /// The table that it changes.
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

    /// How much it changes: elements and rules count one each.
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

/// Changes that happen together or not at all, in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// The changes.
    pub changes: Vec<Change>,
}
