//! Query parser.
//!
//! In: a complete message. Out: name, type, class and EDNS. The question section is kept as received, so that the reply
//! repeats its case (0x20 encoding). Invalid messages are classified into those that get an error reply and those that
//! are dropped.

use super::{HEADER, Name, flag, rcode, rtype};

/// Parsed query.
#[derive(Debug)]
pub struct Query<'m> {
    message: &'m [u8],
    /// QNAME.
    pub name: Name,
    /// QTYPE.
    pub qtype: u16,
    /// QCLASS.
    pub qclass: u16,
    /// EDNS fields, if present.
    pub edns: Option<Edns>,
    end: usize,
}

/// EDNS fields of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edns {
    /// UDP payload size of the client.
    pub size: u16,
    /// EDNS version.
    pub version: u8,
    /// DO bit.
    pub dnssec: bool,
}

/// Message that is not a valid query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueryError {
    /// Not answered: a response, or too short.
    Drop,
    /// Answered with this RCODE only.
    Rcode(u16),
}

const FORMERR: QueryError = QueryError::Rcode(rcode::FORMERR);

impl<'m> Query<'m> {
    /// Parses a message.
    ///
    /// # Errors
    /// When it is not a query that can be answered.
    #[inline]
    pub fn parse(message: &'m [u8]) -> Result<Self, QueryError> {
        let header: &[u8; HEADER] = message.first_chunk().ok_or(QueryError::Drop)?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let flags = word(2);
        if flags & flag::QR != 0 {
            return Err(QueryError::Drop);
        }
        if flags & flag::OPCODE != 0 {
            return Err(QueryError::Rcode(rcode::NOTIMP));
        }
        let (questions, answers, authorities, additionals) = (word(4), word(6), word(8), word(10));
        if questions != 1 || answers > 1 || authorities > 1 || additionals > 2 {
            return Err(FORMERR);
        }
        let name = Name::parse(&message[HEADER..]).map_err(|_| FORMERR)?;
        let at = HEADER + name.wire_len();
        let kind: &[u8; 4] = message.get(at..at + 4).and_then(<[u8]>::first_chunk).ok_or(FORMERR)?;
        let (qtype, qclass) = (u16::from_be_bytes([kind[0], kind[1]]), u16::from_be_bytes([kind[2], kind[3]]));
        let end = at + 4;
        let edns = if answers + authorities + additionals == 0 {
            if message.len() != end {
                return Err(FORMERR);
            }
            None
        } else {
            records(message, end, answers + authorities, additionals)?
        };
        Ok(Self { message, name, qtype, qclass, edns, end })
    }

    /// Message as received.
    #[must_use]
    pub const fn message(&self) -> &'m [u8] {
        self.message
    }

    /// Message id.
    #[must_use]
    pub const fn id(&self) -> u16 {
        u16::from_be_bytes([self.message[0], self.message[1]])
    }

    /// Header flags.
    #[must_use]
    pub const fn flags(&self) -> u16 {
        u16::from_be_bytes([self.message[2], self.message[3]])
    }

    /// End offset of the question section, which starts after the header.
    #[must_use]
    pub const fn question_end(&self) -> usize {
        self.end
    }

    /// QNAME with its original case.
    #[must_use]
    pub fn original_name(&self) -> &'m [u8] {
        &self.message[HEADER..self.end - 4]
    }

    /// Largest UDP reply in bytes.
    #[must_use]
    pub fn udp_limit(&self) -> usize {
        self.edns.map_or(super::UDP_MIN, |edns| usize::from(edns.size).max(super::UDP_MIN))
    }
}

/// Parses the records after the question and returns the EDNS fields.
fn records(message: &[u8], from: usize, before: u16, additionals: u16) -> Result<Option<Edns>, QueryError> {
    let (mut at, mut found) = (from, None);
    for number in 0..before + additionals {
        let owner = at;
        at = skip_name(message, at).ok_or(FORMERR)?;
        let fixed: &[u8; 10] = message.get(at..at + 10).and_then(<[u8]>::first_chunk).ok_or(FORMERR)?;
        let data = at + 10;
        at = data + usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        let data = message.get(data..at).ok_or(FORMERR)?;
        if u16::from_be_bytes([fixed[0], fixed[1]]) != rtype::OPT {
            continue;
        }
        if number < before || found.is_some() || message[owner] != 0 || !options_are_complete(data) {
            return Err(FORMERR);
        }
        let (size, dnssec) = (u16::from_be_bytes([fixed[2], fixed[3]]), fixed[6] & 0x80 != 0);
        found = Some(Edns { size, version: fixed[5], dnssec });
    }
    if at == message.len() { Ok(found) } else { Err(FORMERR) }
}

/// End offset of a name that may end with a compression pointer; the pointer is not followed.
pub(super) fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            len @ 1..=63 => at += 1 + usize::from(len),
            192.. => return message.get(at + 1).map(|_| at + 2),
            _ => return None,
        }
    }
}

fn options_are_complete(mut data: &[u8]) -> bool {
    while let [_, _, high, low, rest @ ..] = data {
        match rest.get(usize::from(u16::from_be_bytes([*high, *low]))..) {
            Some(rest) => data = rest,
            None => return false,
        }
    }
    data.is_empty()
}
