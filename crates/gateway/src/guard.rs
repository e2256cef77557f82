//! Against silence: a stream whose writes must come forward, and a word on whether anything moves at all.
//!
//! In: a stream. Out: the same, whose writes fail when the other side takes nothing for too long. A clock is looked at only while
//! something waits.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A limit for each wait.
pub(crate) struct Stall {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    is_armed: bool,
}

impl Stall {
    pub(crate) const fn new(limit: Duration) -> Self {
        Self { limit, timer: None, is_armed: false }
    }

    /// Something has come forward.
    pub(crate) const fn moved(&mut self) {
        self.is_armed = false;
    }

    /// Nothing has; ready when that was so for too long.
    pub(crate) fn waits(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (limit, is_armed) = (self.limit, std::mem::replace(&mut self.is_armed, true));
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        if !is_armed {
            timer.as_mut().reset(Instant::now() + limit);
        }
        timer.as_mut().poll(cx)
    }
}

/// How often something moved on a connection.
pub(crate) type Moves = Arc<AtomicU64>;

/// Ends when nothing has moved for so long, and at most as much again.
pub(crate) async fn until_silent(moves: Moves, limit: Duration) {
    let mut seen = moves.load(Relaxed);
    loop {
        sleep(limit).await;
        let now = moves.load(Relaxed);
        if now == seen {
            return;
        }
        seen = now;
    }
}

/// See the module.
pub(crate) struct Guarded<I> {
    io: I,
    stall: Stall,
    moves: Option<Moves>,
}

impl<I> Guarded<I> {
    pub(crate) const fn new(io: I, limit: Duration) -> Self {
        Self { io, stall: Stall::new(limit), moves: None }
    }

    /// Counts what moves.
    pub(crate) fn counted(io: I, limit: Duration, moves: &Moves) -> Self {
        Self { moves: Some(Arc::clone(moves)), ..Self::new(io, limit) }
    }

    fn judge<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.stall.moved();
            return done;
        }
        match self.stall.waits(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Guarded<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.io).poll_read(cx, buf);
        if let (true, Some(moves)) = (done.is_ready(), &self.moves) {
            moves.fetch_add(1, Relaxed);
        }
        done
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Guarded<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.io).poll_write(cx, buf);
        self.judge(cx, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.judge(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.io).poll_flush(cx);
        self.judge(cx, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.io).poll_shutdown(cx);
        self.judge(cx, done)
    }
}
