//! HTTP proxy: answers each request of a connection, by the pods of a Service or by the rule of a route.
//!
//! In: a client stream and its protocol. Out: responses, from [`crate::forward`] or as error pages.

use std::convert::Infallible;
use std::future::poll_fn;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;

use http::request::Parts;
use http::{HeaderValue, Request, Response, Version};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use routing::model::ListenerId;
use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::access_log::{LoggedConnection, Trail};
use crate::balance::Selection;
use crate::body::{RequestBody, ResponseBody};
use crate::client_body::ClientBody;
use crate::clients::Source;
use crate::error_pages;
use crate::forward::{Exchange, Policy, forward};
use crate::headers::{self, Client, UpstreamProtocol};
use crate::idle_timeout::IdleTimeout;
use crate::port_config::{PortConfig, ServicePort, Serving, until_closing};
use crate::routes;
use crate::stall::MonitoredStream;
use crate::upstream::Upstream;

/// HTTP/2 flow-control window in bytes.
const WINDOW: u32 = 1024 * 1024;
/// HTTP/2 send buffer per client in bytes.
const SEND_BUFFER: usize = 256 * 1024;

/// Connection of a client.
pub(crate) struct ClientConnection {
    pub(crate) port_config: Arc<PortConfig>,
    pub(crate) worker: usize,
    pub(crate) client: Client,
    /// Address of the client.
    pub(crate) address: IpAddr,
    pub(crate) idle_timeout: IdleTimeout,
    /// The HTTPS listener that the server name has chosen, at a Gateway.
    pub(crate) listener: Option<ListenerId>,
    /// Where it is from, at a Service at layer 7.
    pub(crate) source: Option<Source>,
    /// None without an access log.
    logged: Option<Arc<LoggedConnection>>,
    requests: AtomicU64,
}

impl ClientConnection {
    /// `forwarded` has the values of `X-Forwarded-Port` and `X-Forwarded-Proto`.
    pub(crate) fn new(
        port_config: Arc<PortConfig>,
        worker: usize,
        peer: SocketAddr,
        (port, proto): (HeaderValue, HeaderValue),
    ) -> Self {
        let address = peer.ip().to_canonical();
        let ip = HeaderValue::from_str(&address.to_string());
        // The text of an IP address is a valid header value.
        let client = Client { ip: ip.unwrap_or_else(|_| HeaderValue::from_static("unknown")), port, proto };
        let (idle_timeout, requests) = (IdleTimeout::default(), AtomicU64::new(0));
        let logged = port_config.logged(peer).map(Arc::new);
        Self { port_config, worker, client, address, idle_timeout, listener: None, source: None, logged, requests }
    }

    /// Notes the TLS of the connection for the access log.
    pub(crate) fn over(mut self, tls: &ServerConnection) -> Self {
        if let Some(logged) = self.logged.as_mut().and_then(Arc::get_mut) {
            logged.tls(tls);
        }
        self
    }

    /// Notes the TLS of a QUIC connection for the access log.
    pub(crate) fn over_quic(mut self, server_name: Option<&str>) -> Self {
        if let Some(logged) = self.logged.as_mut().and_then(Arc::get_mut) {
            logged.quic(server_name);
        }
        self
    }

    /// Sets where it is from, at a Service at layer 7.
    pub(crate) fn of(mut self, source: Source) -> Self {
        if let Some(logged) = self.logged.as_mut().and_then(Arc::get_mut) {
            logged.source(&source);
        }
        self.source = Some(source);
        self
    }

    /// Sets the HTTPS listener that the server name has chosen.
    pub(crate) fn at(mut self, listener: ListenerId) -> Self {
        self.listener = Some(listener);
        self
    }
}

/// Serves a connection until it is closed, or until its port closes and the last request is answered.
pub(crate) async fn serve<I>(io: I, is_h2: bool, client: ClientConnection)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let client = Arc::new(client);
    let port_config = Arc::clone(&client.port_config);
    let io = TokioIo::new(MonitoredStream::new(io, port_config.idle()));
    let service = service_fn({
        let client = Arc::clone(&client);
        move |request| {
            let client = Arc::clone(&client);
            async move { Ok::<_, Infallible>(respond(&client, request.map(ClientBody::Tcp)).await) }
        }
    });
    let drain = port_config.limits.drain;
    if is_h2 {
        let mut closing = port_config.closing();
        let connection = h2(&port_config).serve_connection(io, service);
        let mut connection = pin!(connection);
        let mut seen = 0;
        let mut look = Instant::now() + port_config.idle();
        loop {
            tokio::select! {
                biased;
                _ = connection.as_mut() => return,
                () = until_closing(&mut closing) => break,
                () = sleep_until(look) => {
                    // Requests in progress may complete.
                    let now = client.requests.load(Relaxed);
                    if now == seen {
                        break;
                    }
                    (seen, look) = (now, Instant::now() + port_config.idle());
                }
            }
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = connection.as_mut() => {}
            () = sleep(drain.max(port_config.idle())) => {}
        }
        return;
    }
    let connection = h1(&client).serve_connection(io, service).with_upgrades();
    let mut connection = pin!(connection);
    if must_close(connection.as_mut(), &port_config).await {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(drain, connection).await;
    }
}

/// Drives a connection until it is closed; true if its port closes first.
async fn must_close(mut connection: Pin<&mut impl Future>, port_config: &PortConfig) -> bool {
    let mut receiver = port_config.closing();
    let mut closing = pin!(until_closing(&mut receiver));
    let mut is_registered = false;
    poll_fn(|cx| {
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        // Polled once to register the waker; polling it for every request would take a lock.
        match mem::replace(&mut is_registered, true) && !port_config.is_closing() {
            true => Poll::Pending,
            false => closing.as_mut().poll(cx).map(|()| true),
        }
    })
    .await
}

fn h1(client: &ClientConnection) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The pause between requests is limited, too.
    builder.timer(client.idle_timeout.clone()).header_read_timeout(client.port_config.idle());
    builder.max_header_size(client.port_config.limits.head).pipeline_flush(true);
    builder
}

fn h2(port_config: &PortConfig) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(port_config.idle())
        .keep_alive_timeout(port_config.limits.handshake);
    builder.max_concurrent_streams(port_config.limits.streams);
    builder.max_header_list_size(u32::try_from(port_config.limits.head).unwrap_or(u32::MAX));
    builder
        .max_pending_accept_reset_streams(port_config.limits.resets)
        .max_local_error_reset_streams(port_config.limits.resets);
    builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW).max_send_buf_size(SEND_BUFFER);
    builder
}

/// Answers a request, which is counted and logged.
pub(crate) async fn respond(client: &Arc<ClientConnection>, request: Request<ClientBody>) -> Response<ResponseBody> {
    let begin = |logged| Trail::of_request(logged, &client.client.proto, &request);
    let trail = client.logged.as_ref().map(begin);
    let answer = answer(client, request, trail.clone()).await;
    client.port_config.metrics.answered(answer.status());
    match trail {
        Some(trail) => trail.follow(answer),
        None => answer,
    }
}

/// Answers a request from a pod or with an error page.
async fn answer(
    client: &Arc<ClientConnection>,
    request: Request<ClientBody>,
    trail: Option<Arc<Trail>>,
) -> Response<ResponseBody> {
    client.requests.fetch_add(1, Relaxed);
    let (mut parts, body) = request.into_parts();
    let wanted = headers::upgrade(&parts);
    let upgrade = parts.extensions.remove::<OnUpgrade>().filter(|_| wanted.is_some());
    parts.extensions.clear();
    if let Err(rejection) = headers::check(&parts) {
        return error_pages::rejected(rejection);
    }
    let request = ClientRequest { parts, body, wanted: wanted.filter(|_| upgrade.is_some()), upgrade, trail };
    match &client.port_config.serving {
        Serving::Service(port) => by_service(client, port, request).await,
        Serving::Routes(port) => routes::answer(client, port, request).await,
    }
}

/// Request of a client, checked.
pub(crate) struct ClientRequest {
    pub(crate) parts: Parts,
    pub(crate) body: ClientBody,
    /// Protocol of an allowed upgrade, and the upgrade.
    pub(crate) wanted: Option<HeaderValue>,
    pub(crate) upgrade: Option<OnUpgrade>,
    /// What the access log is to know of it.
    pub(crate) trail: Option<Arc<Trail>>,
}

impl ClientRequest {
    /// Whether it goes to this upstream by HTTP/2.
    pub(crate) fn is_h2(&self, upstream: &Upstream) -> bool {
        let is_grpc = || self.parts.version >= Version::HTTP_2 && headers::is_grpc(&self.parts);
        self.upgrade.is_none() && (upstream.h2 || is_grpc())
    }
}

/// Forwards a request to the pods of a Service.
async fn by_service(client: &ClientConnection, port: &ServicePort, request: ClientRequest) -> Response<ResponseBody> {
    let is_h2 = request.is_h2(&port.upstream);
    let ClientRequest { mut parts, body, wanted, upgrade, trail } = request;
    let protocol = UpstreamProtocol { h2: is_h2, tls: port.upstream.tls.load().is_some() };
    if let Err(rejection) = headers::prepare(&mut parts, &client.client, protocol, wanted, &port.default_host) {
        return error_pages::rejected(rejection);
    }
    let stall = client.port_config.idle();
    let body = RequestBody::new(body, stall).metered(trail.as_deref().map(Trail::meter));
    let request = Request::from_parts(parts, body);
    let exchange = Exchange { request, is_h2, upgrade, in_use: Vec::new(), trail };
    forward(client, &port.upstream, exchange, Policy::silence(stall), &mut Selection::default()).await
}
