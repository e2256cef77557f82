//! Receives ICMP errors about packets that did not arrive.
//!
//! In: ICMP errors that reach this namespace. Out: the [`Failure`] of one flow. A connected UDP socket reports a closed port
//! but not an unreachable host, and a raw socket cannot distinguish the ports of flows; both are reported here.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketType, ipproto, recv};

use super::failure::{Failure, Kind};
use super::{Family, socket};

/// Packets of one flow, as seen by their sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// The number of the protocol above IP.
    pub(super) protocol: u8,
    /// Where from.
    pub(super) source_port: u16,
    /// Where to.
    pub(super) to: SocketAddr,
}

/// Open raw sockets. They must be open before the first packet is sent.
#[derive(Debug)]
pub(super) struct Ears(OwnedFd);

impl Ears {
    /// Opens them for a family.
    pub(super) fn open(family: Family) -> io::Result<Self> {
        let protocol = match family {
            Family::V4 => ipproto::ICMP,
            Family::V6 => ipproto::ICMPV6,
        };
        Ok(Self(socket::open(family, SocketType::RAW, Some(protocol))?))
    }

    /// The error reported for this flow, if any.
    pub(super) fn heard(&self, flow: Flow) -> io::Result<Option<Failure>> {
        let mut buffer = [0; 2048];
        loop {
            match recv(&self.0, &mut buffer, RecvFlags::empty()) {
                Ok((length, _)) => {
                    let said = match flow.to.ip() {
                        IpAddr::V4(_) => said_v4(&buffer[..length], flow),
                        IpAddr::V6(_) => said_v6(&buffer[..length], flow),
                    };
                    if said.is_some() {
                        return Ok(said);
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Ears {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A raw IPv4 socket receives the IP header too; after the ICMP header comes the packet that failed.
fn said_v4(bytes: &[u8], flow: Flow) -> Option<Failure> {
    let icmp = bytes.get(header_length(*bytes.first()?)..)?;
    let (kind, code) = (*icmp.first()?, *icmp.get(1)?);
    let failed = icmp.get(8..)?;
    let to: [u8; 4] = failed.get(16..20)?.try_into().ok()?;
    let ports = failed.get(header_length(*failed.first()?)..)?;
    (kind == 3 && *failed.get(9)? == flow.protocol && is_of(flow, to.into(), ports)?).then(|| {
        // 2: no such protocol there, 3: no such port.
        let kind = if matches!(code, 2 | 3) { Kind::Refused } else { Kind::Unreachable };
        Failure::new(kind, format!("ICMP: destination unreachable, code {code}"))
    })
}

/// A raw IPv6 socket does not receive the IP header of its packets.
fn said_v6(icmp: &[u8], flow: Flow) -> Option<Failure> {
    let (kind, code) = (*icmp.first()?, *icmp.get(1)?);
    let failed = icmp.get(8..)?;
    let to: [u8; 16] = failed.get(24..40)?.try_into().ok()?;
    let refused = match (kind, code) {
        // The port, or an unsupported next header.
        (1, 4) | (4, 1) => true,
        (1, _) => false,
        _ => return None,
    };
    (*failed.get(6)? == flow.protocol && is_of(flow, to.into(), failed.get(40..)?)?).then(|| {
        let meaning = if refused { Kind::Refused } else { Kind::Unreachable };
        Failure::new(meaning, format!("ICMPv6: type {kind}, code {code}"))
    })
}

fn header_length(first: u8) -> usize {
    usize::from(first & 0x0f) * 4
}

fn is_of(flow: Flow, to: IpAddr, ports: &[u8]) -> Option<bool> {
    let source = u16::from_be_bytes(ports.get(..2)?.try_into().ok()?);
    let destination = u16::from_be_bytes(ports.get(2..4)?.try_into().ok()?);
    Some(to == flow.to.ip() && source == flow.source_port && destination == flow.to.port())
}
