//! Forwards a request to a pod of an upstream, with retries.
//!
//! In: a prepared request, its upstream, a [`Policy`], and how its endpoint is selected. Out: the response, or an error
//! page; the outcome of each attempt is noted at its endpoint. Without a retry policy a request is sent again only if no
//! connection could be made; or if a pooled connection was closed before a response and the request was not sent or is
//! idempotent.

use std::mem;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::client::conn::http2::SendRequest;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::access_log::Trail;
use crate::balance::Selection;
use crate::body::{BodySource, Http1Response, Progress, RequestBody, ResponseBody, UpstreamBody};
use crate::ejection::{Outcome, Passes};
use crate::endpoint::InFlight;
use crate::http_proxy::ClientConnection;
use crate::http1::{Connection, RequestError};
use crate::policy::InUse;
use crate::upstream::{Failure, Lease, Upstream, UpstreamConnection};
use crate::{error_pages, headers, tcp_proxy};

/// Maximum number of pods tried per attempt; twice as many connections.
const MAX_TRIES: usize = 3;
/// The pause before the first retry, unless the policy has another.
const BACKOFF: Duration = Duration::from_millis(25);
/// How often the pause doubles.
const MAX_DOUBLINGS: u32 = 6;

/// Time limits and retries of a request.
#[derive(Clone, Copy)]
pub(crate) struct Policy<'a> {
    /// How long a connection may take to be established, instead of the limit of the upstream.
    pub(crate) connect: Option<Duration>,
    /// How long a pod may be silent.
    pub(crate) stall: Duration,
    /// How long a pod may read nothing of a request.
    pub(crate) send: Duration,
    /// Limit of the exchange.
    pub(crate) whole: Option<Duration>,
    /// Limit of one attempt.
    pub(crate) attempt: Option<Duration>,
    /// Retries.
    pub(crate) retry: Option<&'a Retry>,
}

impl Policy<'_> {
    /// Without retries, and with no limit but that of silence.
    pub(crate) const fn silence(limit: Duration) -> Self {
        Self { connect: None, stall: limit, send: limit, whole: None, attempt: None, retry: None }
    }
}

/// Retries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retry {
    /// Status codes that lead to another attempt.
    pub(crate) codes: Vec<StatusCode>,
    /// Attempts after the first.
    pub(crate) attempts: u32,
    /// Pause before the first of them.
    pub(crate) backoff: Option<Duration>,
}

/// Request to forward.
pub(crate) struct Exchange {
    pub(crate) request: Request<RequestBody>,
    /// Whether HTTP/2 is used.
    pub(crate) is_h2: bool,
    /// The upgrade of the client's connection, if requested.
    pub(crate) upgrade: Option<OnUpgrade>,
    /// Kept until the response is complete, or the upgraded connection is closed.
    pub(crate) in_use: Vec<InUse>,
    /// What the access log is to know of it.
    pub(crate) trail: Option<Arc<Trail>>,
}

/// Forwards a request.
pub(crate) async fn forward(
    client: &ClientConnection,
    upstream: &Arc<Upstream>,
    exchange: Exchange,
    policy: Policy<'_>,
    selection: &mut Selection<'_>,
) -> Response<ResponseBody> {
    if let Some(trail) = &exchange.trail {
        trail.forwarded(upstream);
    }
    let Some(whole) = policy.whole else {
        return attempts(client, upstream, exchange, (policy, None), selection).await;
    };
    let (end, progress) = (Instant::now() + whole, exchange.request.body().progress());
    // Boxed, so that requests without limit have a small future.
    let limited = Box::pin(timeout_at(end, attempts(client, upstream, exchange, (policy, Some(end)), selection))).await;
    limited.unwrap_or_else(|_| {
        let error = ForwardError::expired(progress.as_deref(), whole);
        if let (Some(endpoint), Some(outcome)) = (selection.waiting.take(), error.outcome()) {
            endpoint.enter(Passes::USABLE).report(outcome, selection.balancing.outlier.as_ref());
        }
        error.page(upstream, whole)
    })
}

/// The endpoint of the next attempt; and how many endpoints there are that this node does not use.
fn choose(
    upstream: &Upstream,
    selection: &Selection<'_>,
    (tried, is_first): (&[SocketAddr], bool),
    trail: Option<&Trail>,
) -> (Option<InFlight>, usize) {
    let backends = upstream.backends.load();
    let other = if tried.len() < MAX_TRIES { backends.choose(selection, tried) } else { None };
    // The only pod is better than none.
    let any = || if is_first { backends.choose(selection, &[]) } else { None };
    let chosen = other.or_else(any);
    if let (Some(trail), Some(chosen)) = (trail, &chosen) {
        trail.sent_to(chosen.address);
    }
    (chosen, backends.elsewhere)
}

async fn attempts(
    client: &ClientConnection,
    upstream: &Arc<Upstream>,
    Exchange { mut request, is_h2, upgrade, in_use, trail }: Exchange,
    (policy, end): (Policy<'_>, Option<Instant>),
    selection: &mut Selection<'_>,
) -> Response<ResponseBody> {
    let (worker, outlier) = (client.worker, selection.balancing.outlier.as_ref());
    let (mut tried, mut failure, mut force_new) = (Vec::new(), None::<Failure>, upgrade.is_some());
    let mut retries = Retries::new(policy.retry, &request);
    let mut rounds = 0;
    while rounds < 2 * MAX_TRIES {
        rounds += 1;
        let (chosen, elsewhere) = choose(upstream, selection, (&tried, failure.is_none()), trail.as_deref());
        let Some(mut chosen) = chosen else {
            if failure.is_some() && retries.pause().await {
                (failure, rounds) = (None, 0);
                tried.clear();
                continue;
            }
            return failure.map_or_else(
                || error_pages::no_endpoints(upstream, elsewhere),
                |why| error_pages::connect_failed(upstream, &why),
            );
        };
        if outlier.is_some() && end.is_some() {
            selection.waiting = Some(Arc::clone(chosen.endpoint()));
        }
        let is_new = force_new || chosen.is_probe();
        let idle_connection = if is_new { None } else { UpstreamConnection::pooled(&chosen, worker, is_h2) };
        let is_pooled = idle_connection.is_some();
        let opened = match idle_connection {
            Some(connection) => Ok(connection),
            // Boxed because it is large and rarely used.
            None => Box::pin(UpstreamConnection::open(upstream, &chosen, worker, is_h2, policy.connect)).await,
        };
        let connection = match opened {
            Ok(connection) => connection,
            Err(why) => {
                if why.is_of_endpoint() {
                    chosen.report(Outcome::Refused, outlier);
                }
                tried.push(chosen.address);
                failure = Some(why);
                continue;
            }
        };
        let attempt_end = policy.attempt.map(|limit| Instant::now() + limit);
        let sent = Attempt { client, stall: policy.stall, send: policy.send, is_pooled };
        let limit = policy.attempt.map(|limit| (limit, request.body().progress()));
        let result = match (connection, limit) {
            (UpstreamConnection::H1(connection), None) => sent.by_h1(connection, request).await,
            (UpstreamConnection::H2(sender), None) => sent.by_h2(sender, request).await,
            (UpstreamConnection::H1(connection), Some(limit)) => limited(limit, sent.by_h1(connection, request)).await,
            (UpstreamConnection::H2(sender), Some(limit)) => limited(limit, sent.by_h2(sender, request)).await,
        };
        selection.waiting = None;
        let error = match result {
            Ok((head, source)) => {
                chosen.report(Outcome::Answered(head.status().as_u16()), outlier);
                if retries.wants(head.status())
                    && let Some(again) = retries.again().await
                {
                    (request, rounds, failure) = (again, 0, None);
                    tried = vec![chosen.address];
                    continue;
                }
                selection.served = Some(chosen.address);
                let lease = Lease { in_flight: chosen, worker, max_idle: upstream.limits.pool_size };
                let end = [end, attempt_end].into_iter().flatten().min();
                return finish(
                    client,
                    upstream,
                    (head, source),
                    (policy.stall, end),
                    (lease, in_use),
                    (upgrade, trail),
                );
            }
            // A pod may close a pooled connection just when it is used: use a new one.
            Err(ForwardError::Retryable(again)) => {
                if !is_pooled {
                    chosen.report(Outcome::Reset, outlier);
                }
                (request, force_new) = (*again, true);
                continue;
            }
            Err(error) => error,
        };
        if let Some(outcome) = error.outcome() {
            chosen.report(outcome, outlier);
        }
        if error.is_of_upstream()
            && let Some(again) = retries.again().await
        {
            (request, rounds, failure) = (again, 0, None);
            tried = vec![chosen.address];
            continue;
        }
        return error.page(upstream, policy.attempt.unwrap_or(policy.stall));
    }
    error_pages::upstream_failed(upstream, "pooled connections were closed repeatedly")
}

/// Limits an attempt.
async fn limited<T>(
    (limit, progress): (Duration, Option<Arc<Progress>>),
    sent: impl Future<Output = Result<T, ForwardError>>,
) -> Result<T, ForwardError> {
    timeout(limit, sent).await.unwrap_or_else(|_| Err(ForwardError::expired(progress.as_deref(), limit)))
}

/// Retries that are left, and the request to repeat.
struct Retries<'a> {
    retry: Option<&'a Retry>,
    request: Option<Copy>,
    done: u32,
}

impl<'a> Retries<'a> {
    fn new(retry: Option<&'a Retry>, request: &Request<RequestBody>) -> Self {
        let retry = retry.filter(|retry| retry.attempts > 0);
        Self { retry, request: retry.and_then(|_| Copy::of(request)), done: 0 }
    }

    /// Whether a response with this status leads to another attempt.
    fn wants(&self, status: StatusCode) -> bool {
        self.retry.is_some_and(|retry| self.done < retry.attempts && retry.codes.contains(&status))
    }

    /// Waits before the next attempt; false when there is none.
    async fn pause(&mut self) -> bool {
        let Some(retry) = self.retry.filter(|retry| self.done < retry.attempts) else { return false };
        let pause = retry.backoff.unwrap_or(BACKOFF) * 2_u32.pow(self.done.min(MAX_DOUBLINGS));
        self.done += 1;
        // Jitter: half of it, up to all of it.
        sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        true
    }

    /// Waits before the next attempt; returns its request, if there is one.
    async fn again(&mut self) -> Option<Request<RequestBody>> {
        self.request.as_ref()?;
        if !self.pause().await {
            return None;
        }
        self.request.as_ref().map(Copy::request)
    }
}

/// Why a request failed.
enum ForwardError {
    /// The pod did not receive the request, or it is idempotent: retry.
    Retryable(Box<Request<RequestBody>>),
    /// The client did not send the complete request.
    ClientTimeout,
    /// The pod did not respond in time.
    UpstreamTimeout {
        /// Whether it had enough of that time, or the client took it.
        is_fair: bool,
    },
    /// The connection to the pod failed.
    UpstreamFailed {
        why: String,
        /// Whether a new connection was closed without a response.
        is_reset: bool,
    },
}

impl ForwardError {
    /// There was no response within a limit that began with the request. The pod had enough time if it could have had the
    /// complete request for half of it: clients that send slowly must not eject pods.
    fn expired(progress: Option<&Progress>, limit: Duration) -> Self {
        match progress {
            Some(progress) if progress.awaits_client() => Self::ClientTimeout,
            Some(progress) => Self::UpstreamTimeout { is_fair: progress.is_ready_for(limit / 2) },
            None => Self::UpstreamTimeout { is_fair: true },
        }
    }

    /// Neither the pod nor the client did anything for too long.
    fn silent(progress: Option<&Progress>) -> Self {
        match progress.is_some_and(Progress::awaits_client) {
            true => Self::ClientTimeout,
            false => Self::UpstreamTimeout { is_fair: true },
        }
    }

    const fn is_of_upstream(&self) -> bool {
        matches!(self, Self::UpstreamTimeout { .. } | Self::UpstreamFailed { .. })
    }

    /// The answer to the client; `limit` is the one that was exceeded.
    fn page(&self, upstream: &Upstream, limit: Duration) -> Response<ResponseBody> {
        match self {
            Self::UpstreamTimeout { .. } => error_pages::upstream_timeout(upstream, limit),
            Self::UpstreamFailed { why, .. } => error_pages::upstream_failed(upstream, why),
            Self::ClientTimeout | Self::Retryable(_) => error_pages::request_timeout(),
        }
    }

    /// What it says about the pod.
    const fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::UpstreamTimeout { is_fair: true } => Some(Outcome::TimedOut),
            Self::UpstreamFailed { is_reset: true, .. } => Some(Outcome::Reset),
            Self::UpstreamFailed { is_reset: false, .. } => Some(Outcome::Failed),
            Self::UpstreamTimeout { is_fair: false } | Self::Retryable(_) | Self::ClientTimeout => None,
        }
    }
}

/// One attempt.
struct Attempt<'a> {
    client: &'a ClientConnection,
    stall: Duration,
    send: Duration,
    is_pooled: bool,
}

impl Attempt<'_> {
    /// Sends a request over an HTTP/1.1 connection.
    async fn by_h1(
        &self,
        mut connection: Box<Connection>,
        mut request: Request<RequestBody>,
    ) -> Result<(Response<()>, BodySource), ForwardError> {
        let progress = request.body().progress();
        let progress = progress.as_deref();
        match self.wait_for_head(progress, connection.send_request(&mut request, &self.client.client)).await {
            Ok(Some(mut head)) => {
                let mut response = Response::new(());
                *response.status_mut() = head.status;
                *response.headers_mut() = mem::take(&mut head.headers);
                Ok((response, BodySource::H1(Http1Response::new(connection, &head, mem::take(request.body_mut())))))
            }
            Ok(None) => Err(ForwardError::silent(progress)),
            Err(RequestError::ConnectionClosed(_))
                if !connection.request_started() || (self.is_pooled && is_retryable(&request)) =>
            {
                Err(ForwardError::Retryable(Box::new(request)))
            }
            Err(RequestError::Client) => Err(ForwardError::ClientTimeout),
            Err(why) => {
                let is_reset = !self.is_pooled && matches!(why, RequestError::ConnectionClosed(_));
                Err(ForwardError::UpstreamFailed { why: why.to_string(), is_reset })
            }
        }
    }

    /// Sends a request over a shared HTTP/2 connection.
    async fn by_h2(
        &self,
        mut sender: SendRequest<RequestBody>,
        request: Request<RequestBody>,
    ) -> Result<(Response<()>, BodySource), ForwardError> {
        let copy = (self.is_pooled && is_retryable(&request)).then(|| Copy::of(&request)).flatten();
        let progress = request.body().progress();
        let progress = progress.as_deref();
        let mut error = match self.wait_for_head(progress, sender.try_send_request(request)).await {
            Ok(Some(response)) => {
                let (parts, body) = response.into_parts();
                return Ok((Response::from_parts(parts, ()), BodySource::H2(body)));
            }
            Ok(None) => return Err(ForwardError::silent(progress)),
            Err(error) => error,
        };
        Err(match (error.take_message(), copy) {
            (Some(unsent), _) => ForwardError::Retryable(Box::new(unsent)),
            (None, Some(copy)) => ForwardError::Retryable(Box::new(copy.request())),
            (None, None) if error.error().is_user() => ForwardError::ClientTimeout,
            // Of the stream, perhaps: the connection serves other requests.
            (None, None) => ForwardError::UpstreamFailed { why: error.into_error().to_string(), is_reset: false },
        })
    }

    /// Waits for the response head; `None` on timeout. The timeout restarts while the request body makes progress.
    async fn wait_for_head<T, E>(
        &self,
        progress: Option<&Progress>,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<Option<T>, E> {
        let mut answer = pin!(answer);
        let mut seen = 0;
        loop {
            // A body that is not read to its end is being sent.
            let is_sending = progress.is_some_and(|progress| !progress.is_ended());
            let limit = if is_sending { self.send } else { self.stall };
            if let Some(answer) = self.client.idle_timeout.limit(limit, answer.as_mut()).await {
                return answer.map(Some);
            }
            match progress.map(Progress::frames) {
                Some(now) if now != seen => seen = now,
                _ => return Ok(None),
            }
        }
    }
}

/// Builds the response for the client.
fn finish(
    client: &ClientConnection,
    upstream: &Upstream,
    (head, source): (Response<()>, BodySource),
    (stall, end): (Duration, Option<Instant>),
    (lease, in_use): (Lease, Vec<InUse>),
    (waiting, trail): (Option<OnUpgrade>, Option<Arc<Trail>>),
) -> Response<ResponseBody> {
    let (mut parts, ()) = head.into_parts();
    parts.extensions.clear();
    parts.version = Version::HTTP_11;
    if parts.status != StatusCode::SWITCHING_PROTOCOLS {
        headers::strip_hop_by_hop(&mut parts.headers);
        let body = UpstreamBody::new(source, stall, end, lease).counted(in_use);
        return Response::from_parts(parts, ResponseBody::Upstream(body));
    }
    let (Some(client_upgrade), BodySource::H1(response)) = (waiting, source) else {
        return error_pages::upstream_failed(upstream, "unrequested protocol upgrade");
    };
    let protocol = parts.headers.get(UPGRADE).cloned();
    headers::strip_hop_by_hop(&mut parts.headers);
    if let Some(protocol) = protocol {
        parts.headers.insert(UPGRADE, protocol);
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    let port_config = Arc::clone(&client.port_config);
    tokio::spawn(async move {
        if let (Ok(client), Some(pod)) = (client_upgrade.await, response.into_stream()) {
            let transferred = tcp_proxy::join(TokioIo::new(client), pod, &port_config).await;
            if let Some(trail) = trail {
                trail.transferred(transferred);
            }
        }
        // Until now the pod counts as in use, and the request as in progress.
        drop((lease, in_use));
    });
    Response::from_parts(parts, ResponseBody::Own(None, None))
}

/// Whether the request can be retried safely.
fn is_retryable(request: &Request<RequestBody>) -> bool {
    request.body().is_empty() && request.method().is_idempotent()
}

/// Copy of a request whose body is empty or in memory, to send it again.
struct Copy(Request<RequestBody>);

impl Copy {
    /// `None` if the body is neither empty nor in memory.
    fn of(request: &Request<RequestBody>) -> Option<Self> {
        Some(Self(with_body(request, request.body().replay()?)))
    }

    fn request(&self) -> Request<RequestBody> {
        with_body(&self.0, self.0.body().replay().unwrap_or_default())
    }
}

/// A request with the head of another.
pub(crate) fn with_body(head: &Request<RequestBody>, body: RequestBody) -> Request<RequestBody> {
    let mut request = Request::new(body);
    *request.method_mut() = head.method().clone();
    *request.uri_mut() = head.uri().clone();
    *request.version_mut() = head.version();
    *request.headers_mut() = head.headers().clone();
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_blamed_only_for_time_that_it_had() {
        let limit = Duration::from_secs(3600);
        let outcome = |progress: &Progress| ForwardError::expired(Some(progress), limit).outcome();
        assert_eq!(ForwardError::expired(None, limit).outcome(), Some(Outcome::TimedOut));
        let progress = Progress::default();
        assert_eq!(outcome(&progress), Some(Outcome::TimedOut), "it read nothing of the request");
        progress.wait();
        assert!(matches!(ForwardError::expired(Some(&progress), limit), ForwardError::ClientTimeout));
        assert!(matches!(ForwardError::silent(Some(&progress)), ForwardError::ClientTimeout));
        progress.advance(false);
        assert_eq!(outcome(&progress), None, "the client sends more than can be read in time");
        assert_eq!(ForwardError::silent(Some(&progress)).outcome(), Some(Outcome::TimedOut), "it does not read on");
        progress.wait();
        progress.advance(true);
        assert_eq!(outcome(&progress), None, "the client took most of the time");
        let short = ForwardError::expired(Some(&progress), Duration::ZERO);
        assert_eq!(short.outcome(), Some(Outcome::TimedOut), "the pod had half of it");
    }
}
