//! Parser for arbitrary messages: upstream replies and tests. Names are decompressed.

use super::{HEADER, NAME_MAX, rtype};

/// Message with a valid header.
#[derive(Clone, Copy, Debug)]
pub struct Message<'m> {
    bytes: &'m [u8],
    records: usize,
}

/// Section of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    /// Answer.
    Answer,
    /// Authority.
    Authority,
    /// Additional.
    Additional,
}

/// Resource record.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    /// Owner name in uncompressed wire form.
    pub owner: Vec<u8>,
    /// Type.
    pub rtype: u16,
    /// Class.
    pub class: u16,
    /// TTL in seconds.
    pub ttl: u32,
    /// RDATA; compressible names are decompressed.
    pub data: Vec<u8>,
}

/// Malformed message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed DNS message (truncated or invalid)")]
pub struct BadMessage;

impl<'m> Message<'m> {
    /// Parses the header and skips the question section.
    ///
    /// # Errors
    /// When they are incomplete.
    pub fn read(bytes: &'m [u8]) -> Result<Self, BadMessage> {
        let message = Self { bytes, records: HEADER };
        if bytes.len() < HEADER {
            return Err(BadMessage);
        }
        let mut at = HEADER;
        for _ in 0..message.word(4) {
            at = super::query::skip_name(bytes, at).ok_or(BadMessage)? + 4;
        }
        if at > bytes.len() { Err(BadMessage) } else { Ok(Self { bytes, records: at }) }
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Message id.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.word(0)
    }

    /// Header flags, including the low RCODE bits.
    #[must_use]
    pub fn flags(&self) -> u16 {
        self.word(2)
    }

    /// Number of questions.
    #[must_use]
    pub fn questions(&self) -> u16 {
        self.word(4)
    }

    /// Number of records of a section.
    #[must_use]
    pub fn count(&self, section: Section) -> u16 {
        self.word(match section {
            Section::Answer => 6,
            Section::Authority => 8,
            Section::Additional => 10,
        })
    }

    /// Offset of the first record.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.records
    }

    /// Records of all sections; ends after the first malformed one.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, BadMessage>> + use<'m> {
        let sections = [Section::Answer, Section::Authority, Section::Additional];
        let mut left: usize = sections.iter().map(|section| usize::from(self.count(*section))).sum();
        let (bytes, mut at) = (self.bytes, self.records);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let read = record(bytes, at);
            match &read {
                Ok((_, end)) => at = *end,
                Err(_) => left = 0,
            }
            Some(read.map(|(record, _)| record))
        })
    }

    /// Offset after the last record.
    ///
    /// # Errors
    /// When a record is malformed.
    pub fn end(&self) -> Result<usize, BadMessage> {
        let sections = [Section::Answer, Section::Authority, Section::Additional];
        let left: usize = sections.iter().map(|section| usize::from(self.count(*section))).sum();
        (0..left).try_fold(self.records, |at, _| record(self.bytes, at).map(|(_, end)| end))
    }
}

fn record(bytes: &[u8], at: usize) -> Result<(Record, usize), BadMessage> {
    let (owner, at) = name(bytes, at)?;
    let fixed: &[u8; 10] = bytes.get(at..at + 10).and_then(<[u8]>::first_chunk).ok_or(BadMessage)?;
    let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let start = at + 10;
    let end = start + usize::from(word(8));
    bytes.get(start..end).ok_or(BadMessage)?;
    let rtype = word(0);
    let data = data(&bytes[..end], rtype, start)?;
    let ttl = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
    Ok((Record { owner, rtype, class: word(2), ttl, data }, end))
}

/// RDATA with names decompressed; `bytes` ends with the RDATA.
fn data(bytes: &[u8], rtype: u16, start: usize) -> Result<Vec<u8>, BadMessage> {
    let (fixed, names) = match rtype {
        rtype::NS | rtype::CNAME | rtype::PTR => (0, 1),
        rtype::MX => (2, 1),
        rtype::SRV => (6, 1),
        rtype::SOA => (0, 2),
        _ => return Ok(bytes[start..].to_vec()),
    };
    let mut at = start + fixed;
    let mut out = bytes.get(start..at).ok_or(BadMessage)?.to_vec();
    for _ in 0..names {
        let (name, end) = name(bytes, at)?;
        out.extend_from_slice(&name);
        at = end;
    }
    out.extend_from_slice(bytes.get(at..).ok_or(BadMessage)?);
    Ok(out)
}

/// Decompresses a name; also returns its end offset. Pointers must point backwards, so this terminates.
fn name(bytes: &[u8], start: usize) -> Result<(Vec<u8>, usize), BadMessage> {
    let (mut out, mut at, mut end, mut before) = (Vec::new(), start, None, start);
    loop {
        match *bytes.get(at).ok_or(BadMessage)? {
            0 => {
                out.push(0);
                return if out.len() > NAME_MAX { Err(BadMessage) } else { Ok((out, end.unwrap_or(at + 1))) };
            }
            len @ 1..=63 => {
                let next = at + 1 + usize::from(len);
                out.extend_from_slice(bytes.get(at..next).ok_or(BadMessage)?);
                if out.len() > NAME_MAX {
                    return Err(BadMessage);
                }
                at = next;
            }
            high @ 192.. => {
                let low = *bytes.get(at + 1).ok_or(BadMessage)?;
                let to = usize::from(u16::from_be_bytes([high & 0x3f, low]));
                end.get_or_insert(at + 2);
                if to >= before {
                    return Err(BadMessage);
                }
                (at, before) = (to, to);
            }
            _ => return Err(BadMessage),
        }
    }
}
