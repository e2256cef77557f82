//! Listen addresses of a configuration.
//!
//! In: server blocks. Out: addresses to listen on. A block answers only queries that its own listeners receive.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Block, Config};

/// A `bind` that cannot be used; the first number is the line of its block.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BindError {
    /// It has `except`.
    #[error("line {0}: `bind` with `except` is not supported; list the addresses to listen on")]
    Except(usize),
    /// It names something that is not an address.
    #[error("line {0}: `bind {1}`: interfaces are not supported; use its address")]
    NotAnAddress(usize, String),
    /// The block of another line listens on all addresses of the port.
    #[error(
        "line {0}: `bind {ip}`: the block of line {2} has no `bind` and listens on all addresses of port {port}; \
        give it a `bind` of its own",
        ip = .1.ip(),
        port = .1.port()
    )]
    Overlap(usize, SocketAddr, usize),
}

impl Config {
    /// Deduplicated listen addresses.
    ///
    /// # Errors
    /// When a `bind` cannot be used, with its line. A wildcard listener receives packets for every address, so it
    /// excludes other listeners on the same port.
    pub fn listen_addresses(&self) -> Result<Vec<SocketAddr>, BindError> {
        let mut addresses = Vec::new();
        for block in &self.blocks {
            let ips = block.ips()?;
            let ports = block.keys.iter().map(|key| key.port);
            let here = ports.flat_map(|port| ips.iter().map(move |ip| (SocketAddr::new(*ip, port), block.line)));
            addresses.extend(here);
        }
        for (at, line) in addresses.iter().filter(|(at, _)| !at.ip().is_unspecified()) {
            let overlaps = |other: &SocketAddr| {
                other.ip().is_unspecified() && other.port() == at.port() && other.is_ipv4() == at.is_ipv4()
            };
            if let Some((_, other)) = addresses.iter().find(|(other, _)| overlaps(other)) {
                return Err(BindError::Overlap(*line, *at, *other));
            }
        }
        let mut addresses: Vec<SocketAddr> = addresses.into_iter().map(|(at, _)| at).collect();
        addresses.sort();
        addresses.dedup();
        Ok(addresses)
    }
}

impl Block {
    /// Addresses to listen on.
    ///
    /// # Errors
    /// When a `bind` cannot be used.
    pub fn ips(&self) -> Result<Vec<IpAddr>, BindError> {
        if !self.bind_except.is_empty() {
            return Err(BindError::Except(self.line));
        }
        if self.bind.is_empty() {
            return Ok(vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]);
        }
        let parse = |text: &String| text.parse().map_err(|_| BindError::NotAnAddress(self.line, text.clone()));
        self.bind.iter().map(parse).collect()
    }
}
