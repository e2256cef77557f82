//! Asks a DNS server: in a datagram, and through a connection when the reply is cut.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use dns::wire::{HEADER, IN, MESSAGE_MAX, Message, Record, Section, UDP_PAYLOAD_SIZE, flag, from_text, rtype};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// How long a reply may take. Datagrams get lost: the question is sent again once.
const PATIENCE: Duration = Duration::from_secs(2);
const TRIES: usize = 2;
/// The bits of the header that say how it went.
const RCODE: u16 = 15;

/// What a server said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::commands) struct Reply {
    /// How it went.
    pub(in crate::commands) rcode: u16,
    /// The records of its answer.
    pub(in crate::commands) answer: Vec<Record>,
}

/// Asks a server.
pub(in crate::commands) async fn ask(server: SocketAddr, name: &str, qtype: u16) -> anyhow::Result<Reply> {
    ask_within(server, name, qtype, PATIENCE).await
}

/// Asks a server, and waits so long for each reply.
pub(in crate::commands) async fn ask_within(
    server: SocketAddr,
    name: &str,
    qtype: u16,
    patience: Duration,
) -> anyhow::Result<Reply> {
    let question = question(fastrand::u16(..), name, qtype)?;
    let reply = by_datagram(server, &question, patience).await?;
    let (is_cut, reply) = read(&question, &reply)?;
    if !is_cut {
        return Ok(reply);
    }
    let reply = timeout(patience, by_connection(server, &question)).await;
    let reply = reply.context("its reply is cut, and by TCP it says nothing")?.context("its reply is cut")?;
    Ok(read(&question, &reply)?.1)
}

/// A question that asks others too, and takes datagrams of our size.
fn question(id: u16, name: &str, qtype: u16) -> anyhow::Result<Vec<u8>> {
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

async fn by_datagram(server: SocketAddr, question: &[u8], patience: Duration) -> anyhow::Result<Vec<u8>> {
    let local = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(local, 0)).await.context("opening a socket")?;
    socket.connect(server).await?;
    let mut buffer = vec![0; MESSAGE_MAX];
    for _ in 0..TRIES {
        socket.send(question).await?;
        if let Ok(reply) = timeout(patience, matching(&socket, question, &mut buffer)).await {
            let length = reply?;
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
    bail!("it does not answer")
}

/// The length of the first datagram that is a reply to the question.
async fn matching(socket: &UdpSocket, question: &[u8], buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        let length = socket.recv(buffer).await?;
        if read(question, &buffer[..length]).is_ok() {
            return Ok(length);
        }
    }
}

async fn by_connection(server: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    // A question is a name and a few words, far below the longest message.
    let length = u16::try_from(question.len()).unwrap_or(u16::MAX);
    stream.write_all(&[&length.to_be_bytes()[..], question].concat()).await?;
    let mut reply = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut reply).await?;
    Ok(reply)
}

/// Whether the reply is cut, and what it says.
fn read(question: &[u8], bytes: &[u8]) -> anyhow::Result<(bool, Reply)> {
    let (asked, message) = (Message::read(question)?, Message::read(bytes)?);
    let is_reply = message.flags() & flag::QR != 0 && message.id() == asked.id();
    // A server that could not read the question need not repeat it.
    let spelled = message.questions() == 0
        || bytes[HEADER..message.start()].eq_ignore_ascii_case(&question[HEADER..asked.start()]);
    ensure!(is_reply && spelled, "its reply is to another question");
    let count = usize::from(message.count(Section::Answer));
    let is_cut = message.flags() & flag::TC != 0;
    let answer: Result<Vec<Record>, _> = message.records().take(count).collect();
    match answer {
        Ok(answer) => Ok((is_cut, Reply { rcode: message.flags() & RCODE, answer })),
        // Servers may cut in the middle of a record.
        Err(_) if is_cut => Ok((true, Reply { rcode: message.flags() & RCODE, answer: Vec::new() })),
        Err(error) => Err(error).context("its reply cannot be read"),
    }
}
