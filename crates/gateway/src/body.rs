//! Bodies on their way: a request's to the pod, an answer's to the client. Pieces are handed on as they come, never collected.
//!
//! In: what hyper reads. Out: the same pieces, which end in an error when the next one does not come in time. When an answer has been
//! handed on whole, its connection to the pod waits for the next request.

use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::guard::{Moves, Stall};
use crate::upstream::Lease;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request. Most have none, and are carried about all the more lightly.
#[derive(Default)]
pub(crate) struct Upload(Option<Box<Pieces>>);

struct Pieces {
    incoming: Incoming,
    stall: Stall,
    moves: Moves,
}

impl Upload {
    pub(crate) fn new(incoming: Incoming, limit: Duration) -> Self {
        let some = (!incoming.is_end_stream()).then_some(incoming);
        Self(some.map(|incoming| Box::new(Pieces { incoming, stall: Stall::new(limit), moves: Moves::default() })))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// What counts its pieces, when there may be any.
    pub(crate) fn moves(&self) -> Option<Moves> {
        self.0.as_ref().map(|pieces| Moves::clone(&pieces.moves))
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(pieces) = &mut self.0 else { return Poll::Ready(None) };
        match Pin::new(&mut pieces.incoming).poll_frame(cx) {
            Poll::Ready(frame) => {
                pieces.stall.moved();
                pieces.moves.fetch_add(1, Relaxed);
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                pieces.stall.waits(cx).map(|()| Some(Err("the client sends no more of its request".into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|pieces| pieces.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |pieces| pieces.incoming.size_hint())
    }
}

/// The body of an answer.
pub(crate) enum Answer {
    /// A page of ours.
    Page(Option<Bytes>),
    /// A pod's.
    Pod(Download),
}

/// The body of a pod's answer.
pub(crate) struct Download {
    incoming: Incoming,
    stall: Stall,
    lease: Option<Lease>,
    is_over: bool,
}

impl Download {
    pub(crate) const fn new(incoming: Incoming, limit: Duration, lease: Lease) -> Self {
        Self { incoming, stall: Stall::new(limit), lease: Some(lease), is_over: false }
    }

    /// The next piece. After the last one its connection has nothing more to do.
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(gate) = self.lease.as_ref().and_then(Lease::gate) else {
            return Pin::new(&mut self.incoming).poll_frame(cx);
        };
        let piece = gate.hold(|| Pin::new(&mut self.incoming).poll_frame(cx));
        gate.release(!self.incoming.is_end_stream());
        piece
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        // One that was broken off leaves a connection that nobody can use again.
        if let Some(lease) = self.lease.take().filter(|_| self.is_over || self.incoming.is_end_stream()) {
            lease.give_back();
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Page(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Pod(body) => match body.next(cx) {
                Poll::Ready(frame) => {
                    body.stall.moved();
                    body.is_over |= frame.is_none();
                    Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
                }
                Poll::Pending => body.stall.waits(cx).map(|()| Some(Err("the pod sends no more of its answer".into()))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Page(text) => text.is_none(),
            Self::Pod(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Page(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Pod(body) => body.incoming.size_hint(),
        }
    }
}
