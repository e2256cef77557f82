//! The ClientHello of a connection whose TLS may end elsewhere.
//!
//! In: a stream. Out: the server name, and the stream with the bytes that were read at its start.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use api::acme;
use rustls::server::{Accepted, Acceptor};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Longest ClientHello with its record headers, in bytes.
const MAX_HELLO: usize = 64 * 1024;
/// Bytes of one read.
const PIECE: usize = 4 * 1024;

/// What a ClientHello says.
pub(crate) struct ClientHello {
    /// The server name (SNI), in lower case.
    pub(crate) server_name: Option<String>,
    /// Whether it offers the protocol of TLS-ALPN-01 challenges and no other, as RFC 8737 demands.
    pub(crate) is_challenge: bool,
}

impl ClientHello {
    /// Reads a ClientHello.
    ///
    /// # Errors
    /// When the stream ends, or sends something else.
    pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(Vec<u8>, Self)> {
        let (mut acceptor, mut bytes) = (Acceptor::default(), Vec::new());
        loop {
            let seen = bytes.len();
            if seen > MAX_HELLO {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the ClientHello is too long"));
            }
            bytes.reserve(PIECE);
            if stream.read_buf(&mut bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut fresh = &bytes[seen..];
            while !fresh.is_empty() {
                // Data behind the ClientHello is not needed.
                if acceptor.read_tls(&mut fresh)? == 0 {
                    break;
                }
                let accepted = acceptor.accept();
                let accepted = accepted.map_err(|(error, _)| io::Error::new(io::ErrorKind::InvalidData, error))?;
                if let Some(accepted) = accepted {
                    return Ok((bytes, Self::of(&accepted)));
                }
            }
        }
    }

    /// Reads a ClientHello from a handshake message without records, as QUIC carries it.
    ///
    /// # Errors
    /// When it is invalid, not complete, or longer than a record.
    pub(crate) fn of_message(message: &[u8]) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let length = u16::try_from(message.len()).map_err(|_| invalid())?;
        // A record of type `handshake`.
        let record = [&[22, 3, 1][..], &length.to_be_bytes()[..], message].concat();
        let (mut acceptor, mut rest) = (Acceptor::default(), &record[..]);
        while !rest.is_empty() && acceptor.read_tls(&mut rest)? > 0 {}
        let accepted = acceptor.accept().map_err(|(error, _)| io::Error::new(io::ErrorKind::InvalidData, error))?;
        accepted.as_ref().map(Self::of).ok_or_else(invalid)
    }

    fn of(accepted: &Accepted) -> Self {
        let hello = accepted.client_hello();
        let server_name = hello.server_name().map(str::to_ascii_lowercase);
        let is_challenge = hello.alpn().is_some_and(|protocols| protocols.eq([acme::ALPN]));
        Self { server_name, is_challenge }
    }
}

/// A connection whose first bytes were read before.
pub(super) struct Replayed {
    bytes: Vec<u8>,
    position: usize,
    stream: TcpStream,
}

impl Replayed {
    pub(super) const fn new(bytes: Vec<u8>, stream: TcpStream) -> Self {
        Self { bytes, position: 0, stream }
    }

    pub(super) const fn get_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsyncRead for Replayed {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = &self.bytes[self.position..];
        if left.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let count = left.len().min(buf.remaining());
        buf.put_slice(&left[..count]);
        self.position += count;
        if self.position == self.bytes.len() {
            (self.bytes, self.position) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Replayed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
