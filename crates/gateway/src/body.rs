//! Request and response bodies, forwarded frame by frame.
//!
//! In: bodies of hyper and of [`crate::http1`]. Out: the same frames; an error if the next one does not arrive in time.
//! When a response body is complete, its connection returns to the pool.

use std::io::Cursor;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::{self, AsyncRead, AsyncReadExt as _, AsyncWrite};

use crate::http1::Connection;
use crate::http1::chunked::BodyDecoder;
use crate::http1::head::Head;
use crate::stall::{Activity, StallTimer};
use crate::upstream::Lease;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Request body; `None` if empty, which is the common case.
#[derive(Default)]
pub(crate) struct RequestBody(Option<Box<IncomingBody>>);

struct IncomingBody {
    incoming: Incoming,
    stall: StallTimer,
    activity: Activity,
}

impl RequestBody {
    pub(crate) fn new(incoming: Incoming, limit: Duration) -> Self {
        let some = (!incoming.is_end_stream()).then_some(incoming);
        Self(some.map(|incoming| {
            Box::new(IncomingBody { incoming, stall: StallTimer::new(limit), activity: Activity::default() })
        }))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Progress counter of the body, if any.
    pub(crate) fn activity(&self) -> Option<Activity> {
        self.0.as_ref().map(|body| Activity::clone(&body.activity))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        match Pin::new(&mut body.incoming).poll_frame(cx) {
            Poll::Ready(frame) => {
                body.stall.progress();
                body.activity.fetch_add(1, Relaxed);
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => body.stall.poll_stalled(cx).map(|()| Some(Err("timeout reading the request body".into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|body| body.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |body| body.incoming.size_hint())
    }
}

/// Response body.
pub(crate) enum ResponseBody {
    /// Error page.
    Text(Option<Bytes>),
    /// Body from a pod.
    Upstream(UpstreamBody),
}

/// Response body of a pod.
pub(crate) struct UpstreamBody {
    source: BodySource,
    stall: StallTimer,
    /// Counts the request as in flight at the pod.
    lease: Option<Lease>,
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
    pub(crate) fn new(source: BodySource, limit: Duration, lease: Lease) -> Self {
        let mut new = Self { source, stall: StallTimer::new(limit), lease: Some(lease) };
        new.release_if_done();
        new
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
            BodySource::H2(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
        }
    }

    /// Returns the connection to the pool when the response is complete. Incomplete responses close it.
    fn release_if_done(&mut self) {
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
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Upstream(body) => match body.poll_body(cx) {
                Poll::Ready(piece) => {
                    body.stall.progress();
                    Poll::Ready(piece)
                }
                Poll::Pending => {
                    body.stall.poll_stalled(cx).map(|()| Some(Err("timeout reading the response body".into())))
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Upstream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Upstream(UpstreamBody { source: BodySource::H1(response), .. }) => {
                response.decoder.remaining().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            Self::Upstream(UpstreamBody { source: BodySource::H2(incoming), .. }) => incoming.size_hint(),
        }
    }
}
