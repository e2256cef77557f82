//! NOTIFICATION: why a session ends, in numbers for machines and in words for people.
//!
//! In: what went wrong, or bytes. Out: bytes, or a sentence. A peer may say in its own words why it shuts a session down (RFC 9003).

use std::fmt;

use super::{NOTIFICATION, framed};

/// How long the words of a shutdown may be.
const WORDS: usize = 255;

const HEADER: u8 = 1;
const OPEN: u8 = 2;
const UPDATE: u8 = 3;
const HOLD: u8 = 4;
const STATE: u8 = 5;
const CEASE: u8 = 6;

/// Why a session ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// What kind of reason.
    pub code: u8,
    /// Which reason of its kind.
    pub subcode: u8,
    /// What belongs to it.
    pub data: Vec<u8>,
}

impl Notification {
    /// The head of a message does not begin with ones.
    pub const NOT_SYNCHRONIZED: Self = Self::new(HEADER, 1);
    /// An OPEN that cannot be read.
    pub const BAD_OPEN: Self = Self::new(OPEN, 0);
    /// The peer is of another autonomous system than was said.
    pub const BAD_AS: Self = Self::new(OPEN, 2);
    /// The peer's identifier cannot be one.
    pub const BAD_IDENTIFIER: Self = Self::new(OPEN, 3);
    /// An OPEN with a parameter that nobody knows.
    pub const BAD_PARAMETER: Self = Self::new(OPEN, 4);
    /// A hold time of one or two seconds.
    pub const BAD_HOLD_TIME: Self = Self::new(OPEN, 6);
    /// An UPDATE whose parts do not fit into it.
    pub const BAD_ATTRIBUTES: Self = Self::new(UPDATE, 1);
    /// An UPDATE with an attribute that cannot be read, though all depends on it.
    pub const BAD_OPTIONAL: Self = Self::new(UPDATE, 9);
    /// An UPDATE with a prefix that is none.
    pub const BAD_NETWORK: Self = Self::new(UPDATE, 10);
    /// Nothing was heard for too long.
    pub const HOLD_EXPIRED: Self = Self::new(HOLD, 0);
    /// More prefixes than we want to hear of.
    pub const TOO_MANY_PREFIXES: Self = Self::new(CEASE, 1);
    /// We are told no longer to speak to this peer.
    pub const DECONFIGURED: Self = Self::new(CEASE, 3);
    /// Settings have changed.
    pub const RECONFIGURED: Self = Self::new(CEASE, 6);

    /// A reason with nothing more to it.
    #[must_use]
    pub const fn new(code: u8, subcode: u8) -> Self {
        Self { code, subcode, data: Vec::new() }
    }

    /// A message of a type that nobody knows.
    #[must_use]
    pub fn bad_type(kind: u8) -> Self {
        Self { data: vec![kind], ..Self::new(HEADER, 3) }
    }

    /// A message that is too long or too short.
    #[must_use]
    pub fn bad_length(length: u16) -> Self {
        Self { data: length.to_be_bytes().into(), ..Self::new(HEADER, 2) }
    }

    /// A version of the protocol that is not ours, which is told.
    #[must_use]
    pub fn bad_version() -> Self {
        Self { data: vec![0, 4], ..Self::new(OPEN, 1) }
    }

    /// A message that has no place here: while we wait for OPEN (1), for KEEPALIVE (2), or later (3).
    #[must_use]
    pub const fn unexpected(state: u8) -> Self {
        Self::new(STATE, state)
    }

    /// We go, for a reason in words.
    #[must_use]
    pub fn shutdown(words: &str) -> Self {
        let mut end = words.len().min(WORDS);
        while !words.is_char_boundary(end) {
            end -= 1;
        }
        let mut data = vec![u8::try_from(end).unwrap_or_default()];
        data.extend(words[..end].bytes());
        Self { data, ..Self::new(CEASE, 2) }
    }

    /// The words of somebody who goes, if there are any that can be read.
    #[must_use]
    pub fn words(&self) -> Option<&str> {
        if !matches!((self.code, self.subcode), (CEASE, 2 | 4)) {
            return None;
        }
        let (length, text) = self.data.split_first()?;
        let text = std::str::from_utf8(text.get(..usize::from(*length))?).ok()?;
        // Control characters would reach a terminal through a log.
        (!text.is_empty() && !text.chars().any(char::is_control)).then_some(text)
    }

    /// Whether the other side wants no session for now, rather than that something went wrong.
    #[must_use]
    pub const fn is_cease(&self) -> bool {
        self.code == CEASE
    }

    pub(super) fn read(body: &[u8]) -> Self {
        Self { code: body[0], subcode: body[1], data: body[2..].into() }
    }

    /// Writes it.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        framed(NOTIFICATION, &[&[self.code, self.subcode], &self.data[..]].concat())
    }

    /// The reason in words; nothing for numbers that nobody gave a meaning.
    fn meaning(&self) -> Option<&'static str> {
        Some(match (self.code, self.subcode) {
            (HEADER, 1) => "messages are out of step",
            (HEADER, 2) => "a message of a wrong length",
            (HEADER, 3) => "a message of an unknown type",
            (HEADER, _) => "a message with a wrong head",
            (OPEN, 1) => "another version of BGP",
            (OPEN, 2) => "the wrong AS number: peerASN and myASN must be what the other side has the other way round",
            (OPEN, 3) => "a router ID that it refuses: each router needs one of its own",
            (OPEN, 4) => "an optional parameter that it does not know",
            (OPEN, 6) => "a hold time that it refuses",
            (OPEN, 7) => "a capability that is missing or refused",
            (OPEN, _) => "an OPEN that it does not take",
            (UPDATE, _) => "an UPDATE that it does not take",
            (HOLD, _) => "the hold timer ran out",
            (STATE, _) => "a message at the wrong time",
            (CEASE, 1) => "too many prefixes",
            (CEASE, 2) => "administrative shutdown",
            (CEASE, 3) => "the peer is no longer configured",
            (CEASE, 4) => "administrative reset",
            (CEASE, 5) => "the connection was rejected",
            (CEASE, 6) => "its configuration changed",
            (CEASE, 7) => "another connection took its place",
            (CEASE, 8) => "it is out of resources",
            (CEASE, 9) => "a hard reset",
            (CEASE, 10) => "BFD says that the way is down",
            (CEASE, _) => "it ceases",
            _ => return None,
        })
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(meaning) => f.write_str(meaning)?,
            None => f.write_str("no known reason")?,
        }
        write!(f, " ({}/{})", self.code, self.subcode)?;
        self.words().map_or(Ok(()), |words| write!(f, ", in its words: {words}"))
    }
}
