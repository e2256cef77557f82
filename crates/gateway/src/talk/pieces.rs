//! The body of an answer out of the bytes of a connection. Pure.
//!
//! In: bytes as they come, cut anywhere. Out: pieces of the body as soon as they are there, the fields behind the last chunk, and the end.
//! Everything that a chunk may have beside its bytes is bounded.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::head::{Bad, Measure, read_trailers};

/// How long the line in front of a chunk may be.
const LINE: usize = 4 * 1024;
/// How much the chunks of a body may say about themselves, all together.
const EXTENSIONS: usize = 16 * 1024;
/// How long the fields behind the last chunk may be.
const TRAILERS: usize = 16 * 1024;

/// A body that is being read.
#[derive(Debug)]
pub struct Pieces {
    state: State,
    /// How much of [`EXTENSIONS`] is used up.
    extensions: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// So many bytes are to come.
    Length(u64),
    /// All that comes.
    End,
    /// A line with the length of a chunk.
    Size,
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The end of its line.
    Gap,
    /// Fields behind the last chunk.
    Trailers,
}

const OVER: State = State::Length(0);

/// What is next.
#[derive(PartialEq, Eq, Debug)]
pub enum Next {
    /// A piece of the body.
    Piece(Bytes),
    /// The fields behind it; then it is over.
    Trailers(HeaderMap),
    /// Nothing before more bytes come.
    More,
    /// It is whole.
    Over,
}

impl Pieces {
    /// A body that comes so.
    #[must_use]
    pub const fn new(measure: Measure) -> Self {
        let state = match measure {
            Measure::Length(length) => State::Length(length),
            Measure::Chunks => State::Size,
            Measure::End => State::End,
        };
        Self { state, extensions: 0 }
    }

    /// Whether all of it was read.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == OVER
    }

    /// How much is to come, if that is known.
    #[must_use]
    pub const fn left(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            _ => None,
        }
    }

    /// Takes what is next off the front.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn next(&mut self, from: &mut BytesMut) -> Result<Next, Bad> {
        loop {
            match &mut self.state {
                &mut OVER => return Ok(Next::Over),
                _ if from.is_empty() => return Ok(Next::More),
                State::End => return Ok(Next::Piece(from.split().freeze())),
                State::Length(left) => return Ok(Next::Piece(piece(left, from))),
                State::Chunk(left) => {
                    let piece = piece(left, from);
                    if *left == 0 {
                        self.state = State::Gap;
                    }
                    return Ok(Next::Piece(piece));
                }
                State::Gap => match from[..] {
                    [b'\r'] => return Ok(Next::More),
                    [b'\r', b'\n', ..] => {
                        let _ = from.split_to(2);
                        self.state = State::Size;
                    }
                    _ => return Err("a chunk of its answer is longer than it says"),
                },
                State::Size => match self.size(from)? {
                    Some(0) => self.state = State::Trailers,
                    Some(size) => self.state = State::Chunk(size),
                    None => return Ok(Next::More),
                },
                State::Trailers => match read_trailers(from)? {
                    Some(fields) => {
                        self.state = OVER;
                        return Ok(if fields.is_empty() { Next::Over } else { Next::Trailers(fields) });
                    }
                    None if from.len() > TRAILERS => return Err("the fields behind its answer have no end"),
                    None => return Ok(Next::More),
                },
            }
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// When something is missing.
    pub fn end(&mut self) -> Result<(), Bad> {
        if self.state == State::End {
            self.state = OVER;
        }
        if self.is_over() { Ok(()) } else { Err("it broke off within its answer") }
    }

    /// The length of the next chunk, when its line is whole.
    fn size(&mut self, from: &mut BytesMut) -> Result<Option<u64>, Bad> {
        const BAD: Bad = "a chunk of its answer has no fit length";
        let Some(end) = from.iter().take(LINE).position(|byte| *byte == b'\n') else {
            return if from.len() < LINE { Ok(None) } else { Err(BAD) };
        };
        let line = from.split_to(end + 1);
        let line = line[..end].strip_suffix(b"\r").ok_or(BAD)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, rest) = line.split_at(digits);
        self.extensions += rest.len();
        // Spaces are not allowed here, and are often sent.
        if !matches!(rest.trim_ascii_start(), [] | [b';', ..]) || rest.contains(&b'\r') || self.extensions > EXTENSIONS
        {
            return Err(BAD);
        }
        let size = std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        size.map(Some).ok_or(BAD)
    }
}

fn piece(left: &mut u64, from: &mut BytesMut) -> Bytes {
    let length = usize::try_from(*left).map_or(from.len(), |left| left.min(from.len()));
    *left -= length as u64;
    from.split_to(length).freeze()
}
