//! Forwards requests to a backend: an agent, or a Pod.
//!
//! In: a connection to the backend, and the client's request. Out: the streamed response; or, after an upgrade, bytes copied in both
//! directions until one side ends. Hop-by-hop headers and credentials are not forwarded.

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::http::full;
use futures_util::future::{Either, try_join};
use futures_util::{StreamExt as _, stream};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tracing::Instrument as _;

use crate::audit::Trail;
use crate::reply::{Body, Reply};

/// Hop-by-hop headers.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The part of a client's request after its headers.
pub(crate) struct ClientBody {
    /// The body.
    pub(crate) body: Incoming,
    /// The connection after an upgrade.
    pub(crate) upgrade: OnUpgrade,
    /// Held until that connection ends, if the request is audited.
    pub(crate) audit: Option<Arc<Trail>>,
}

/// A request to a backend.
pub(crate) struct BackendRequest<'a> {
    /// The method.
    pub(crate) method: &'a Method,
    /// The path and the query, encoded.
    pub(crate) path: &'a str,
    /// The Host header.
    pub(crate) host: &'a str,
    /// The headers of the client.
    pub(crate) headers: &'a HeaderMap,
}

/// A connection, with or without TLS.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Why there is no response of a backend.
#[derive(Debug, Error)]
pub(crate) enum ForwardError {
    #[error("dial tcp {address}: {source}")]
    Dial { address: SocketAddr, source: io::Error },
    #[error("dial tcp {address}: no connection within {} seconds", within.as_secs())]
    Timeout { address: SocketAddr, within: Duration },
    #[error("TLS with {address}: {source}")]
    Tls { address: SocketAddr, source: io::Error },
    #[error("{address} is not an allowed agent address: {reason}")]
    NotAllowed { address: SocketAddr, reason: &'static str },
    #[error("{}", full(.0))]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error("an upgrade that was not requested")]
    UnrequestedUpgrade,
}

impl ForwardError {
    /// Whether the certificate of the backend is signed by a CA that is not trusted.
    pub(crate) fn is_unknown_issuer(&self) -> bool {
        let Self::Tls { source, .. } = self else { return false };
        let cause = source.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        matches!(cause, Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)))
    }
}

/// Connects within a timeout; with TLS if there is a configuration for it.
pub(crate) async fn connect(
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    within: Duration,
) -> Result<Box<dyn Io>, ForwardError> {
    let connecting = async {
        let stream = TcpStream::connect(address).await.map_err(|source| ForwardError::Dial { address, source })?;
        // Interactive sessions must not wait for more bytes.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else { return Ok(Box::new(stream) as Box<dyn Io>) };
        let name = ServerName::IpAddress(address.ip().into());
        let secured = TlsConnector::from(tls).connect(name, stream).await;
        let stream = secured.map_err(|source| ForwardError::Tls { address, source })?;
        Ok(Box::new(stream) as Box<dyn Io>)
    };
    tokio::time::timeout(within, connecting).await.unwrap_or(Err(ForwardError::Timeout { address, within }))
}

/// Sends a request and returns the response.
pub(crate) async fn send(
    io: Box<dyn Io>,
    backend: &BackendRequest<'_>,
    sent: ClientBody,
) -> Result<Reply, ForwardError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    // Errors of this connection are reported through the response.
    tokio::spawn(async { drop(connection.with_upgrades().await) });
    let upgrade = wanted(backend.headers);
    let mut request = Request::builder().method(backend.method).uri(backend.path).header(header::HOST, backend.host);
    if let Some(headers) = request.headers_mut() {
        pass(backend.headers, headers);
        if let Some(protocol) = &upgrade {
            headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(header::UPGRADE, protocol.clone());
            headers.remove(header::CONTENT_LENGTH);
        }
    }
    // An upgrade request has no body; what follows belongs to the other protocol.
    let body = if upgrade.is_some() { Either::Left(Empty::new()) } else { Either::Right(sent.body) };
    let request = request.body(Carried(body))?;
    let response = sender.send_request(request).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return if upgrade.is_some() {
            Ok(switched(response, sent.upgrade, sent.audit))
        } else {
            Err(ForwardError::UnrequestedUpgrade)
        };
    }
    Ok(answered(response))
}

/// The protocol of an upgrade request.
pub(crate) fn wanted(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut words = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let asks = words.any(|list| list.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade")));
    headers.get(header::UPGRADE).filter(|_| asks).cloned()
}

/// Copies end-to-end headers without credentials.
fn pass(from: &HeaderMap, to: &mut HeaderMap) {
    let named: Vec<HeaderName> = from
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|word| word.trim().parse().ok())
        .collect();
    let private = |name: &HeaderName| {
        HOP_BY_HOP.contains(name)
            || named.contains(name)
            || matches!(*name, header::AUTHORIZATION | header::HOST)
            || name.as_str().starts_with("impersonate-")
    };
    for (name, value) in from.iter().filter(|(name, _)| !private(name)) {
        to.append(name, value.clone());
    }
}

/// A response whose body is streamed.
fn answered(response: Response<Incoming>) -> Reply {
    let (parts, body) = response.into_parts();
    let frames = stream::unfold(Some(body), |body| async move {
        let mut body = body?;
        loop {
            match body.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some((Ok(data), Some(body)));
                    }
                }
                // Aborts the response, so that the client detects truncation.
                Err(error) => return Some((Err(io::Error::other(error)), None)),
            }
        }
    });
    let mut headers = HeaderMap::new();
    pass(&parts.headers, &mut headers);
    Reply::passed(parts.status.as_u16(), headers, Body::Passed(frames.boxed()))
}

/// The response to an upgrade; both connections are then joined.
fn switched(response: Response<Incoming>, client: OnUpgrade, audit: Option<Arc<Trail>>) -> Reply {
    let mut headers = HeaderMap::new();
    pass(response.headers(), &mut headers);
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = response.headers().get(header::UPGRADE) {
        headers.insert(header::UPGRADE, protocol.clone());
    }
    let server = hyper::upgrade::on(response);
    let carry = async move {
        match try_join(client, server).await {
            Ok((client, server)) => {
                let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                // An error on either side closes both.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
            Err(error) => tracing::debug!(%error, "failed to upgrade connection"),
        }
        drop(audit);
    };
    tokio::spawn(carry.in_current_span());
    Reply::passed(StatusCode::SWITCHING_PROTOCOLS.as_u16(), headers, Body::Whole(None))
}

/// The body of a request: the client's, or empty.
struct Carried(Either<Empty<Bytes>, Incoming>);

impl http_body::Body for Carried {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, hyper::Error>>> {
        match &mut self.get_mut().0 {
            Either::Left(_) => std::task::Poll::Ready(None),
            Either::Right(body) => std::pin::Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Either::Left(_) => true,
            Either::Right(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match &self.0 {
            Either::Left(_) => http_body::SizeHint::with_exact(0),
            Either::Right(body) => body.size_hint(),
        }
    }
}
