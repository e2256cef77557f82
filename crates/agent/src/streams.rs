//! Streaming protocols of exec, attach and port-forward: WebSocket channels and SPDY.
//!
//! In: the bytes of an upgraded connection. Out: streams as readers and writers. The layers, from the wire up:
//!
//! ```text
//! ws, spdy          bytes ⇄ frames; pure, no I/O, fuzzed
//! wire              the interface of the protocols: decoder and encoder
//! mux, drive        many streams over one connection, each with bounded memory; a read loop and a write loop
//! command, forward  exec and attach; port-forward
//! ```
//! A protocol error closes the connection with a reason. Backpressure is end to end: a slow reader blocks the writer.

pub mod command;
#[cfg(any(test, fuzzing))]
pub mod cut;
pub(crate) mod drive;
pub mod forward;
mod mux;
pub mod spdy;
pub mod status;
pub mod wire;
pub mod ws;

use std::time::Duration;

pub use mux::{Mux, Stream};

/// The idle timeout of a connection.
pub const IDLE: Duration = Duration::from_secs(4 * 60 * 60);

/// How long a client may take to open its streams.
pub const CREATION: Duration = Duration::from_secs(30);
