//! HTTP client for registries, with restricted redirects.
//!
//! In: a URL and headers. Out: a response whose body is not read yet. Certificates are verified with the root certificates of the host (`SSL_CERT_FILE`,
//! `SSL_CERT_DIR`). Plain HTTP is allowed for loopback and `--insecure-registry` only, also by redirect. Credentials are never sent to another host.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use client::http::full;
use http::{HeaderMap, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::PullError;

/// The connect timeout per address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The read timeout: until the response starts, and between its parts.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The most redirects.
const MAX_REDIRECTS: usize = 5;

/// Why a request on an open connection failed.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("this machine has no root certificates (Debian: `apt install ca-certificates`)")]
    NoRoots,
    #[error(transparent)]
    TlsConfig(#[from] rustls::Error),
    #[error(transparent)]
    ServerName(#[from] InvalidDnsNameError),
    #[error("TLS: {}{}", full(.1), hint(.0, .1))]
    Handshake(String, std::io::Error),
    #[error("{}", full(.0))]
    Http(#[from] hyper::Error),
}

/// The next step after a failed TLS handshake with a registry.
fn hint(registry: &str, error: &std::io::Error) -> String {
    let why = full(error);
    if why.contains("InvalidContentType") || why.contains("corrupt message") || why.contains("eof") {
        format!("; if it uses plain HTTP, add --insecure-registry {registry}")
    } else if why.contains("UnknownIssuer") {
        "; set SSL_CERT_FILE to the certificate of its CA".to_owned()
    } else {
        String::new()
    }
}

/// The HTTP client.
pub(in super::super) struct HttpClient {
    plain: BTreeSet<String>,
    tls: OnceLock<TlsConnector>,
}

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    secure: bool,
    /// With its port, if specified.
    pub(super) authority: String,
    host: String,
    port: u16,
    path: String,
}

impl Address {
    fn host_name(host: &str) -> &str {
        host.trim_start_matches('[').trim_end_matches(']')
    }

    fn same_place(&self, other: &Self) -> bool {
        (self.secure, &self.host, self.port) == (other.secure, &other.host, other.port)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.split('?').next().unwrap_or_default();
        write!(out, "{}://{}{path}", if self.secure { "https" } else { "http" }, self.authority)
    }
}

impl HttpClient {
    /// Uses plain HTTP for these hosts (`HOST` or `HOST:PORT`).
    pub(in super::super) fn new(plain: impl IntoIterator<Item = String>) -> Self {
        Self { plain: plain.into_iter().map(|host| host.to_lowercase()).collect(), tls: OnceLock::new() }
    }

    /// The URL of a path at a registry.
    pub(super) fn at(&self, authority: &str, path: &str) -> Result<Address, PullError> {
        let scheme = if self.may_be_plain(authority) { "http" } else { "https" };
        self.address(&format!("{scheme}://{authority}{path}"))
    }

    /// Parses a URL; plain HTTP must be allowed.
    pub(super) fn address(&self, text: &str) -> Result<Address, PullError> {
        let bad = |why: &str| PullError::Address { address: text.chars().take(200).collect(), why: why.to_owned() };
        let uri: Uri = text.parse().map_err(|_| bad("invalid URL"))?;
        let authority = uri.authority().ok_or_else(|| bad("the URL has no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("the URL contains a user name"));
        }
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if self.may_be_plain(authority.as_str()) => false,
            Some("http") => return Err(bad("plain HTTP is allowed only for loopback and --insecure-registry")),
            _ => return Err(bad("the scheme is neither https nor http")),
        };
        Ok(Address {
            secure,
            authority: authority.as_str().to_owned(),
            host: Address::host_name(authority.host()).to_owned(),
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            path: uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned(),
        })
    }

    fn may_be_plain(&self, authority: &str) -> bool {
        let authority = authority.to_lowercase();
        let Ok(parsed) = authority.parse::<http::uri::Authority>() else { return false };
        let host = Address::host_name(parsed.host());
        let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        loopback || self.plain.contains(&authority) || self.plain.contains(host)
    }

    fn tls(&self) -> Result<&TlsConnector, RequestError> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls);
        }
        let mut roots = rustls::RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(RequestError::NoRoots);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(self.tls.get_or_init(|| TlsConnector::from(Arc::new(config))))
    }

    /// A GET request that follows redirects. The `Authorization` header is sent to the first host only.
    pub(super) async fn get(&self, at: &Address, headers: &HeaderMap) -> Result<Response<Incoming>, PullError> {
        let mut here = at.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut headers = headers.clone();
            if !here.same_place(at) {
                headers.remove(header::AUTHORIZATION);
            }
            let answer = self.send(&here, headers).await?;
            if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(answer);
            }
            let to = answer.headers().get(header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or_default();
            let to = match to {
                path if path.starts_with('/') && !path.starts_with("//") => {
                    Address { path: path.to_owned(), ..here.clone() }
                }
                whole => self.address(whole)?,
            };
            if here.secure && !to.secure {
                let why = format!("{} redirects from HTTPS to HTTP", here.authority);
                return Err(PullError::Address { address: to.to_string(), why });
            }
            here = to;
        }
        let why = format!("more than {MAX_REDIRECTS} redirects");
        Err(PullError::Address { address: at.to_string(), why })
    }

    async fn send(&self, at: &Address, headers: HeaderMap) -> Result<Response<Incoming>, PullError> {
        let failed = |why: String| PullError::Unreachable { host: at.authority.clone(), why };
        let stream = self.connect(at).await?;
        let mut request = Request::get(&at.path).body(Empty::<Bytes>::new()).map_err(|error| failed(full(&error)))?;
        *request.headers_mut() = headers;
        let host = at.authority.parse().map_err(|_| failed("invalid host name".to_owned()))?;
        request.headers_mut().insert(header::HOST, host);
        let asked = async {
            if !at.secure {
                return ask(stream, request).await;
            }
            let name = ServerName::try_from(at.host.clone())?;
            let handshake = self.tls()?.connect(name, stream).await;
            ask(handshake.map_err(|error| RequestError::Handshake(at.authority.clone(), error))?, request).await
        };
        match timeout(READ_TIMEOUT, asked).await {
            Ok(answer) => answer.map_err(|error| failed(error.to_string())),
            Err(_) => Err(failed(format!("no response within {}s", READ_TIMEOUT.as_secs()))),
        }
    }

    async fn connect(&self, at: &Address) -> Result<TcpStream, PullError> {
        let failed = |why: String| PullError::Unreachable { host: at.authority.clone(), why };
        let found = timeout(CONNECT_TIMEOUT, tokio::net::lookup_host((at.host.as_str(), at.port))).await;
        let found =
            found.map_err(|_| failed(format!("name resolution timed out after {}s", CONNECT_TIMEOUT.as_secs())))?;
        let mut last = "it has no address".to_owned();
        for address in found.map_err(|error| failed(error.to_string()))? {
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => last = format!("{address}: {error}"),
                Err(_) => last = format!("{address}: no connection within {}s", CONNECT_TIMEOUT.as_secs()),
            }
        }
        Err(failed(last))
    }
}

async fn ask(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
) -> Result<Response<Incoming>, RequestError> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the body of the response.
    tokio::spawn(async { drop(connection.await) });
    Ok(sender.send_request(request).await?)
}

/// Reads a body with a size limit.
pub(super) async fn short(answer: Response<Incoming>, host: &str, most: usize) -> Result<Bytes, PullError> {
    let read = timeout(READ_TIMEOUT, Limited::new(answer.into_body(), most).collect()).await;
    let failed = |why: String| PullError::Broken { host: host.to_owned(), what: "a document".to_owned(), why };
    let read = read.map_err(|_| failed(format!("timed out after {}s", READ_TIMEOUT.as_secs())))?;
    Ok(read.map_err(|error| failed(full(&*error)))?.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_allowed_for_loopback_and_insecure_registries() {
        let web = HttpClient::new(["Registry.example.com:5000".to_owned(), "10.0.0.7".to_owned()]);
        for (host, secure) in [
            ("localhost:5000", false),
            ("127.0.0.5", false),
            ("[::1]:5000", false),
            ("registry.example.com:5000", false),
            ("registry.example.com", true),
            ("registry.example.com:5001", true),
            ("10.0.0.7:5000", false),
            ("127.0.0.1.example.com", true),
        ] {
            let address = web.at(host, "/v2/x?y=z").expect("an address");
            assert_eq!((address.secure, address.path.as_str()), (secure, "/v2/x?y=z"), "{host}");
        }
        for bad in ["http://example.com/", "ftp://example.com/", "/path", "https://user@example.com/", "https://"] {
            assert!(web.address(bad).is_err(), "{bad}");
        }
    }
}
