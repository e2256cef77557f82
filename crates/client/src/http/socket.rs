//! A WebSocket client connection, for exec, attach and port-forward.
//!
//! In: a path and the subprotocols that we support. Out: messages in both directions, through bounded channels, so that a slow
//! reader applies backpressure. Frames of a client are masked, which is the only difference from those of a server
//! (RFC 6455, 5.3); pings are answered here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::connection::{ConnectError, Io, dial, full};
use super::{CONNECT_TIMEOUT, Client, ClientError};
use crate::kubeconfig::Access;

/// The GUID of RFC 6455 that is appended to the key.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Capacity of the queue of each direction, in messages.
const WAITING: usize = 16;
/// Maximum length of a message, in bytes.
const LONGEST: u64 = 16 << 20;

const CONTINUATION: u8 = 0;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The response of a server to a WebSocket handshake.
#[derive(Debug)]
pub enum Opened {
    /// It accepted.
    Socket(Socket),
    /// It refused: the status code and the body of the response.
    Refused(u16, Bytes),
}

/// An open WebSocket. It is closed when both halves are dropped.
#[derive(Debug)]
pub struct Socket {
    /// Messages to send; dropping it closes the connection once they are sent.
    pub sender: mpsc::Sender<Bytes>,
    /// Received messages; ends when the connection is closed.
    pub receiver: mpsc::Receiver<Bytes>,
}

impl Client {
    /// Opens a WebSocket, over a connection of its own.
    ///
    /// # Errors
    /// When there is no response, or it is not a valid WebSocket handshake.
    pub async fn socket(&self, path: &str, protocol: &str) -> Result<Opened, ClientError> {
        let failed = |why| ClientError::Connect { address: self.access.address.clone(), why };
        let late = || failed(ConnectError::Timeout(CONNECT_TIMEOUT));
        let io = timeout(CONNECT_TIMEOUT, connect(&self.access)).await.map_err(|_| late())?.map_err(failed)?;
        let broken = |error: hyper::Error| ClientError::Broken(full(&error));
        let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(broken)?;
        // The reader detects the end of the connection.
        tokio::spawn(async { drop(connection.with_upgrades().await) });
        let key = STANDARD.encode(std::array::from_fn::<u8, 16, _>(|_| fastrand::u8(..)));
        let mut request = Request::builder()
            .uri(format!("{}{path}", self.access.prefix))
            .header(header::HOST, &self.access.address)
            .header(header::USER_AGENT, concat!("waypost/", env!("CARGO_PKG_VERSION")))
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, &key)
            .header(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        for (name, value) in self.access.headers().map_err(ClientError::Credentials)? {
            request = request.header(name, value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| ClientError::Broken(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let code = response.status().as_u16();
            let body = response.into_body().collect().await.map_err(broken)?.to_bytes();
            return Ok(Opened::Refused(code, body));
        }
        let said = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if said(header::SEC_WEBSOCKET_ACCEPT) != proof(&key) || said(header::SEC_WEBSOCKET_PROTOCOL) != protocol {
            return Err(ClientError::Broken(format!("the server does not speak {protocol}")));
        }
        let io = hyper::upgrade::on(response).await.map_err(broken)?;
        Ok(Opened::Socket(carry(TokioIo::new(io))))
    }
}

async fn connect(access: &Access) -> Result<Box<dyn Io>, ConnectError> {
    let stream = dial(access).await?;
    let Some(tls) = &access.tls else { return Ok(stream) };
    let stream = tls.plain.connect(tls.name.clone(), stream).await.map_err(ConnectError::Tls)?;
    Ok(Box::new(stream))
}

/// The `Sec-WebSocket-Accept` value that a key requires.
fn proof(key: &str) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes()))
}

/// Transfers messages in both directions until the connection ends.
fn carry(io: impl AsyncRead + AsyncWrite + Send + 'static) -> Socket {
    let (mut from, mut to) = tokio::io::split(io);
    let (sender, mut outgoing) = mpsc::channel::<Bytes>(WAITING);
    let (incoming, receiver) = mpsc::channel::<Bytes>(WAITING);
    let (answers, mut answering) = mpsc::channel::<Bytes>(WAITING);
    tokio::spawn(async move {
        loop {
            let frame = tokio::select! {
                Some(pong) = answering.recv() => pong,
                message = outgoing.recv() => match message {
                    Some(message) => masked(BINARY, &message),
                    None => break,
                },
            };
            if to.write_all(&frame).await.is_err() || to.flush().await.is_err() {
                return;
            }
        }
        // The server may have closed the connection.
        let _ = to.write_all(&masked(CLOSE, &1000_u16.to_be_bytes())).await;
        let _ = to.flush().await;
    });
    tokio::spawn(async move {
        let mut reader = Reader::default();
        let mut held = BytesMut::new();
        loop {
            match reader.next(&mut held) {
                Some(Piece::Message(message)) => {
                    if incoming.send(message).await.is_err() {
                        return;
                    }
                }
                Some(Piece::Ping(payload)) => drop(answers.send(masked(PONG, &payload)).await),
                Some(Piece::End) => return,
                None => {
                    if !matches!(from.read_buf(&mut held).await, Ok(1..)) {
                        return;
                    }
                }
            }
        }
    });
    Socket { sender, receiver }
}

/// A complete frame of a client.
fn masked(opcode: u8, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(payload.len() + 14);
    out.put_u8(0x80 | opcode);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(short @ 0..=125), _) => out.put_u8(0x80 | short),
        (_, Ok(medium)) => {
            out.put_u8(0x80 | 126);
            out.put_u16(medium);
        }
        _ => {
            out.put_u8(0x80 | 127);
            out.put_u64(payload.len() as u64);
        }
    }
    let mask = fastrand::u32(..).to_be_bytes();
    out.put_slice(&mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out.freeze()
}

/// Received data.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Message(Bytes),
    Ping(Bytes),
    /// The server closed the connection, or violated the protocol.
    End,
}

/// Reads the frames of a server.
#[derive(Default)]
struct Reader {
    /// The fragments of an incomplete message.
    message: BytesMut,
}

impl Reader {
    /// Removes and returns the next piece of `input`; none when more bytes are needed.
    fn next(&mut self, input: &mut BytesMut) -> Option<Piece> {
        loop {
            let Ok((opcode, last, payload)) = frame(input)? else { return Some(Piece::End) };
            match opcode {
                CLOSE => return Some(Piece::End),
                PING => return Some(Piece::Ping(payload)),
                PONG => {}
                CONTINUATION | 1 | BINARY => {
                    self.message.put_slice(&payload);
                    if self.message.len() as u64 > LONGEST {
                        return Some(Piece::End);
                    }
                    if last {
                        return Some(Piece::Message(self.message.split().freeze()));
                    }
                }
                _ => return Some(Piece::End),
            }
        }
    }
}

/// Removes a frame from `input` when it is complete: its opcode, whether it ends a message, and its payload.
fn frame(input: &mut BytesMut) -> Option<Result<(u8, bool, Bytes), ()>> {
    let [first, second, ..] = input[..] else { return None };
    // Servers neither mask frames nor use extensions.
    if second & 0x80 != 0 || first & 0x70 != 0 {
        return Some(Err(()));
    }
    let (size, length) = match second {
        126 => (4, u64::from(u16::from_be_bytes(*input.get(2..4)?.first_chunk()?))),
        127 => (10, u64::from_be_bytes(*input.get(2..10)?.first_chunk()?)),
        short => (2, u64::from(short)),
    };
    if length > LONGEST {
        return Some(Err(()));
    }
    let length = usize::try_from(length).ok()?;
    if input.len() < size + length {
        return None;
    }
    input.advance(size);
    Some(Ok((first & 0x0f, first & 0x80 != 0, input.split_to(length).freeze())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proof_is_that_of_the_standard() {
        assert_eq!(proof("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn messages_come_whole_however_they_are_cut() {
        let mut wire = vec![0x02, 2, b'a', b'b', 0x89, 1, b'?', 0x80, 1, b'c', 0x82, 126, 1, 0];
        wire.extend([7; 256]);
        wire.extend([0x88, 0]);
        let (mut reader, mut held, mut seen) = (Reader::default(), BytesMut::new(), Vec::new());
        for byte in wire {
            held.put_u8(byte);
            seen.extend(reader.next(&mut held));
        }
        let wanted = [
            Piece::Ping(Bytes::from_static(b"?")),
            Piece::Message(Bytes::from_static(b"abc")),
            Piece::Message(Bytes::from(vec![7; 256])),
            Piece::End,
        ];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn a_server_that_masks_or_promises_too_much_is_left() {
        for wire in [&[0x82, 0x81, 0, 0, 0, 0, 1][..], &[0x82, 127, 0xff, 0, 0, 0, 0, 0, 0, 0], &[0xc2, 0], &[0x83, 0]]
        {
            assert_eq!(Reader::default().next(&mut BytesMut::from(wire)), Some(Piece::End), "{wire:?}");
        }
    }

    #[test]
    fn frames_of_ours_are_masked() {
        for length in [0, 1, 125, 126, 65_535, 65_536] {
            let payload = vec![9; length];
            let frame = masked(BINARY, &payload);
            let head = match length {
                0..=125 => 2,
                126..=65_535 => 4,
                _ => 10,
            };
            assert_eq!(frame.len(), head + 4 + length);
            let mask: Vec<u8> = frame[head..head + 4].to_vec();
            let plain: Vec<u8> =
                frame[head + 4..].iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            assert_eq!(plain, payload);
        }
    }
}
