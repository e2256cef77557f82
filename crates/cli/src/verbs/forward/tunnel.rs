//! One forwarded connection: two SPDY streams in a WebSocket, one for data and one for errors.
//!
//! In: a local connection. Out: its bytes at a port of the Pod, and back; the connection may be half-closed. This is the client side of
//! SPDY, reduced to two streams and without window updates, which servers of Kubernetes do not require.

use anyhow::bail;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use client::spdy::Packer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::verbs::client::Client;

const PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";
/// Stream IDs.
const ERROR: u32 = 1;
const DATA: u32 = 3;
const READ: usize = 16 * 1024;
const FIN: u8 = 1;

const SYN_STREAM: u16 = 1;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;

/// Forwards a connection until it ends.
pub(super) async fn forward(client: &Client, path: &str, port: u16, stream: TcpStream) -> anyhow::Result<()> {
    let socket = client.socket(path, PROTOCOL).await?;
    let mut packer = Packer::default();
    let port = port.to_string();
    for (id, kind) in [(ERROR, "error"), (DATA, "data")] {
        socket.sender.send(open(&mut packer, id, kind, &port)).await?;
    }
    // The client sends nothing on the error stream.
    socket.sender.send(data(ERROR, &[], true)).await?;
    let (mut from, mut to) = stream.into_split();
    let sending = send(&mut from, socket.sender.clone());
    let mut frames = Frames::default();
    let mut incoming = socket.receiver;
    let receiving = async {
        let (mut error, mut reset, mut error_ended) = (Vec::new(), false, false);
        while let Some(message) = incoming.recv().await {
            frames.0.extend_from_slice(&message);
            while let Some(frame) = frames.next() {
                match frame {
                    Frame::Data { id: DATA, bytes, finish } => {
                        to.write_all(&bytes).await?;
                        if finish {
                            to.shutdown().await?;
                            return Ok(error);
                        }
                    }
                    Frame::Data { bytes, finish, .. } => {
                        error.extend_from_slice(&bytes);
                        error_ended |= finish;
                    }
                    Frame::Ping(body) => drop(socket.sender.send(control(PING, &body)).await),
                    // The reason may follow on the error stream.
                    Frame::Reset { id: DATA } => reset = true,
                    Frame::GoAway => return Ok(error),
                    Frame::Reset { .. } | Frame::Other => {}
                }
                if error_ended && (reset || !error.is_empty()) {
                    return Ok(error);
                }
            }
        }
        std::io::Result::Ok(error)
    };
    // The local side may stop sending and still receive; when the remote side ends, the connection is over.
    let error = tokio::select! {
        error = receiving => error?,
        () = async { sending.await; std::future::pending().await } => Vec::new(),
    };
    if !error.is_empty() {
        bail!("{}", String::from_utf8_lossy(&error));
    }
    Ok(())
}

/// Sends the bytes of the connection, and its end.
async fn send(from: &mut (impl AsyncRead + Unpin), to: mpsc::Sender<Bytes>) {
    let mut buffer = BytesMut::with_capacity(READ);
    loop {
        buffer.clear();
        let over = !matches!(from.read_buf(&mut buffer).await, Ok(1..));
        if to.send(data(DATA, &buffer, over)).await.is_err() || over {
            return;
        }
    }
}

fn data(id: u32, bytes: &[u8], finish: bool) -> Bytes {
    let mut out = BytesMut::with_capacity(bytes.len() + 8);
    out.put_u32(id);
    out.put_u32(u32::from(if finish { FIN } else { 0 }) << 24 | u32::try_from(bytes.len()).unwrap_or_default());
    out.put_slice(bytes);
    out.freeze()
}

/// The frame that opens a stream.
fn open(packer: &mut Packer, id: u32, kind: &str, port: &str) -> Bytes {
    let mut body = BytesMut::new();
    body.put_u32(id);
    body.put_u32(0);
    body.put_u16(0);
    body.put_slice(&packer.pack(&[("port", port), ("requestid", "0"), ("streamtype", kind)]));
    control(SYN_STREAM, &body)
}

fn control(kind: u16, body: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(8 + body.len());
    out.put_u16(0x8003);
    out.put_u16(kind);
    out.put_u32(u32::try_from(body.len()).unwrap_or_default());
    out.put_slice(body);
    out.freeze()
}

#[derive(Debug, PartialEq, Eq)]
enum Frame {
    Data { id: u32, bytes: Bytes, finish: bool },
    Reset { id: u32 },
    Ping(Bytes),
    GoAway,
    Other,
}

/// Received bytes that are not yet a complete frame.
#[derive(Default)]
struct Frames(BytesMut);

impl Frames {
    /// The next complete frame.
    fn next(&mut self) -> Option<Frame> {
        let head: [u8; 8] = *self.0.first_chunk()?;
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        if self.0.len() < 8 + length {
            return None;
        }
        self.0.advance(8);
        let body = self.0.split_to(length).freeze();
        let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        if first >> 31 == 0 {
            return Some(Frame::Data { id: first, bytes: body, finish: head[4] & FIN != 0 });
        }
        Some(match u16::from_be_bytes([head[2], head[3]]) {
            RST_STREAM => Frame::Reset { id: body.first_chunk().map_or(0, |id| u32::from_be_bytes(*id)) },
            PING => Frame::Ping(body),
            GOAWAY => Frame::GoAway,
            _ => Frame::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_reassembled_from_any_chunks() {
        let mut wire = data(DATA, b"hello", false).to_vec();
        wire.extend(data(DATA, &[], true));
        wire.extend(control(RST_STREAM, &[0, 0, 0, 3, 0, 0, 0, 5]));
        let (mut frames, mut seen) = (Frames::default(), Vec::new());
        for byte in wire {
            frames.0.put_u8(byte);
            seen.extend(frames.next());
        }
        let hello = Bytes::from_static(b"hello");
        let wanted = [
            Frame::Data { id: DATA, bytes: hello, finish: false },
            Frame::Data { id: DATA, bytes: Bytes::new(), finish: true },
            Frame::Reset { id: DATA },
        ];
        assert_eq!(seen, wanted);
    }
}
