//! Requests that somebody else answers: an agent, or a Pod.
//!
//! In: a connection to whoever answers, and the client's request. Out: the answer as it comes, nothing of it held; or, when both sides
//! agree to leave HTTP, bytes carried both ways until one of them ends. Headers that belong to one connection, and what tells who
//! the client is, stay here.

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
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tracing::Instrument as _;

use crate::audit::Trail;
use crate::reply::{Body, Reply};

/// Headers that belong to one connection.
const OF_CONNECTION: [HeaderName; 9] = [
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

/// What a client sent after its headers.
pub(crate) struct Sent {
    /// The body.
    pub(crate) body: Incoming,
    /// The connection, once both sides have left HTTP.
    pub(crate) upgrade: OnUpgrade,
    /// Held until that connection ends, if the request is audited.
    pub(crate) audit: Option<Arc<Trail>>,
}

/// A request on its way to whoever answers it.
pub(crate) struct Outward<'a> {
    /// The method.
    pub(crate) method: &'a Method,
    /// The path and the query, encoded.
    pub(crate) path: &'a str,
    /// The name of the one who answers.
    pub(crate) host: &'a str,
    /// The headers of the client.
    pub(crate) headers: &'a HeaderMap,
}

/// A connection, encrypted or not.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Connects within a time; with TLS when there are settings for it.
pub(crate) async fn connect(
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    within: Duration,
) -> Result<Box<dyn Io>, String> {
    let connecting = async {
        let stream = TcpStream::connect(address).await.map_err(|error| format!("dial tcp {address}: {error}"))?;
        // Bytes of people who type must not wait for more.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else { return Ok(Box::new(stream) as Box<dyn Io>) };
        let name = ServerName::IpAddress(address.ip().into());
        let secured = TlsConnector::from(tls).connect(name, stream).await;
        secured.map(|stream| Box::new(stream) as Box<dyn Io>).map_err(|error| format!("TLS with {address}: {error}"))
    };
    let late = || format!("dial tcp {address}: no connection within {} seconds", within.as_secs());
    tokio::time::timeout(within, connecting).await.unwrap_or_else(|_| Err(late()))
}

/// Sends a request and gives its answer, whatever it is.
pub(crate) async fn send(io: Box<dyn Io>, outward: &Outward<'_>, sent: Sent) -> Result<Reply, String> {
    let words = |error: hyper::Error| full(&error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(words)?;
    // The end of this connection is told to whoever waits for the answer.
    tokio::spawn(async { drop(connection.with_upgrades().await) });
    let upgrade = wanted(outward.headers);
    let mut request = Request::builder().method(outward.method).uri(outward.path).header(header::HOST, outward.host);
    if let Some(headers) = request.headers_mut() {
        pass(outward.headers, headers);
        if let Some(protocol) = &upgrade {
            headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(header::UPGRADE, protocol.clone());
            headers.remove(header::CONTENT_LENGTH);
        }
    }
    // A request to leave HTTP has no body; what the client sends next belongs to the other protocol.
    let body = if upgrade.is_some() { Either::Left(Empty::new()) } else { Either::Right(sent.body) };
    let request = request.body(Carried(body)).map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(words)?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return if upgrade.is_some() {
            Ok(switched(response, sent.upgrade, sent.audit))
        } else {
            Err("an upgrade nobody asked for".to_owned())
        };
    }
    Ok(answered(response))
}

/// The protocol that a client wants in place of HTTP.
pub(crate) fn wanted(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut words = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let asks = words.any(|list| list.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade")));
    headers.get(header::UPGRADE).filter(|_| asks).cloned()
}

/// Copies headers that are not private.
fn pass(from: &HeaderMap, to: &mut HeaderMap) {
    let named: Vec<HeaderName> = from
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|word| word.trim().parse().ok())
        .collect();
    let private = |name: &HeaderName| {
        OF_CONNECTION.contains(name)
            || named.contains(name)
            || matches!(*name, header::AUTHORIZATION | header::HOST)
            || name.as_str().starts_with("impersonate-")
    };
    for (name, value) in from.iter().filter(|(name, _)| !private(name)) {
        to.append(name, value.clone());
    }
}

/// An answer whose body passes through.
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
                // The client must see that this is not all of it.
                Err(error) => return Some((Err(io::Error::other(error)), None)),
            }
        }
    });
    let mut headers = HeaderMap::new();
    pass(&parts.headers, &mut headers);
    Reply::passed(parts.status.as_u16(), headers, Body::Passed(frames.boxed()))
}

/// An answer after which both connections carry another protocol.
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
                // Whichever end breaks, both are let go.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
            Err(error) => tracing::debug!(%error, "a connection was not handed over"),
        }
        drop(audit);
    };
    tokio::spawn(carry.in_current_span());
    Reply::passed(StatusCode::SWITCHING_PROTOCOLS.as_u16(), headers, Body::Whole(None))
}

/// The body of a request: the client's, or none.
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
