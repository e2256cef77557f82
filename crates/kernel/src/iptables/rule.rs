//! A rule: matches and a target. Few kinds, typed, so that equal rules are equal values however they are printed.

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

/// Conntrack state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// NEW.
    New,
    /// RELATED or ESTABLISHED.
    Known,
    /// INVALID.
    Invalid,
}

impl State {
    /// Its text form.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Known => "RELATED,ESTABLISHED",
            Self::Invalid => "INVALID",
        }
    }
}

/// A match. `not` negates it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Match {
    /// Source address.
    Source {
        /// The addresses.
        range: IpNet,
        /// Whether it is negated.
        not: bool,
    },
    /// Destination address.
    Destination {
        /// The addresses.
        range: IpNet,
        /// Whether it is negated.
        not: bool,
    },
    /// Incoming interface; a final `+` makes it a prefix.
    Interface {
        /// The name.
        name: String,
        /// Whether it is negated.
        not: bool,
    },
    /// IP protocol.
    Protocol {
        /// The protocol.
        transport: Transport,
        /// Whether it is negated.
        not: bool,
    },
    /// Protocol and destination port.
    Port(Transport, u16),
    /// Conntrack state.
    State(State),
    /// The source is an address of this machine.
    LocalSource,
    /// The destination is an address of this machine.
    LocalDestination,
    /// The mark has these bits.
    Marked {
        /// The bits.
        bits: u32,
        /// Whether it is negated.
        not: bool,
    },
    /// `recent --rcheck`: the source is in this list, not older than so many seconds.
    RecentCheck {
        /// List name.
        list: Name,
        /// Maximum age in seconds.
        seconds: u32,
    },
    /// `recent --set`: adds the source to this list; always matches.
    RecentSet {
        /// List name.
        list: Name,
    },
    /// Random match: one in n.
    OneIn(u32),
    /// Random match with a probability in parts of 2³¹; see [`Match::share`].
    Chance(u32),
    /// Matches one of so many packets: the first, and then each time after as many others less one.
    EveryNth(u32),
}

/// Target of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    /// None: the rule is only a comment.
    Nothing,
    /// Jump to a chain.
    Chain(Name),
    /// ACCEPT.
    Accept,
    /// DROP.
    Drop,
    /// RETURN.
    Return,
    /// REJECT with port unreachable.
    Reject,
    /// REJECT with a TCP reset.
    Reset,
    /// Sets mark bits.
    Mark(u32),
    /// Toggles mark bits.
    XorMark(u32),
    /// DNAT.
    Translate(SocketAddr),
    /// MASQUERADE with a random port.
    Masquerade,
}

/// A rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rule {
    /// Matches, sorted, each kind once.
    matches: Vec<Match>,
    /// Target.
    target: Target,
    /// Comment.
    comment: Option<Box<str>>,
}

impl Rule {
    /// A rule that matches every packet.
    #[must_use]
    pub const fn new(target: Target) -> Self {
        Self { matches: Vec::new(), target, comment: None }
    }

    /// A rule that jumps to a chain.
    #[must_use]
    pub fn jump(chain: &str) -> Self {
        Self::new(Target::Chain(chain.into()))
    }

    /// Adds a match.
    #[must_use]
    pub fn when(mut self, what: Match) -> Self {
        let place = self.matches.partition_point(|one| *one < what);
        self.matches.insert(place, what);
        self
    }

    /// Sets the comment.
    #[must_use]
    pub fn with_comment(mut self, comment: impl Into<Box<str>>) -> Self {
        self.comment = Some(comment.into());
        self
    }

    /// Removes the comment.
    #[must_use]
    pub fn without_comment(mut self) -> Self {
        self.comment = None;
        self
    }

    /// Its matches.
    #[must_use]
    pub fn matches(&self) -> &[Match] {
        &self.matches
    }

    /// Its target.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Its comment.
    #[must_use]
    pub fn comment(&self) -> Option<&str> {
        self.comment.as_deref()
    }
}

/// Formats it for `iptables-restore`, without the chain.
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
            Self::LocalSource => f.write_str("-m addrtype --src-type LOCAL"),
            Self::LocalDestination => f.write_str("-m addrtype --dst-type LOCAL"),
            Self::Marked { bits, not } => write!(f, "-m mark {}--mark {bits:#x}/{bits:#x}", turned(not)),
            Self::RecentCheck { list, seconds } => {
                write!(f, "-m recent --rcheck --seconds {seconds} --reap --name {list} --rsource")
            }
            Self::RecentSet { list } => write!(f, "-m recent --set --name {list} --rsource"),
            Self::OneIn(count) => write!(f, "-m statistic --mode random --probability {}", probability(*count)),
            Self::Chance(parts) => {
                let probability = f64::from(*parts) / f64::from(CERTAIN);
                write!(f, "-m statistic --mode random --probability {probability:.10}")
            }
            Self::EveryNth(count) => write!(f, "-m statistic --mode nth --every {count} --packet 0"),
        }
    }
}

/// A probability of 1, in the parts that the kernel stores.
pub(super) const CERTAIN: u32 = 1 << 31;

impl Match {
    /// Matches at random: so many of so many packets.
    #[must_use]
    pub fn share(part: u32, of: u32) -> Self {
        match part {
            part if part > 0 && of.is_multiple_of(part) => Self::OneIn(of / part),
            part => {
                let parts = u64::from(part) * u64::from(CERTAIN) / u64::from(of.max(1));
                Self::Chance(u32::try_from(parts).unwrap_or(CERTAIN))
            }
        }
    }

    /// The probability of a random match.
    pub(super) fn probability(&self) -> Option<f64> {
        match self {
            Self::OneIn(count) => Some(1.0 / f64::from((*count).max(1))),
            Self::Chance(parts) => Some(f64::from(*parts) / f64::from(CERTAIN)),
            _ => None,
        }
    }
}

/// The probability of one in n, as printed.
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
            Self::XorMark(bits) => write!(f, "MARK --set-xmark {bits:#x}/0x0"),
            Self::Translate(to) => write!(f, "DNAT --to-destination {to}"),
            Self::Masquerade => f.write_str("MASQUERADE --random-fully"),
        }
    }
}
