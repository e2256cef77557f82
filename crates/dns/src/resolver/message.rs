//! Query parser of the resolver, and outgoing queries.
//!
//! In: a message as received. Out: its question with the name lower-cased and its EDNS fields, or why it is invalid.
//! Does not allocate, since listener threads call it for every query.

use crate::config::Name;
use crate::wire::UDP_PAYLOAD_SIZE;

pub(super) use crate::wire::rtype::OPT;
pub(super) use crate::wire::{HEADER, flag, rcode};

/// Lower-cased name in wire form, without heap.
#[derive(Clone, Copy)]
pub(super) struct Lower {
    bytes: [u8; 255],
    length: u8,
}

impl Lower {
    pub(super) fn as_wire(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// EDNS fields of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edns {
    pub(super) size: u16,
    pub(super) version: u8,
    pub(super) dnssec: bool,
}

/// Parsed query.
pub(super) struct Query<'a> {
    pub(super) id: u16,
    pub(super) flags: u16,
    /// Question section as received.
    pub(super) question: &'a [u8],
    pub(super) name: Lower,
    pub(super) qtype: u16,
    pub(super) qclass: u16,
    pub(super) edns: Option<Edns>,
}

/// Message that is not a valid query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InvalidQuery {
    /// Not answered: too short, or a response.
    Drop,
    /// Answered with this RCODE.
    Rcode { id: u16, flags: u16, rcode: u16 },
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

impl<'a> Query<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<Self, InvalidQuery> {
        let word = |at| u16_at(message, at).ok_or(InvalidQuery::Drop);
        let (id, flags) = (word(0)?, word(2)?);
        let counts = [word(4)?, word(6)?, word(8)?, word(10)?];
        if flags & flag::QR != 0 {
            return Err(InvalidQuery::Drop);
        }
        let code = |rcode| InvalidQuery::Rcode { id, flags, rcode };
        if flags & flag::OPCODE != 0 {
            return Err(code(rcode::NOTIMP));
        }
        if counts[0] != 1 || counts[1] > 1 || counts[2] > 1 || counts[3] > 2 {
            return Err(code(rcode::FORMERR));
        }
        Self::read_question(message, id, flags, counts).ok_or(code(rcode::FORMERR))
    }

    fn read_question(message: &'a [u8], id: u16, flags: u16, counts: [u16; 4]) -> Option<Self> {
        let (name, after) = read_name(message, HEADER)?;
        let (qtype, qclass) = (u16_at(message, after)?, u16_at(message, after + 2)?);
        let question = &message[HEADER..after + 4];
        let mut at = after + 4;
        let mut edns = None;
        for _ in 0..counts[1..].iter().sum() {
            let fixed = skip_name(message, at)?;
            let (rtype, length) = (u16_at(message, fixed)?, u16_at(message, fixed + 8)?);
            if rtype == OPT && edns.is_none() {
                edns = Some(Edns {
                    size: u16_at(message, fixed + 2)?,
                    version: *message.get(fixed + 5)?,
                    dnssec: message.get(fixed + 6)? & 0x80 != 0,
                });
            }
            at = fixed + 10 + usize::from(length);
            if at > message.len() {
                return None;
            }
        }
        Some(Self { id, flags, question, name, qtype, qclass, edns })
    }

    /// Whether the DO bit is set.
    pub(super) fn dnssec(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec)
    }

    pub(super) fn has(&self, bit: u16) -> bool {
        self.flags & bit != 0
    }
}

/// Parses an uncompressed name; returns it lower-cased with its end offset.
fn read_name(message: &[u8], start: usize) -> Option<(Lower, usize)> {
    let mut at = start;
    loop {
        match usize::from(*message.get(at)?) {
            0 => break,
            length @ 1..=63 => at += 1 + length,
            _ => return None,
        }
    }
    let wire = &message[start..=at];
    let mut bytes = [0; 255];
    bytes.get_mut(..wire.len())?.copy_from_slice(wire);
    // Length bytes are below 64 and no letters, so the whole name can be lower-cased at once.
    bytes[..wire.len()].make_ascii_lowercase();
    Some((Lower { bytes, length: u8::try_from(wire.len()).ok()? }, at + 1))
}

/// End offset of a name, compressed or not.
pub(super) fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match usize::from(*message.get(at)?) {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + length,
            0xc0.. => return Some(at + 2),
            _ => return None,
        }
    }
}

/// Query to an upstream.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) name: Name,
    pub(super) qtype: u16,
    pub(super) qclass: u16,
    pub(super) recursion: bool,
    pub(super) dnssec: bool,
    pub(super) checking_disabled: bool,
}

impl Outgoing {
    /// Query with default flags.
    pub(super) fn new(name: Name, qtype: u16) -> Self {
        Self { name, qtype, qclass: 1, recursion: true, dnssec: false, checking_disabled: false }
    }

    /// Query of a client with another name.
    pub(super) fn of(query: &Query<'_>, name: &Name) -> Self {
        Self {
            qclass: query.qclass,
            dnssec: query.dnssec(),
            checking_disabled: query.has(flag::CD),
            ..Self::new(name.clone(), query.qtype)
        }
    }

    /// Message in wire form.
    pub(super) fn message(&self, id: u16, edns: bool) -> Vec<u8> {
        let mut flags = if self.recursion { flag::RD } else { 0 };
        if self.checking_disabled {
            flags |= flag::CD;
        }
        let mut out = Vec::with_capacity(HEADER + self.name.as_wire().len() + 15);
        for word in [id, flags, 1, 0, 0, u16::from(edns)] {
            out.extend(word.to_be_bytes());
        }
        out.extend(self.name.as_wire());
        out.extend(self.qtype.to_be_bytes());
        out.extend(self.qclass.to_be_bytes());
        if edns {
            put_opt(&mut out, 0, self.dnssec, None);
        }
        out
    }

    /// Whether a message is a response to this query. Error responses may omit the question.
    pub(super) fn is_answered_by(&self, message: &[u8]) -> bool {
        let (Some(flags), Some(count)) = (u16_at(message, 2), u16_at(message, 4)) else { return false };
        if flags & flag::QR == 0 || flags & flag::OPCODE != 0 || message.len() < HEADER {
            return false;
        }
        if count == 0 {
            return flags & 15 != 0;
        }
        let Some((name, after)) = read_name(message, HEADER) else { return false };
        count == 1
            && name.as_wire() == self.name.as_wire()
            && u16_at(message, after) == Some(self.qtype)
            && u16_at(message, after + 2) == Some(self.qclass)
    }
}

/// Length of the OPT record in bytes.
pub(super) fn opt_length(extended: Option<&Extended>) -> usize {
    11 + extended.map_or(0, |extended| 6 + extended.text().len())
}

/// Appends the OPT record.
pub(super) fn put_opt(out: &mut Vec<u8>, rcode: u16, dnssec: bool, extended: Option<&Extended>) {
    out.push(0);
    out.extend(OPT.to_be_bytes());
    out.extend(UDP_PAYLOAD_SIZE.to_be_bytes());
    out.extend([u8::try_from(rcode >> 4).unwrap_or(u8::MAX), 0, if dnssec { 0x80 } else { 0 }, 0]);
    let Some(extended) = extended else { return out.extend([0, 0]) };
    let text = extended.text();
    let length = u16::try_from(text.len()).expect("the text is cut to 200 bytes");
    for word in [length + 6, 15, length + 2, extended.code] {
        out.extend(word.to_be_bytes());
    }
    out.extend(text.as_bytes());
}

/// Extended DNS error (RFC 8914).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Extended {
    pub(super) code: u16,
    pub(super) text: String,
}

impl Extended {
    pub(super) const OTHER: u16 = 0;
    pub(super) const STALE: u16 = 3;
    pub(super) const PROHIBITED: u16 = 18;
    pub(super) const STALE_NXDOMAIN: u16 = 19;
    pub(super) const NOT_AUTHORITATIVE: u16 = 20;
    pub(super) const NO_REACHABLE_AUTHORITY: u16 = 22;
    pub(super) const NETWORK_ERROR: u16 = 23;

    pub(super) fn new(code: u16, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Text, limited to 200 bytes.
    fn text(&self) -> &str {
        let end = self.text.floor_char_boundary(200);
        &self.text[..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    #[test]
    fn an_outgoing_query_parses() {
        let mut outgoing = Outgoing::new(name("Example.org"), 28);
        outgoing.dnssec = true;
        let message = outgoing.message(7, true);
        let query = Query::read(&message).unwrap_or_else(|invalid| panic!("{invalid:?}"));
        assert_eq!((query.id, query.qtype, query.qclass), (7, 28, 1));
        assert_eq!(query.name.as_wire(), b"\x07example\x03org\0");
        assert_eq!(query.edns, Some(Edns { size: UDP_PAYLOAD_SIZE, version: 0, dnssec: true }));
        assert!(query.has(flag::RD) && !query.has(flag::CD));
    }

    #[test]
    fn invalid_queries_are_classified() {
        let good = Outgoing::new(name("a"), 1).message(7, false);
        let invalid = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut message = good.clone();
            change(&mut message);
            Query::read(&message).err()
        };
        let code = |rcode, flags| Some(InvalidQuery::Rcode { id: 7, flags, rcode });
        assert_eq!(invalid(&|_| ()), None);
        assert_eq!(invalid(&|message| message.truncate(11)), Some(InvalidQuery::Drop));
        assert_eq!(invalid(&|message| message[2] |= 0x80), Some(InvalidQuery::Drop));
        assert_eq!(invalid(&|message| message[2] |= 0x10), code(rcode::NOTIMP, 0x1100));
        assert_eq!(invalid(&|message| message[5] = 2), code(rcode::FORMERR, 0x0100));
        assert_eq!(invalid(&|message| message[11] = 1), code(rcode::FORMERR, 0x0100));
        assert_eq!(invalid(&|message| message.truncate(14)), code(rcode::FORMERR, 0x0100));
        assert_eq!(invalid(&|message| message[12] = 0xc0), code(rcode::FORMERR, 0x0100));
    }

    #[test]
    fn only_matching_replies_are_accepted() {
        let outgoing = Outgoing::new(name("a.example"), 1);
        let mut answer = outgoing.message(7, false);
        assert!(!outgoing.is_answered_by(&answer), "a question is no answer");
        answer[2] |= 0x80;
        assert!(outgoing.is_answered_by(&answer));
        answer[13] = b'A';
        assert!(outgoing.is_answered_by(&answer), "case does not matter");
        answer[13] = b'b';
        assert!(!outgoing.is_answered_by(&answer));
        assert!(outgoing.is_answered_by(&[0, 7, 0x80, 5, 0, 0, 0, 0, 0, 0, 0, 0]), "a bare refusal");
        assert!(!outgoing.is_answered_by(&[0, 7, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert!(!outgoing.is_answered_by(&[0, 7, 0x80]));
    }
}
