//! A rule: what must be true of a packet, and what is done to it then. Few kinds, typed, such that equal rules are equal values
//! however the programs of the host print them.

use std::fmt;
use std::net::SocketAddr;

use ipnet::IpNet;

use super::Name;
use super::tokens::quote;

/// A protocol that has ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Transport {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// SCTP
    Sctp,
}

impl Transport {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Its number in IP headers.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

/// What a packet is to its connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// Its first.
    New,
    /// One of a connection that is known, or about one.
    Known,
    /// It fits no connection.
    Invalid,
}

impl State {
    /// As programs write it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Known => "RELATED,ESTABLISHED",
            Self::Invalid => "INVALID",
        }
    }
}

/// Something that must be true of a packet. `not` turns it round.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Match {
    /// It comes from there.
    Source {
        /// The addresses.
        range: IpNet,
        /// Whether it must not.
        not: bool,
    },
    /// It goes there.
    Destination {
        /// The addresses.
        range: IpNet,
        /// Whether it must not.
        not: bool,
    },
    /// It came in by an interface; with a `+` at the end of the name, by one whose name begins so.
    Interface {
        /// The name.
        name: String,
        /// Whether it must not.
        not: bool,
    },
    /// It is of a protocol.
    Protocol {
        /// The protocol.
        transport: Transport,
        /// Whether it must not.
        not: bool,
    },
    /// It is of a protocol and goes to this port.
    Port(Transport, u16),
    /// It is that to its connection.
    State(State),
    /// It comes from an address of this machine.
    FromHere,
    /// It goes to an address of this machine.
    ToHere,
    /// Its mark has these bits.
    Marked {
        /// The bits.
        bits: u32,
        /// Whether it must not.
        not: bool,
    },
    /// Its source was put into this list within so many seconds.
    Remembered {
        /// The list.
        list: Name,
        /// The seconds.
        seconds: u32,
    },
    /// Its source is put into this list: always true.
    Remember {
        /// The list.
        list: Name,
    },
    /// It is chosen by chance: one of so many.
    OneIn(u32),
}

/// What is done to a packet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    /// Nothing: the rule only says something to people.
    Nothing,
    /// It goes through a chain.
    Chain(Name),
    /// It passes this table.
    Accept,
    /// It is dropped.
    Drop,
    /// It goes back to where it jumped from.
    Return,
    /// It is dropped, and its sender is told that the port is unreachable.
    Reject,
    /// It is dropped, and its sender is told that there is no such connection.
    Reset,
    /// These bits of its mark are set.
    Mark(u32),
    /// These bits of its mark are turned round.
    Turn(u32),
    /// It goes there instead.
    Translate(SocketAddr),
    /// It leaves with the address of the interface that it leaves by, from any port.
    Masquerade,
}

/// A rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rule {
    /// What must be true of a packet: each kind once, in order.
    matches: Vec<Match>,
    /// What is done to it then.
    target: Target,
    /// For people.
    comment: Option<Box<str>>,
}

impl Rule {
    /// A rule for every packet.
    #[must_use]
    pub const fn new(target: Target) -> Self {
        Self { matches: Vec::new(), target, comment: None }
    }

    /// A rule that leads every packet to a chain.
    #[must_use]
    pub fn jump(chain: &str) -> Self {
        Self::new(Target::Chain(chain.into()))
    }

    /// The same rule for packets of which this is true as well.
    #[must_use]
    pub fn when(mut self, what: Match) -> Self {
        let place = self.matches.partition_point(|one| *one < what);
        self.matches.insert(place, what);
        self
    }

    /// The same rule with a word for people.
    #[must_use]
    pub fn says(mut self, comment: impl Into<Box<str>>) -> Self {
        self.comment = Some(comment.into());
        self
    }

    /// The same rule without a word for people.
    #[must_use]
    pub fn silent(mut self) -> Self {
        self.comment = None;
        self
    }

    /// What must be true of a packet.
    #[must_use]
    pub fn matches(&self) -> &[Match] {
        &self.matches
    }

    /// What is done to it.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// For people.
    #[must_use]
    pub fn comment(&self) -> Option<&str> {
        self.comment.as_deref()
    }
}

/// Prints it as `iptables-restore` reads it, without the chain.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for one in &self.matches {
            write!(f, "{gap}{one}")?;
            gap = " ";
        }
        if let Some(comment) = &self.comment {
            write!(f, "{gap}-m comment --comment {}", quote(comment))?;
            gap = " ";
        }
        if self.target != Target::Nothing {
            write!(f, "{gap}-j {}", self.target)?;
        }
        Ok(())
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turned = |not: &bool| if *not { "! " } else { "" };
        match self {
            Self::Source { range, not } => write!(f, "{}-s {range}", turned(not)),
            Self::Destination { range, not } => write!(f, "{}-d {range}", turned(not)),
            Self::Interface { name, not } => write!(f, "{}-i {}", turned(not), quote(name)),
            Self::Protocol { transport, not } => write!(f, "{}-p {}", turned(not), transport.as_str()),
            Self::Port(transport, port) => write!(f, "-p {0} -m {0} --dport {port}", transport.as_str()),
            Self::State(state) => write!(f, "-m conntrack --ctstate {}", state.as_str()),
            Self::FromHere => f.write_str("-m addrtype --src-type LOCAL"),
            Self::ToHere => f.write_str("-m addrtype --dst-type LOCAL"),
            Self::Marked { bits, not } => write!(f, "-m mark {}--mark {bits:#x}/{bits:#x}", turned(not)),
            Self::Remembered { list, seconds } => {
                write!(f, "-m recent --rcheck --seconds {seconds} --reap --name {list} --rsource")
            }
            Self::Remember { list } => write!(f, "-m recent --set --name {list} --rsource"),
            Self::OneIn(count) => write!(f, "-m statistic --mode random --probability {}", probability(*count)),
        }
    }
}

/// The chance of one in so many, as it is written.
pub(super) fn probability(count: u32) -> String {
    format!("{:.10}", 1.0 / f64::from(count.max(1)))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Chain(name) => f.write_str(name),
            Self::Accept => f.write_str("ACCEPT"),
            Self::Drop => f.write_str("DROP"),
            Self::Return => f.write_str("RETURN"),
            Self::Reject => f.write_str("REJECT"),
            Self::Reset => f.write_str("REJECT --reject-with tcp-reset"),
            Self::Mark(bits) => write!(f, "MARK --set-xmark {bits:#x}/{bits:#x}"),
            Self::Turn(bits) => write!(f, "MARK --set-xmark {bits:#x}/0x0"),
            Self::Translate(to) => write!(f, "DNAT --to-destination {to}"),
            Self::Masquerade => f.write_str("MASQUERADE --random-fully"),
        }
    }
}
