//! The interface of the protocols: a decoder and an encoder, both pure.
//!
//! A decoder buffers only small control frames; data is passed on as it arrives.

use bytes::{Bytes, BytesMut};
pub use client::spdy::Headers;
use thiserror::Error;

/// The first value of a header.
#[must_use]
pub fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
}

/// A decoded event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer opened a stream.
    Open {
        /// The stream ID.
        id: u32,
        /// Its headers.
        headers: Headers,
        /// The peer sends nothing on it.
        finished: bool,
        /// The stream is unidirectional.
        one_way: bool,
        /// The frame that accepts it.
        reply: Bytes,
    },
    /// Data of a stream.
    Data {
        /// The stream ID.
        id: u32,
        /// The bytes.
        bytes: Bytes,
    },
    /// The peer finished sending on a stream.
    Finish {
        /// The stream ID.
        id: u32,
    },
    /// The peer reset a stream.
    Reset {
        /// The stream ID.
        id: u32,
    },
    /// A frame must be sent in reply.
    Answer(Bytes),
    /// A window update of a stream, or of the connection (ID 0).
    Credit {
        /// The stream ID.
        id: u32,
        /// The increment.
        bytes: u32,
    },
    /// The initial window of streams, in bytes.
    Window(u32),
    /// No action; the peer is alive.
    Alive,
    /// The peer closes the connection; the frame to reply with.
    Close(Bytes),
}

/// A protocol error.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{why}")]
pub struct Fault {
    /// The violated rule.
    pub why: String,
    /// The close frame to send.
    pub close_frame: Bytes,
}

/// The receiving half of a protocol.
pub trait Decode: Send {
    /// Removes the next event from `input`; nothing when more bytes are needed.
    ///
    /// # Errors
    /// On a protocol error; the connection cannot be read further.
    fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Event>, Fault>;

    /// A keepalive frame for a peer whose data is not read at the moment.
    fn keepalive(&self) -> Option<Bytes> {
        None
    }
}

/// The sending half of a protocol.
pub trait Encode: Send + Sync {
    /// Encodes data of a stream; `finish` marks its end.
    fn data(&self, id: u32, bytes: &[u8], finish: bool, out: &mut BytesMut);

    /// Encodes a reset.
    fn reset(&self, id: u32) -> Option<Bytes>;

    /// Encodes the refusal of a stream.
    fn refuse(&self, id: u32) -> Option<Bytes>;

    /// Encodes a window update.
    fn credit(&self, id: u32, bytes: u32) -> Option<Bytes>;

    /// Encodes a ping.
    fn ping(&self) -> Bytes;

    /// Encodes the regular close.
    fn close_frame(&self) -> Bytes;
}
