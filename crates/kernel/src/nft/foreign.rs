//! The rules of all programs, as far as they decide whether the first packet of a connection passes.
//!
//! In: chains, rules and sets of all tables, as read by [`super::linux::Linux::ruleset`], and those of legacy iptables
//! ([`Ruleset::add_legacy`]). Out: [`judge`] names the rule or policy that stops a packet. Foreign rules may match what
//! is unknown here (interfaces, marks, limits): then the result is that they may stop it, never a guess.

mod bits;
mod judge;
mod legacy;
mod words;

use std::collections::BTreeMap;
use std::fmt;

use super::model::{Hook, Name, Verdict};
use crate::Family;

pub use judge::{Packet, Stop, judge};
pub use legacy::is_legacy;
pub use words::words;

/// Table families that IP packets pass.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TableFamily {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// Both.
    Inet,
}

impl TableFamily {
    /// The family with this number.
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Inet),
            2 => Some(Self::Ip),
            10 => Some(Self::Ip6),
            _ => None,
        }
    }

    /// Its number.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ip => 2,
            Self::Ip6 => 10,
        }
    }

    /// Whether packets of a family pass its chains.
    const fn meets(self, family: Family) -> bool {
        matches!((self, family), (Self::Inet, _) | (Self::Ip, Family::Ip) | (Self::Ip6, Family::Ip6))
    }
}

impl fmt::Display for TableFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Inet => "inet",
        })
    }
}

/// Family and name of a table.
pub type TableName = (TableFamily, Name);

/// The complete ruleset.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ruleset {
    /// All tables.
    pub tables: Vec<TableName>,
    /// Chains by table and name.
    pub chains: BTreeMap<(TableName, Name), ForeignChain>,
    /// Sets by table and name.
    pub sets: BTreeMap<(TableName, Name), ForeignSet>,
}

/// A foreign chain.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForeignChain {
    /// Hook, for base chains.
    pub entry: Option<Entry>,
    /// Its rules, in order.
    pub rules: Vec<ForeignRule>,
}

/// Hook of a base chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Netfilter hook.
    pub hook: Hook,
    /// Priority; lower runs first.
    pub priority: i32,
    /// Whether it is a NAT chain, which never stops a packet.
    pub translates: bool,
    /// Whether the policy is drop.
    pub drops: bool,
}

/// A foreign rule.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForeignRule {
    /// Handle for deletion.
    pub handle: u64,
    /// Its steps, evaluated until one does not match.
    pub steps: Vec<Step>,
}

/// Elements of a set: start of each range and its verdict; none after the end of a range.
pub type Elements = Vec<(Box<[u8]>, Option<Option<Verdict>>)>;

/// A foreign set or verdict map.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForeignSet {
    /// Key length in bytes.
    pub length: usize,
    /// Its elements.
    pub elements: Elements,
    /// Whether keys are ranges.
    pub interval: bool,
    /// Whether its keys cannot be evaluated here.
    pub opaque: bool,
}

/// A packet header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// IP header.
    Network,
    /// TCP, UDP, … header.
    Transport,
}

/// Comparison operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// Equal.
    Equal,
    /// Not equal.
    Unequal,
    /// Less.
    Less,
    /// Less or equal.
    AtMost,
    /// More.
    More,
    /// More or equal.
    AtLeast,
}

/// A step of a rule. Registers are offsets in 64 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Loads header bytes into a register: register, header, offset, length.
    Load(usize, Header, usize, usize),
    /// Loads a `meta` key into a register.
    Meta(usize, u32),
    /// Loads a `ct` key into a register.
    Connection(usize, u32),
    /// Loads a constant into a register.
    Constant(usize, Vec<u8>),
    /// Bitwise operation: source, destination, mask, xor.
    Mask(usize, usize, Vec<u8>, Vec<u8>),
    /// Compares a register.
    Compare(usize, Comparison, Vec<u8>),
    /// Range match; negated if true.
    Between(usize, bool, Vec<u8>, Vec<u8>),
    /// Set or verdict map lookup.
    Lookup {
        /// The register.
        from: usize,
        /// The set.
        set: Name,
        /// Match if it is missing.
        negate: bool,
        /// Whether it is a verdict map.
        verdict: bool,
    },
    /// Ports as matched by iptables; the flags negate.
    Ports {
        /// The protocol.
        protocol: u8,
        /// First and last source port.
        source: (u16, u16, bool),
        /// First and last destination port.
        destination: (u16, u16, bool),
    },
    /// Connection state; negated if true.
    State(u16, bool),
    /// Verdict.
    Go(Verdict),
    /// Reject.
    Reject,
    /// No effect on the verdict.
    Nothing,
    /// Cannot be evaluated here; the name of the expression.
    Unclear(String),
}
