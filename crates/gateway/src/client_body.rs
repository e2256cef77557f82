//! The body of a client's request, whatever its protocol.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::body::BoxError;
use crate::http3::RequestStream;

/// The body of a request.
pub(crate) enum ClientBody {
    /// Of HTTP/1.1 or HTTP/2.
    Tcp(Incoming),
    /// Of HTTP/3.
    Quic(Box<RequestStream>),
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Tcp(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
            Self::Quic(stream) => Pin::new(&mut **stream).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Tcp(incoming) => incoming.is_end_stream(),
            Self::Quic(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Tcp(incoming) => incoming.size_hint(),
            Self::Quic(stream) => stream.size_hint(),
        }
    }
}
