//! Everybody's rules, as far as they decide whether the first packet of a connection passes.
//!
//! In: chains, rules and sets of all tables, as [`super::linux::Linux::ruleset`] reads them; and, beside them, those of the old iptables
//! ([`Ruleset::add_legacy`]). Out: [`judge`] names the rule, or the
//! policy, that stops a packet. Other people's rules may look at what is not known here (interfaces, marks, limits): then the
//! answer is that it may stop it, never a guess.

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

/// The families that tables are of, as far as IP packets meet them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Sort {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// Both.
    Inet,
}

impl Sort {
    /// The sort with this number in messages.
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Inet),
            2 => Some(Self::Ip),
            10 => Some(Self::Ip6),
            _ => None,
        }
    }

    /// Its number in messages.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ip => 2,
            Self::Ip6 => 10,
        }
    }

    /// Whether packets of a family meet its chains.
    const fn meets(self, family: Family) -> bool {
        matches!((self, family), (Self::Inet, _) | (Self::Ip, Family::Ip) | (Self::Ip6, Family::Ip6))
    }
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Inet => "inet",
        })
    }
}

/// A table of somebody.
pub type TableName = (Sort, Name);

/// Everybody's rules.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ruleset {
    /// The tables that there are.
    pub tables: Vec<TableName>,
    /// Chains by table and name.
    pub chains: BTreeMap<(TableName, Name), ForeignChain>,
    /// Sets by table and name.
    pub sets: BTreeMap<(TableName, Name), ForeignSet>,
}

/// A chain of somebody.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForeignChain {
    /// Where packets enter it by themselves.
    pub entry: Option<Entry>,
    /// Its rules, in order.
    pub rules: Vec<ForeignRule>,
}

/// Where packets enter a chain by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// At which point of their way.
    pub hook: Hook,
    /// Lower comes first.
    pub priority: i32,
    /// Whether it translates addresses, and so never stops a packet.
    pub translates: bool,
    /// Whether what no rule decides is dropped.
    pub drops: bool,
}

/// A rule of somebody.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForeignRule {
    /// By which it can be deleted.
    pub handle: u64,
    /// What it does, in order, until something does not match.
    pub steps: Vec<Step>,
}

/// Elements of a set: where each begins, and what it leads to; nothing where a range has ended.
pub type Elements = Vec<(Box<[u8]>, Option<Option<Verdict>>)>;

/// A set of somebody: what its keys lead to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForeignSet {
    /// How many bytes a key has.
    pub length: usize,
    /// Its elements.
    pub elements: Elements,
    /// Whether keys are ranges.
    pub interval: bool,
    /// Whether its keys cannot be judged here.
    pub opaque: bool,
}

/// A header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// Of IP.
    Network,
    /// Of TCP, UDP and so on.
    Transport,
}

/// What a value is compared for.
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

/// A step of a rule. Registers are places in 64 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Bytes of a header are put into a register: where to, which header, from where, how many.
    Load(usize, Header, usize, usize),
    /// Something about the packet is put into a register, by the kernel's number for it.
    Meta(usize, u32),
    /// Something about its connection is.
    Connection(usize, u32),
    /// A constant is.
    Constant(usize, Vec<u8>),
    /// A register is masked and turned into another: from, to, mask, xor.
    Mask(usize, usize, Vec<u8>, Vec<u8>),
    /// A register must compare so.
    Compare(usize, Comparison, Vec<u8>),
    /// A register must lie between two values, or (true) must not.
    Between(usize, bool, Vec<u8>, Vec<u8>),
    /// A register must be in a set, or (true) must not; whether the set leads to verdicts.
    Lookup {
        /// The register.
        from: usize,
        /// The set.
        set: Name,
        /// Whether it must not be in it.
        negate: bool,
        /// Whether it leads to a verdict.
        verdict: bool,
    },
    /// The ports of the packet, in the way of iptables: protocol, source, destination, each whether it is negated.
    Ports {
        /// The protocol.
        protocol: u8,
        /// The first and last source port.
        source: (u16, u16, bool),
        /// The first and last destination port.
        destination: (u16, u16, bool),
    },
    /// The state of the connection has one of these bits, or (true) has not.
    State(u16, bool),
    /// Where it goes.
    Go(Verdict),
    /// It is refused.
    Reject,
    /// Nothing that matters here.
    Nothing,
    /// Something that cannot be judged here, by its name.
    Unclear(String),
}
