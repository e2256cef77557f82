//! The body of a request.
//!
//! In: the receiving side of a request stream, the declared length. Out: frames as they arrive; an error if the body is longer or shorter than
//! declared, since backends may trust the length.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use h3::server;
use http::{HeaderMap, Method};
use http_body::{Body, Frame, SizeHint};
use tokio::time::timeout;

use super::transport::{Ahead, RecvStream};
use crate::body::BoxError;

/// The body of a request.
pub(crate) struct RequestStream {
    stream: server::RequestStream<RecvStream, Bytes>,
    ahead: Arc<Ahead>,
    /// A frame that was read to find out whether there is a body.
    first: Option<Frame<Bytes>>,
    phase: Phase,
    /// Bytes that are still to come, if that was declared.
    rest: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Data,
    Trailers,
    Ended,
}

impl RequestStream {
    /// Begins to read. Backends must learn from the request head whether there is a body: for requests that seldom have one, its beginning is
    /// waited for.
    ///
    /// # Errors
    /// When the client sends something else than declared, or nothing in time.
    pub(super) async fn open(
        stream: server::RequestStream<RecvStream, Bytes>,
        ahead: Arc<Ahead>,
        length: Option<u64>,
        method: &Method,
        limit: Duration,
    ) -> Result<Self, BoxError> {
        let mut new = Self { stream, ahead, first: None, phase: Phase::Data, rest: length };
        match length {
            Some(1..) => {}
            None if ![Method::GET, Method::HEAD, Method::OPTIONS, Method::DELETE, Method::TRACE].contains(method) => {
                if let Poll::Ready(first) = poll_fn(|cx| Poll::Ready(new.poll_next(cx))).await {
                    new.first = first.transpose()?;
                }
            }
            _ => new.first = timeout(limit, poll_fn(|cx| new.poll_next(cx))).await?.transpose()?,
        }
        Ok(new)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let next = ready!(self.poll_stream(cx));
        if matches!(next, Some(Err(_))) {
            self.phase = Phase::Ended;
        }
        Poll::Ready(next)
    }

    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.phase == Phase::Data {
            let piece = match ready!(self.stream.poll_recv_data(cx)) {
                Ok(piece) => piece.map(|mut piece| piece.copy_to_bytes(piece.remaining())),
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            };
            if let Some(piece) = piece {
                self.ahead.release(piece.len());
                return Poll::Ready(Some(self.declared(piece).map(Frame::data)));
            }
            self.phase = Phase::Trailers;
        }
        if self.phase == Phase::Ended {
            return Poll::Ready(None);
        }
        // Also without trailers: the library finds frames that must not follow the body.
        let trailers: Option<HeaderMap> = match ready!(self.stream.poll_recv_trailers(cx)) {
            Ok(trailers) => trailers,
            Err(error) => return Poll::Ready(Some(Err(error.into()))),
        };
        self.phase = Phase::Ended;
        if self.rest.is_some_and(|rest| rest > 0) {
            return Poll::Ready(Some(Err("the request body is shorter than declared".into())));
        }
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn declared(&mut self, piece: Bytes) -> Result<Bytes, BoxError> {
        if let Some(rest) = &mut self.rest {
            *rest = rest.checked_sub(piece.len() as u64).ok_or("the request body is longer than declared")?;
        }
        Ok(piece)
    }
}

impl Body for RequestStream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.poll_next(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.phase == Phase::Ended
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().and_then(Frame::data_ref).map_or(0, |piece| piece.len() as u64);
        match (self.rest, self.phase) {
            (Some(rest), _) => SizeHint::with_exact(first + rest),
            (None, Phase::Ended) => SizeHint::with_exact(first),
            (None, _) => SizeHint::default(),
        }
    }
}
