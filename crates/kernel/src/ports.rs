//! Ports of this machine in use.
//!
//! In: the socket tables in `/proc/net`. Out: whether a program listens on a port at a non-loopback address. Connected
//! sockets do not count.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// State of a listening TCP socket, and of an unconnected UDP socket.
const LISTENS: &str = "0A";
const UNCONNECTED: &str = "07";

/// Whether a program uses this `TCP` or `UDP` port. Unreadable tables count as free.
#[must_use]
pub fn is_taken(protocol: &str, port: u16) -> bool {
    let (files, state) = match protocol {
        "TCP" => (["/proc/net/tcp", "/proc/net/tcp6"], LISTENS),
        "UDP" => (["/proc/net/udp", "/proc/net/udp6"], UNCONNECTED),
        _ => return false,
    };
    files.iter().any(|file| std::fs::read_to_string(file).is_ok_and(|table| has(&table, state, port)))
}

/// Whether a table contains a socket in this state at this port and a reachable address.
fn has(table: &str, state: &str, port: u16) -> bool {
    table.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (Some(local), Some(seen)) = (words.next(), words.nth(1)) else { return false };
        seen == state
            && local_end(local).is_some_and(|(address, number)| number == port && !address.to_canonical().is_loopback())
    })
}

/// `0100007F:1F90`: address words in memory order, and a port.
fn local_end(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let address = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut all = [0; 16];
            for at in 0..4 {
                all[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(all).into()
        }
        _ => return None,
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn programs_that_others_reach_are_found() {
        let tcp = TcpListener::bind("0.0.0.0:0").expect("a port");
        let port = tcp.local_addr().expect("an address").port();
        assert!(is_taken("TCP", port) && !is_taken("SCTP", port));
        drop(tcp);
        // A process that another test is just starting may hold it for a moment, too.
        let begun = Instant::now();
        while is_taken("TCP", port) {
            assert!(begun.elapsed() < Duration::from_secs(10), "port {port} stays taken");
        }
        let udp = UdpSocket::bind("[::]:0").expect("a port");
        let port = udp.local_addr().expect("an address").port();
        assert!(is_taken("UDP", port));
        let near = TcpListener::bind("127.0.0.1:0").expect("a port");
        assert!(!is_taken("TCP", near.local_addr().expect("an address").port()), "on loopback it is in nobody's way");
    }

    #[test]
    fn ends_are_read_as_the_kernel_writes_them() {
        let memory = |address: Ipv4Addr| format!("{:08X}", u32::from_ne_bytes(address.octets()));
        let text = format!("{}:0050", memory(Ipv4Addr::new(192, 0, 2, 7)));
        assert_eq!(local_end(&text), Some(("192.0.2.7".parse().expect("an address"), 80)));
        let any = format!("{}:1F90", "0".repeat(32));
        assert_eq!(local_end(&any), Some((IpAddr::V6(Ipv6Addr::UNSPECIFIED), 8080)));
        for wrong in ["", ":", "00:1", "0000000G:0050", "00000000:50000", "é000000:0050"] {
            assert_eq!(local_end(wrong), None, "{wrong}");
        }
    }
}
