//! HTTP/3 for HTTPS listeners of Gateways and Ingresses.
//!
//! ```text
//! client ─▶ lbVIP:port/UDP ─▶ proxy rule ─▶ listener (Retry, limits) ─▶ hello (TLS of the server name) ─▶ connection ─▶ exchange ─▶ http_proxy
//!                                                                                                            └─ transport, frames
//! ```
//! quinn is the QUIC implementation, h3 the HTTP/3 one; requests are answered as those of the other protocols.

mod body;
mod connection;
mod exchange;
mod frames;
mod hello;
mod listener;
mod transport;

pub(crate) use body::RequestStream;
pub(crate) use listener::QuicListener;
