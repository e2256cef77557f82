//! NOTIFICATION: why a session ends.
//!
//! In: an error, or bytes. Out: bytes, or a text. A shutdown may carry a message (RFC 9003).

use std::fmt;

use super::{NOTIFICATION, frame};

/// Maximum length of a shutdown message.
const MAX_SHUTDOWN_MESSAGE: usize = 255;

const HEADER: u8 = 1;
const OPEN: u8 = 2;
const UPDATE: u8 = 3;
const HOLD: u8 = 4;
const STATE: u8 = 5;
const CEASE: u8 = 6;

/// Why a session ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// Error code.
    pub code: u8,
    /// Error subcode.
    pub subcode: u8,
    /// Data.
    pub data: Vec<u8>,
}

impl Notification {
    /// Invalid marker.
    pub const NOT_SYNCHRONIZED: Self = Self::new(HEADER, 1);
    /// Malformed OPEN.
    pub const BAD_OPEN: Self = Self::new(OPEN, 0);
    /// Bad peer AS.
    pub const BAD_AS: Self = Self::new(OPEN, 2);
    /// Bad BGP identifier.
    pub const BAD_IDENTIFIER: Self = Self::new(OPEN, 3);
    /// Unsupported optional parameter.
    pub const BAD_PARAMETER: Self = Self::new(OPEN, 4);
    /// Unacceptable hold time.
    pub const BAD_HOLD_TIME: Self = Self::new(OPEN, 6);
    /// Malformed attribute list.
    pub const BAD_ATTRIBUTES: Self = Self::new(UPDATE, 1);
    /// Optional attribute error.
    pub const BAD_OPTIONAL: Self = Self::new(UPDATE, 9);
    /// Invalid network field.
    pub const BAD_NETWORK: Self = Self::new(UPDATE, 10);
    /// Hold timer expired.
    pub const HOLD_EXPIRED: Self = Self::new(HOLD, 0);
    /// Maximum number of prefixes reached.
    pub const TOO_MANY_PREFIXES: Self = Self::new(CEASE, 1);
    /// Peer deconfigured.
    pub const DECONFIGURED: Self = Self::new(CEASE, 3);
    /// Other configuration change.
    pub const RECONFIGURED: Self = Self::new(CEASE, 6);

    /// A reason with nothing more to it.
    #[must_use]
    pub const fn new(code: u8, subcode: u8) -> Self {
        Self { code, subcode, data: Vec::new() }
    }

    /// Bad message type.
    #[must_use]
    pub fn bad_type(kind: u8) -> Self {
        Self { data: vec![kind], ..Self::new(HEADER, 3) }
    }

    /// Bad message length.
    #[must_use]
    pub fn bad_length(length: u16) -> Self {
        Self { data: length.to_be_bytes().into(), ..Self::new(HEADER, 2) }
    }

    /// Unsupported version; the data is ours.
    #[must_use]
    pub fn bad_version() -> Self {
        Self { data: vec![0, 4], ..Self::new(OPEN, 1) }
    }

    /// Unexpected message: in OpenSent (1), OpenConfirm (2) or Established (3).
    #[must_use]
    pub const fn unexpected(state: u8) -> Self {
        Self::new(STATE, state)
    }

    /// Administrative shutdown with a message.
    #[must_use]
    pub fn shutdown(words: &str) -> Self {
        let mut end = words.len().min(MAX_SHUTDOWN_MESSAGE);
        while !words.is_char_boundary(end) {
            end -= 1;
        }
        let mut data = vec![u8::try_from(end).unwrap_or_default()];
        data.extend(words[..end].bytes());
        Self { data, ..Self::new(CEASE, 2) }
    }

    /// The shutdown message, if there is a valid one.
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

    /// Whether it is Cease rather than an error.
    #[must_use]
    pub const fn is_cease(&self) -> bool {
        self.code == CEASE
    }

    pub(super) fn read(body: &[u8]) -> Self {
        Self { code: body[0], subcode: body[1], data: body[2..].into() }
    }

    /// Encodes it.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        frame(NOTIFICATION, &[&[self.code, self.subcode], &self.data[..]].concat())
    }

    /// Text of a known code.
    fn meaning(&self) -> Option<&'static str> {
        Some(match (self.code, self.subcode) {
            (HEADER, 1) => "connection not synchronized",
            (HEADER, 2) => "bad message length",
            (HEADER, 3) => "bad message type",
            (HEADER, _) => "message header error",
            (OPEN, 1) => "unsupported version",
            (OPEN, 2) => "bad peer AS: myASN and peerASN must mirror the configuration of the peer",
            (OPEN, 3) => "bad router ID: router IDs must be unique",
            (OPEN, 4) => "unsupported optional parameter",
            (OPEN, 6) => "unacceptable hold time",
            (OPEN, 7) => "unsupported capability",
            (OPEN, _) => "OPEN message error",
            (UPDATE, _) => "UPDATE message error",
            (HOLD, _) => "hold timer expired",
            (STATE, _) => "unexpected message for the state",
            (CEASE, 1) => "maximum number of prefixes reached",
            (CEASE, 2) => "administrative shutdown",
            (CEASE, 3) => "peer deconfigured",
            (CEASE, 4) => "administrative reset",
            (CEASE, 5) => "connection rejected",
            (CEASE, 6) => "configuration changed",
            (CEASE, 7) => "connection collision resolution",
            (CEASE, 8) => "out of resources",
            (CEASE, 9) => "hard reset",
            (CEASE, 10) => "BFD down",
            (CEASE, _) => "cease",
            _ => return None,
        })
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(meaning) => f.write_str(meaning)?,
            None => f.write_str("unknown reason")?,
        }
        write!(f, " ({}/{})", self.code, self.subcode)?;
        self.words().map_or(Ok(()), |words| write!(f, ", message: {words}"))
    }
}
