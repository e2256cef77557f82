//! The HTTPS client of webhooks.
//!
//! In: a [`Target`] and a review. Out: the body of a 2xx response, or an error with the message of Go's HTTP client where clients rely
//! on it. A Service is resolved to one of its ready Pods at each call; a URL to addresses that [`crate::dial`] allows. Connections use
//! HTTP/1.1 with keep-alive, and redirects are not followed.

mod error;
mod pool;
mod status;
mod tls;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::field::quote;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use store::Store;
use store::allocation::Ranges;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::target::{Backend, Target};
use super::{CallError, Caller};
use crate::dial::DialPolicy;
use crate::service_backends::{self, ServiceBackends};
use error::ExchangeError;
use pool::Pool;
use tls::TlsConfigs;

/// The largest response to a small review, in bytes: as large as a request to the API may be. That to a larger one may be twice as large
/// as the review.
const MAX_ANSWER: usize = 3 * 1024 * 1024;
const USER_AGENT: &str = "kube-apiserver-admission";

type Sender = http1::SendRequest<Full<Bytes>>;

/// Calls webhooks over HTTPS.
pub(crate) struct WebhookClient {
    store: Arc<dyn Store>,
    ranges: Ranges,
    dial: Arc<DialPolicy>,
    tls: TlsConfigs,
    pool: Pool,
}

impl Caller for WebhookClient {
    fn post<'a>(
        &'a self,
        target: &'a Target,
        body: Bytes,
        within: Duration,
    ) -> BoxFuture<'a, Result<Bytes, CallError>> {
        self.exchange(target, body, within).boxed()
    }
}

impl WebhookClient {
    pub(crate) fn new(store: Arc<dyn Store>, ranges: Ranges, dial: Arc<DialPolicy>) -> Self {
        Self { store, ranges, dial, tls: TlsConfigs::default(), pool: Pool::default() }
    }

    async fn exchange(&self, target: &Target, body: Bytes, within: Duration) -> Result<Bytes, CallError> {
        let path = if target.path.is_empty() { "/" } else { &target.path };
        let path = format!("{path}?timeout={}s", within.as_secs());
        let config = self.tls.get(&target.authorities);
        let connector = TlsConnector::from(config.map_err(|error| CallError::Configuration(error.to_string()))?);
        let max_answer = MAX_ANSWER.max(2 * body.len());
        let call = Call { client: self, target, connector, path: &path, max_answer };
        let outcome = tokio::time::timeout(within, call.run(body)).await;
        match outcome.unwrap_or(Err(ExchangeError::Timeout)) {
            Ok((status, bytes)) if status.is_success() => Ok(bytes),
            Ok((status, bytes)) => Err(CallError::Exchange(status::told(status, &bytes))),
            Err(error) => {
                let url = format!("https://{}{path}", target.host());
                Err(CallError::Exchange(format!("Post {}: {error}", quote(&url))))
            }
        }
    }

    /// The addresses of a target, in the order in which to try them.
    async fn resolve(&self, target: &Target) -> Result<Vec<SocketAddr>, ExchangeError> {
        let backends = ServiceBackends { store: &*self.store, ranges: &self.ranges, dial: &self.dial };
        match &target.place {
            Backend::Service { namespace, name, port } => {
                let service = backends.service(namespace, name);
                let service = service.ok_or_else(|| ExchangeError::NoService(name.clone()))?;
                let port_name = service_backends::port_name(&service, name, i64::from(*port))?;
                let mut found = backends.ready(namespace, name, &port_name);
                if found.is_empty() {
                    return Err(ExchangeError::NoEndpoints(name.clone()));
                }
                fastrand::shuffle(&mut found);
                Ok(found)
            }
            Backend::Host { name, port, .. } => {
                let ranges = backends.service_ranges();
                let found = lookup(name, *port).await?;
                let refused = found.first().and_then(|at| Some((at, self.dial.webhook(*at, &ranges).err()?)));
                let allowed: Vec<SocketAddr> =
                    found.iter().copied().filter(|at| self.dial.webhook(*at, &ranges).is_ok()).collect();
                match refused {
                    Some((at, reason)) if allowed.is_empty() => Err(ExchangeError::NotAllowed { address: *at, reason }),
                    _ => Ok(allowed),
                }
            }
        }
    }
}

/// The addresses of a host.
async fn lookup(name: &str, port: u16) -> Result<Vec<SocketAddr>, ExchangeError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let unknown = || ExchangeError::NoHost(name.to_owned());
    let found: Vec<SocketAddr> = tokio::net::lookup_host((name, port)).await.map_err(|_| unknown())?.collect();
    if found.is_empty() { Err(unknown()) } else { Ok(found) }
}

/// One call.
struct Call<'a> {
    client: &'a WebhookClient,
    target: &'a Target,
    connector: TlsConnector,
    path: &'a str,
    max_answer: usize,
}

impl Call<'_> {
    async fn run(&self, body: Bytes) -> Result<(http::StatusCode, Bytes), ExchangeError> {
        let addresses = self.client.resolve(self.target).await?;
        let mut request = self.request(body)?;
        // An idle connection may have been closed meanwhile; then the request was not sent, and is sent again.
        while let Some((address, mut sender)) = self.client.pool.take(self.target, &addresses) {
            match sender.try_send_request(request).await {
                Ok(response) => return self.read(address, sender, response).await,
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let (address, mut sender) = self.connect(&addresses).await?;
        let response = sender.send_request(request).await?;
        self.read(address, sender, response).await
    }

    fn request(&self, body: Bytes) -> Result<Request<Full<Bytes>>, http::Error> {
        Request::builder()
            .method(Method::POST)
            .uri(self.path)
            .header(header::HOST, self.target.host())
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, "application/json, */*")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
    }

    /// Reads a response, and keeps the connection for the next call.
    async fn read(
        &self,
        address: SocketAddr,
        sender: Sender,
        response: http::Response<Incoming>,
    ) -> Result<(http::StatusCode, Bytes), ExchangeError> {
        let status = response.status();
        let body = Limited::new(response.into_body(), self.max_answer).collect().await;
        let body = body.map_err(ExchangeError::Body)?;
        self.client.pool.keep(self.target, address, sender);
        Ok((status, body.to_bytes()))
    }

    /// Connects to the first address that accepts.
    async fn connect(&self, addresses: &[SocketAddr]) -> Result<(SocketAddr, Sender), ExchangeError> {
        let mut first_failure = None;
        for address in addresses {
            match self.connect_to(*address).await {
                Ok(sender) => return Ok((*address, sender)),
                Err(why) => first_failure = first_failure.or(Some(why)),
            }
        }
        Err(first_failure.unwrap_or(ExchangeError::NoAddress))
    }

    async fn connect_to(&self, address: SocketAddr) -> Result<Sender, ExchangeError> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|source| ExchangeError::Connect { address, source })?;
        let _ = stream.set_nodelay(true);
        let name = self.target.server_name();
        let name = name.try_into().map_err(|_| ExchangeError::ServerName)?;
        let stream = self.connector.connect(name, stream).await.map_err(ExchangeError::Handshake)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // A pending request fails when the connection ends.
        tokio::spawn(async { drop(connection.await) });
        Ok(sender)
    }
}

#[cfg(test)]
mod tests;
