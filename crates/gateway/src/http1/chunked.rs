//! Response body decoder. Pure.
//!
//! In: bytes split at any position. Out: body data as soon as available, trailers, and the end. All chunked-encoding
//! overhead is bounded.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::head::{BodyLength, ProtocolError, read_trailers};

/// Maximum length of a chunk-size line in bytes.
const MAX_SIZE_LINE: usize = 4 * 1024;
/// Maximum total length of chunk extensions in bytes.
const MAX_EXTENSIONS: usize = 16 * 1024;
/// Maximum length of the trailer section in bytes.
const MAX_TRAILERS: usize = 16 * 1024;

/// Response body decoder.
#[derive(Debug)]
pub struct BodyDecoder {
    state: State,
    /// Bytes of [`MAX_EXTENSIONS`] used.
    extensions: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Remaining bytes.
    Length(u64),
    /// Until the connection is closed.
    UntilClose,
    /// Chunk-size line.
    Size,
    /// Remaining bytes of a chunk.
    Chunk(u64),
    /// CRLF after a chunk.
    ChunkEnd,
    /// Trailer section.
    Trailers,
}

const DONE: State = State::Length(0);

/// Decoded element.
#[derive(PartialEq, Eq, Debug)]
pub enum Decoded {
    /// Body data.
    Data(Bytes),
    /// Trailers; the body is complete.
    Trailers(HeaderMap),
    /// More input is needed.
    Incomplete,
    /// The body is complete.
    Done,
}

impl BodyDecoder {
    /// Creates a decoder for this framing.
    #[must_use]
    pub const fn new(body_length: BodyLength) -> Self {
        let state = match body_length {
            BodyLength::Length(length) => State::Length(length),
            BodyLength::Chunked => State::Size,
            BodyLength::UntilClose => State::UntilClose,
        };
        Self { state, extensions: 0 }
    }

    /// Whether the body is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == DONE
    }

    /// Remaining bytes, if known.
    #[must_use]
    pub const fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(remaining) => Some(remaining),
            _ => None,
        }
    }

    /// Decodes the next element.
    ///
    /// # Errors
    /// When the encoding is invalid.
    pub fn next(&mut self, from: &mut BytesMut) -> Result<Decoded, ProtocolError> {
        loop {
            match &mut self.state {
                &mut DONE => return Ok(Decoded::Done),
                _ if from.is_empty() => return Ok(Decoded::Incomplete),
                State::UntilClose => return Ok(Decoded::Data(from.split().freeze())),
                State::Length(remaining) => return Ok(Decoded::Data(take_data(remaining, from))),
                State::Chunk(remaining) => {
                    let data = take_data(remaining, from);
                    if *remaining == 0 {
                        self.state = State::ChunkEnd;
                    }
                    return Ok(Decoded::Data(data));
                }
                State::ChunkEnd => match from[..] {
                    [b'\r'] => return Ok(Decoded::Incomplete),
                    [b'\r', b'\n', ..] => {
                        let _ = from.split_to(2);
                        self.state = State::Size;
                    }
                    _ => return Err("chunk data is longer than its size"),
                },
                State::Size => match self.size(from)? {
                    Some(0) => self.state = State::Trailers,
                    Some(size) => self.state = State::Chunk(size),
                    None => return Ok(Decoded::Incomplete),
                },
                State::Trailers => match read_trailers(from)? {
                    Some(fields) => {
                        self.state = DONE;
                        return Ok(if fields.is_empty() { Decoded::Done } else { Decoded::Trailers(fields) });
                    }
                    None if from.len() > MAX_TRAILERS => return Err("trailer section too large"),
                    None => return Ok(Decoded::Incomplete),
                },
            }
        }
    }

    /// Signals the end of the connection.
    ///
    /// # Errors
    /// When the body is incomplete.
    pub fn end(&mut self) -> Result<(), ProtocolError> {
        if self.state == State::UntilClose {
            self.state = DONE;
        }
        if self.is_done() { Ok(()) } else { Err("connection closed within the response body") }
    }

    /// Parses a chunk-size line, if complete.
    fn size(&mut self, from: &mut BytesMut) -> Result<Option<u64>, ProtocolError> {
        const BAD: ProtocolError = "invalid chunk size";
        let Some(end) = from.iter().take(MAX_SIZE_LINE).position(|byte| *byte == b'\n') else {
            return if from.len() < MAX_SIZE_LINE { Ok(None) } else { Err(BAD) };
        };
        let line = from.split_to(end + 1);
        let line = line[..end].strip_suffix(b"\r").ok_or(BAD)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, rest) = line.split_at(digits);
        self.extensions += rest.len();
        // Whitespace is not allowed here but common.
        if !matches!(rest.trim_ascii_start(), [] | [b';', ..])
            || rest.contains(&b'\r')
            || self.extensions > MAX_EXTENSIONS
        {
            return Err(BAD);
        }
        let size = std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        size.map(Some).ok_or(BAD)
    }
}

fn take_data(remaining: &mut u64, from: &mut BytesMut) -> Bytes {
    let length = usize::try_from(*remaining).map_or(from.len(), |remaining| remaining.min(from.len()));
    *remaining -= length as u64;
    from.split_to(length).freeze()
}
