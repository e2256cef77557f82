//! iptables: rules as values, scripts of changes, and the port that runs them.
//!
//! The kernel's own interface to these tables is replaced as a whole and differs between the two variants of iptables, so
//! this port runs the programs of the host, as everybody else who shares the tables does. What flows in is a [`Script`], which
//! is printed for `iptables-restore`; what flows out is [`Saved`], the text of `iptables-save`, whose rules are read one by one
//! when somebody asks ([`Rule`]). [`fake::Fake`] takes the same texts and can say what would happen to a packet.

mod error;
pub mod fake;
pub mod linux;
mod parse;
mod rule;
mod saved;
mod script;
mod tokens;

use std::fmt;
use std::sync::Arc;

pub use error::IptablesError;
pub use rule::{Match, Rule, State, Target, Transport};
pub use saved::Saved;
pub use script::{Script, Step};

pub use crate::Family;

/// The name of a chain.
pub type Name = Arc<str>;

/// The longest name that a chain may have.
pub const LONGEST_NAME: usize = 28;

/// Somebody who has tables: the kernel by way of the host's programs, or something that behaves like it.
pub trait Iptables: Send {
    /// The families that can be served.
    fn families(&self) -> Vec<Family>;

    /// Everything that the tables of a family hold.
    ///
    /// # Errors
    /// When they cannot be read.
    fn save(&mut self, family: Family) -> Result<Saved, IptablesError>;

    /// Runs a script. Each of its sections happens as a whole or not at all; those after one that failed do not happen.
    ///
    /// # Errors
    /// Why it did not happen.
    fn restore(&mut self, family: Family, script: &Script) -> Result<(), IptablesError>;

    /// Whether a chain is there and has a rule.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn has(&mut self, family: Family, table: Table, chain: &str, rule: &Rule) -> Result<bool, IptablesError>;

    /// Removes tables that hold nothing and change nothing, where tables can be removed.
    ///
    /// # Errors
    /// When they cannot be read or removed.
    fn tidy(&mut self, family: Family) -> Result<(), IptablesError>;
}

/// The tables that we know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Table {
    /// Changes packets.
    Mangle,
    /// Translates addresses.
    Nat,
    /// Lets packets pass, or does not.
    Filter,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mangle, Self::Nat, Self::Filter];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mangle => "mangle",
            Self::Nat => "nat",
            Self::Filter => "filter",
        }
    }

    /// The table of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.as_str() == name)
    }

    /// The chains that packets enter by themselves.
    #[must_use]
    pub const fn built_in(self) -> &'static [&'static str] {
        match self {
            Self::Mangle => &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
            Self::Nat => &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
            Self::Filter => &["INPUT", "FORWARD", "OUTPUT"],
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
