//! A reply, written into a buffer from left to right.
//!
//! In: a query, records in the order of their sections. Out: bytes that are never longer than the limit. A record that
//! does not fit is taken back; when it was an answer the reply says that it is cut, when it only would have helped it
//! is silently left out. Owners are pointers into the question, so that they are spelled as they were asked.

use super::{Edns, HEADER, Query, Refusal, UDP_OURS, extended, flag, rtype};

/// The pointer to the name of the question.
pub const QUESTION: u16 = 0xc00c;
/// What makes a place a pointer.
pub const POINTER: u16 = 0xc000;
/// How far a pointer reaches.
const REACH: usize = 0x3fff;
/// The length of an OPT record without options.
const OPT: usize = 11;

/// A reply under way.
#[derive(Debug)]
pub struct Reply<'b> {
    out: &'b mut Vec<u8>,
    limit: usize,
    edns: Option<Edns>,
    flags: u16,
    counts: [u16; 3],
    cut: bool,
    helpless: bool,
    error: Option<u16>,
}

/// A point in a reply.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    len: usize,
    counts: [u16; 3],
    cut: bool,
}

impl<'b> Reply<'b> {
    /// Begins: the header, and the question as it came.
    #[inline]
    pub fn begin(out: &'b mut Vec<u8>, query: &Query<'_>, limit: usize) -> Self {
        out.clear();
        out.extend_from_slice(&query.message()[..query.question_end()]);
        let room = limit - if query.edns.is_some() { OPT } else { 0 };
        let flags = flag::QR | query.flags() & (flag::OPCODE | flag::RD | flag::CD);
        Self { out, limit: room, edns: query.edns, flags, counts: [0; 3], cut: false, helpless: false, error: None }
    }

    /// Where the next byte goes.
    #[must_use]
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// A pointer to a place in the message, when pointers reach it.
    #[must_use]
    pub fn pointer(at: usize) -> Option<u16> {
        u16::try_from(at).ok().filter(|_| at <= REACH).map(|at| POINTER | at)
    }

    /// An answer about the name of the question; false when it does not fit, and then no later one will be taken.
    #[inline]
    pub fn answer(&mut self, rtype: u16, ttl: u32, data: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.answer_of(QUESTION, rtype, ttl, data)
    }

    /// An answer about the name at a pointer.
    #[inline]
    pub fn answer_of(&mut self, owner: u16, rtype: u16, ttl: u32, data: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.cut {
            return false;
        }
        let fits = self.record(0, |out| out.extend_from_slice(&owner.to_be_bytes()), rtype, ttl, data);
        self.cut = !fits;
        fits
    }

    /// An answer whose owner is written out.
    pub fn answer_named(&mut self, owner: &[u8], rtype: u16, ttl: u32, data: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.cut {
            return false;
        }
        let fits = self.record(0, |out| out.extend_from_slice(owner), rtype, ttl, data);
        self.cut = !fits;
        fits
    }

    /// A record of the authority, whose owner is written by the caller.
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

    /// A record that helps, whose owner is written by the caller.
    pub fn additional(
        &mut self,
        owner: impl FnOnce(&mut Vec<u8>),
        rtype: u16,
        ttl: u32,
        data: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let fits = self.record(2, owner, rtype, ttl, data);
        self.helpless |= !fits;
        fits
    }

    /// Whether something that would have helped was left out.
    #[must_use]
    pub const fn lacks_help(&self) -> bool {
        self.helpless
    }

    /// How many records a section has; 0 is the answer.
    #[must_use]
    pub const fn count(&self, section: usize) -> u16 {
        self.counts[section]
    }

    /// Whether an answer was left out.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.cut
    }

    /// Where it is now, to come back to.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { len: self.out.len(), counts: self.counts, cut: self.cut }
    }

    /// Takes back what was written since.
    pub fn rewind(&mut self, mark: Mark) {
        self.out.truncate(mark.len);
        (self.counts, self.cut) = (mark.counts, mark.cut);
    }

    /// Says that somebody else left an answer out.
    pub fn cut(&mut self) {
        self.cut = true;
    }

    /// Says why, to those who speak EDNS.
    pub fn explain(&mut self, why: u16) {
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

    /// Ends: the record of EDNS, counts and flags.
    #[inline]
    pub fn finish(mut self, rcode: u16, flags: u16) {
        if let Some(edns) = self.edns {
            self.opt(edns, rcode);
        }
        let cut = if self.cut { flag::TC } else { 0 };
        let flags = (self.flags | flags | cut) & !0xf | rcode & 0xf;
        let [answers, authorities, additionals] = self.counts;
        let words = [flags, 1, answers, authorities, additionals];
        for (bytes, word) in self.out[2..HEADER].chunks_exact_mut(2).zip(words) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
    }

    fn opt(&mut self, edns: Edns, rcode: u16) {
        let [t1, t0] = rtype::OPT.to_be_bytes();
        let [u1, u0] = UDP_OURS.to_be_bytes();
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

/// Writes what is said to something that is no question: a header. False when nothing is said.
pub fn refuse(message: &[u8], refusal: Refusal, out: &mut Vec<u8>) -> bool {
    out.clear();
    let (Refusal::Code(code), Some(header)) = (refusal, message.first_chunk::<HEADER>()) else { return false };
    let flags = u16::from_be_bytes([header[2], header[3]]) & (flag::OPCODE | flag::RD | flag::CD);
    out.extend_from_slice(&header[..2]);
    out.extend_from_slice(&(flag::QR | flags | code & 0xf).to_be_bytes());
    out.extend_from_slice(&[0; 8]);
    true
}
