//! Queries as bytes, and the addresses in replies, for tests that need more than `dig` can do.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// A query for addresses (type A, class IN).
pub(super) fn question(id: u16, name: &str) -> Vec<u8> {
    let mut out = id.to_be_bytes().to_vec();
    out.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        out.push(u8::try_from(label.len()).expect("a short label"));
        out.extend_from_slice(label.as_bytes());
    }
    out.extend([0, 0, 1, 0, 1]);
    out
}

/// The addresses in the reply to a query of [`question`], in order; none unless it is a complete and successful reply.
pub(super) fn addresses(question: &[u8], reply: &[u8]) -> Option<Vec<Ipv4Addr>> {
    let word = |at: usize| reply.get(at..at + 2).map(|bytes| usize::from(bytes[0]) << 8 | usize::from(bytes[1]));
    let is_reply = reply.get(..2)? == question.get(..2)? && reply[2] & 0x82 == 0x80 && reply.get(3)? & 15 == 0;
    if !is_reply || reply.get(12..question.len())? != &question[12..] {
        return None;
    }
    let (mut at, mut out) = (question.len(), Vec::new());
    for _ in 0..word(6)? {
        // Every record is of the queried name: a pointer to it, type A, class IN.
        if word(at)? != 0xc00c || word(at + 2)? != 1 || word(at + 4)? != 1 || word(at + 10)? != 4 {
            return None;
        }
        let octets: [u8; 4] = reply.get(at + 12..at + 16)?.try_into().ok()?;
        out.push(octets.into());
        at += 16;
    }
    (at == reply.len()).then_some(out)
}

/// A socket that queries one server.
pub(super) fn socket(server: SocketAddr, timeout: Duration) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(server).expect("a server");
    socket.set_read_timeout(Some(timeout)).expect("a timeout");
    socket
}
