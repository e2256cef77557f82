//! An upstream: the pods of a Service port, the protocol towards them, and a connection pool.
//!
//! In: an endpoint and its protocol. Out: a connection for a request. Each worker has its own pool, so that there is no
//! lock contention; one connection for all HTTP/2 requests, one per concurrent HTTP/1.1 request. A port of a Service has
//! one upstream; the rules of routes share the upstreams of the Services that they refer to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::balance::Backends;
use crate::body::RequestBody;
use crate::clock::Clock;
use crate::ejection::Ejections;
use crate::endpoint::{Endpoint, InFlight};
use crate::endpoints::EndpointSet;
use crate::http1::{Connection, Stream};
use crate::limits::Limits;
use crate::metrics::HealthMetrics;
use crate::session_token::SessionKey;
use crate::tls::{UpstreamTls, is_h2};

/// Interval of HTTP/2 keep-alive pings.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// HTTP/2 flow-control window in bytes.
const WINDOW: u32 = 1024 * 1024;

/// Pods of a Service port, and how to talk to them.
pub(crate) struct Upstream {
    /// `namespace/name` of the Service.
    pub(crate) service: Arc<str>,
    /// Whether pods use HTTP/2 with prior knowledge.
    pub(crate) h2: bool,
    pub(crate) limits: Limits,
    pub(crate) backends: ArcSwap<Backends>,
    /// TLS towards pods; plain if none.
    pub(crate) tls: ArcSwapOption<UpstreamTls>,
    /// The key for sessions, if the Service is known.
    pub(crate) session_key: ArcSwapOption<SessionKey>,
    pub(crate) clock: Clock,
    counters: Counters,
}

/// Metrics of an upstream.
#[derive(Clone, Default)]
pub(crate) struct Counters {
    /// Requests and connections that failed.
    pub(crate) failures: Arc<AtomicU64>,
    /// Ejections of endpoints.
    pub(crate) health: Arc<HealthMetrics>,
}

impl Upstream {
    pub(crate) fn new(
        service: &str,
        h2: bool,
        limits: Limits,
        tls: Option<Arc<UpstreamTls>>,
        counters: Counters,
        clock: Clock,
    ) -> Self {
        let ejections = Ejections::new(clock.clone(), Arc::clone(&counters.health));
        let backends = ArcSwap::from_pointee(Backends::new(Arc::new(ejections)));
        let (tls, session_key) = (ArcSwapOption::new(tls), ArcSwapOption::empty());
        Self { service: service.into(), h2, limits, backends, tls, session_key, clock, counters }
    }

    /// Counts a request or connection that failed.
    pub(crate) fn failed(&self) {
        self.counters.failures.fetch_add(1, Relaxed);
    }

    /// Replaces the endpoints; known ones keep their connections.
    pub(crate) fn update(&self, found: &EndpointSet, workers: usize) {
        let updated = self.backends.load().updated(found, workers, self.session_key.load_full());
        self.backends.store(Arc::new(updated));
    }

    /// Closes idle connections, and lets no request join an open HTTP/2 connection.
    pub(crate) fn close_idle(&self) {
        let backends = self.backends.load();
        for idle in backends.all().iter().flat_map(|endpoint| &endpoint.idle) {
            *idle.lock() = IdleConnections::default();
        }
    }

    /// Closes connections that are idle since before `before`.
    pub(crate) fn sweep(&self, before: Instant) {
        let backends = self.backends.load();
        for idle in backends.all().iter().flat_map(|endpoint| &endpoint.idle) {
            idle.lock().sweep(before);
        }
    }
}

/// Idle connections of a worker to an endpoint.
#[derive(Default)]
pub(crate) struct IdleConnections {
    h1: Vec<(Box<Connection>, Instant)>,
    h2: Option<http2::SendRequest<RequestBody>>,
}

impl IdleConnections {
    /// Closes connections that are idle since before `before` or closed by the pod.
    pub(crate) fn sweep(&mut self, before: Instant) {
        self.h1.retain_mut(|(connection, since)| *since >= before && connection.is_ready());
        self.h2.take_if(|sender| sender.is_closed());
    }
}

/// Connection to send a request on.
pub(crate) enum UpstreamConnection {
    H1(Box<Connection>),
    H2(http2::SendRequest<RequestBody>),
}

/// Why no connection could be opened.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Connection refused or reset.
    Refused(io::Error),
    /// Timeout.
    Timeout,
    /// TLS or HTTP/2 handshake failed.
    Handshake(String),
}

impl Failure {
    /// Whether the endpoint is the cause, and not a lack of ports or file descriptors here.
    pub(crate) fn is_of_endpoint(&self) -> bool {
        use io::ErrorKind::{
            ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut,
        };
        let Self::Refused(error) = self else { return true };
        matches!(
            error.kind(),
            ConnectionAborted | ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable | TimedOut
        )
    }
}

/// Request in flight; its connection may be returned to the pool.
pub(crate) struct Lease {
    pub(crate) in_flight: InFlight,
    pub(crate) worker: usize,
    /// Maximum number of idle connections.
    pub(crate) max_idle: usize,
}

impl UpstreamConnection {
    /// Pooled connection, the most recently used first, so that others can expire.
    pub(crate) fn pooled(endpoint: &Endpoint, worker: usize, h2: bool) -> Option<Self> {
        let mut idle = endpoint.idle[worker].lock();
        if h2 {
            let sender = idle.h2.as_ref().filter(|sender| !sender.is_closed())?;
            return Some(Self::H2(sender.clone()));
        }
        while let Some((mut connection, _)) = idle.h1.pop() {
            if connection.is_ready() {
                return Some(Self::H1(connection));
            }
        }
        None
    }

    /// Opens a connection; `limit` is the time that it may take to connect, instead of the limit of the upstream.
    pub(crate) async fn open(
        upstream: &Upstream,
        endpoint: &Endpoint,
        worker: usize,
        h2: bool,
        limit: Option<Duration>,
    ) -> Result<Self, Failure> {
        let stream = connect(endpoint, limit.unwrap_or(upstream.limits.connect)).await?;
        let connection = match &*upstream.tls.load() {
            None => start_http(stream, h2).await?,
            Some(tls) => {
                let config = if h2 { &tls.h2 } else { &tls.h1 };
                let stream = handshake(upstream, tls, endpoint, stream, config).await?;
                if h2 && !is_h2(stream.get_ref().1.alpn_protocol()) {
                    return Err(Failure::Handshake("no HTTP/2 (ALPN)".to_owned()));
                }
                start_http(stream, h2).await?
            }
        };
        if let Self::H2(sender) = &connection {
            endpoint.idle[worker].lock().h2 = Some(sender.clone());
        }
        Ok(connection)
    }
}

impl Lease {
    /// Returns a connection to the pool.
    pub(crate) fn release(self, mut connection: Box<Connection>) {
        connection.shrink();
        let mut idle = self.in_flight.idle[self.worker].lock();
        if idle.h1.len() < self.max_idle {
            idle.h1.push((connection, Instant::now()));
        }
    }
}

/// Connects to an endpoint.
pub(crate) async fn connect(endpoint: &Endpoint, limit: Duration) -> Result<TcpStream, Failure> {
    let stream = timeout(limit, TcpStream::connect(endpoint.address)).await;
    let stream = stream.map_err(|_| Failure::Timeout)?.map_err(Failure::Refused)?;
    stream.set_nodelay(true).map_err(Failure::Refused)?;
    Ok(stream)
}

/// TLS handshake with an endpoint.
pub(crate) async fn handshake(
    upstream: &Upstream,
    tls: &UpstreamTls,
    endpoint: &Endpoint,
    stream: TcpStream,
    config: &Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, Failure> {
    let name = tls.name.clone().unwrap_or_else(|| ServerName::IpAddress(endpoint.address.ip().into()));
    let connecting = TlsConnector::from(Arc::clone(config)).connect(name, stream);
    let stream = timeout(upstream.limits.handshake, connecting).await.map_err(|_| Failure::Timeout)?;
    stream.map_err(|error| Failure::Handshake(format!("TLS handshake failed: {error}")))
}

/// Starts HTTP.
async fn start_http(stream: impl Stream + 'static, h2: bool) -> Result<UpstreamConnection, Failure> {
    if !h2 {
        return Ok(UpstreamConnection::H1(Connection::new(stream)));
    }
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(PING_INTERVAL);
    builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let shaken = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(|error| Failure::Handshake(error.to_string()))?;
    // Errors are reported to the requests in flight.
    tokio::spawn(connection);
    Ok(UpstreamConnection::H2(sender))
}
