//! Cached form of answers: wire bytes after the question section, with the offsets of TTLs.
//!
//! In: upstream messages, or records. Out: an [`Answer`] that can be copied after any spelling of its question, because
//! compression pointers refer to the question by offset, and truncated after any record, because pointers only point
//! backwards.

use std::collections::HashMap;

use domain::base::iana::Rtype;
use domain::base::rdata::{ComposeRecordData as _, UnknownRecordData};
use domain::base::{Message, ParsedRecord, ToName as _};
use domain::rdata::AllRecordData;

use super::Record;
use super::message::{HEADER, OPT, rcode, u16_at};

/// Types with compressible names in RDATA (RFC 3597).
const WITH_NAMES: [u16; 17] = [2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 15, 17, 21, 26, 33, 35, 39];
/// Types that are inspected.
const SOA: u16 = 6;
const CNAME: u16 = 5;

/// Parsed upstream message.
#[derive(Clone, Default, Debug)]
pub(super) struct Unpacked {
    pub(super) rcode: u16,
    pub(super) authoritative: bool,
    pub(super) authentic: bool,
    pub(super) truncated: bool,
    /// Whether it had an OPT record.
    pub(super) edns: bool,
    /// Answer, authority, additional.
    pub(super) sections: [Vec<Record>; 3],
}

/// Malformed upstream message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed reply")]
pub(super) struct MalformedMessage;

impl Unpacked {
    pub(super) fn read(message: &[u8]) -> Result<Self, MalformedMessage> {
        let message = Message::from_octets(message).map_err(|_| MalformedMessage)?;
        let header = message.header();
        let mut out = Self {
            rcode: u16::from(header.rcode().to_int()),
            authoritative: header.aa(),
            authentic: header.ad(),
            truncated: header.tc(),
            ..Self::default()
        };
        let mut section = message.answer().map_err(|_| MalformedMessage)?;
        for records in &mut out.sections {
            for record in section.by_ref() {
                let record = record.map_err(|_| MalformedMessage)?;
                if record.rtype().to_int() == OPT {
                    out.edns = true;
                    out.rcode |= u16::try_from(record.ttl().as_secs() >> 24).unwrap_or(0) << 4;
                    continue;
                }
                records.push(unpack(&record)?);
            }
            match section.next_section() {
                Ok(Some(next)) => section = next,
                Ok(None) => break,
                Err(_) => return Err(MalformedMessage),
            }
        }
        Ok(out)
    }

    /// SOA record that limits the TTL of a negative answer.
    pub(super) fn soa(&self) -> Option<&Record> {
        self.sections[1].iter().find(|record| record.rtype == SOA)
    }

    /// Whether there is data for the query, possibly after a CNAME chain.
    pub(super) fn has_data(&self, qtype: u16) -> bool {
        let asked = |record: &Record| record.rtype == qtype || qtype == Rtype::ANY.to_int();
        self.rcode == rcode::NOERROR && self.sections[0].iter().any(asked)
    }
}

fn unpack(record: &ParsedRecord<'_, &[u8]>) -> Result<Record, MalformedMessage> {
    let mut owner = Vec::new();
    record.owner().compose(&mut owner).map_err(|_| MalformedMessage)?;
    let rtype = record.rtype().to_int();
    let mut data = Vec::new();
    if WITH_NAMES.contains(&rtype) {
        let typed = record.to_any_record::<AllRecordData<_, _>>().map_err(|_| MalformedMessage)?;
        typed.data().compose_rdata(&mut data).map_err(|_| MalformedMessage)?;
    } else {
        let plain =
            record.to_record::<UnknownRecordData<_>>().map_err(|_| MalformedMessage)?.ok_or(MalformedMessage)?;
        data.extend_from_slice(plain.data().data());
    }
    // A TTL with the most significant bit set is treated as zero (RFC 2181).
    let ttl = record.ttl().as_secs();
    let ttl = if ttl > u32::MAX >> 1 { 0 } else { ttl };
    Ok(Record { owner, rtype, class: record.class().to_int(), ttl, data })
}

/// Offsets of the TTL and of the end of a record within the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) ttl: u16,
    pub(super) end: u16,
}

/// Answer in wire form without its question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) rcode: u16,
    pub(super) authoritative: bool,
    pub(super) authentic: bool,
    pub(super) truncated: bool,
    /// Number of records per section.
    pub(super) counts: [u16; 3],
    /// Bytes after the question section.
    pub(super) body: Box<[u8]>,
    /// One per record.
    pub(super) marks: Box<[Mark]>,
}

impl Answer {
    /// Answer without records.
    pub(super) fn empty(rcode: u16) -> Self {
        Self {
            rcode,
            authoritative: false,
            authentic: false,
            truncated: false,
            counts: [0; 3],
            body: Box::default(),
            marks: Box::default(),
        }
    }

    /// Packs records for a question with this name in wire form. Records that do not fit are omitted.
    pub(super) fn pack(name: &[u8], unpacked: &Unpacked) -> Self {
        let mut packer = Packer::new(name);
        let mut counts = [0_u16; 3];
        let mut full = false;
        for (count, records) in counts.iter_mut().zip(&unpacked.sections) {
            for record in records {
                full = full || !packer.record(record);
                *count += u16::from(!full);
            }
        }
        let cut = full && usize::from(counts[0]) < unpacked.sections[0].len();
        Self {
            rcode: unpacked.rcode,
            authoritative: unpacked.authoritative,
            authentic: unpacked.authentic,
            truncated: unpacked.truncated || cut,
            counts,
            body: packer.out.split_off(packer.start).into(),
            marks: packer.marks.into(),
        }
    }

    /// Unpacks the records, to change them.
    pub(super) fn unpack(&self, name: &[u8]) -> Result<Unpacked, MalformedMessage> {
        let mut message = vec![0; HEADER];
        message[5] = 1;
        for (index, count) in self.counts.iter().enumerate() {
            message[6 + 2 * index..8 + 2 * index].copy_from_slice(&count.to_be_bytes());
        }
        message.extend(name);
        message.extend([0, 1, 0, 1]);
        message.extend(&*self.body);
        let mut out = Unpacked::read(&message)?;
        out.rcode = self.rcode;
        (out.authoritative, out.authentic, out.truncated) = (self.authoritative, self.authentic, self.truncated);
        Ok(out)
    }

    /// Memory use in bytes.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.body.len() + self.marks.len() * size_of::<Mark>()
    }
}

/// Smallest TTL of all records.
pub(super) fn shortest_ttl(sections: &[Vec<Record>; 3]) -> Option<u32> {
    sections.iter().flatten().map(|record| record.ttl).min()
}

/// MINIMUM field of an SOA record: maximum TTL of negative answers.
pub(super) fn soa_minimum(soa: &Record) -> u32 {
    let at = soa.data.len().saturating_sub(4);
    let high = u16_at(&soa.data, at).unwrap_or(0);
    let low = u16_at(&soa.data, at + 2).unwrap_or(0);
    u32::from(high) << 16 | u32::from(low)
}

/// Writes records with name compression.
struct Packer {
    out: Vec<u8>,
    /// Offset of the body.
    start: usize,
    /// Offsets of the lower-cased names and suffixes written so far.
    known: HashMap<Vec<u8>, u16>,
    marks: Vec<Mark>,
}

impl Packer {
    fn new(name: &[u8]) -> Self {
        let mut packer = Self { out: vec![0; HEADER], start: 0, known: HashMap::new(), marks: Vec::new() };
        packer.name(name);
        packer.out.extend([0; 4]);
        packer.start = packer.out.len();
        packer
    }

    /// Writes a name; a suffix written before becomes a pointer.
    fn name(&mut self, wire: &[u8]) {
        let mut rest = wire;
        while let Some((length, tail)) = rest.split_first().filter(|(length, _)| **length > 0) {
            let lower = rest.to_ascii_lowercase();
            if let Some(at) = self.known.get(&lower) {
                self.out.extend((0xc000 | at).to_be_bytes());
                return;
            }
            if let Some(at) = u16::try_from(self.out.len()).ok().filter(|at| *at < 0x4000) {
                self.known.insert(lower, at);
            }
            let end = usize::from(*length).min(tail.len());
            self.out.push(*length);
            self.out.extend(&tail[..end]);
            rest = &tail[end..];
        }
        self.out.push(0);
    }

    /// Writes a record; false if the message would be too long.
    fn record(&mut self, record: &Record) -> bool {
        let before = self.out.len();
        self.name(&record.owner);
        self.out.extend(record.rtype.to_be_bytes());
        self.out.extend(record.class.to_be_bytes());
        let ttl = self.out.len();
        self.out.extend(record.ttl.to_be_bytes());
        self.out.extend([0, 0]);
        let data = self.out.len();
        self.data(record);
        let length = u16::try_from(self.out.len() - data);
        let mark = |at: usize| u16::try_from(at - self.start);
        // Leaves room for an OPT record.
        let fits = self.out.len() + 512 <= usize::from(u16::MAX);
        let (Ok(length), Ok(ttl), Ok(end), true) = (length, mark(ttl), mark(self.out.len()), fits) else {
            self.out.truncate(before);
            return false;
        };
        self.out[data - 2..data].copy_from_slice(&length.to_be_bytes());
        self.marks.push(Mark { ttl, end });
        true
    }

    /// Writes RDATA; only names of RFC 1035 types may be compressed.
    fn data(&mut self, record: &Record) {
        let data = &record.data[..];
        let names_at = match record.rtype {
            2 | CNAME | 12 | SOA => 0,
            15 => 2,
            _ => data.len(),
        };
        let (head, mut rest) = data.split_at(names_at.min(data.len()));
        self.out.extend(head);
        let names = if record.rtype == SOA { 2 } else { usize::from(names_at < data.len()) };
        for _ in 0..names {
            let Some(end) = super::message::skip_name(rest, 0).filter(|end| *end <= rest.len()) else { break };
            self.name(&rest[..end]);
            rest = &rest[end..];
        }
        self.out.extend(rest);
    }
}
