//! A connection whose requests are understood: each is carried to a pod of its own.
//!
//! In: a stream of a client, and what it speaks. Out: answers. A request is sent again, to another pod, only if no connection could be
//! made; or if a kept connection ended before anything was answered and the request was not sent or may be sent twice.

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

use crate::body::{Answer, Download, Exchange, Source, Upload};
use crate::guard::{Guarded, Moves};
use crate::headers::{self, Client, Speech};
use crate::lane::{Lane, until_closing};
use crate::patience::Patience;
use crate::talk::{Fault, Talk};
use crate::upstream::{Failure, Lease, Line};
use crate::wanted::Back;
use crate::{pages, wire};

/// How many pods are tried for a request, and how many connections.
const TRIES: usize = 3;
/// How much of a body may be on its way in HTTP/2.
const WINDOW: u32 = 1024 * 1024;
/// How much of answers may wait for a client of HTTP/2.
const SEND_BUFFER: usize = 256 * 1024;

/// A client and its connection.
pub(crate) struct Visitor {
    lane: Arc<Lane>,
    worker: usize,
    client: Client,
    patience: Patience,
    requests: AtomicU64,
}

impl Visitor {
    pub(crate) fn new(lane: Arc<Lane>, worker: usize, peer: SocketAddr) -> Self {
        let ip = HeaderValue::from_str(&peer.ip().to_canonical().to_string());
        let (port, proto) = lane.forwarded.clone();
        // An address in words is always fit.
        let client = Client { ip: ip.unwrap_or_else(|_| HeaderValue::from_static("unknown")), port, proto };
        Self { lane, worker, client, patience: Patience::default(), requests: AtomicU64::new(0) }
    }
}

/// Serves a connection until it ends, or until its lane closes and the last request is answered.
pub(crate) async fn serve<I>(io: I, is_h2: bool, visitor: Visitor)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let visitor = Arc::new(visitor);
    let lane = Arc::clone(&visitor.lane);
    let io = TokioIo::new(Guarded::new(io, lane.idle()));
    let service = service_fn({
        let visitor = Arc::clone(&visitor);
        move |request| {
            let visitor = Arc::clone(&visitor);
            async move {
                let answer = answer(&visitor, request).await;
                visitor.lane.counts.answered(answer.status());
                Ok::<_, Infallible>(answer)
            }
        }
    });
    let drain = lane.limits.drain;
    if is_h2 {
        let mut closing = lane.closing();
        let connection = h2(&lane).serve_connection(io, service);
        let mut connection = pin!(connection);
        let mut seen = 0;
        let mut look = Instant::now() + lane.idle();
        loop {
            tokio::select! {
                biased;
                _ = connection.as_mut() => return,
                () = until_closing(&mut closing) => break,
                () = sleep_until(look) => {
                    // Requests that are under way may end.
                    let now = visitor.requests.load(Relaxed);
                    if now == seen {
                        break;
                    }
                    (seen, look) = (now, Instant::now() + lane.idle());
                }
            }
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = connection.as_mut() => {}
            () = sleep(drain.max(lane.idle())) => {}
        }
        return;
    }
    let connection = h1(&visitor).serve_connection(io, service).with_upgrades();
    let mut connection = pin!(connection);
    if must_close(connection.as_mut(), &lane).await {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(drain, connection).await;
    }
}

/// Moves a connection on until it ends; or, and then this is true, until its lane closes.
async fn must_close(mut connection: Pin<&mut impl Future>, lane: &Lane) -> bool {
    let mut receiver = lane.closing();
    let mut closing = pin!(until_closing(&mut receiver));
    let mut is_heard = false;
    poll_fn(|cx| {
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        // Once is enough to be woken by it; with every request it would be a lock.
        match mem::replace(&mut is_heard, true) && !lane.is_closing() {
            true => Poll::Pending,
            false => closing.as_mut().poll(cx).map(|()| true),
        }
    })
    .await
}

fn h1(visitor: &Visitor) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The pause between two requests counts, too.
    builder.timer(visitor.patience.clone()).header_read_timeout(visitor.lane.idle());
    builder.max_header_size(visitor.lane.limits.head).pipeline_flush(true);
    builder
}

fn h2(lane: &Lane) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(lane.idle()).keep_alive_timeout(lane.limits.handshake);
    builder.max_concurrent_streams(lane.limits.streams);
    builder.max_header_list_size(u32::try_from(lane.limits.head).unwrap_or(u32::MAX));
    builder.max_pending_accept_reset_streams(lane.limits.resets).max_local_error_reset_streams(lane.limits.resets);
    builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW).max_send_buf_size(SEND_BUFFER);
    builder
}

/// Answers a request: by a pod, or by a page of ours.
async fn answer(visitor: &Visitor, request: Request<Incoming>) -> Response<Answer> {
    visitor.requests.fetch_add(1, Relaxed);
    let lane = &visitor.lane;
    let (mut parts, body) = request.into_parts();
    let upgrade = headers::upgrade(&parts);
    let waiting = parts.extensions.remove::<OnUpgrade>().filter(|_| upgrade.is_some());
    parts.extensions.clear();
    if let Err(refusal) = headers::check(&parts) {
        return pages::refused(refusal);
    }
    let is_h2 = waiting.is_none() && (lane.port.h2 || (parts.version == Version::HTTP_2 && headers::is_grpc(&parts)));
    let speech = Speech { h2: is_h2, tls: lane.port.back == Back::Tls };
    let upgrade = upgrade.filter(|_| waiting.is_some());
    if let Err(refusal) = headers::prepare(&mut parts, &visitor.client, speech, upgrade, &lane.service_name) {
        return pages::refused(refusal);
    }
    carry(visitor, Request::from_parts(parts, Upload::new(body, lane.idle())), is_h2, waiting).await
}

/// Carries a request to a pod, to another if need be.
async fn carry(
    visitor: &Visitor,
    mut request: Request<Upload>,
    is_h2: bool,
    waiting: Option<OnUpgrade>,
) -> Response<Answer> {
    let (lane, worker) = (&visitor.lane, visitor.worker);
    let (mut tried, mut failure, mut is_fresh) = (Vec::new(), None::<Failure>, waiting.is_some());
    for _ in 0..2 * TRIES {
        let (chosen, elsewhere) = {
            let backends = lane.backends.load();
            (backends.choose(&tried).filter(|_| tried.len() < TRIES), backends.elsewhere)
        };
        let Some(chosen) = chosen else {
            return failure.map_or_else(|| pages::nobody(lane, elsewhere), |why| pages::failed(lane, &why));
        };
        let kept = if is_fresh { None } else { Line::kept(&chosen, worker, is_h2) };
        let is_kept = kept.is_some();
        let opened = match kept {
            Some(line) => Ok(line),
            // Seldom and large: in a box, it is not carried along with every request.
            None => Box::pin(Line::open(lane, &chosen, worker, is_h2)).await,
        };
        let line = match opened {
            Ok(line) => line,
            Err(why) => {
                tried.push(chosen.address);
                failure = Some(why);
                continue;
            }
        };
        let asked = match line {
            Line::H1(talk) => by_h1(visitor, talk, request, is_kept).await,
            Line::H2(sender) => by_h2(visitor, sender, request, is_kept).await,
        };
        match asked {
            Ok((head, source)) => {
                return finish(lane, head, source, Lease { busy: chosen, worker, spare: lane.limits.spare }, waiting);
            }
            // A pod may end a connection that it kept for us just when we use it: the next one is new.
            Err(Trouble::Unheard(again)) => (request, is_fresh) = (*again, true),
            Err(Trouble::Late) => return pages::late(),
            Err(Trouble::Slow) => return pages::slow(lane),
            Err(Trouble::Broken(why)) => return pages::broken(lane, &why),
        }
    }
    pages::broken(lane, "connections to it end as soon as they are used")
}

/// Why there is no answer.
enum Trouble {
    /// The pod has not heard of the request, or it may hear it twice.
    Unheard(Box<Request<Upload>>),
    /// The client did not send all of it.
    Late,
    /// The pod did not answer in time.
    Slow,
    /// The pod broke off.
    Broken(String),
}

/// A request on a connection of its own.
async fn by_h1(
    visitor: &Visitor,
    mut talk: Box<Talk>,
    mut request: Request<Upload>,
    is_kept: bool,
) -> Result<(Response<()>, Source), Trouble> {
    let moves = request.body().moves();
    match begun(visitor, moves, talk.ask(&mut request, &visitor.client)).await {
        Ok(Some(mut head)) => {
            let mut response = Response::new(());
            *response.status_mut() = head.status;
            *response.headers_mut() = mem::take(&mut head.headers);
            Ok((response, Source::H1(Exchange::new(talk, &head, mem::take(request.body_mut())))))
        }
        Ok(None) => Err(Trouble::Slow),
        Err(Fault::Ended(_)) if !talk.has_begun() || (is_kept && may_be_sent_twice(&request)) => {
            Err(Trouble::Unheard(Box::new(request)))
        }
        Err(Fault::Client) => Err(Trouble::Late),
        Err(why) => Err(Trouble::Broken(why.to_string())),
    }
}

/// A request as one of many on a connection.
async fn by_h2(
    visitor: &Visitor,
    mut sender: SendRequest<Upload>,
    request: Request<Upload>,
    is_kept: bool,
) -> Result<(Response<()>, Source), Trouble> {
    let copy = (is_kept && may_be_sent_twice(&request)).then(|| Copy::of(&request));
    let moves = request.body().moves();
    let mut error = match begun(visitor, moves, sender.try_send_request(request)).await {
        Ok(Some(response)) => {
            let (parts, body) = response.into_parts();
            return Ok((Response::from_parts(parts, ()), Source::H2(body)));
        }
        Ok(None) => return Err(Trouble::Slow),
        Err(error) => error,
    };
    Err(match (error.take_message(), copy) {
        (Some(unsent), _) => Trouble::Unheard(Box::new(unsent)),
        (None, Some(copy)) => Trouble::Unheard(Box::new(copy.request())),
        (None, None) if error.error().is_user() => Trouble::Late,
        (None, None) => Trouble::Broken(error.into_error().to_string()),
    })
}

/// Waits for the beginning of an answer; nothing when that does not come in time. As long as the request itself is coming the pod has all
/// the time there is.
async fn begun<T, E>(
    visitor: &Visitor,
    moves: Option<Moves>,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<Option<T>, E> {
    let mut answer = pin!(answer);
    let mut seen = 0;
    loop {
        if let Some(answer) = visitor.patience.limit(visitor.lane.idle(), answer.as_mut()).await {
            return answer.map(Some);
        }
        match moves.as_ref().map(|moves| moves.load(Relaxed)) {
            Some(now) if now != seen => seen = now,
            _ => return Ok(None),
        }
    }
}

/// Makes the pod's answer ours.
fn finish(
    lane: &Arc<Lane>,
    head: Response<()>,
    source: Source,
    lease: Lease,
    waiting: Option<OnUpgrade>,
) -> Response<Answer> {
    let (mut parts, ()) = head.into_parts();
    parts.extensions.clear();
    parts.version = Version::HTTP_11;
    if parts.status != StatusCode::SWITCHING_PROTOCOLS {
        headers::strip(&mut parts.headers);
        return Response::from_parts(parts, Answer::Pod(Download::new(source, lane.idle(), lease)));
    }
    let (Some(ours), Source::H1(exchange)) = (waiting, source) else {
        return pages::broken(lane, "it changed to another protocol unasked");
    };
    let protocol = parts.headers.get(UPGRADE).cloned();
    headers::strip(&mut parts.headers);
    if let Some(protocol) = protocol {
        parts.headers.insert(UPGRADE, protocol);
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    let lane = Arc::clone(lane);
    tokio::spawn(async move {
        if let (Ok(client), Some(pod)) = (ours.await, exchange.into_stream()) {
            wire::join(TokioIo::new(client), pod, &lane).await;
        }
        // The pod was busy all the time.
        drop(lease);
    });
    Response::from_parts(parts, Answer::Page(None))
}

/// Whether a second arrival of a request does no more than the first.
fn may_be_sent_twice(request: &Request<Upload>) -> bool {
    request.body().is_empty() && request.method().is_idempotent()
}

/// A request without a body, for a second time.
struct Copy {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
}

impl Copy {
    fn of(request: &Request<Upload>) -> Self {
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            headers: request.headers().clone(),
        }
    }

    fn request(self) -> Request<Upload> {
        let mut request = Request::new(Upload::default());
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.version_mut() = self.version;
        *request.headers_mut() = self.headers;
        request
    }
}
