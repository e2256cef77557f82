//! Queries a DNS server over UDP, and over TCP if the response is truncated.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use dns::wire::{HEADER, IN, MESSAGE_MAX, Message, Record, Section, UDP_PAYLOAD_SIZE, flag, from_text, rtype};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// Timeout of a response. A query that may have been lost is repeated once.
const TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 2;
/// The bits of the response code in the header.
const RCODE: u16 = 15;

/// A response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::commands) struct Reply {
    /// The response code.
    pub(in crate::commands) rcode: u16,
    /// The answer section.
    pub(in crate::commands) answer: Vec<Record>,
}

/// Queries a server.
pub(in crate::commands) async fn query(server: SocketAddr, name: &str, qtype: u16) -> anyhow::Result<Reply> {
    query_within(server, name, qtype, TIMEOUT).await
}

/// Queries a server with a timeout for each attempt.
pub(in crate::commands) async fn query_within(
    server: SocketAddr,
    name: &str,
    qtype: u16,
    limit: Duration,
) -> anyhow::Result<Reply> {
    let query = encode(fastrand::u16(..), name, qtype)?;
    let reply = over_udp(server, &query, limit).await?;
    let (is_truncated, reply) = read(&query, &reply)?;
    if !is_truncated {
        return Ok(reply);
    }
    let reply = timeout(limit, over_tcp(server, &query)).await;
    let reply = reply
        .context("the response is truncated, and the query over TCP timed out")?
        .context("the response is truncated")?;
    Ok(read(&query, &reply)?.1)
}

/// A query with recursion desired and our UDP payload size.
fn encode(id: u16, name: &str, qtype: u16) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    for word in [id, flag::RD, 1, 0, 0, 1] {
        out.extend(word.to_be_bytes());
    }
    out.extend(from_text(name)?);
    for word in [qtype, IN] {
        out.extend(word.to_be_bytes());
    }
    out.push(0);
    for word in [rtype::OPT, UDP_PAYLOAD_SIZE, 0, 0, 0] {
        out.extend(word.to_be_bytes());
    }
    Ok(out)
}

async fn over_udp(server: SocketAddr, query: &[u8], limit: Duration) -> anyhow::Result<Vec<u8>> {
    let local = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(local, 0)).await.context("opening a socket")?;
    socket.connect(server).await?;
    let mut buffer = vec![0; MESSAGE_MAX];
    for _ in 0..ATTEMPTS {
        socket.send(query).await?;
        if let Ok(reply) = timeout(limit, matching(&socket, query, &mut buffer)).await {
            let length = reply?;
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
    bail!("no response before the timeout")
}

/// The length of the first datagram that is a response to the query.
async fn matching(socket: &UdpSocket, query: &[u8], buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        let length = socket.recv(buffer).await?;
        if read(query, &buffer[..length]).is_ok() {
            return Ok(length);
        }
    }
}

async fn over_tcp(server: SocketAddr, query: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    // A query is far below the maximum length of a message.
    let length = u16::try_from(query.len()).unwrap_or(u16::MAX);
    stream.write_all(&[&length.to_be_bytes()[..], query].concat()).await?;
    let mut reply = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut reply).await?;
    Ok(reply)
}

/// Whether the response is truncated, and its content.
fn read(query: &[u8], bytes: &[u8]) -> anyhow::Result<(bool, Reply)> {
    let (asked, message) = (Message::read(query)?, Message::read(bytes)?);
    let is_reply = message.flags() & flag::QR != 0 && message.id() == asked.id();
    // A FORMERR response need not repeat the query.
    let spelled =
        message.questions() == 0 || bytes[HEADER..message.start()].eq_ignore_ascii_case(&query[HEADER..asked.start()]);
    ensure!(is_reply && spelled, "the response is to another query");
    let count = usize::from(message.count(Section::Answer));
    let is_truncated = message.flags() & flag::TC != 0;
    let answer: Result<Vec<Record>, _> = message.records().take(count).collect();
    match answer {
        Ok(answer) => Ok((is_truncated, Reply { rcode: message.flags() & RCODE, answer })),
        // A message may be truncated in the middle of a record.
        Err(_) if is_truncated => Ok((true, Reply { rcode: message.flags() & RCODE, answer: Vec::new() })),
        Err(error) => Err(error).context("the response is malformed"),
    }
}
