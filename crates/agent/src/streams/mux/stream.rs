//! One stream of a connection: a reader and a writer.
//!
//! Shutdown closes the sending half; a later drop still sends buffered data. Dropping without shutdown resets the stream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Buf as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{HOLD, Half, Mux, Phase, State};

/// One stream of a connection.
pub struct Stream {
    mux: Arc<Mux>,
    id: u32,
}

impl Stream {
    pub(super) fn new(mux: Arc<Mux>, id: u32) -> Self {
        Self { mux, id }
    }

    /// The stream ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Counts consumed bytes, and sends a window update after half a window.
    fn consumed(&self, state: &mut State, count: usize) {
        state.held -= count;
        self.mux.count_consumed(state, count);
        let Some(half) = state.streams.get_mut(&self.id) else { return };
        half.held -= count;
        half.unacknowledged += count;
        if half.unacknowledged >= HOLD / 2
            && !half.inbound_done
            && let Some(credit) =
                self.mux.encoder.credit(self.id, u32::try_from(half.unacknowledged).unwrap_or(u32::MAX))
        {
            half.unacknowledged = 0;
            state.answers.push_back(credit);
            self.mux.to_write.notify_one();
        }
        self.mux.room.notify_one();
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the client reset the stream")
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.mux.state.lock();
        let Some(half) = state.streams.get_mut(&self.id) else { return Poll::Ready(Err(broken())) };
        let mut count = 0;
        while buf.remaining() > 0
            && let Some(front) = half.inbound.front_mut()
        {
            let piece = front.len().min(buf.remaining());
            buf.put_slice(&front[..piece]);
            front.advance(piece);
            count += piece;
            if front.is_empty() {
                half.inbound.pop_front();
            }
        }
        if count > 0 {
            self.consumed(&mut state, count);
            return Poll::Ready(Ok(()));
        }
        if half.inbound_done || buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if half.broken {
            return Poll::Ready(Err(broken()));
        }
        half.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.mux.state.lock();
        let open = state.phase == Phase::Open;
        let Some(half) = state.streams.get_mut(&self.id) else { return Poll::Ready(Err(broken())) };
        if half.broken || half.outbound_done || !open {
            return Poll::Ready(Err(broken()));
        }
        let room = HOLD.saturating_sub(half.outbound.len());
        if room == 0 {
            half.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = room.min(bytes.len());
        half.outbound.extend_from_slice(&bytes[..count]);
        self.mux.to_write.notify_one();
        Poll::Ready(Ok(count))
    }

    /// Waits until all data was handed to the connection.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.mux.state.lock();
        let Some(half) = state.streams.get_mut(&self.id) else { return Poll::Ready(Err(broken())) };
        if half.broken && !half.outbound.is_empty() {
            return Poll::Ready(Err(broken()));
        }
        if half.outbound.is_empty() {
            return Poll::Ready(Ok(()));
        }
        half.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Closes the sending half after buffered data. Does not wait.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.mux.change(self.id, |half| half.outbound_done = true);
        self.mux.to_write.notify_one();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.mux.state.lock();
        let State { streams, held, answers, .. } = &mut *state;
        let Some(half) = streams.get_mut(&self.id) else { return };
        half.dropped = true;
        let unread = std::mem::take(&mut half.held);
        half.inbound.clear();
        *held -= unread;
        let Half { outbound_done, broken, .. } = *half;
        if broken || !outbound_done {
            streams.remove(&self.id);
            if !broken && let Some(reset) = self.mux.encoder.reset(self.id) {
                answers.push_back(reset);
            }
        } else if half.is_written() {
            streams.remove(&self.id);
        }
        self.mux.count_consumed(&mut state, unread);
        self.mux.room.notify_one();
        self.mux.to_write.notify_one();
    }
}
