//! Waits that are nearly always over long before their time: one after the other, they use the same timer of the runtime.
//!
//! In: when a wait has lasted too long. Out: a future that says so, or a limit for another. Every request has two such waits; a timer
//! for each would be made, set and taken back. Here it stays set for the end of an earlier wait, and is set anew only when that comes.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::Timer;
use parking_lot::Mutex;
use tokio::time::Sleep;

/// The timer of a connection, while no wait uses it.
#[derive(Clone, Default)]
pub(crate) struct Patience(Arc<Mutex<Option<Pin<Box<Sleep>>>>>);

/// A wait.
struct Wait {
    end: Instant,
    /// Set for the end, or earlier.
    timer: Option<Pin<Box<Sleep>>>,
    patience: Patience,
}

impl Patience {
    fn wait(&self, end: Instant) -> Wait {
        let mut timer = self.0.lock().take();
        if let Some(timer) = &mut timer
            && timer.deadline().into_std() > end
        {
            timer.as_mut().reset(end.into());
        }
        let timer = timer.unwrap_or_else(|| Box::pin(tokio::time::sleep_until(end.into())));
        Wait { end, timer: Some(timer), patience: self.clone() }
    }

    /// What a future comes to, unless it takes too long.
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

impl Timer for Patience {
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
        *self.patience.0.lock() = self.timer.take();
    }
}

impl hyper::rt::Sleep for Wait {}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn each_wait_lasts_as_long_as_it_should() {
        let patience = Patience::default();
        // Longer and shorter than the one before: the timer is set for another end each time.
        for limit in [10, 40, 5, 5].map(Duration::from_millis) {
            let begun = Instant::now();
            assert_eq!(patience.limit(limit, pending::<()>()).await, None);
            assert!(begun.elapsed() >= limit, "{limit:?}: {:?}", begun.elapsed());
        }
        let long = Duration::from_secs(3600);
        assert_eq!(patience.limit(long, async { 7 }).await, Some(7));
        let begun = Instant::now();
        assert_eq!(patience.limit(Duration::from_millis(5), pending::<()>()).await, None);
        assert!(begun.elapsed() < long, "it is not the end of the wait before");
    }
}
