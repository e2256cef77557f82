//! Limits and timeouts per listener; they bound what clients can consume.

use std::time::Duration;

/// Limits and timeouts.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Concurrent connections per port.
    pub connections: usize,
    /// Size of a request head in bytes; hyper limits headers to 100.
    pub head: usize,
    /// Concurrent streams per HTTP/2 or HTTP/3 connection.
    pub streams: u32,
    /// Streams that an HTTP/2 client may reset before they are accepted, and that it may cause us to reset (rapid
    /// reset); then the connection is closed. Requests that an HTTP/3 client may cancel, beside one for each that it lets
    /// complete.
    pub resets: usize,
    /// QUIC handshakes in progress with clients whose address is not proven, per listener; others have to prove it first.
    pub unproven_handshakes: usize,
    /// TLS handshake timeout.
    pub handshake: Duration,
    /// Connect timeout of pods.
    pub connect: Duration,
    /// Idle timeout of requests, responses and keep-alive connections.
    pub http_idle: Duration,
    /// Idle timeout of TCP connections.
    pub tcp_idle: Duration,
    /// Drain timeout of connections after their listener is closed.
    pub drain: Duration,
    /// Idle connections per pod and worker.
    pub pool_size: usize,
    /// Idle timeout of those.
    pub pool_idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connections: 16_384,
            head: 64 * 1024,
            streams: 128,
            resets: 32,
            unproven_handshakes: 64,
            handshake: seconds(10),
            connect: seconds(3),
            http_idle: seconds(60),
            tcp_idle: seconds(3600),
            drain: seconds(10),
            pool_size: 256,
            pool_idle: seconds(30),
        }
    }
}
