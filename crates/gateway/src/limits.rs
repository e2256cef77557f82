//! How much of everything one listener takes, and how long it waits. What clients can do to us is bounded here.

use std::time::Duration;

/// Bounds. The default suits a node.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of one port of a Service at a time.
    pub connections: usize,
    /// Bytes of the head of a request; its headers are a hundred at most (hyper).
    pub head: usize,
    /// Requests of one HTTP/2 connection at a time.
    pub streams: u32,
    /// Requests that a client of HTTP/2 may take back before we have begun with them, and those that it had us refuse: one that does
    /// so for sport is hung up on.
    pub resets: usize,
    /// For the handshake of TLS.
    pub handshake: Duration,
    /// For a connection to a pod.
    pub connect: Duration,
    /// So long may a request, an answer or the pause between two be silent.
    pub http_idle: Duration,
    /// So long may a connection be silent whose bytes we do not understand.
    pub bytes_idle: Duration,
    /// So long do connections have to end when their listener goes.
    pub drain: Duration,
    /// Connections to one pod that wait for requests, for each worker.
    pub spare: usize,
    /// So long do they wait.
    pub spare_idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connections: 16_384,
            head: 64 * 1024,
            streams: 128,
            resets: 32,
            handshake: seconds(10),
            connect: seconds(3),
            http_idle: seconds(60),
            bytes_idle: seconds(3600),
            drain: seconds(10),
            spare: 256,
            spare_idle: seconds(30),
        }
    }
}
