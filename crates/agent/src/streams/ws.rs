//! WebSocket frames (RFC 6455), server side. Pure: bytes in, parts of messages out.
//!
//! Messages are passed on in parts as they arrive, whatever their length. Control frames, at most 125 bytes, are read whole. Extensions are never
//! negotiated, so reserved bits are errors.

pub mod channel;
pub mod handshake;
#[cfg(test)]
mod tests;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// The longest payload of a control frame.
const CONTROL: usize = 125;

/// Close codes (RFC 6455, 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    /// Normal closure.
    Normal = 1000,
    /// Protocol error.
    Protocol = 1002,
    /// Unsupported message type.
    Unsupported = 1003,
    /// Invalid message content.
    Invalid = 1007,
    /// Message too long.
    TooLong = 1009,
}

/// A decoded frame or part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A part of a message.
    Message {
        /// Whether it is the first part.
        first: bool,
        /// Whether it is the last part.
        last: bool,
        /// Whether the message is text.
        text: bool,
        /// The payload.
        bytes: Bytes,
    },
    /// Ping.
    Ping(Bytes),
    /// Pong.
    Pong,
    /// Close, with an optional code.
    Close(Option<u16>),
}

/// A protocol error: close code and reason.
pub type Broken = (Code, &'static str);

/// Decodes frames.
#[derive(Debug, Default)]
pub struct Reader {
    /// The frame whose payload is being read.
    frame: Option<Frame>,
    /// Whether the unfinished message is text.
    message: Option<bool>,
    /// Whether its first part is still to come.
    fresh: bool,
}

#[derive(Debug)]
struct Frame {
    opcode: u8,
    last: bool,
    left: u64,
    mask: [u8; 4],
    /// The position in the mask.
    at: usize,
}

impl Reader {
    /// Removes the next part from `input`; nothing when more bytes are needed.
    ///
    /// # Errors
    /// On a protocol error.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Piece>, Broken> {
        if self.frame.is_none() {
            let Some(frame) = head(input)? else { return Ok(None) };
            self.begin(&frame)?;
            self.frame = Some(frame);
        }
        let Some(frame) = &mut self.frame else { return Ok(None) };
        let wanted = usize::try_from(frame.left).unwrap_or(usize::MAX);
        let count = wanted.min(input.len());
        if frame.opcode >= 8 && count < wanted || count == 0 && wanted > 0 {
            return Ok(None);
        }
        let bytes = frame.unmask(input.split_to(count));
        let (opcode, last, done) = (frame.opcode, frame.last, frame.left == 0);
        if done {
            self.frame = None;
        }
        match opcode {
            8 => close(&bytes).map(Some),
            9 => Ok(Some(Piece::Ping(bytes))),
            10 => Ok(Some(Piece::Pong)),
            _ => Ok(Some(self.message(bytes, last && done))),
        }
    }

    /// Checks the order of frames.
    fn begin(&mut self, frame: &Frame) -> Result<(), Broken> {
        match (frame.opcode, self.message) {
            (0, None) => Err((Code::Protocol, "a continuation of nothing")),
            (1 | 2, Some(_)) => Err((Code::Protocol, "a message inside another")),
            (1 | 2, None) => {
                self.message = Some(frame.opcode == 1);
                self.fresh = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn message(&mut self, bytes: Bytes, last: bool) -> Piece {
        let text = self.message.unwrap_or_default();
        if last {
            self.message = None;
        }
        Piece::Message { first: std::mem::take(&mut self.fresh), last, text, bytes }
    }
}

impl Frame {
    fn unmask(&mut self, mut bytes: BytesMut) -> Bytes {
        for byte in bytes.iter_mut() {
            *byte ^= self.mask[self.at % 4];
            self.at += 1;
        }
        self.left -= bytes.len() as u64;
        bytes.freeze()
    }
}

/// Removes a frame header from `input`, if it is complete.
fn head(input: &mut BytesMut) -> Result<Option<Frame>, Broken> {
    let [first, second, ..] = input[..] else { return Ok(None) };
    let (last, opcode, length) = (first & 0x80 != 0, first & 0x0f, second & 0x7f);
    if first & 0x70 != 0 {
        return Err((Code::Protocol, "an extension that was not agreed to"));
    }
    if !matches!(opcode, 0..=2 | 8..=10) {
        return Err((Code::Protocol, "an unknown kind of frame"));
    }
    if second & 0x80 == 0 {
        return Err((Code::Protocol, "a frame without a mask"));
    }
    if opcode >= 8 && (!last || usize::from(length) > CONTROL) {
        return Err((Code::Protocol, "a control frame that is too long or in parts"));
    }
    let size = match length {
        126 => 4,
        127 => 10,
        _ => 2,
    };
    if input.len() < size + 4 {
        return Ok(None);
    }
    input.advance(2);
    let left = match length {
        126 => u64::from(input.get_u16()),
        127 => input.get_u64(),
        short => u64::from(short),
    };
    if left >> 63 != 0 {
        return Err((Code::Protocol, "a length that is not one"));
    }
    let mut mask = [0; 4];
    input.copy_to_slice(&mut mask);
    Ok(Some(Frame { opcode, last, left, mask, at: 0 }))
}

/// Reads the payload of a close frame.
fn close(bytes: &Bytes) -> Result<Piece, Broken> {
    match bytes[..] {
        [] => Ok(Piece::Close(None)),
        [high, low, ref reason @ ..] => {
            let code = u16::from_be_bytes([high, low]);
            let known = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
            if !known || std::str::from_utf8(reason).is_err() {
                return Err((Code::Protocol, "a close frame that makes no sense"));
            }
            Ok(Piece::Close(Some(code)))
        }
        [_] => Err((Code::Protocol, "a close frame that makes no sense")),
    }
}

/// Writes the header of an unfragmented, unmasked frame.
fn write_head(opcode: u8, length: usize, out: &mut BytesMut) {
    out.put_u8(0x80 | opcode);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..=125), _) => out.put_u8(short),
        (_, Ok(medium)) => {
            out.put_u8(126);
            out.put_u16(medium);
        }
        _ => {
            out.put_u8(127);
            out.put_u64(length as u64);
        }
    }
}

/// Writes a binary or text message, given in two slices.
pub fn write_message(text: bool, start: &[u8], rest: &[u8], out: &mut BytesMut) {
    write_head(if text { 1 } else { 2 }, start.len() + rest.len(), out);
    out.put_slice(start);
    out.put_slice(rest);
}

/// A ping.
#[must_use]
pub fn ping() -> Bytes {
    Bytes::from_static(&[0x89, 0])
}

/// A pong.
#[must_use]
pub fn pong(payload: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    let payload = &payload[..payload.len().min(CONTROL)];
    write_head(10, payload.len(), &mut out);
    out.put_slice(payload);
    out.freeze()
}

/// A close frame.
#[must_use]
pub fn close_frame(code: u16, why: &str) -> Bytes {
    let mut out = BytesMut::new();
    let mut length = why.len().min(CONTROL - 2);
    while !why.is_char_boundary(length) {
        length -= 1;
    }
    write_head(8, length + 2, &mut out);
    out.put_u16(code);
    out.put_slice(&why.as_bytes()[..length]);
    out.freeze()
}
