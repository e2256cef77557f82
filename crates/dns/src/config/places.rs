//! Where a configuration is asked: the addresses and ports of its blocks.
//!
//! In: blocks. Out: what to listen on. A block answers what comes in there, and nothing that comes in elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Block, Config};

impl Config {
    /// Where to listen, each place once.
    ///
    /// # Errors
    /// What of a `bind` cannot be had, with its line. Who listens everywhere takes what is sent to one address, too, so that
    /// the two cannot stand beside each other on one port.
    pub fn places(&self) -> Result<Vec<SocketAddr>, String> {
        let mut places = Vec::new();
        for block in &self.blocks {
            let ips = block.ips()?;
            let ports = block.keys.iter().map(|key| key.port);
            let here = ports.flat_map(|port| ips.iter().map(move |ip| (SocketAddr::new(*ip, port), block.line)));
            places.extend(here);
        }
        for (at, line) in places.iter().filter(|(at, _)| !at.ip().is_unspecified()) {
            let takes_it = |other: &SocketAddr| {
                other.ip().is_unspecified() && other.port() == at.port() && other.is_ipv4() == at.is_ipv4()
            };
            if let Some((_, other)) = places.iter().find(|(other, _)| takes_it(other)) {
                let why = format!("the block of line {other} has no `bind` and takes everything on port {}", at.port());
                return Err(format!("line {line}: `bind {}`: {why}; give it a `bind` of its own", at.ip()));
            }
        }
        let mut places: Vec<SocketAddr> = places.into_iter().map(|(at, _)| at).collect();
        places.sort();
        places.dedup();
        Ok(places)
    }
}

impl Block {
    /// The addresses to listen on.
    ///
    /// # Errors
    /// What of its `bind` cannot be had.
    pub fn ips(&self) -> Result<Vec<IpAddr>, String> {
        let line = self.line;
        if !self.bind_except.is_empty() {
            return Err(format!(
                "line {line}: `bind` with `except` is not understood; name the addresses to listen on"
            ));
        }
        if self.bind.is_empty() {
            return Ok(vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]);
        }
        let parse = |text: &String| {
            let why = "only addresses can be listened on; name the interface's";
            text.parse().map_err(|_| format!("line {line}: `bind {text}`: {why}"))
        };
        self.bind.iter().map(parse).collect()
    }
}
