//! The content of a table, as data. Equal tables are equal values: everything is sorted, nothing has a handle.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::key::{Key, Part, Type, pack};

/// The name of a table, chain or set.
pub type Name = Arc<str>;

/// The whole content of one of our tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// Says which rules it has and in which shape; kept as the comment of the table.
    pub tag: String,
    /// Its chains.
    pub chains: BTreeMap<Name, Chain>,
    /// Its sets and maps.
    pub sets: BTreeMap<Name, Set>,
}

/// A list of rules.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    /// Where packets enter it by themselves; nothing for chains that are only jumped to.
    pub base: Option<Base>,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
}

/// Where packets enter a chain. They leave it accepted unless a rule says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Base {
    /// What the chain may do.
    pub kind: BaseKind,
    /// At which point of their way.
    pub hook: Hook,
    /// Lower comes first.
    pub priority: i32,
}

/// What a base chain is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BaseKind {
    /// Sees every packet; may drop.
    Filter,
    /// Sees the first packet of a connection; may translate addresses.
    Nat,
}

/// Points on the way of a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hook {
    /// It has just come in.
    Prerouting,
    /// It is for this machine.
    Input,
    /// It is for another machine.
    Forward,
    /// This machine has made it.
    Output,
    /// It is about to leave.
    Postrouting,
}

/// What happens to a packet, statement by statement, until one does not match.
pub type Rule = Vec<Statement>;

/// A set of keys, or a map from keys to something.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Set {
    /// What a key is made of.
    pub key: Vec<Type>,
    /// What a key leads to.
    pub value: SetValue,
    /// Whether keys may be ranges. Ranges of one set must not overlap.
    pub interval: bool,
    /// For a set that packets fill: after how many seconds without a packet an element is forgotten.
    pub timeout: Option<u32>,
    /// Whether each element counts the packets that find it.
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

/// What the keys of a set lead to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum SetValue {
    /// Nothing: it is a set.
    #[default]
    Nothing,
    /// A verdict.
    Verdict,
    /// Data made of these.
    Data(Vec<Type>),
}

/// What one key leads to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Value {
    /// Nothing: it is in the set, that is all.
    Nothing,
    /// A verdict.
    Verdict(Verdict),
    /// Data, in the bytes that the kernel wants.
    Data(Box<[u8]>),
}

impl Value {
    /// Data made of these.
    #[must_use]
    pub fn data(parts: &[Part]) -> Self {
        Self::Data(pack(parts))
    }
}

/// Where a packet goes from here.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// To the next base chain.
    Accept,
    /// Nowhere.
    Drop,
    /// To the next rule.
    Continue,
    /// Back to where it jumped from.
    Return,
    /// To this chain, and then to the next rule.
    Jump(Name),
    /// To this chain, and then to where it jumped from.
    Goto(Name),
}

impl Verdict {
    /// The chain that it leads to.
    #[must_use]
    pub fn target(&self) -> Option<&Name> {
        match self {
            Self::Jump(name) | Self::Goto(name) => Some(name),
            Self::Accept | Self::Drop | Self::Continue | Self::Return => None,
        }
    }
}

/// What is taken from a packet to make a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Field {
    /// Its source address.
    Source,
    /// Its destination address.
    Destination,
    /// The protocol above IP.
    Protocol,
    /// The destination port.
    DestinationPort,
    /// Nothing of the packet: a random number below this one.
    Random(u32),
}

impl Field {
    /// What it is.
    #[must_use]
    pub fn kind(self) -> Type {
        match self {
            Self::Source | Self::Destination => Type::Address,
            Self::Protocol => Type::Protocol,
            Self::DestinationPort => Type::Port,
            Self::Random(_) => Type::Random,
        }
    }
}

/// A step of a rule: something that must be true of the packet, or something that is done to it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Statement {
    /// It is the first of a connection.
    NewConnection,
    /// The destination of its connection was translated.
    Translated,
    /// Its mark has one of these bits.
    Marked(u32),
    /// A key made of it is in a set, or is not.
    In {
        /// The key.
        key: Vec<Field>,
        /// The set.
        set: Name,
        /// Whether it must not be in it.
        negate: bool,
    },
    /// It comes from an address of this machine.
    LocalSource,
    /// It goes to an address of this machine.
    LocalDestination,
    /// It came in by an interface, or did not. Packets of this machine came in by none.
    Interface {
        /// The name: 1 to 15 bytes.
        name: String,
        /// Whether it is only how the name begins.
        prefix: bool,
        /// Whether it must not be that.
        negate: bool,
    },
    /// These bits of its mark are set.
    Mark(u32),
    /// These bits of its mark are cleared.
    Unmark(u32),
    /// It goes where a map of verdicts sends it; on, if the key is not in the map.
    Dispatch {
        /// The key.
        key: Vec<Field>,
        /// The map.
        map: Name,
    },
    /// Its destination becomes the address and port that a map has for its key. Ends the chain, unless there is none.
    Translate {
        /// The key.
        key: Vec<Field>,
        /// The map.
        map: Name,
    },
    /// It is of this protocol: its destination becomes this machine, at the port that a map has for its key. Ends the chain,
    /// unless there is none.
    Redirect {
        /// The protocol above IP: 6 is TCP, 17 UDP. `nft` can read the rule back only where it is named.
        protocol: u8,
        /// The key.
        key: Vec<Field>,
        /// The map.
        map: Name,
    },
    /// A key made of it is put into a set, or its timeout begins anew. Does not match when the set is full.
    Remember {
        /// The set.
        set: Name,
        /// The key.
        key: Vec<Field>,
    },
    /// Its source becomes the address of the interface that it leaves by, with a random port. Ends the chain.
    Masquerade,
    /// Its sender is told that the port is unreachable, and it is dropped.
    Reject,
    /// It is of TCP: its sender is told that there is no such connection, and it is dropped.
    Reset,
    /// It goes there.
    Go(Verdict),
}

impl Statement {
    /// The set or map that it looks into, with the key that it makes for it.
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
