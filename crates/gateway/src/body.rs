//! Request and response bodies, forwarded frame by frame.
//!
//! In: bodies of clients, of hyper and of [`crate::http1`]. Out: the same frames; an error if the next one does not arrive in time.
//! When a response body is complete, its connection returns to the pool. A short request body can be buffered for a
//! retry; a mirrored request has a copy of the body, up to a limit.

use std::future::poll_fn;
use std::io::Cursor;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::{self, AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::access_log::LoggedBody;
use crate::cause::Cause;
use crate::client_body::ClientBody;
use crate::http1::Connection;
use crate::http1::chunked::BodyDecoder;
use crate::http1::head::Head;
use crate::policy::InUse;
use crate::stall::StallTimer;
use crate::upstream::Lease;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long the rest of a rejected request body is read, so that the client can read the response.
const LINGER: Duration = Duration::from_secs(5);
/// Rejected request bodies that are read at a time.
const MAX_LINGERING: usize = 256;

/// Number of rejected request bodies that are being read.
static LINGERING: AtomicUsize = AtomicUsize::new(0);

/// Request body; `None` if empty, which is the common case.
#[derive(Default)]
pub struct RequestBody(Option<Box<PendingBody>>);

struct PendingBody {
    source: RequestSource,
    stall: StallTimer,
    progress: Arc<Progress>,
    /// Receive what is forwarded, for mirrored requests.
    copies: Vec<BodyCopy>,
    limit: Option<BodyLimit>,
    /// Counts the bytes that are read, for the access log.
    meter: Option<Arc<AtomicU64>>,
}

/// How far a request body has been read, for the one who waits for the response.
#[derive(Default)]
pub(crate) struct Progress {
    /// Number of frames.
    frames: AtomicU64,
    /// Whether the next frame is wanted and has not arrived.
    is_awaited: AtomicBool,
    /// When it had been read to its end.
    ended: OnceLock<Instant>,
}

impl Progress {
    /// Number of frames that have been read.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Relaxed)
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Whether the client has to send more before anything can happen.
    pub(crate) fn awaits_client(&self) -> bool {
        self.is_awaited.load(Relaxed) && !self.is_ended()
    }

    /// Whether it had been read to its end so long ago, or nobody wanted any of it.
    pub(crate) fn is_ready_for(&self, time: Duration) -> bool {
        let is_untouched = self.frames() == 0 && !self.is_awaited.load(Relaxed);
        is_untouched || self.ended.get().is_some_and(|at| at.elapsed() >= time)
    }

    /// Notes that the next frame has not arrived.
    pub(crate) fn wait(&self) {
        self.is_awaited.store(true, Relaxed);
    }

    /// Notes a frame, or the end.
    pub(crate) fn advance(&self, is_end: bool) {
        self.is_awaited.store(false, Relaxed);
        self.frames.fetch_add(1, Relaxed);
        if is_end {
            self.ended.get_or_init(Instant::now);
        }
    }
}

/// The number of bytes that may still be read of a request body of unknown length.
#[derive(Clone)]
pub(crate) struct BodyLimit {
    rest: u64,
    is_exceeded: Arc<AtomicBool>,
    /// Whether the rest of a body that is too long is read for a while.
    lingers: bool,
}

impl BodyLimit {
    /// `lingers` for HTTP/1.1, where a body can only be ended with its connection; see [`linger`].
    pub(crate) fn new(bytes: u64, lingers: bool) -> Self {
        Self { rest: bytes, is_exceeded: Arc::default(), lingers }
    }

    /// Whether more was read.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded.load(Relaxed)
    }
}

/// Reads the rest of a rejected request body for a while. A connection that is closed with unread data is reset, which may
/// discard the response before the client has read it.
pub(crate) fn linger(mut incoming: ClientBody) {
    struct Turn;
    impl Drop for Turn {
        fn drop(&mut self) {
            LINGERING.fetch_sub(1, Relaxed);
        }
    }
    let turn = (LINGERING.fetch_add(1, Relaxed), Turn);
    if turn.0 >= MAX_LINGERING {
        return;
    }
    tokio::spawn(async move {
        let _turn = turn;
        let rest = async { while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await {} };
        let _ = timeout(LINGER, rest).await;
    });
}

/// Where a request body comes from.
enum RequestSource {
    /// A client.
    Client(ClientBody),
    /// A buffer; it can be sent again.
    Buffer(Option<Bytes>),
    /// Another request, of which this is the copy.
    Copy(mpsc::UnboundedReceiver<Frame<Bytes>>, SizeHint, Option<u64>),
}

/// The end of a copied body into which the original is written.
struct BodyCopy {
    frames: mpsc::UnboundedSender<Frame<Bytes>>,
    /// Bytes that may still be queued.
    room: usize,
}

impl RequestBody {
    pub(crate) fn new(incoming: ClientBody, limit: Duration) -> Self {
        let some = (!incoming.is_end_stream()).then_some(incoming);
        Self(some.map(|incoming| PendingBody::boxed(RequestSource::Client(incoming), limit)))
    }

    /// Fails when more than this is read.
    pub(crate) fn limited(mut self, limit: Option<&BodyLimit>) -> Self {
        if let Some(body) = &mut self.0 {
            body.limit = limit.cloned();
        }
        self
    }

    /// Counts the bytes that are read.
    pub(crate) fn metered(mut self, meter: Option<Arc<AtomicU64>>) -> Self {
        if let Some(body) = &mut self.0 {
            body.meter = meter;
        }
        self
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// How far the body has been read; none if it is empty.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        self.0.as_ref().map(|body| Arc::clone(&body.progress))
    }

    /// Reads a body whose length is known and at most `room` into memory, so that it can be sent again. Any other is
    /// left as it is.
    ///
    /// # Errors
    /// When the client does not send all of it.
    pub(crate) async fn buffered(mut self, room: usize, limit: Duration) -> Result<Self, BoxError> {
        let length = self.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|length| (1..=room).contains(length)) else { return Ok(self) };
        let mut whole = BytesMut::with_capacity(length);
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut self).poll_frame(cx)).await {
            if let Ok(piece) = frame?.into_data() {
                whole.extend_from_slice(&piece);
            }
        }
        Ok(Self(Some(PendingBody::boxed(RequestSource::Buffer(Some(whole.freeze())), limit))))
    }

    /// The same body once more, if it is empty or in memory and unsent.
    pub(crate) fn replay(&self) -> Option<Self> {
        match &self.0 {
            None => Some(Self::default()),
            Some(body) => match &body.source {
                RequestSource::Buffer(Some(whole)) => {
                    let source = RequestSource::Buffer(Some(whole.clone()));
                    Some(Self(Some(PendingBody::boxed(source, body.stall.limit()))))
                }
                _ => None,
            },
        }
    }

    /// A copy that receives what is read from this one. It fails when more than `room` bytes are queued: the original
    /// does not wait for it.
    pub(crate) fn copy(&mut self, room: usize) -> Self {
        if let Some(whole) = self.replay() {
            return whole;
        }
        let hint = self.size_hint();
        let Some(body) = &mut self.0 else { return Self::default() };
        let (frames, receiver) = mpsc::unbounded_channel();
        body.copies.push(BodyCopy { frames, room });
        let rest = hint.exact();
        Self(Some(PendingBody::boxed(RequestSource::Copy(receiver, hint, rest), body.stall.limit())))
    }
}

impl PendingBody {
    fn boxed(source: RequestSource, limit: Duration) -> Box<Self> {
        let (stall, progress, copies) = (StallTimer::new(limit), Arc::default(), Vec::new());
        Box::new(Self { source, stall, progress, copies, limit: None, meter: None })
    }

    /// Counts a frame and checks it against the limit. The rest of a body that is too long is not forwarded.
    fn check(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BoxError> {
        if let (Some(meter), Some(piece)) = (&self.meter, frame.data_ref()) {
            meter.fetch_add(piece.len() as u64, Relaxed);
        }
        let (Some(limit), Some(piece)) = (&mut self.limit, frame.data_ref()) else { return Ok(frame) };
        if let Some(rest) = limit.rest.checked_sub(piece.len() as u64) {
            limit.rest = rest;
            return Ok(frame);
        }
        limit.is_exceeded.store(true, Relaxed);
        let lingers = limit.lingers;
        if let RequestSource::Client(incoming) = std::mem::replace(&mut self.source, RequestSource::Buffer(None))
            && lingers
        {
            linger(incoming);
        }
        Err("the request body is too long".into())
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            RequestSource::Client(incoming) => incoming.is_end_stream(),
            RequestSource::Buffer(whole) => whole.is_none(),
            RequestSource::Copy(..) => false,
        }
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.source {
            RequestSource::Client(incoming) => Pin::new(incoming).poll_frame(cx),
            RequestSource::Buffer(whole) => Poll::Ready(whole.take().map(|whole| Ok(Frame::data(whole)))),
            RequestSource::Copy(frames, _, rest) => frames.poll_recv(cx).map(|frame| match (frame, rest) {
                (Some(frame), rest) => {
                    if let (Some(rest), Some(piece)) = (rest, frame.data_ref()) {
                        *rest = rest.saturating_sub(piece.len() as u64);
                    }
                    Some(Ok(frame))
                }
                (None, None | Some(0)) => None,
                (None, Some(_)) => Some(Err("the copied request was not complete".into())),
            }),
        }
    }
}

impl BodyCopy {
    /// Queues a frame; false when the copy has no room or is gone.
    fn put(&mut self, frame: &Frame<Bytes>) -> bool {
        let Some(piece) = frame.data_ref() else { return true };
        let fits = piece.len() <= self.room;
        self.room = self.room.saturating_sub(piece.len());
        fits && self.frames.send(Frame::data(piece.clone())).is_ok()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        match body.poll_source(cx) {
            Poll::Ready(frame) => {
                let frame = frame.map(|frame| frame.and_then(|frame| body.check(frame)));
                body.stall.progress();
                body.progress.advance(frame.is_none() || body.is_end_stream());
                match &frame {
                    Some(Ok(frame)) => body.copies.retain_mut(|copy| copy.put(frame)),
                    _ => body.copies.clear(),
                }
                Poll::Ready(frame)
            }
            Poll::Pending => {
                body.progress.wait();
                body.stall.poll_stalled(cx).map(|()| Some(Err("timeout reading the request body".into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(
            || SizeHint::with_exact(0),
            |body| match &body.source {
                RequestSource::Client(incoming) => incoming.size_hint(),
                RequestSource::Buffer(whole) => SizeHint::with_exact(whole.as_ref().map_or(0, |all| all.len() as u64)),
                RequestSource::Copy(_, hint, _) => *hint,
            },
        )
    }
}

/// Response body.
pub(crate) enum ResponseBody {
    /// A body of the gateway, and why it answers itself; an upgrade has neither.
    Own(Option<Bytes>, Option<Cause>),
    /// Body from a pod.
    Upstream(UpstreamBody),
    /// A body whose end is noted in the access log.
    Logged(Box<LoggedBody>),
}

impl ResponseBody {
    /// The body of an answer of the gateway.
    pub(crate) const fn own(text: Option<Bytes>, cause: Cause) -> Self {
        Self::Own(text, Some(cause))
    }

    /// Why the gateway answers itself.
    pub(crate) const fn cause(&self) -> Option<Cause> {
        match self {
            Self::Own(_, cause) => *cause,
            Self::Upstream(_) | Self::Logged(_) => None,
        }
    }
}

/// Response body of a pod.
pub(crate) struct UpstreamBody {
    source: BodySource,
    stall: StallTimer,
    /// When it is broken off.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Counts the request as in flight at the pod.
    lease: Option<Lease>,
    /// Counts the request as one of its client.
    in_use: Vec<InUse>,
}

/// Source of a response body.
pub(crate) enum BodySource {
    /// HTTP/1.1 connection.
    H1(Http1Response),
    /// HTTP/2 stream.
    H2(Incoming),
}

/// HTTP/1.1 response in progress, with the rest of its request body.
pub(crate) struct Http1Response {
    /// `None` once the response is complete.
    connection: Option<Box<Connection>>,
    decoder: BodyDecoder,
    request_body: RequestBody,
    /// Whether the connection is persistent.
    keep_alive: bool,
}

impl Http1Response {
    pub(crate) const fn new(connection: Box<Connection>, head: &Head, request_body: RequestBody) -> Self {
        Self {
            connection: Some(connection),
            decoder: BodyDecoder::new(head.body_length),
            request_body,
            keep_alive: head.keep_alive,
        }
    }

    /// Underlying stream, after a protocol upgrade.
    pub(crate) fn into_stream(self) -> Option<impl AsyncRead + AsyncWrite + Unpin> {
        let (stream, ahead) = self.connection?.into_stream();
        let (read, write) = io::split(stream);
        Some(io::join(Cursor::new(ahead).chain(read), write))
    }
}

impl UpstreamBody {
    pub(crate) fn new(source: BodySource, limit: Duration, deadline: Option<Instant>, lease: Lease) -> Self {
        let deadline = deadline.map(|at| Box::pin(sleep_until(at)));
        let stall = StallTimer::new(limit);
        let mut new = Self { source, stall, deadline, lease: Some(lease), in_use: Vec::new() };
        new.release_if_done();
        new
    }

    /// Counts the request as one of its client until the response is complete.
    pub(crate) fn counted(mut self, in_use: Vec<InUse>) -> Self {
        if !self.is_end_stream() {
            self.in_use = in_use;
        }
        self
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::H1(response) => response.decoder.is_done(),
            BodySource::H2(incoming) => incoming.is_end_stream(),
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.source {
            BodySource::H1(Http1Response { connection: Some(connection), decoder, request_body, .. }) => {
                let piece = connection.poll_body(cx, request_body, decoder);
                self.release_if_done();
                piece.map_err(|fault| fault.to_string().into())
            }
            BodySource::H1(_) => Poll::Ready(None),
            BodySource::H2(incoming) => {
                let frame = Pin::new(incoming).poll_frame(cx).map_err(Into::into);
                self.release_if_done();
                frame
            }
        }
    }

    /// Returns the connection to the pool when the response is complete. Incomplete responses close it.
    fn release_if_done(&mut self) {
        if self.is_end_stream() {
            self.in_use = Vec::new();
        }
        if let BodySource::H1(response) = &mut self.source
            && response.decoder.is_done()
            && let (Some(connection), Some(lease)) = (response.connection.take(), self.lease.take())
            && response.keep_alive
            && connection.is_idle()
        {
            lease.release(connection);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Own(text, _) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Logged(body) => Pin::new(&mut **body).poll_frame(cx),
            Self::Upstream(body) => match body.poll_body(cx) {
                Poll::Ready(piece) => {
                    body.stall.progress();
                    Poll::Ready(piece)
                }
                Poll::Pending => {
                    let is_late = |timer: &mut Pin<Box<Sleep>>| timer.as_mut().poll(cx).is_ready();
                    if body.deadline.as_mut().is_some_and(is_late) {
                        return Poll::Ready(Some(Err("the time for the response is over".into())));
                    }
                    body.stall.poll_stalled(cx).map(|()| Some(Err("timeout reading the response body".into())))
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(text, _) => text.is_none(),
            Self::Logged(body) => body.is_end_stream(),
            Self::Upstream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Logged(body) => body.size_hint(),
            Self::Own(text, _) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Upstream(UpstreamBody { source: BodySource::H1(response), .. }) => {
                response.decoder.remaining().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            Self::Upstream(UpstreamBody { source: BodySource::H2(incoming), .. }) => incoming.size_hint(),
        }
    }
}
