//! The protocols in which people look into Pods: WebSocket channels and SPDY, down to plain readers and writers.
//!
//! In: the bytes of an upgraded connection. Out: streams that any code can read and write. The layers, from the wire up:
//!
//! ```text
//! ws, spdy          bytes ⇄ frames; pure, no I/O: what can be fuzzed
//! wire              what every protocol is to the layer above: a decoder and an encoder
//! mux, drive        many streams over one connection, each with bounded memory; two loops that read and write
//! command, forward  exec and attach; port-forward
//! ```
//! A peer that misbehaves gets a close frame that says why, and its connection ends. Whoever does not read makes the other side
//! wait, all the way through.

pub mod command;
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

/// How long a connection may be silent.
pub const IDLE: Duration = Duration::from_secs(4 * 60 * 60);

/// How long a client may take to open the streams it announced.
pub const CREATION: Duration = Duration::from_secs(30);
