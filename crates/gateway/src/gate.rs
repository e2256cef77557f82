//! Between a connection to a pod and who takes its answers: wakes that would find nothing to do are left out.
//!
//! In: a connection. Out: the same, and a [`Gate`]. hyper wakes a connection whenever a piece of an answer is taken, to read the next one;
//! after the last piece there is none, and it would look at all that it has in vain: once for every request, a twentieth of all
//! instructions that a request takes. Who takes pieces holds wakes back meanwhile, and lets them through if more is to come. All of it
//! happens on the thread of one worker, so nobody else's wake can be held back.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

/// See the module.
#[derive(Default)]
pub(crate) struct Gate {
    /// Whom wakes are for.
    task: OnceLock<Waker>,
    is_shut: AtomicBool,
    has_held: AtomicBool,
}

impl Gate {
    /// Does something that may wake the connection, and holds that back.
    pub(crate) fn hold<T>(&self, work: impl FnOnce() -> T) -> T {
        self.is_shut.store(true, Relaxed);
        let done = work();
        self.is_shut.store(false, Relaxed);
        done
    }

    /// What was held back is let through, or forgotten.
    pub(crate) fn release(&self, is_needed: bool) {
        if self.has_held.swap(false, Relaxed) && is_needed {
            self.wake_task();
        }
    }

    fn wake_task(&self) {
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_shut.load(Relaxed) {
            self.has_held.store(true, Relaxed);
        } else {
            self.wake_task();
        }
    }
}

/// A connection behind its gate; a task of its own, for ever the same.
pub(crate) struct Gated<F> {
    connection: F,
    gate: Arc<Gate>,
    waker: Waker,
}

impl<F: Future + Unpin> Gated<F> {
    pub(crate) fn new(connection: F) -> (Self, Arc<Gate>) {
        let gate = Arc::new(Gate::default());
        (Self { connection, waker: Waker::from(Arc::clone(&gate)), gate: Arc::clone(&gate) }, gate)
    }
}

impl<F: Future + Unpin> Future for Gated<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _ = this.gate.task.get_or_init(|| cx.waker().clone());
        Pin::new(&mut this.connection).poll(&mut Context::from_waker(&this.waker))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_wake_that_is_not_needed_is_forgotten_and_no_other() {
        let woken = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut theirs = None;
        let connection = std::future::poll_fn(|cx| {
            theirs = Some(cx.waker().clone());
            Poll::<()>::Pending
        });
        let (mut gated, gate) = Gated::new(Box::pin(connection));
        assert!(Pin::new(&mut gated).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(gated);
        let theirs = theirs.expect("a waker");
        let mut counts = Vec::new();
        let mut count = || counts.push(woken.0.load(Relaxed));
        theirs.wake_by_ref();
        count();
        gate.hold(|| theirs.wake_by_ref());
        gate.release(false);
        count();
        gate.hold(|| theirs.wake_by_ref());
        gate.release(true);
        count();
        gate.release(true);
        count();
        theirs.wake_by_ref();
        count();
        assert_eq!(counts, [1, 1, 2, 2, 3]);
    }
}
