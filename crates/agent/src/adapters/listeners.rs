//! Which addresses a TCP port of this machine listens on, to explain why a program cannot be reached.
//!
//! In: `/proc/net/tcp` and `/proc/net/tcp6`. Out: no listener, loopback only, or reachable from other machines.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The state LISTEN in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Where a port has a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// No listener.
    Nowhere,
    /// On loopback addresses only.
    Loopback,
    /// On an address that other machines reach.
    Reachable,
}

/// Where a port of this machine has a listener.
#[must_use]
pub fn of_this_machine(port: u16) -> Listening {
    let table = |name: &str| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    read(&[&table("tcp"), &table("tcp6")], port)
}

/// The next step when a program listens on loopback only.
#[must_use]
pub fn advice(port: u16) -> String {
    format!(
        "the program listens on loopback only, which no Pod and no other machine can reach: make it listen on 0.0.0.0:{port} \
         (often --host 0.0.0.0 or --bind 0.0.0.0)"
    )
}

fn read(tables: &[&str], port: u16) -> Listening {
    let mut found = Listening::Nowhere;
    for address in tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(|line| listener(line, port)) {
        if !address.to_canonical().is_loopback() {
            return Listening::Reachable;
        }
        found = Listening::Loopback;
    }
    found
}

/// The address of a line, if its socket listens on the port.
fn listener(line: &str, port: u16) -> Option<IpAddr> {
    let mut words = line.split_ascii_whitespace();
    let (local, state) = (words.nth(1)?, words.nth(1)?);
    let (address, own) = local.split_once(':')?;
    (state == LISTEN && u16::from_str_radix(own, 16).ok()? == port).then(|| parse(address)).flatten()
}

/// 32-bit words in host byte order.
fn parse(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let bytes: Vec<u8> = (0..4).map(word).collect::<Option<Vec<_>>>()?.concat();
            <[u8; 16]>::try_from(bytes).ok().map(|bytes| Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    #[test]
    fn listeners_are_found_by_address_family_and_state() {
        let v4 = format!(
            "{HEAD}   0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n   \
             1: 00000000:0BB9 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n   \
             2: 0B0200C0:0BBA 650200C0:C000 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n"
        );
        let v6 = format!(
            "{HEAD}   0: 00000000000000000000000001000000:0BBB 00000000000000000000000000000000:0000 0A 0 0 0\n   \
             1: 0000000000000000FFFF00000100007F:0BBC 00000000000000000000000000000000:0000 0A 0 0 0\n   \
             2: 00000000000000000000000000000000:0BB8 00000000000000000000000000000000:0000 0A 0 0 0\n"
        );
        let both = |port| read(&[&v4, &v6], port);
        assert_eq!(read(&[&v4], 3000), Listening::Loopback);
        assert_eq!(both(3000), Listening::Reachable, "one of two is enough");
        assert_eq!((both(3001), both(3002)), (Listening::Reachable, Listening::Nowhere), "a connection is no listener");
        assert_eq!((both(3003), both(3004)), (Listening::Loopback, Listening::Loopback));
    }
}
