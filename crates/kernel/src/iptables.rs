//! iptables: rules as values, scripts of changes, and the port that runs them.
//!
//! The kernel interface replaces whole tables and differs between the two variants of iptables, so this port runs the
//! programs of the host, as all other users of these tables do. Input is a [`Script`] for `iptables-restore`; output is
//! [`Saved`], the text of `iptables-save`, whose rules are parsed on demand ([`Rule`]). [`fake::Fake`] takes the same
//! texts and can evaluate packets.

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

/// Chain name.
pub type Name = Arc<str>;

/// Maximum length of a chain name.
pub const LONGEST_NAME: usize = 28;

/// Access to iptables.
pub trait Iptables: Send {
    /// Supported families.
    fn families(&self) -> Vec<Family>;

    /// All tables of a family.
    ///
    /// # Errors
    /// When they cannot be read.
    fn save(&mut self, family: Family) -> Result<Saved, IptablesError>;

    /// Runs a script. Each section is atomic; those after a failed one are not run.
    ///
    /// # Errors
    /// Why it failed.
    fn restore(&mut self, family: Family, script: &Script) -> Result<(), IptablesError>;

    /// Whether a chain exists and has a rule.
    ///
    /// # Errors
    /// When it cannot be checked.
    fn has(&mut self, family: Family, table: Table, chain: &str, rule: &Rule) -> Result<bool, IptablesError>;

    /// Removes empty tables with default policies, where tables can be removed.
    ///
    /// # Errors
    /// When they cannot be read or removed.
    fn tidy(&mut self, family: Family) -> Result<(), IptablesError>;
}

/// Known tables.
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

    /// Built-in chains.
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
