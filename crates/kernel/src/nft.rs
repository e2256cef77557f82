//! nftables: what a table holds, changes to it, and the port that makes them.
//!
//! A table of ours is a value ([`Table`]). A [`Batch`] of changes happens as a whole or not at all. Rules are made of
//! [`Statement`]s of our own rather than of the kernel's expressions: few, typed, of shapes that the `nft` of every
//! distribution can list, and such that [`fake::Fake`] can evaluate them on a packet.
//!
//! Rules are counted, not read back: the tag of a table says which rules it has. Sets and their elements are read
//! ([`Nft::dump`]).

mod change;
mod error;
pub mod fake;
pub mod foreign;
mod key;
pub mod linux;
mod model;

use std::time::Duration;

pub use change::{Batch, Change};
pub use error::NftError;
pub use key::{Key, Part, Type};
pub use model::{Base, BaseKind, Chain, Field, Hook, Name, Rule, Set, SetValue, Statement, Table, Value, Verdict};

pub use crate::Family;

/// Somebody who has tables: the kernel, or something that behaves like it.
pub trait Nft: Send {
    /// Makes all the changes of a batch, or none.
    ///
    /// # Errors
    /// Why none was made.
    fn apply(&mut self, batch: &Batch) -> Result<(), NftError>;

    /// What there is of a table; nothing if it is not there.
    ///
    /// # Errors
    /// When it cannot be read.
    fn dump(&mut self, family: Family, table: &str) -> Result<Option<Dump>, NftError>;

    /// How often each element of a set was found by packets.
    ///
    /// # Errors
    /// When it cannot be read, or the set is not there.
    fn counters(&mut self, family: Family, table: &str, set: &str) -> Result<Vec<Counter>, NftError>;

    /// A number that is another after every change of anybody.
    ///
    /// # Errors
    /// When it cannot be read.
    fn generation(&mut self) -> Result<u32, NftError>;

    /// Listens for what others do to a table, from now on.
    ///
    /// # Errors
    /// When there is no listening.
    fn monitor(&mut self, table: &str) -> Result<Box<dyn Monitor>, NftError>;
}

/// What there is of a table. Its rules are identified by its tag; they are only counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dump {
    /// What it was tagged with when it was made.
    pub tag: String,
    /// Its chains.
    pub chains: std::collections::BTreeMap<Name, ChainFound>,
    /// Its sets. Those that packets fill themselves (sets with a timeout) come without elements.
    pub sets: std::collections::BTreeMap<Name, Set>,
}

/// What there is of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChainFound {
    /// Where packets enter it by themselves.
    pub base: Option<Base>,
    /// How many rules it has.
    pub rules: usize,
}

/// How often an element was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counter {
    /// The element.
    pub key: Key,
    /// By how many packets.
    pub packets: u64,
    /// How many bytes those had.
    pub bytes: u64,
}

/// What somebody else did to a table of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// Something in it was changed.
    Changed(Family),
    /// The table was deleted.
    Deleted(Family),
    /// Messages were lost: whether anything happened is unknown.
    Unknown,
}

/// Somebody who tells of changes that others make to our tables.
pub trait Monitor: Send {
    /// Waits for the next change by somebody else. Nothing when none came in time.
    ///
    /// # Errors
    /// When there is nothing more to hear.
    fn wait(&mut self, patience: Option<Duration>) -> Result<Option<Touch>, NftError>;
}
