//! HTTP proxy: forwards each request of a connection to a pod.
//!
//! In: a client stream and its protocol. Out: responses. A request is retried on another pod only if no connection
//! could be made; or if a pooled connection was closed before a response and the request was not sent or is idempotent.

use std::convert::Infallible;
use std::future::poll_fn;
use std::mem;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::annotations::BackendProtocol;
use crate::body::{BodySource, Http1Response, RequestBody, ResponseBody, UpstreamBody};
use crate::headers::{self, Client, UpstreamProtocol};
use crate::http1::{Connection, RequestError};
use crate::idle_timeout::IdleTimeout;
use crate::port_config::{PortConfig, until_closing};
use crate::stall::{Activity, MonitoredStream};
use crate::upstream::{Failure, Lease, UpstreamConnection};
use crate::{error_pages, tcp_proxy};

/// Maximum number of pods tried per request; twice as many connections.
const MAX_TRIES: usize = 3;
/// HTTP/2 flow-control window in bytes.
const WINDOW: u32 = 1024 * 1024;
/// HTTP/2 send buffer per client in bytes.
const SEND_BUFFER: usize = 256 * 1024;

/// Connection of a client.
pub(crate) struct ClientConnection {
    port_config: Arc<PortConfig>,
    worker: usize,
    client: Client,
    idle_timeout: IdleTimeout,
    requests: AtomicU64,
}

impl ClientConnection {
    pub(crate) fn new(port_config: Arc<PortConfig>, worker: usize, peer: SocketAddr) -> Self {
        let ip = HeaderValue::from_str(&peer.ip().to_canonical().to_string());
        let (port, proto) = port_config.forwarded.clone();
        // The text of an IP address is a valid header value.
        let client = Client { ip: ip.unwrap_or_else(|_| HeaderValue::from_static("unknown")), port, proto };
        Self { port_config, worker, client, idle_timeout: IdleTimeout::default(), requests: AtomicU64::new(0) }
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
            async move {
                let answer = answer(&client, request).await;
                client.port_config.metrics.answered(answer.status());
                Ok::<_, Infallible>(answer)
            }
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

/// Answers a request from a pod or with an error page.
async fn answer(client: &ClientConnection, request: Request<Incoming>) -> Response<ResponseBody> {
    client.requests.fetch_add(1, Relaxed);
    let port_config = &client.port_config;
    let (mut parts, body) = request.into_parts();
    let upgrade = headers::upgrade(&parts);
    let waiting = parts.extensions.remove::<OnUpgrade>().filter(|_| upgrade.is_some());
    parts.extensions.clear();
    if let Err(rejection) = headers::check(&parts) {
        return error_pages::rejected(rejection);
    }
    let is_h2 =
        waiting.is_none() && (port_config.port.h2 || (parts.version == Version::HTTP_2 && headers::is_grpc(&parts)));
    let protocol = UpstreamProtocol { h2: is_h2, tls: port_config.port.back == BackendProtocol::Tls };
    let upgrade = upgrade.filter(|_| waiting.is_some());
    if let Err(rejection) = headers::prepare(&mut parts, &client.client, protocol, upgrade, &port_config.service_name) {
        return error_pages::rejected(rejection);
    }
    forward(client, Request::from_parts(parts, RequestBody::new(body, port_config.idle())), is_h2, waiting).await
}

/// Forwards a request to a pod, with retries.
async fn forward(
    client: &ClientConnection,
    mut request: Request<RequestBody>,
    is_h2: bool,
    waiting: Option<OnUpgrade>,
) -> Response<ResponseBody> {
    let (port_config, worker) = (&client.port_config, client.worker);
    let (mut tried, mut failure, mut force_new) = (Vec::new(), None::<Failure>, waiting.is_some());
    for _ in 0..2 * MAX_TRIES {
        let (chosen, elsewhere) = {
            let backends = port_config.backends.load();
            (backends.choose(&tried).filter(|_| tried.len() < MAX_TRIES), backends.elsewhere)
        };
        let Some(chosen) = chosen else {
            return failure.map_or_else(
                || error_pages::no_endpoints(port_config, elsewhere),
                |why| error_pages::connect_failed(port_config, &why),
            );
        };
        let idle_connection = if force_new { None } else { UpstreamConnection::pooled(&chosen, worker, is_h2) };
        let is_pooled = idle_connection.is_some();
        let opened = match idle_connection {
            Some(connection) => Ok(connection),
            // Boxed because it is large and rarely used.
            None => Box::pin(UpstreamConnection::open(port_config, &chosen, worker, is_h2)).await,
        };
        let connection = match opened {
            Ok(connection) => connection,
            Err(why) => {
                tried.push(chosen.address);
                failure = Some(why);
                continue;
            }
        };
        let result = match connection {
            UpstreamConnection::H1(connection) => by_h1(client, connection, request, is_pooled).await,
            UpstreamConnection::H2(sender) => by_h2(client, sender, request, is_pooled).await,
        };
        match result {
            Ok((head, source)) => {
                return finish(
                    port_config,
                    head,
                    source,
                    Lease { in_flight: chosen, worker, max_idle: port_config.limits.pool_size },
                    waiting,
                );
            }
            // A pod may close a pooled connection just when it is used: use a new one.
            Err(ForwardError::Retryable(again)) => (request, force_new) = (*again, true),
            Err(ForwardError::ClientTimeout) => return error_pages::request_timeout(),
            Err(ForwardError::UpstreamTimeout) => return error_pages::upstream_timeout(port_config),
            Err(ForwardError::UpstreamFailed(why)) => return error_pages::upstream_failed(port_config, &why),
        }
    }
    error_pages::upstream_failed(port_config, "pooled connections were closed repeatedly")
}

/// Why a request failed.
enum ForwardError {
    /// The pod did not receive the request, or it is idempotent: retry.
    Retryable(Box<Request<RequestBody>>),
    /// The client did not send the complete request.
    ClientTimeout,
    /// The pod did not respond in time.
    UpstreamTimeout,
    /// The connection to the pod failed.
    UpstreamFailed(String),
}

/// Sends a request over an HTTP/1.1 connection.
async fn by_h1(
    client: &ClientConnection,
    mut connection: Box<Connection>,
    mut request: Request<RequestBody>,
    is_pooled: bool,
) -> Result<(Response<()>, BodySource), ForwardError> {
    let activity = request.body().activity();
    match wait_for_head(client, activity, connection.send_request(&mut request, &client.client)).await {
        Ok(Some(mut head)) => {
            let mut response = Response::new(());
            *response.status_mut() = head.status;
            *response.headers_mut() = mem::take(&mut head.headers);
            Ok((response, BodySource::H1(Http1Response::new(connection, &head, mem::take(request.body_mut())))))
        }
        Ok(None) => Err(ForwardError::UpstreamTimeout),
        Err(RequestError::ConnectionClosed(_))
            if !connection.request_started() || (is_pooled && is_retryable(&request)) =>
        {
            Err(ForwardError::Retryable(Box::new(request)))
        }
        Err(RequestError::Client) => Err(ForwardError::ClientTimeout),
        Err(why) => Err(ForwardError::UpstreamFailed(why.to_string())),
    }
}

/// Sends a request over a shared HTTP/2 connection.
async fn by_h2(
    client: &ClientConnection,
    mut sender: SendRequest<RequestBody>,
    request: Request<RequestBody>,
    is_pooled: bool,
) -> Result<(Response<()>, BodySource), ForwardError> {
    let copy = (is_pooled && is_retryable(&request)).then(|| Copy::of(&request));
    let activity = request.body().activity();
    let mut error = match wait_for_head(client, activity, sender.try_send_request(request)).await {
        Ok(Some(response)) => {
            let (parts, body) = response.into_parts();
            return Ok((Response::from_parts(parts, ()), BodySource::H2(body)));
        }
        Ok(None) => return Err(ForwardError::UpstreamTimeout),
        Err(error) => error,
    };
    Err(match (error.take_message(), copy) {
        (Some(unsent), _) => ForwardError::Retryable(Box::new(unsent)),
        (None, Some(copy)) => ForwardError::Retryable(Box::new(copy.request())),
        (None, None) if error.error().is_user() => ForwardError::ClientTimeout,
        (None, None) => ForwardError::UpstreamFailed(error.into_error().to_string()),
    })
}

/// Waits for the response head; `None` on timeout. The timeout restarts while the request body makes progress.
async fn wait_for_head<T, E>(
    client: &ClientConnection,
    activity: Option<Activity>,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<Option<T>, E> {
    let mut answer = pin!(answer);
    let mut seen = 0;
    loop {
        if let Some(answer) = client.idle_timeout.limit(client.port_config.idle(), answer.as_mut()).await {
            return answer.map(Some);
        }
        match activity.as_ref().map(|activity| activity.load(Relaxed)) {
            Some(now) if now != seen => seen = now,
            _ => return Ok(None),
        }
    }
}

/// Builds the response for the client.
fn finish(
    port_config: &Arc<PortConfig>,
    head: Response<()>,
    source: BodySource,
    lease: Lease,
    waiting: Option<OnUpgrade>,
) -> Response<ResponseBody> {
    let (mut parts, ()) = head.into_parts();
    parts.extensions.clear();
    parts.version = Version::HTTP_11;
    if parts.status != StatusCode::SWITCHING_PROTOCOLS {
        headers::strip_hop_by_hop(&mut parts.headers);
        return Response::from_parts(
            parts,
            ResponseBody::Upstream(UpstreamBody::new(source, port_config.idle(), lease)),
        );
    }
    let (Some(client_upgrade), BodySource::H1(response)) = (waiting, source) else {
        return error_pages::upstream_failed(port_config, "unrequested protocol upgrade");
    };
    let protocol = parts.headers.get(UPGRADE).cloned();
    headers::strip_hop_by_hop(&mut parts.headers);
    if let Some(protocol) = protocol {
        parts.headers.insert(UPGRADE, protocol);
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    let port_config = Arc::clone(port_config);
    tokio::spawn(async move {
        if let (Ok(client), Some(pod)) = (client_upgrade.await, response.into_stream()) {
            tcp_proxy::join(TokioIo::new(client), pod, &port_config).await;
        }
        // The pod counts as in use until now.
        drop(lease);
    });
    Response::from_parts(parts, ResponseBody::Text(None))
}

/// Whether the request can be retried safely.
fn is_retryable(request: &Request<RequestBody>) -> bool {
    request.body().is_empty() && request.method().is_idempotent()
}

/// Copy of a request without body, for a retry.
struct Copy {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
}

impl Copy {
    fn of(request: &Request<RequestBody>) -> Self {
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            headers: request.headers().clone(),
        }
    }

    fn request(self) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::default());
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.version_mut() = self.version;
        *request.headers_mut() = self.headers;
        request
    }
}
