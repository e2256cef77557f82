//! What every protocol is to the loops that carry streams: a decoder of what comes, an encoder of what goes.
//!
//! Both are pure: bytes in, events out, and the other way round. A decoder never asks for more bytes than the small control
//! frames need; data is passed on in whatever pieces it comes.

use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// Headers of a stream: names in lower case and values, in the order they came.
pub type Headers = Vec<(String, String)>;

/// The first value of a header.
#[must_use]
pub fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
}

/// Something that the peer did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It opened a stream; `reply` accepts it.
    Open {
        /// The number of the stream.
        id: u32,
        /// What it is for.
        headers: Headers,
        /// Nothing will come on it.
        finished: bool,
        /// Nothing may be sent on it.
        one_way: bool,
        /// The frame that accepts it.
        reply: Bytes,
    },
    /// It sent bytes on a stream.
    Data {
        /// The number of the stream.
        id: u32,
        /// The bytes.
        bytes: Bytes,
    },
    /// It will send nothing more on a stream.
    Finish {
        /// The number of the stream.
        id: u32,
    },
    /// It wants to hear no more of a stream.
    Reset {
        /// The number of the stream.
        id: u32,
    },
    /// It did something that these bytes answer.
    Answer(Bytes),
    /// It can take so many bytes more on a stream, or on all of them together (0).
    Credit {
        /// The number of the stream.
        id: u32,
        /// How many.
        bytes: u32,
    },
    /// New streams, and those there are, begin with a window of so many bytes.
    Window(u32),
    /// It showed that it is there.
    Alive,
    /// It ends the connection; these bytes answer that.
    Goodbye(Bytes),
}

/// The peer broke the rules.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{why}")]
pub struct Fault {
    /// Which rule.
    pub why: String,
    /// What tells it so.
    pub farewell: Bytes,
}

/// The reading half of a protocol.
pub trait Decode: Send {
    /// The next event in `input`, which it takes out; nothing when more bytes are needed.
    ///
    /// # Errors
    /// When the peer broke the rules: nothing can be read from it after that.
    fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Event>, Fault>;

    /// What shows a peer, whose bytes we do not read for now, that we are there.
    fn patience(&self) -> Option<Bytes> {
        None
    }
}

/// The writing half of a protocol.
pub trait Encode: Send + Sync {
    /// Bytes of a stream, and whether they are its last.
    fn data(&self, id: u32, bytes: &[u8], finish: bool, out: &mut BytesMut);

    /// Nobody listens to a stream any more.
    fn reset(&self, id: u32) -> Option<Bytes>;

    /// A stream was refused before it began.
    fn refuse(&self, id: u32) -> Option<Bytes>;

    /// We can take so many bytes more.
    fn credit(&self, id: u32, bytes: u32) -> Option<Bytes>;

    /// Asks whether the peer is there.
    fn ping(&self) -> Bytes;

    /// The proper end of the connection.
    fn farewell(&self) -> Bytes;
}
