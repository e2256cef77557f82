//! The HTTP of the ACME client, with limits.
//!
//! In: requests for URLs that the server has named. Out: responses. Only the origin of the directory is contacted: a hostile directory cannot make the server of a
//! cluster send requests into its network. Redirects are not followed. Each request has a connection of its own: an order has about ten.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, RETRY_AFTER};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error as AcmeError, HttpClient};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest body of a response, in bytes.
const MAX_BODY: usize = 512 * 1024;
/// Longest `Retry-After` that is honoured while an order waits, in seconds; others are ignored.
const MAX_RETRY_AFTER: u64 = 60;

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It is not a URL.
    #[error("expected the URL of an ACME directory, such as https://acme.example/directory")]
    Malformed,
    /// It is not HTTPS, which RFC 8555 demands.
    #[error("the URL of an ACME directory begins with https://")]
    NotHttps,
    /// TLS cannot be configured, which is a bug.
    #[error(transparent)]
    Tls(rustls::Error),
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The server named a URL of another origin.
    #[error("{0:.200} is not at the server of the directory, and is not contacted")]
    OtherOrigin(String),
    /// No connection.
    #[error("connecting to {0}: {1}")]
    Connect(String, std::io::Error),
    /// The exchange failed.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The body is too long, or did not arrive.
    #[error("reading the response: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// It took too long.
    #[error("no response within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Where the directory is.
#[derive(Debug)]
pub(crate) struct Origin {
    authority: Authority,
    host: String,
    port: u16,
    name: ServerName<'static>,
}

impl Origin {
    /// The origin of a URL.
    pub(crate) fn of(url: &str) -> Result<Self, AddressError> {
        let uri: Uri = url.parse().map_err(|_| AddressError::Malformed)?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or(AddressError::Malformed)?.clone();
        if uri.scheme_str() != Some("https") {
            return Err(AddressError::NotHttps);
        }
        let host = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
        let name = ServerName::try_from(host.clone()).map_err(|_| AddressError::Malformed)?;
        Ok(Self { port: authority.port_u16().unwrap_or(443), authority, host, name })
    }

    /// Whether a URL is of this origin.
    fn has(&self, uri: &Uri) -> bool {
        Self::of(&uri.to_string()).is_ok_and(|other| (other.host, other.port) == (self.host.clone(), self.port))
    }
}

/// Sends requests to one origin.
pub(crate) struct Exchange {
    origin: Arc<Origin>,
    tls: Arc<ClientConfig>,
}

impl Exchange {
    pub(crate) const fn new(origin: Arc<Origin>, tls: Arc<ClientConfig>) -> Self {
        Self { origin, tls }
    }
}

impl HttpClient for Exchange {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, AcmeError>> + Send>> {
        let (origin, tls) = (Arc::clone(&self.origin), Arc::clone(&self.tls));
        Box::pin(async move {
            let exchange = timeout(TIMEOUT, send(&origin, tls, request));
            let result = exchange.await.unwrap_or(Err(ExchangeError::Timeout));
            result.map(BytesResponse::from).map_err(|error| AcmeError::Other(Box::new(error)))
        })
    }
}

async fn send(
    origin: &Origin,
    tls: Arc<ClientConfig>,
    mut request: Request<BodyWrapper<Bytes>>,
) -> Result<Response<Full<Bytes>>, ExchangeError> {
    if !origin.has(request.uri()) {
        return Err(ExchangeError::OtherOrigin(request.uri().to_string()));
    }
    let connect = |error| ExchangeError::Connect(origin.authority.to_string(), error);
    let stream = TcpStream::connect((origin.host.as_str(), origin.port)).await.map_err(connect)?;
    let stream = TlsConnector::from(tls).connect(origin.name.clone(), stream).await.map_err(connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    if let Ok(host) = HeaderValue::from_str(origin.authority.as_str()) {
        request.headers_mut().insert(HOST, host);
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).parse();
    *request.uri_mut() = path.unwrap_or_else(|_| Uri::from_static("/"));
    let exchange = async {
        let response = sender.send_request(request).await?;
        let (mut parts, body) = response.into_parts();
        if !is_soon(parts.headers.get(RETRY_AFTER)) {
            parts.headers.remove(RETRY_AFTER);
        }
        let body = Limited::new(body, MAX_BODY).collect().await.map_err(ExchangeError::Body)?;
        Ok(Response::from_parts(parts, Full::new(body.to_bytes())))
    };
    tokio::pin!(exchange);
    tokio::select! {
        result = &mut exchange => result,
        // The connection may end when it has delivered the response.
        ended = connection => {
            ended?;
            exchange.await
        }
    }
}

/// Whether a `Retry-After` is short enough to wait for.
fn is_soon(value: Option<&HeaderValue>) -> bool {
    let seconds = value.and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    seconds.is_some_and(|seconds| seconds <= MAX_RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_origin_of_the_directory_is_contacted() {
        let origin = Origin::of("https://CA.example:14000/dir").expect("an origin");
        for (url, expected) in [
            ("https://ca.example:14000/order/1?x=y", true),
            ("http://ca.example:14000/order/1", false),
            ("https://ca.example/order/1", false),
            ("https://ca.example:14000@10.0.0.1/order/1", false),
            ("https://169.254.169.254/latest/meta-data", false),
            ("https://ca.example.evil.example:14000/", false),
            ("/order/1", false),
        ] {
            let is_sent = url.parse::<Uri>().is_ok_and(|uri| origin.has(&uri));
            assert_eq!(is_sent, expected, "{url}");
        }
        assert!(Origin::of("https://ca.example/dir").is_ok_and(|origin| origin.port == 443));
        assert!(Origin::of("https://[::1]:14000/dir").is_ok_and(|origin| origin.host == "::1"));
        for wrong in ["", "ca.example", "ftp://ca.example/", "http://ca.example/dir", "https:///dir", "https://a b/"] {
            assert!(Origin::of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_server_cannot_make_an_order_wait_for_long() {
        let soon = |text: &'static str| is_soon(Some(&HeaderValue::from_static(text)));
        assert!(soon("3") && soon(" 60 "));
        for text in ["61", "18446744073709551615", "-1", "Fri, 31 Dec 9999 23:59:59 GMT", ""] {
            assert!(!soon(text), "{text}");
        }
    }
}
