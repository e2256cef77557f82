//! Stall detection: write timeouts of streams, and activity counters.
//!
//! In: a stream. Out: the same stream, whose writes fail if the peer reads nothing for too long. Timers are only armed
//! while an operation is pending.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Timeout of a pending operation.
pub(crate) struct StallTimer {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    is_armed: bool,
}

impl StallTimer {
    pub(crate) const fn new(limit: Duration) -> Self {
        Self { limit, timer: None, is_armed: false }
    }

    pub(crate) const fn limit(&self) -> Duration {
        self.limit
    }

    /// Records progress.
    pub(crate) const fn progress(&mut self) {
        self.is_armed = false;
    }

    /// Polled while there is no progress; ready after the timeout.
    pub(crate) fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (limit, is_armed) = (self.limit, std::mem::replace(&mut self.is_armed, true));
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        if !is_armed {
            timer.as_mut().reset(Instant::now() + limit);
        }
        timer.as_mut().poll(cx)
    }
}

/// Number of operations on a connection.
pub(crate) type Activity = Arc<AtomicU64>;

/// Completes when there was no activity for `limit`, up to twice as late.
pub(crate) async fn until_idle(activity: Activity, limit: Duration) {
    let mut seen = activity.load(Relaxed);
    loop {
        sleep(limit).await;
        let now = activity.load(Relaxed);
        if now == seen {
            return;
        }
        seen = now;
    }
}

/// Stream with write timeout.
pub(crate) struct MonitoredStream<I> {
    io: I,
    stall: StallTimer,
    activity: Option<Activity>,
    /// Bytes that were read and written, if activity is counted.
    transferred: (u64, u64),
}

impl<I> MonitoredStream<I> {
    pub(crate) const fn new(io: I, limit: Duration) -> Self {
        Self { io, stall: StallTimer::new(limit), activity: None, transferred: (0, 0) }
    }

    /// Also counts activity and bytes.
    pub(crate) fn counted(io: I, limit: Duration, activity: &Activity) -> Self {
        Self { activity: Some(Arc::clone(activity)), ..Self::new(io, limit) }
    }

    /// Bytes that were read and written.
    pub(crate) const fn transferred(&self) -> (u64, u64) {
        self.transferred
    }

    fn count_written(&mut self, done: &Poll<io::Result<usize>>) {
        if let (Poll::Ready(Ok(count)), Some(_)) = (done, &self.activity) {
            self.transferred.1 += *count as u64;
        }
    }

    fn check_stall<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.stall.progress();
            return done;
        }
        match self.stall.poll_stalled(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for MonitoredStream<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let done = Pin::new(&mut self.io).poll_read(cx, buf);
        if let (true, Some(activity)) = (done.is_ready(), &self.activity) {
            activity.fetch_add(1, Relaxed);
            self.transferred.0 += (buf.filled().len() - before) as u64;
        }
        done
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for MonitoredStream<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.io).poll_write(cx, buf);
        self.count_written(&done);
        self.check_stall(cx, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.count_written(&done);
        self.check_stall(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.io).poll_flush(cx);
        self.check_stall(cx, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.io).poll_shutdown(cx);
        self.check_stall(cx, done)
    }
}
