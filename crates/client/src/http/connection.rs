//! One connection to a server, HTTP/1.1 or HTTP/2.
//!
//! HTTP/1.1 is for one request at a time. HTTP/2 is for streams that stay open: its pings notice a server that hangs or a
//! network that drops packets, which an idle HTTP/1.1 stream cannot.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::request::Builder;
use http::{Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::{ClientError, Protocol};
use crate::kubeconfig::Access;

/// Flow-control window of HTTP/2, in bytes.
const WINDOW: u32 = 1 << 20;

type Body = Full<Bytes>;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It took too long.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// The Unix socket cannot be connected to.
    #[error("{path}: {1}", path = .0.display())]
    Socket(PathBuf, io::Error),
    /// The address cannot be connected to.
    #[error(transparent)]
    Tcp(#[from] io::Error),
    /// The TLS handshake failed.
    #[error(transparent)]
    Tls(io::Error),
    /// The HTTP handshake failed.
    #[error("{}", full(.0))]
    Http(hyper::Error),
}

impl ConnectError {
    /// Whether the certificate of the server is missing or not valid for this client.
    #[must_use]
    pub fn is_certificate(&self) -> bool {
        use rustls::Error::{InvalidCertificate, NoCertificatesPresented};
        let Self::Tls(error) = self else { return false };
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        matches!(inner, Some(InvalidCertificate(_) | NoCertificatesPresented))
    }
}

pub(super) enum Connection {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

impl Connection {
    /// Connects, and negotiates the highest HTTP version that both sides support.
    pub(super) async fn open(access: &Access, protocol: Protocol) -> Result<Self, ClientError> {
        let why = match timeout(protocol.connect, Self::try_open(access, protocol)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(why)) => why,
            Err(_) => ConnectError::Timeout(protocol.connect),
        };
        Err(ClientError::Connect { address: access.address.clone(), why })
    }

    async fn try_open(access: &Access, protocol: Protocol) -> Result<Self, ConnectError> {
        let stream = dial(access).await?;
        let Some(tls) = &access.tls else { return one(stream).await };
        let connector = if protocol.ping.is_some() { &tls.multiplexed } else { &tls.plain };
        let stream = connector.connect(tls.name.clone(), stream).await.map_err(ConnectError::Tls)?;
        match protocol.ping.filter(|_| stream.get_ref().1.alpn_protocol() == Some(b"h2")) {
            Some(ping) => two(stream, ping).await,
            None => one(stream).await,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::One(sender) => !sender.is_closed(),
            Self::Two(sender) => !sender.is_closed(),
        }
    }

    /// The target of a request line: HTTP/2 names the server there, HTTP/1.1 in a header.
    pub(super) fn uri(&self, access: &Access, path: &str) -> String {
        match self {
            Self::One(_) => format!("{}{path}", access.prefix),
            Self::Two(_) => format!("https://{}{}{path}", access.address, access.prefix),
        }
    }

    /// Sends a request and waits for the headers of its response.
    pub(super) async fn send(
        &mut self,
        access: &Access,
        request: Builder,
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        let broken = |error: &dyn std::error::Error| ClientError::Broken(full(error));
        let body = Full::new(body);
        match self {
            Self::One(sender) => {
                let request =
                    request.header(header::HOST, &access.address).body(body).map_err(|error| broken(&error))?;
                sender.ready().await.map_err(|error| broken(&error))?;
                sender.send_request(request).await.map_err(|error| broken(&error))
            }
            Self::Two(sender) => {
                let request = request.body(body).map_err(|error| broken(&error))?;
                sender.ready().await.map_err(|error| broken(&error))?;
                sender.send_request(request).await.map_err(|error| broken(&error))
            }
        }
    }
}

/// A connection of any kind.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The certificates that a server presents, its own first, in DER; none without TLS. Sends no request.
pub(super) async fn presented(access: &Access, limit: Duration) -> Result<Vec<Vec<u8>>, ClientError> {
    let shake = async {
        let Some(tls) = &access.tls else { return Ok(Vec::new()) };
        let stream = tls.plain.connect(tls.name.clone(), dial(access).await?).await.map_err(ConnectError::Tls)?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        Ok(chain.iter().map(|certificate| certificate.to_vec()).collect())
    };
    let found = timeout(limit, shake).await.unwrap_or(Err(ConnectError::Timeout(limit)));
    found.map_err(|why| ClientError::Connect { address: access.address.clone(), why })
}

/// A connection to the server, before any data is sent.
pub(super) async fn dial(access: &Access) -> Result<Box<dyn Io>, ConnectError> {
    if let Some(socket) = &access.socket {
        let stream = UnixStream::connect(socket).await;
        return Ok(Box::new(stream.map_err(|error| ConnectError::Socket(socket.clone(), error))?));
    }
    let stream = TcpStream::connect(&access.address).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

async fn one(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Connection, ConnectError> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(ConnectError::Http)?;
    // A pending request fails when the connection ends.
    tokio::spawn(async { drop(connection.await) });
    Ok(Connection::One(sender))
}

async fn two(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ping: Duration,
) -> Result<Connection, ConnectError> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(ping)
        .keep_alive_timeout(ping)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(ConnectError::Http)?;
    tokio::spawn(async { drop(connection.await) });
    Ok(Connection::Two(sender))
}

/// An error with its causes; hyper's outermost error alone does not name the cause.
#[must_use]
pub fn full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
