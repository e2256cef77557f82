//! A response body whose end is noted in the log.
//!
//! In: a response body. Out: the same frames; how many bytes they have, the status of gRPC in the trailers, and whether
//! the client took all of it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::Trail;
use crate::body::{BoxError, ResponseBody};
use crate::cause::Cause;

/// A response body with its trail.
pub(crate) struct LoggedBody {
    inner: ResponseBody,
    trail: Arc<Trail>,
    /// Bytes that are still to come, if their number is known.
    rest: Option<u64>,
    is_over: bool,
}

impl LoggedBody {
    /// `has_body` is false where HTTP sends no body, whatever the response has.
    pub(super) fn new(inner: ResponseBody, trail: Arc<Trail>, has_body: bool) -> Self {
        let rest = inner.size_hint().exact();
        Self { inner, trail, rest, is_over: !has_body }
    }

    fn note(&mut self, frame: &Frame<Bytes>) {
        if let Some(piece) = frame.data_ref() {
            let count = piece.len() as u64;
            self.trail.responded(count);
            self.rest = self.rest.map(|rest| rest.saturating_sub(count));
        }
        if let Some(trailers) = frame.trailers_ref() {
            self.trail.ended(trailers);
            self.is_over = true;
        }
    }
}

impl Body for LoggedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => self.note(frame),
            Poll::Ready(Some(Err(_))) => {
                self.trail.failed(Cause::ResponseIncomplete);
                self.is_over = true;
            }
            Poll::Ready(None) => self.is_over = true,
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for LoggedBody {
    fn drop(&mut self) {
        if !self.is_over && self.rest != Some(0) && !self.inner.is_end_stream() {
            self.trail.aborted();
        }
    }
}
