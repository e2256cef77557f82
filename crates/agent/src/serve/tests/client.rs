//! Clients for tests, as little of each protocol as they need: raw HTTP, WebSocket frames with masks, SPDY frames.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::serve::Agent;
use crate::workloads::fake::Fake;
use crate::workloads::{ContainerId, PodId};
use client::spdy::{Packer, Unpacker};

pub(super) fn web() -> ContainerId {
    ContainerId { pod: PodId { namespace: "default".into(), name: "web".into() }, container: "main".into() }
}

/// An agent with one container, whose own process is `cat`.
pub(super) fn agent() -> (Arc<Agent>, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    fake.container(&web(), &["cat"]);
    (Arc::new(Agent::new(Arc::clone(&fake) as _)), fake)
}

/// A connection to an agent, with the bytes that were read and not consumed.
pub(super) struct Connection {
    io: DuplexStream,
    pub(super) held: BytesMut,
}

impl Connection {
    pub(super) fn new(agent: &Arc<Agent>) -> Self {
        let (io, theirs) = tokio::io::duplex(256 * 1024);
        tokio::spawn(Arc::clone(agent).connection(theirs));
        Self { io, held: BytesMut::new() }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.io.write_all(bytes).await.expect("the agent reads");
    }

    /// Reads more; false at the end.
    pub(super) async fn more(&mut self) -> bool {
        let read = tokio::time::timeout(Duration::from_secs(20), self.io.read_buf(&mut self.held));
        matches!(read.await.expect("an answer within 20 s"), Ok(1..))
    }

    /// Sends a request without a body; returns the code and the headers as text.
    pub(super) async fn ask(&mut self, line: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let mut text = format!("{line} HTTP/1.1\r\nHost: node\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        self.send(format!("{text}\r\n").as_bytes()).await;
        loop {
            if let Some(end) = self.held.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = self.held.split_to(end + 4);
                let head = String::from_utf8(head.to_vec()).expect("headers are text");
                let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
                return (code, head.to_lowercase());
            }
            assert!(self.more().await, "no answer: {:?}", self.held);
        }
    }

    /// The remaining bytes of a connection until it is closed.
    pub(super) async fn rest(&mut self) -> String {
        while self.more().await {}
        String::from_utf8_lossy(&self.held.split()).into_owned()
    }

    pub(super) async fn exactly(&mut self, count: usize) -> Bytes {
        while self.held.len() < count {
            assert!(self.more().await, "the connection ended in the middle of something: {:?}", self.held);
        }
        self.held.split_to(count).freeze()
    }

    /// Whether the agent closed the connection without further data.
    pub(super) async fn hung_up(&mut self) -> bool {
        !self.more().await && self.held.is_empty()
    }
}

/// A WebSocket.
pub(super) struct Socket(pub(super) Connection);

impl Socket {
    pub(super) async fn open(agent: &Arc<Agent>, path: &str, protocol: &str) -> Self {
        let mut connection = Connection::new(agent);
        let mut headers = vec![
            ("Connection", "keep-alive, Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        if !protocol.is_empty() {
            headers.push(("Sec-WebSocket-Protocol", protocol));
        }
        let (code, head) = connection.ask(&format!("GET {path}"), &headers).await;
        assert_eq!(code, 101, "{head} {:?}", connection.held);
        assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
        assert_eq!(head.contains("sec-websocket-protocol"), !protocol.is_empty());
        Self(connection)
    }

    /// Sends a frame that is a whole message, or a control frame.
    pub(super) async fn send(&mut self, opcode: u8, payload: &[u8]) {
        self.0.send(&masked(0x80 | opcode, payload)).await;
    }

    /// The next frame: its kind and its payload.
    pub(super) async fn next(&mut self) -> (u8, Bytes) {
        let head = self.0.exactly(2).await;
        assert_eq!(head[1] & 0x80, 0, "servers do not mask");
        let length = match head[1] {
            126 => usize::from(self.0.exactly(2).await.get_u16()),
            127 => usize::try_from(self.0.exactly(8).await.get_u64()).expect("it fits"),
            short => short.into(),
        };
        (head[0] & 0x0f, self.0.exactly(length).await)
    }

    /// Everything until the close frame: the bytes of each channel, and the code of the close.
    pub(super) async fn channels(&mut self) -> ([Vec<u8>; 5], u16) {
        let mut out: [Vec<u8>; 5] = Default::default();
        loop {
            match self.next().await {
                (2, message) => out[usize::from(message[0])].extend_from_slice(&message[1..]),
                (8, mut reason) => return (out, reason.get_u16()),
                (9 | 10, _) => {}
                (other, _) => panic!("a frame of kind {other}"),
            }
        }
    }
}

pub(super) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let mut out = vec![first];
    match payload.len() {
        short @ 0..=125 => out.put_u8(0x80 | u8::try_from(short).expect("it fits")),
        medium @ 126..=65535 => {
            out.put_u8(0xfe);
            out.put_u16(u16::try_from(medium).expect("it fits"));
        }
        long => {
            out.put_u8(0xff);
            out.put_u64(long as u64);
        }
    }
    out.put_slice(&mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out
}

/// A received SPDY frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Data(u32, Vec<u8>, bool),
    Reply(u32),
    Reset(u32, u32),
    Ping(u32),
    Goaway,
    Credit(u32, u32),
}

/// A SPDY client over any transport.
pub(super) struct Spdy {
    pub(super) packer: Packer,
    unpacker: Unpacker,
    pub(super) held: BytesMut,
}

impl Spdy {
    pub(super) fn new() -> Self {
        Self { packer: Packer::default(), unpacker: Unpacker::default(), held: BytesMut::new() }
    }

    pub(super) fn open(&mut self, id: u32, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_u32(id);
        body.put_u32(0);
        body.put_u16(0);
        body.put_slice(&self.packer.pack(headers));
        control(1, &body)
    }

    /// The next frame of the received bytes, if it is complete.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let head: [u8; 8] = *self.held.first_chunk()?;
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        if self.held.len() < 8 + length {
            return None;
        }
        self.held.advance(8);
        let mut body = self.held.split_to(length);
        let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        if first >> 31 == 0 {
            return Some(Frame::Data(first, body.to_vec(), head[4] & 1 != 0));
        }
        Some(match first & 0xffff {
            2 => {
                let id = body.get_u32();
                assert_eq!(self.unpacker.unpack(&body), Ok(Vec::new()));
                Frame::Reply(id)
            }
            3 => Frame::Reset(body.get_u32(), body.get_u32()),
            6 => Frame::Ping(body.get_u32()),
            7 => Frame::Goaway,
            9 => Frame::Credit(body.get_u32(), body.get_u32()),
            other => panic!("a control frame of kind {other}"),
        })
    }
}

pub(super) fn control(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u16(0x8003);
    out.put_u16(kind);
    out.put_u32(u32::try_from(body.len()).expect("it fits"));
    out.put_slice(body);
    out
}

pub(super) fn data(id: u32, bytes: &[u8], finish: bool) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32(id);
    out.put_u32(u32::try_from(bytes.len()).expect("it fits") | if finish { 1 << 24 } else { 0 });
    out.put_slice(bytes);
    out
}

/// SPDY over a plain connection.
pub(super) struct Plain {
    pub(super) connection: Connection,
    pub(super) spdy: Spdy,
    /// The bytes received on each stream, and whether the stream has ended.
    seen: BTreeMap<u32, (Vec<u8>, bool)>,
}

impl Plain {
    pub(super) async fn open(agent: &Arc<Agent>, path: &str, protocol: &str) -> Self {
        let mut connection = Connection::new(agent);
        let headers = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", protocol)];
        let (code, head) = connection.ask(&format!("POST {path}"), &headers).await;
        assert_eq!(code, 101, "{head} {:?}", connection.held);
        assert!(head.contains(&format!("x-stream-protocol-version: {protocol}").to_lowercase()), "{head}");
        Self { connection, spdy: Spdy::new(), seen: BTreeMap::new() }
    }

    /// Opens a stream.
    pub(super) async fn stream(&mut self, id: u32, headers: &[(&str, &str)]) {
        let bytes = self.spdy.open(id, headers);
        self.connection.send(&bytes).await;
    }

    /// The next frame; nothing at the end.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        loop {
            self.spdy.held.unsplit(self.connection.held.split());
            if let Some(frame) = self.spdy.next() {
                return Some(frame);
            }
            if !self.connection.more().await {
                return None;
            }
        }
    }

    /// The bytes of a stream until its end, including those received while other streams were read.
    pub(super) async fn all_of(&mut self, wanted: u32) -> Vec<u8> {
        loop {
            if self.seen.get(&wanted).is_some_and(|(_, done)| *done) {
                return self.seen.remove(&wanted).map(|(bytes, _)| bytes).unwrap_or_default();
            }
            match self.next().await.expect("not the end of the connection") {
                Frame::Data(id, bytes, finish) => {
                    let (have, done) = self.seen.entry(id).or_default();
                    have.extend_from_slice(&bytes);
                    *done |= finish;
                }
                Frame::Reset(id, _) => self.seen.entry(id).or_default().1 = true,
                _ => {}
            }
        }
    }
}
