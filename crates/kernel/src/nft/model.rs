//! Content of a table as data. Equal tables are equal values: everything is sorted, and there are no handles.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::key::{Key, Part, Type, pack};

/// Name of a table, chain or set.
pub type Name = Arc<str>;

/// Complete content of one of our tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// Identifies its rules; stored as the comment of the table.
    pub tag: String,
    /// Its chains.
    pub chains: BTreeMap<Name, Chain>,
    /// Its sets and maps.
    pub sets: BTreeMap<Name, Set>,
}

/// A list of rules.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    /// Hook; none for chains that are only jumped to.
    pub base: Option<Base>,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
}

/// Hook of a base chain. The chain policy is accept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Base {
    /// Chain type.
    pub kind: BaseKind,
    /// Netfilter hook.
    pub hook: Hook,
    /// Priority; lower runs first.
    pub priority: i32,
}

/// Type of a base chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BaseKind {
    /// Sees every packet; may drop.
    Filter,
    /// Sees the first packet of a connection; may translate addresses.
    Nat,
}

/// Netfilter hooks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hook {
    /// Incoming packet.
    Prerouting,
    /// For this machine.
    Input,
    /// Forwarded.
    Forward,
    /// From this machine.
    Output,
    /// About to leave.
    Postrouting,
}

/// Statements, evaluated in order until one does not match.
pub type Rule = Vec<Statement>;

/// A set of keys, or a map.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Set {
    /// Types of the key.
    pub key: Vec<Type>,
    /// Type of the value.
    pub value: SetValue,
    /// Whether keys may be ranges, which must not overlap.
    pub interval: bool,
    /// For dynamic sets: seconds after which an element without packets expires.
    pub timeout: Option<u32>,
    /// Whether each element has a counter.
    pub counters: bool,
    /// Its elements.
    pub elements: BTreeMap<Key, Value>,
}

impl Set {
    /// The same set without its elements.
    #[must_use]
    pub fn bare(&self) -> Self {
        let Self { key, value, interval, timeout, counters, elements: _ } = self;
        Self {
            key: key.clone(),
            value: value.clone(),
            interval: *interval,
            timeout: *timeout,
            counters: *counters,
            elements: BTreeMap::new(),
        }
    }
}

/// Value type of a set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum SetValue {
    /// None: a set.
    #[default]
    Nothing,
    /// A verdict.
    Verdict,
    /// Data of these types.
    Data(Vec<Type>),
}

/// Value of one key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Value {
    /// None: an element of a set.
    Nothing,
    /// A verdict.
    Verdict(Verdict),
    /// Data in the byte layout of the kernel.
    Data(Box<[u8]>),
}

impl Value {
    /// Data of these parts.
    #[must_use]
    pub fn data(parts: &[Part]) -> Self {
        Self::Data(pack(parts))
    }
}

/// Verdict of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// Continue with the next base chain.
    Accept,
    /// Drop.
    Drop,
    /// Continue with the next rule.
    Continue,
    /// Return to the calling chain.
    Return,
    /// Evaluate this chain, then the next rule.
    Jump(Name),
    /// Evaluate this chain, then return to the calling chain.
    Goto(Name),
}

impl Verdict {
    /// The chain of a jump or goto.
    #[must_use]
    pub fn target(&self) -> Option<&Name> {
        match self {
            Self::Jump(name) | Self::Goto(name) => Some(name),
            Self::Accept | Self::Drop | Self::Continue | Self::Return => None,
        }
    }
}

/// A packet field that is part of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Field {
    /// Its source address.
    Source,
    /// Its destination address.
    Destination,
    /// The IP protocol.
    Protocol,
    /// The destination port.
    DestinationPort,
    /// A random number below this one.
    Random(u32),
    /// A number below this one: the one after that of the packet before, counted per rule.
    Incremental(u32),
    /// A number below `below`: the Jenkins hash of the source address with this seed.
    SourceHash {
        /// The number of values.
        below: u32,
        /// The seed.
        seed: u32,
    },
}

impl Field {
    /// The number of values of a field that is a number below a bound.
    #[must_use]
    pub fn bound(self) -> Option<u32> {
        match self {
            Self::Random(below) | Self::Incremental(below) | Self::SourceHash { below, .. } => Some(below),
            Self::Source | Self::Destination | Self::Protocol | Self::DestinationPort => None,
        }
    }

    /// Its type.
    #[must_use]
    pub fn kind(self) -> Type {
        match self {
            Self::Source | Self::Destination => Type::Address,
            Self::Protocol => Type::Protocol,
            Self::DestinationPort => Type::Port,
            Self::Random(_) | Self::Incremental(_) | Self::SourceHash { .. } => Type::Random,
        }
    }
}

/// A match or an action of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Statement {
    /// `ct state new`.
    NewConnection,
    /// `ct status dnat`.
    Translated,
    /// The mark has one of these bits.
    Marked(u32),
    /// Whether a key is in a set.
    In {
        /// Key fields.
        key: Vec<Field>,
        /// Set name.
        set: Name,
        /// Match if it is not.
        negate: bool,
    },
    /// The source is an address of this machine.
    LocalSource,
    /// The destination is an address of this machine.
    LocalDestination,
    /// Incoming interface. Packets of this machine have none.
    Interface {
        /// Name: 1 to 15 bytes.
        name: String,
        /// Whether it is a prefix.
        prefix: bool,
        /// Match other interfaces.
        negate: bool,
    },
    /// Sets mark bits.
    Mark(u32),
    /// Clears mark bits.
    Unmark(u32),
    /// Verdict map lookup; continues if the key is missing.
    Dispatch {
        /// The key.
        key: Vec<Field>,
        /// The map.
        map: Name,
    },
    /// DNAT to the address and port in a map. Ends the chain, unless the key is missing.
    Translate {
        /// The key.
        key: Vec<Field>,
        /// The map.
        map: Name,
    },
    /// For this protocol: redirect to the local port in a map. Ends the chain, unless the key is missing.
    Redirect {
        /// IP protocol: 6 is TCP, 17 UDP. `nft` can list the rule only if it is given.
        protocol: u8,
        /// The key.
        key: Vec<Field>,
        /// The map.
        map: Name,
    },
    /// Adds a key to a dynamic set or restarts its timeout. Does not match when the set is full.
    Remember {
        /// The set.
        set: Name,
        /// The key.
        key: Vec<Field>,
    },
    /// Masquerades with a random port. Ends the chain.
    Masquerade,
    /// Drops and sends ICMP port unreachable.
    Reject,
    /// For TCP: drops and sends a reset.
    Reset,
    /// Verdict.
    Go(Verdict),
}

impl Statement {
    /// The set or map of its lookup, with the key fields.
    #[must_use]
    pub fn lookup(&self) -> Option<(&Name, &[Field])> {
        match self {
            Self::In { key, set, .. } | Self::Remember { set, key } => Some((set, key)),
            Self::Dispatch { key, map } | Self::Translate { key, map } | Self::Redirect { key, map, .. } => {
                Some((map, key))
            }
            _ => None,
        }
    }
}
