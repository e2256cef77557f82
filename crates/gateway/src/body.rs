//! Bodies on their way: a request's to the pod, an answer's to the client. Pieces are handed on as they come, never collected.
//!
//! In: what hyper reads, and what [`crate::talk`] does. Out: the same pieces, which end in an error when the next one does not come in
//! time. When an answer has been handed on whole, its connection to the pod waits for the next request.

use std::io::Cursor;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::{self, AsyncRead, AsyncReadExt as _, AsyncWrite};

use crate::guard::{Moves, Stall};
use crate::talk::Talk;
use crate::talk::head::Head;
use crate::talk::pieces::Pieces as Decoded;
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
    source: Source,
    stall: Stall,
    /// The pod is busy until this is gone.
    lease: Option<Lease>,
}

/// Where it comes from.
pub(crate) enum Source {
    /// A connection with nothing else to do.
    H1(Exchange),
    /// One stream of many.
    H2(Incoming),
}

/// An answer under way, with what its request has left to send.
pub(crate) struct Exchange {
    /// Until the answer is whole.
    talk: Option<Box<Talk>>,
    pieces: Decoded,
    upload: Upload,
    /// Whether the connection may be used again.
    keeps: bool,
}

impl Exchange {
    pub(crate) const fn new(talk: Box<Talk>, head: &Head, upload: Upload) -> Self {
        Self { talk: Some(talk), pieces: Decoded::new(head.measure), upload, keeps: head.keeps }
    }

    /// What is underneath, when both sides have agreed to speak something else.
    pub(crate) fn into_stream(self) -> Option<impl AsyncRead + AsyncWrite + Unpin> {
        let (stream, ahead) = self.talk?.into_stream();
        let (read, write) = io::split(stream);
        Some(io::join(Cursor::new(ahead).chain(read), write))
    }
}

impl Download {
    pub(crate) fn new(source: Source, limit: Duration, lease: Lease) -> Self {
        let mut new = Self { source, stall: Stall::new(limit), lease: Some(lease) };
        new.settle();
        new
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::H1(exchange) => exchange.pieces.is_over(),
            Source::H2(incoming) => incoming.is_end_stream(),
        }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.source {
            Source::H1(Exchange { talk: Some(talk), pieces, upload, .. }) => {
                let piece = talk.poll_piece(cx, upload, pieces);
                self.settle();
                piece.map_err(|fault| fault.to_string().into())
            }
            Source::H1(_) => Poll::Ready(None),
            Source::H2(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
        }
    }

    /// When the answer is whole, its connection waits for the next request. One that is broken off leaves a connection that nobody can use.
    fn settle(&mut self) {
        if let Source::H1(exchange) = &mut self.source
            && exchange.pieces.is_over()
            && let (Some(talk), Some(lease)) = (exchange.talk.take(), self.lease.take())
            && exchange.keeps
            && talk.is_settled()
        {
            lease.keep(talk);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Page(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Pod(body) => match body.poll_piece(cx) {
                Poll::Ready(piece) => {
                    body.stall.moved();
                    Poll::Ready(piece)
                }
                Poll::Pending => body.stall.waits(cx).map(|()| Some(Err("the pod sends no more of its answer".into()))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Page(text) => text.is_none(),
            Self::Pod(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Page(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Pod(Download { source: Source::H1(exchange), .. }) => {
                exchange.pieces.left().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            Self::Pod(Download { source: Source::H2(incoming), .. }) => incoming.size_hint(),
        }
    }
}
