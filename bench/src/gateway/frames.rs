//! Frames of HTTP/2 and header blocks without compression: enough for a client and a server that send the same messages again and again.
//!
//! In: bytes. Out: frames; and the other way round. Header blocks that are received are not decoded, so no state is kept for them. This keeps
//! the processor time of the load generator small.

use anyhow::{Context as _, ensure};
use bytes::{Buf as _, Bytes, BytesMut};

/// What a client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The initial window of a connection and of each stream, in bytes.
pub const INITIAL_WINDOW: i64 = 65_535;
/// How much of the largest window is given at a time, in bytes.
const GRANT: u32 = (1 << 31) - 1 - 65_535;
/// The longest frame that is accepted, in bytes: the default of the protocol.
const MAX_FRAME: usize = 16_384;

/// Types of frames.
pub mod kind {
    /// DATA.
    pub const DATA: u8 = 0;
    /// HEADERS.
    pub const HEADERS: u8 = 1;
    /// `RST_STREAM`.
    pub const RST_STREAM: u8 = 3;
    /// SETTINGS.
    pub const SETTINGS: u8 = 4;
    /// PING.
    pub const PING: u8 = 6;
    /// GOAWAY.
    pub const GOAWAY: u8 = 7;
    /// `WINDOW_UPDATE`.
    pub const WINDOW_UPDATE: u8 = 8;
}

/// Flags of frames.
pub mod flag {
    /// `ACK` of SETTINGS and PING.
    pub const ACK: u8 = 0x1;
    /// `END_STREAM`.
    pub const END_STREAM: u8 = 0x1;
    /// `END_HEADERS`.
    pub const END_HEADERS: u8 = 0x4;
    /// `PADDED`.
    pub const PADDED: u8 = 0x8;
    /// `PRIORITY`.
    pub const PRIORITY: u8 = 0x20;
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
    /// Its payload.
    pub payload: Bytes,
}

impl Frame {
    /// Takes the next frame from the start of a buffer, if it is complete.
    ///
    /// # Errors
    /// When a frame is longer than allowed.
    pub fn take(buffer: &mut BytesMut) -> anyhow::Result<Option<Self>> {
        let [a, b, c, kind, flags, id @ ..] = *buffer.first_chunk::<9>().unwrap_or(&[0; 9]);
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        ensure!(length <= MAX_FRAME, "a frame of {length} bytes");
        if buffer.len() < 9 + length {
            return Ok(None);
        }
        buffer.advance(9);
        let stream = u32::from_be_bytes(id) & 0x7fff_ffff;
        Ok(Some(Self { kind, flags, stream, payload: buffer.split_to(length).freeze() }))
    }

    /// Whether it has a flag.
    #[must_use]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Its content without padding and priority.
    ///
    /// # Errors
    /// When the padding is longer than the frame.
    pub fn content(&self) -> anyhow::Result<&[u8]> {
        let mut content = &self.payload[..];
        if self.has(flag::PADDED) {
            let (length, rest) = content.split_first().context("a frame without the length of its padding")?;
            let end = rest.len().checked_sub(usize::from(*length)).context("more padding than frame")?;
            content = &rest[..end];
        }
        if self.kind == kind::HEADERS && self.has(flag::PRIORITY) {
            content = content.get(5..).context("a frame without its priority")?;
        }
        Ok(content)
    }

    /// The first number of its payload: the increment of a `WINDOW_UPDATE`, the error of a `RST_STREAM`.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.payload.first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes) & 0x7fff_ffff)
    }
}

/// Appends a frame.
pub fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends what either side sends at the start: default settings, and the largest window for the connection.
pub fn put_start(out: &mut Vec<u8>) {
    put(out, kind::SETTINGS, 0, 0, &[]);
    put(out, kind::WINDOW_UPDATE, 0, 0, &GRANT.to_be_bytes());
}

/// The windows of a connection: what the other side may send, and what this side may.
#[derive(Debug)]
pub struct Windows {
    received: u32,
    /// Bytes that may be sent.
    pub sendable: i64,
}

impl Default for Windows {
    fn default() -> Self {
        Self { received: 0, sendable: INITIAL_WINDOW }
    }
}

impl Windows {
    /// Handles frames that concern the connection alone, and counts DATA; appends what has to be answered.
    pub fn see(&mut self, frame: &Frame, out: &mut Vec<u8>) {
        match frame.kind {
            kind::SETTINGS if !frame.has(flag::ACK) => put(out, kind::SETTINGS, flag::ACK, 0, &[]),
            kind::PING if !frame.has(flag::ACK) => put(out, kind::PING, flag::ACK, 0, &frame.payload),
            kind::WINDOW_UPDATE if frame.stream == 0 => self.sendable += i64::from(frame.number()),
            kind::DATA => {
                self.received += u32::try_from(frame.payload.len()).unwrap_or(u32::MAX);
                if self.received > GRANT / 2 {
                    put(out, kind::WINDOW_UPDATE, 0, 0, &self.received.to_be_bytes());
                    self.received = 0;
                }
            }
            _ => {}
        }
    }
}

/// A header block: names with their values, each as it is, none kept in a table. A value must be shorter than 127 bytes.
#[must_use]
pub fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    fn put(out: &mut Vec<u8>, text: &str) {
        debug_assert!(text.len() < 127, "longer texts have a longer form");
        out.push(u8::try_from(text.len()).unwrap_or(0));
        out.extend_from_slice(text.as_bytes());
    }
    let mut out = Vec::new();
    for (name, value) in headers {
        match (*name, *value) {
            (":method", "GET") => out.push(0x82),
            (":method", "POST") => out.push(0x83),
            (":scheme", "http") => out.push(0x86),
            (":scheme", "https") => out.push(0x87),
            (":status", "200") => out.push(0x88),
            _ => {
                out.push(0);
                put(&mut out, name);
                put(&mut out, value);
            }
        }
    }
    out
}

/// Whether a header block begins with the status 200, in the form that all implementations give it: an entry of the static table.
#[must_use]
pub fn is_ok(block: &[u8]) -> bool {
    // Changes of the size of the table come first.
    let mut rest = block;
    while let [first, more @ ..] = rest
        && first & 0xe0 == 0x20
    {
        let is_long = first & 0x1f == 0x1f;
        let length = more.iter().position(|byte| byte & 0x80 == 0).map_or(more.len(), |last| last + 1);
        rest = if is_long { &more[length..] } else { more };
    }
    rest.first() == Some(&0x88)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written_whatever_pieces_they_come_in() {
        let mut wire = Vec::new();
        put(&mut wire, kind::HEADERS, flag::END_HEADERS, 5, b"abc");
        put(&mut wire, kind::DATA, flag::END_STREAM, 0x7fff_ffff, &[7; 300]);
        for size in 1..wire.len() {
            let (mut buffer, mut found) = (BytesMut::new(), Vec::new());
            for piece in wire.chunks(size) {
                buffer.extend_from_slice(piece);
                while let Some(frame) = Frame::take(&mut buffer).expect("a frame") {
                    found.push((frame.kind, frame.flags, frame.stream, frame.payload.len()));
                }
            }
            assert_eq!(found, [(1, 4, 5, 3), (0, 1, 0x7fff_ffff, 300)], "in pieces of {size}");
        }
        assert!(Frame::take(&mut BytesMut::from(&[1, 0, 0, 0, 0, 0, 0, 0, 1][..])).is_err());
    }

    #[test]
    fn padding_and_priority_are_no_content() {
        let frame = |kind, flags, payload: &'static [u8]| Frame { kind, flags, stream: 1, payload: payload.into() };
        assert_eq!(frame(kind::DATA, flag::PADDED, b"\x02ab\0\0").content().expect("content"), b"ab");
        let both = frame(kind::HEADERS, flag::PADDED | flag::PRIORITY, b"\x01\0\0\0\0\x10x\0");
        assert_eq!(both.content().expect("content"), b"x");
        assert!(frame(kind::DATA, flag::PADDED, b"\x09a").content().is_err());
    }

    #[test]
    fn a_block_with_the_status_200_is_recognised() {
        assert!(is_ok(&block(&[(":status", "200"), ("a", "b")])));
        assert!(is_ok(b"\x20\x88") && is_ok(b"\x3f\xe1\x1f\x88"));
        assert!(!is_ok(&block(&[(":status", "503")])) && !is_ok(b"") && !is_ok(b"\x3f\xff"));
    }

    #[test]
    fn a_window_that_is_half_used_is_given_again() {
        let (mut windows, mut out) = (Windows::default(), Vec::new());
        let payload = Bytes::from(vec![0; MAX_FRAME]);
        let data = Frame { kind: kind::DATA, flags: 0, stream: 1, payload };
        let mut granted = 0_u64;
        for _ in 0..2 * (GRANT as usize / MAX_FRAME) {
            windows.see(&data, &mut out);
            let mut buffer = BytesMut::from(&out[..]);
            granted += Frame::take(&mut buffer).expect("a frame").map_or(0, |frame| u64::from(frame.number()));
            out.clear();
        }
        assert!(granted > u64::from(GRANT), "{granted}");
    }
}
