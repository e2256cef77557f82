//! Reusable timer for timeouts that rarely expire.
//!
//! In: a deadline. Out: a future that completes at the deadline, or a timeout of another future. Each request has two
//! timeouts, and registering a timer for each is expensive: the timer stays set for an earlier deadline and is reset
//! only when that expires.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::Timer;
use parking_lot::Mutex;
use tokio::time::Sleep;

/// Timer of a connection, while unused.
#[derive(Clone, Default)]
pub(crate) struct IdleTimeout(Arc<Mutex<Option<Pin<Box<Sleep>>>>>);

/// Pending timeout.
struct Wait {
    end: Instant,
    /// Set to the deadline, or earlier.
    timer: Option<Pin<Box<Sleep>>>,
    idle_timeout: IdleTimeout,
}

impl IdleTimeout {
    fn wait(&self, end: Instant) -> Wait {
        let mut timer = self.0.lock().take();
        if let Some(timer) = &mut timer
            && timer.deadline().into_std() > end
        {
            timer.as_mut().reset(end.into());
        }
        let timer = timer.unwrap_or_else(|| Box::pin(tokio::time::sleep_until(end.into())));
        Wait { end, timer: Some(timer), idle_timeout: self.clone() }
    }

    /// Result of a future, or `None` after `limit`.
    pub(crate) async fn limit<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut wait = pin!(self.wait(Instant::now() + limit));
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => wait.as_mut().poll(cx).map(|()| None),
        })
        .await
    }
}

impl Timer for IdleTimeout {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(self.wait(deadline))
    }
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let end = self.end;
        let Some(timer) = &mut self.timer else { return Poll::Ready(()) };
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= end {
                return Poll::Ready(());
            }
            timer.as_mut().reset(end.into());
        }
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        *self.idle_timeout.0.lock() = self.timer.take();
    }
}

impl hyper::rt::Sleep for Wait {}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn each_timeout_lasts_at_least_its_limit() {
        let idle_timeout = IdleTimeout::default();
        // Longer and shorter than the previous one: the timer is reset each time.
        for limit in [10, 40, 5, 5].map(Duration::from_millis) {
            let start = Instant::now();
            assert_eq!(idle_timeout.limit(limit, pending::<()>()).await, None);
            assert!(start.elapsed() >= limit, "{limit:?}: {:?}", start.elapsed());
        }
        let long = Duration::from_secs(3600);
        assert_eq!(idle_timeout.limit(long, async { 7 }).await, Some(7));
        let start = Instant::now();
        assert_eq!(idle_timeout.limit(Duration::from_millis(5), pending::<()>()).await, None);
        assert!(start.elapsed() < long, "it is not the end of the wait before");
    }
}
