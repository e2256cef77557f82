//! A question, read once from left to right.
//!
//! In: a whole message. Out: what the hot path needs of it: the name in lower case beside the bytes as they came (which
//! go back unchanged, so that a spelling with mixed case returns as it was), type, class, and what EDNS says. What
//! cannot be a question is told apart into what deserves an answer and what does not.

use super::{HEADER, Name, flag, rcode, rtype};

/// A question.
#[derive(Debug)]
pub struct Query<'m> {
    message: &'m [u8],
    /// The name asked for.
    pub name: Name,
    /// The type asked for.
    pub qtype: u16,
    /// The class asked for.
    pub qclass: u16,
    /// What EDNS says, if it is spoken.
    pub edns: Option<Edns>,
    end: usize,
}

/// What the other side says through EDNS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edns {
    /// The size of datagrams it takes.
    pub size: u16,
    /// The version it speaks.
    pub version: u8,
    /// Whether it wants to see signatures.
    pub dnssec: bool,
}

/// What is not a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Not worth a word: a reply, or no message at all.
    Silent,
    /// To be answered with this code and nothing else.
    Code(u16),
}

const FORMERR: Refusal = Refusal::Code(rcode::FORMERR);

impl<'m> Query<'m> {
    /// Reads a message.
    ///
    /// # Errors
    /// When it is not a question that can be answered.
    #[inline]
    pub fn parse(message: &'m [u8]) -> Result<Self, Refusal> {
        let header: &[u8; HEADER] = message.first_chunk().ok_or(Refusal::Silent)?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let flags = word(2);
        if flags & flag::QR != 0 {
            return Err(Refusal::Silent);
        }
        if flags & flag::OPCODE != 0 {
            return Err(Refusal::Code(rcode::NOTIMP));
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

    /// The message it came in.
    #[must_use]
    pub const fn message(&self) -> &'m [u8] {
        self.message
    }

    /// Its number.
    #[must_use]
    pub const fn id(&self) -> u16 {
        u16::from_be_bytes([self.message[0], self.message[1]])
    }

    /// The flags of its header.
    #[must_use]
    pub const fn flags(&self) -> u16 {
        u16::from_be_bytes([self.message[2], self.message[3]])
    }

    /// Where the question ends in the message; it begins after the header.
    #[must_use]
    pub const fn question_end(&self) -> usize {
        self.end
    }

    /// The name as it was spelled.
    #[must_use]
    pub fn spelled(&self) -> &'m [u8] {
        &self.message[HEADER..self.end - 4]
    }

    /// How long a datagram in reply may be.
    #[must_use]
    pub fn udp_limit(&self) -> usize {
        self.edns.map_or(super::UDP_MIN, |edns| usize::from(edns.size).max(super::UDP_MIN))
    }
}

/// Walks over the records behind the question, and finds the one of EDNS.
fn records(message: &[u8], from: usize, before: u16, additionals: u16) -> Result<Option<Edns>, Refusal> {
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
        if number < before || found.is_some() || message[owner] != 0 || !options_are_whole(data) {
            return Err(FORMERR);
        }
        let (size, dnssec) = (u16::from_be_bytes([fixed[2], fixed[3]]), fixed[6] & 0x80 != 0);
        found = Some(Edns { size, version: fixed[5], dnssec });
    }
    if at == message.len() { Ok(found) } else { Err(FORMERR) }
}

/// Where a name ends that may end with a pointer. Where that leads does not matter to whoever walks over it.
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

fn options_are_whole(mut data: &[u8]) -> bool {
    while let [_, _, high, low, rest @ ..] = data {
        match rest.get(usize::from(u16::from_be_bytes([*high, *low]))..) {
            Some(rest) => data = rest,
            None => return false,
        }
    }
    data.is_empty()
}
