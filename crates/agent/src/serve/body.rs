//! Response bodies: bytes, or a streamed log.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

use crate::workloads::LogReader;

/// How much of a log is read at once, in bytes.
const PIECE: usize = 16 * 1024;

/// A response body.
pub(super) enum Body {
    /// Complete.
    Whole(Option<Bytes>),
    /// A streamed log.
    Log(Log),
}

/// A streamed log.
pub(super) struct Log {
    pub(super) reader: LogReader,
    /// How many bytes may still be sent.
    pub(super) left: u64,
    /// The session permit.
    pub(super) _permit: OwnedSemaphorePermit,
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Log(log) => log.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Log(_) => SizeHint::default(),
        }
    }
}

impl Log {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let wanted = usize::try_from(self.left).unwrap_or(PIECE).min(PIECE);
        if wanted == 0 {
            return Poll::Ready(None);
        }
        let mut piece = BytesMut::zeroed(wanted);
        let mut buffer = ReadBuf::new(&mut piece);
        if let Err(error) = ready!(Pin::new(&mut self.reader).poll_read(cx, &mut buffer)) {
            return Poll::Ready(Some(Err(error)));
        }
        let count = buffer.filled().len();
        if count == 0 {
            return Poll::Ready(None);
        }
        self.left -= count as u64;
        Poll::Ready(Some(Ok(Frame::data(piece.split_to(count).freeze()))))
    }
}
