//! Listen addresses of a configuration.
//!
//! In: server blocks. Out: addresses to listen on. A block answers only queries that its own listeners receive.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Block, Config};

impl Config {
    /// Deduplicated listen addresses.
    ///
    /// # Errors
    /// When a `bind` cannot be used, with its line. A wildcard listener receives packets for every address, so it
    /// excludes other listeners on the same port.
    pub fn listen_addresses(&self) -> Result<Vec<SocketAddr>, String> {
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
                let why = format!(
                    "the block of line {other} has no `bind` and listens on all addresses of port {}",
                    at.port()
                );
                return Err(format!("line {line}: `bind {}`: {why}; give it a `bind` of its own", at.ip()));
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
    pub fn ips(&self) -> Result<Vec<IpAddr>, String> {
        let line = self.line;
        if !self.bind_except.is_empty() {
            return Err(format!("line {line}: `bind` with `except` is not supported; list the addresses to listen on"));
        }
        if self.bind.is_empty() {
            return Ok(vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]);
        }
        let parse = |text: &String| {
            let why = "interfaces are not supported; use its address";
            text.parse().map_err(|_| format!("line {line}: `bind {text}`: {why}"))
        };
        self.bind.iter().map(parse).collect()
    }
}
