//! DNS: throughput, latency and cost of a DNS server, and how soon it serves a change.
//!
//! ```text
//! objects: the load ─▶ API server ─▶ contender at LISTEN ◀─ perf: dnsperf with the files of questions
//!                                      │      ▲
//!               upstream: names of others     └─ ask: single questions see what is known ─▶ start, changes ─▶ rows
//! ```
//! All of it is on the loopback of one network namespace. Beside the servers there is an echo, which answers nothing and costs
//! as little as datagrams can.

pub mod ask;
pub mod changes;
pub mod contender;
pub mod echo;
pub mod measure;
pub mod objects;
pub mod perf;
pub mod questions;
pub mod rows;
pub mod upstream;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where every contender listens, one after the other.
pub const LISTEN: SocketAddr = at(5300);
/// The upstream server for external names.
pub const UPSTREAM: SocketAddr = at(5301);
/// Where contenders tell of themselves.
pub const METRICS: SocketAddr = at(9153);

const fn at(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}
