//! Writes an answer for one client: its id, its spelling of the question, its size limit.
//!
//! In: a query and a cached answer with its age. Out: a message. Answer records that do not fit set TC; additional
//! records are omitted silently.

use super::Transport;
use super::answer::Answer;
use super::message::{Edns, Extended, HEADER, InvalidQuery, Query, flag, opt_length, put_opt, rcode};

/// Largest UDP reply without `bufsize`.
pub(super) const MAX_UDP: u16 = 4096;
/// Largest UDP reply without EDNS.
const UDP_WITHOUT_EDNS: u16 = 512;

/// How TTLs are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ttl {
    /// Reduced by this age in seconds.
    Aged(u32),
    /// Replaced by this value.
    Fixed(u32),
}

/// Options for writing an answer.
#[derive(Clone, Copy)]
pub(super) struct ReplyOptions<'a> {
    pub(super) ttl: Ttl,
    /// Maximum size in bytes.
    pub(super) limit: usize,
    /// Whether it is from the cache; sets AA, because old resolvers drop other answers.
    pub(super) from_cache: bool,
    /// Number of positions by which address records are rotated.
    pub(super) rotate: usize,
    pub(super) extended: Option<&'a Extended>,
}

/// Size limit of the reply to a query in bytes.
pub(super) fn limit(transport: Transport, edns: Option<Edns>, cap: Option<u16>) -> usize {
    let size = match (transport, edns) {
        (Transport::Tcp, _) => u16::MAX,
        (Transport::Udp, None) => UDP_WITHOUT_EDNS,
        (Transport::Udp, Some(edns)) => edns.size.min(cap.unwrap_or(MAX_UDP)).max(UDP_WITHOUT_EDNS),
    };
    usize::from(size)
}

/// Writes an answer.
pub(super) fn write(out: &mut Vec<u8>, query: &Query<'_>, answer: &Answer, options: ReplyOptions<'_>) {
    out.clear();
    let extended = options.extended.filter(|_| query.edns.is_some());
    let opt = if query.edns.is_some() { opt_length(extended) } else { 0 };
    let room = options.limit.saturating_sub(HEADER + query.question.len() + opt);
    let fits = answer.marks.iter().take_while(|mark| usize::from(mark.end) <= room).count();
    let counts = fitting(answer.counts, fits);
    // Without its SOA record a negative answer is incomplete, so its omission sets TC, too.
    let vital = if answer.counts[0] > 0 { 0 } else { 1 };
    let cut = counts[..=vital] != answer.counts[..=vital];
    let mut flags = flag::QR | flag::RA | (query.flags & (flag::RD | flag::CD)) | (answer.rcode & 15);
    for (bit, on) in [
        (flag::AA, answer.authoritative || options.from_cache),
        (flag::TC, cut || answer.truncated),
        (flag::AD, answer.authentic && (query.has(flag::AD) || query.dnssec())),
    ] {
        flags |= if on { bit } else { 0 };
    }
    for word in [query.id, flags, 1, counts[0], counts[1], counts[2] + u16::from(query.edns.is_some())] {
        out.extend(word.to_be_bytes());
    }
    out.extend(query.question);
    let body = out.len();
    let end = fits.checked_sub(1).map_or(0, |last| usize::from(answer.marks[last].end));
    out.extend(&answer.body[..end]);
    age(&mut out[body..], answer, fits, options.ttl);
    rotate(&mut out[body..], answer, usize::from(counts[0]), options.rotate);
    if query.edns.is_some() {
        put_opt(out, answer.rcode, query.dnssec(), extended);
    }
}

/// Number of records per section among the first `fits`.
fn fitting(counts: [u16; 3], fits: usize) -> [u16; 3] {
    let mut left = u16::try_from(fits).unwrap_or(u16::MAX);
    counts.map(|count| {
        let here = count.min(left);
        left -= here;
        here
    })
}

fn age(body: &mut [u8], answer: &Answer, records: usize, ttl: Ttl) {
    for mark in &answer.marks[..records] {
        let at = usize::from(mark.ttl);
        let field = &mut body[at..at + 4];
        let old = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
        let new = match ttl {
            Ttl::Aged(seconds) => old.saturating_sub(seconds),
            Ttl::Fixed(seconds) => seconds,
        };
        field.copy_from_slice(&new.to_be_bytes());
    }
}

/// Rotates address records. Only records of equal size whose owner is a pointer are moved, since nothing points into
/// them.
fn rotate(body: &mut [u8], answer: &Answer, answers: usize, by: usize) {
    let start = |index: usize| index.checked_sub(1).map_or(0, |last| usize::from(answer.marks[last].end));
    let is_address = |index: usize| {
        let (from, end) = (start(index), usize::from(answer.marks[index].end));
        let size = end - from;
        body[from] >= 0xc0
            && (size == 16 && body[from + 3] == 1 || size == 28 && body[from + 3] == 28)
            && body[from + 2] == 0
    };
    let Some(first) = (0..answers).find(|index| is_address(*index)) else { return };
    let size = usize::from(answer.marks[first].end) - start(first);
    let last = (first..answers)
        .take_while(|index| is_address(*index) && usize::from(answer.marks[*index].end) - start(*index) == size)
        .last()
        .unwrap_or(first);
    let run = &mut body[start(first)..usize::from(answer.marks[last].end)];
    run.rotate_left(by % (last - first + 1) * size);
}

/// Reply without records.
pub(super) fn code(query: &Query<'_>, rcode: u16, extended: Option<&Extended>) -> Vec<u8> {
    let mut out = Vec::new();
    let options =
        ReplyOptions { ttl: Ttl::Aged(0), limit: usize::from(u16::MAX), from_cache: false, rotate: 0, extended };
    write(&mut out, query, &Answer::empty(rcode), options);
    out
}

/// Reply to an invalid query; empty if none is sent.
pub(super) fn invalid_query(error: InvalidQuery) -> Vec<u8> {
    match error {
        InvalidQuery::Drop => Vec::new(),
        InvalidQuery::Rcode { id, flags, rcode } => {
            let flags = flag::QR | (flags & (flag::OPCODE | flag::RD | flag::CD)) | (rcode & 15);
            let mut out = Vec::with_capacity(HEADER);
            for word in [id, flags, 0, 0, 0, 0] {
                out.extend(word.to_be_bytes());
            }
            out
        }
    }
}

/// Reply to queries that are rejected by type or EDNS version.
pub(super) fn rejected(query: &Query<'_>) -> Option<Vec<u8>> {
    const TRANSFERS: std::ops::RangeInclusive<u16> = 251..=252;
    if query.edns.is_some_and(|edns| edns.version != 0) {
        return Some(code(query, rcode::BADVERS, None));
    }
    TRANSFERS.contains(&query.qtype).then(|| code(query, rcode::REFUSED, None))
}
