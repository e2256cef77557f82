//! Reply writer.
//!
//! In: a query, and records in section order. Out: a message within the size limit. A record that does not fit is
//! removed; in the answer section this sets TC, in the additional section it does not. Owner names are pointers to the
//! question, so that they repeat its case.

use super::{Edns, HEADER, Query, QueryError, UDP_PAYLOAD_SIZE, extended, flag, rtype};

/// Compression pointer to the QNAME.
pub const QUESTION: u16 = 0xc00c;
/// Flag bits of a compression pointer.
pub const POINTER: u16 = 0xc000;
/// Largest offset of a compression pointer.
const MAX_POINTER: usize = 0x3fff;
/// Length of an OPT record without options.
const OPT: usize = 11;

/// Reply being written.
#[derive(Debug)]
pub struct Reply<'b> {
    out: &'b mut Vec<u8>,
    limit: usize,
    edns: Option<Edns>,
    flags: u16,
    counts: [u16; 3],
    truncated: bool,
    omitted_additional: bool,
    error: Option<u16>,
}

/// Position in a reply for [`Reply::rewind`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    len: usize,
    counts: [u16; 3],
    truncated: bool,
}

impl<'b> Reply<'b> {
    /// Starts a reply with header and question section.
    #[inline]
    pub fn begin(out: &'b mut Vec<u8>, query: &Query<'_>, limit: usize) -> Self {
        out.clear();
        out.extend_from_slice(&query.message()[..query.question_end()]);
        let room = limit - if query.edns.is_some() { OPT } else { 0 };
        let flags = flag::QR | query.flags() & (flag::OPCODE | flag::RD | flag::CD);
        Self {
            out,
            limit: room,
            edns: query.edns,
            flags,
            counts: [0; 3],
            truncated: false,
            omitted_additional: false,
            error: None,
        }
    }

    /// Offset of the next byte.
    #[must_use]
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// Compression pointer to an offset, if it can be encoded.
    #[must_use]
    pub fn pointer(at: usize) -> Option<u16> {
        u16::try_from(at).ok().filter(|_| at <= MAX_POINTER).map(|at| POINTER | at)
    }

    /// Appends an answer record for the QNAME; false if it does not fit. Later answers are then rejected, too.
    #[inline]
    pub fn answer(&mut self, rtype: u16, ttl: u32, data: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.answer_at(QUESTION, rtype, ttl, data)
    }

    /// Appends an answer record for the name at a compression pointer.
    #[inline]
    pub fn answer_at(&mut self, owner: u16, rtype: u16, ttl: u32, data: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.truncated {
            return false;
        }
        let fits = self.record(0, |out| out.extend_from_slice(&owner.to_be_bytes()), rtype, ttl, data);
        self.truncated = !fits;
        fits
    }

    /// Appends an answer record with an uncompressed owner name.
    pub fn answer_named(&mut self, owner: &[u8], rtype: u16, ttl: u32, data: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.truncated {
            return false;
        }
        let fits = self.record(0, |out| out.extend_from_slice(owner), rtype, ttl, data);
        self.truncated = !fits;
        fits
    }

    /// Appends an authority record; `owner` writes its name.
    #[inline]
    pub fn authority(
        &mut self,
        owner: impl FnOnce(&mut Vec<u8>),
        rtype: u16,
        ttl: u32,
        data: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        self.record(1, owner, rtype, ttl, data)
    }

    /// Appends an additional record; `owner` writes its name.
    pub fn additional(
        &mut self,
        owner: impl FnOnce(&mut Vec<u8>),
        rtype: u16,
        ttl: u32,
        data: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let fits = self.record(2, owner, rtype, ttl, data);
        self.omitted_additional |= !fits;
        fits
    }

    /// Whether an additional record was omitted.
    #[must_use]
    pub const fn omitted_additional(&self) -> bool {
        self.omitted_additional
    }

    /// Number of records of a section; 0 is the answer section.
    #[must_use]
    pub const fn count(&self, section: usize) -> u16 {
        self.counts[section]
    }

    /// Whether an answer record was omitted.
    #[must_use]
    pub const fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Current position.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { len: self.out.len(), counts: self.counts, truncated: self.truncated }
    }

    /// Removes everything written since `mark`.
    pub fn rewind(&mut self, mark: Mark) {
        self.out.truncate(mark.len);
        (self.counts, self.truncated) = (mark.counts, mark.truncated);
    }

    /// Sets the TC flag.
    pub fn set_truncated(&mut self) {
        self.truncated = true;
    }

    /// Adds an extended DNS error if the client supports EDNS.
    pub fn set_extended_error(&mut self, why: u16) {
        if self.edns.is_some() && self.limit >= 6 {
            self.limit -= 6;
            self.error = Some(why);
        }
    }

    #[inline]
    fn record(
        &mut self,
        section: usize,
        owner: impl FnOnce(&mut Vec<u8>),
        rtype: u16,
        ttl: u32,
        data: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let before = self.out.len();
        owner(self.out);
        let [t1, t0] = rtype.to_be_bytes();
        let [s3, s2, s1, s0] = ttl.to_be_bytes();
        self.out.extend_from_slice(&[t1, t0, 0, 1, s3, s2, s1, s0, 0, 0]);
        let start = self.out.len();
        data(self.out);
        let length = self.out.len() - start;
        if self.out.len() > self.limit || self.counts[section] == u16::MAX {
            self.out.truncate(before);
            return false;
        }
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        self.out[start - 2..start].copy_from_slice(&length.to_be_bytes());
        self.counts[section] += 1;
        true
    }

    /// Finishes the reply: OPT record, counts and flags.
    #[inline]
    pub fn finish(mut self, rcode: u16, flags: u16) {
        if let Some(edns) = self.edns {
            self.opt(edns, rcode);
        }
        let truncated = if self.truncated { flag::TC } else { 0 };
        let flags = (self.flags | flags | truncated) & !0xf | rcode & 0xf;
        let [answers, authorities, additionals] = self.counts;
        let words = [flags, 1, answers, authorities, additionals];
        for (bytes, word) in self.out[2..HEADER].chunks_exact_mut(2).zip(words) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
    }

    fn opt(&mut self, edns: Edns, rcode: u16) {
        let [t1, t0] = rtype::OPT.to_be_bytes();
        let [u1, u0] = UDP_PAYLOAD_SIZE.to_be_bytes();
        let high = u8::try_from(rcode >> 4).unwrap_or(0);
        let dnssec = if edns.dnssec { 0x80 } else { 0 };
        self.out.extend_from_slice(&[0, t1, t0, u1, u0, high, 0, dnssec, 0]);
        match self.error {
            Some(why) => {
                let [o1, o0] = extended::OPTION.to_be_bytes();
                let [w1, w0] = why.to_be_bytes();
                self.out.extend_from_slice(&[0, 6, o1, o0, 0, 2, w1, w0]);
            }
            None => self.out.extend_from_slice(&[0, 0]),
        }
        self.counts[2] += 1;
    }
}

/// Writes a header-only error reply to an invalid query; false if none is sent.
pub fn write_error(message: &[u8], error: QueryError, out: &mut Vec<u8>) -> bool {
    out.clear();
    let (QueryError::Rcode(code), Some(header)) = (error, message.first_chunk::<HEADER>()) else { return false };
    let flags = u16::from_be_bytes([header[2], header[3]]) & (flag::OPCODE | flag::RD | flag::CD);
    out.extend_from_slice(&header[..2]);
    out.extend_from_slice(&(flag::QR | flags | code & 0xf).to_be_bytes());
    out.extend_from_slice(&[0; 8]);
    true
}
