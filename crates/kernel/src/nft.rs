//! nftables: content of a table, changes to it, and the port that applies them.
//!
//! A table of ours is a value ([`Table`]). A [`Batch`] of changes is atomic. Rules consist of our own [`Statement`]s
//! instead of kernel expressions: few, typed, in forms that every `nft` can list, and that [`fake::Fake`] can evaluate
//! on a packet.
//!
//! Rules are counted, not read back: the tag of a table identifies its rules. Sets and their elements are read
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

/// Access to nftables.
pub trait Nft: Send {
    /// Applies a batch atomically.
    ///
    /// # Errors
    /// Why nothing was changed.
    fn apply(&mut self, batch: &Batch) -> Result<(), NftError>;

    /// The content of a table; none if it does not exist.
    ///
    /// # Errors
    /// When it cannot be read.
    fn dump(&mut self, family: Family, table: &str) -> Result<Option<Dump>, NftError>;

    /// Counters of the elements of a set.
    ///
    /// # Errors
    /// When it cannot be read, or the set does not exist.
    fn counters(&mut self, family: Family, table: &str, set: &str) -> Result<Vec<Counter>, NftError>;

    /// The ruleset generation, which changes with every transaction of any program.
    ///
    /// # Errors
    /// When it cannot be read.
    fn generation(&mut self) -> Result<u32, NftError>;

    /// Starts to monitor changes of a table by other programs.
    ///
    /// # Errors
    /// When the monitor cannot be opened.
    fn monitor(&mut self, table: &str) -> Result<Box<dyn Monitor>, NftError>;
}

/// Content of a table. Rules are only counted; the tag identifies them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dump {
    /// The tag it was created with.
    pub tag: String,
    /// Its chains.
    pub chains: std::collections::BTreeMap<Name, ChainState>,
    /// Its sets. Dynamic sets (with a timeout) come without elements.
    pub sets: std::collections::BTreeMap<Name, Set>,
}

/// A chain in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChainState {
    /// Hook, for base chains.
    pub base: Option<Base>,
    /// Number of rules.
    pub rules: usize,
}

/// Counter of an element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counter {
    /// Key of the element.
    pub key: Key,
    /// Packets that matched it.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
}

/// A change by another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// The table was changed.
    Changed(Family),
    /// The table was deleted.
    Deleted(Family),
    /// Messages were lost: the state is unknown.
    Unknown,
}

/// Reports changes of our tables by other programs.
pub trait Monitor: Send {
    /// Waits for the next change. None after the timeout.
    ///
    /// # Errors
    /// When the monitor has ended.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Touch>, NftError>;
}
