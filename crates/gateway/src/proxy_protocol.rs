//! The PROXY protocol, versions 1 and 2: a proxy tells the address of its client in front of the first byte. Pure, except
//! [`receive`].
//!
//! In: the first bytes of a connection. Out: the address of the client, and how many bytes the header has; or that more
//! bytes are needed; or that it is malformed, as soon as that is certain.

mod receive;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) use receive::receive;

/// Longest header of version 1 with its line end, in bytes.
const MAX_V1: usize = 107;
/// Longest header of version 2 behind its fixed part: addresses and TLVs, in bytes.
const MAX_V2: usize = 4096;
/// The start of version 1.
const WORD: &[u8] = b"PROXY ";
/// The start of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of the fixed part of version 2.
const FIXED: usize = 16;

/// What the first bytes of a connection are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// The start of a header.
    Incomplete,
    /// A header.
    Complete {
        /// Its length in bytes.
        length: usize,
        /// The client; none if the connection is of the proxy itself, or its protocol has no addresses and ports.
        client: Option<SocketAddr>,
    },
}

/// Why the bytes are no header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(&'static str);

const NO_HEADER: Malformed = Malformed("the connection does not begin with a PROXY header");

/// Parses the start of a connection.
///
/// # Errors
/// When it is not the start of a header.
pub fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    match bytes.first() {
        None => Ok(Parsed::Incomplete),
        Some(b'P') => version_1(bytes),
        Some(_) => version_2(bytes),
    }
}

/// Whether these bytes begin like this, as far as they go.
fn begins(bytes: &[u8], with: &[u8]) -> Result<(), Malformed> {
    bytes.iter().zip(with).all(|(one, other)| one == other).then_some(()).ok_or(NO_HEADER)
}

fn version_1(bytes: &[u8]) -> Result<Parsed, Malformed> {
    begins(bytes, WORD)?;
    let line = bytes.get(..MAX_V1).unwrap_or(bytes);
    let Some(end) = line.windows(2).position(|pair| pair == b"\r\n") else {
        let is_long = bytes.len() >= MAX_V1;
        return if is_long { Err(Malformed("the line is too long")) } else { Ok(Parsed::Incomplete) };
    };
    let text = line.get(WORD.len()..end).and_then(|text| std::str::from_utf8(text).ok());
    let client = text.and_then(client_of_line).ok_or(Malformed("the line has no valid addresses"))?;
    Ok(Parsed::Complete { length: end + 2, client })
}

/// The client of a line without its start and end; none if the line is invalid.
fn client_of_line(text: &str) -> Option<Option<SocketAddr>> {
    let words: Vec<&str> = text.split(' ').collect();
    let [family, source, destination, port, own_port] = words[..] else {
        return (words.first() == Some(&"UNKNOWN")).then_some(None);
    };
    let address = |text: &str| -> Option<IpAddr> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    if family == "UNKNOWN" {
        return Some(None);
    }
    let _ = (address(destination)?, number(own_port)?);
    Some(Some(canonical(address(source)?, number(port)?)))
}

/// A port in decimal, without sign.
fn number(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn canonical(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip.to_canonical(), port)
}

fn version_2(bytes: &[u8]) -> Result<Parsed, Malformed> {
    begins(bytes, SIGNATURE)?;
    let Some((&[command, family, high, low], rest)) = bytes.get(SIGNATURE.len()..).and_then(<[u8]>::split_first_chunk)
    else {
        return Ok(Parsed::Incomplete);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_V2 {
        return Err(Malformed("the header is too long"));
    }
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(Malformed("unknown version or command")),
    };
    let Some(rest) = rest.get(..length) else { return Ok(Parsed::Incomplete) };
    let client = if is_local { None } else { client_of_addresses(family, rest)? };
    Ok(Parsed::Complete { length: FIXED + length, client })
}

/// The client of addresses, behind which there may be TLVs.
fn client_of_addresses(family: u8, bytes: &[u8]) -> Result<Option<SocketAddr>, Malformed> {
    const SHORT: Malformed = Malformed("the addresses are incomplete");
    let port = |at: usize| bytes.get(at..at + 2).and_then(|port| port.try_into().ok()).map(u16::from_be_bytes);
    match family {
        0x00 => Ok(None),
        // TCP over IPv4: two addresses and two ports; over IPv6 likewise; a Unix domain socket has two paths.
        0x11 => {
            let (ip, _) = bytes.split_first_chunk::<4>().ok_or(SHORT)?;
            let (port, _) = (port(8).ok_or(SHORT)?, port(10).ok_or(SHORT)?);
            Ok(Some(canonical(Ipv4Addr::from(*ip).into(), port)))
        }
        0x21 => {
            let (ip, _) = bytes.split_first_chunk::<16>().ok_or(SHORT)?;
            let (port, _) = (port(32).ok_or(SHORT)?, port(34).ok_or(SHORT)?);
            Ok(Some(canonical(Ipv6Addr::from(*ip).into(), port)))
        }
        0x31 if bytes.len() >= 216 => Ok(None),
        _ => Err(Malformed("the protocol of the client is not TCP")),
    }
}

/// A header of version 1, for Pods.
pub(crate) fn header(client: SocketAddr, local: SocketAddr) -> String {
    let (from, to) = (client.ip().to_canonical(), local.ip().to_canonical());
    let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
    if from.is_ipv4() == to.is_ipv4() {
        format!("PROXY {family} {from} {to} {} {}\r\n", client.port(), local.port())
    } else {
        "PROXY UNKNOWN\r\n".to_owned()
    }
}

#[cfg(test)]
mod tests;
