//! Continuous requests, while a test changes objects.
//!
//! In: a request to repeat. Out: a [`Tally`] of the servers that responded and of all failures, with their
//! times.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::caller::Answer;
use super::failure::Failure;
use super::namespace::Namespace;

/// The result of many requests.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many were sent.
    pub asked: usize,
    /// How many each host answered.
    pub answers: BTreeMap<String, usize>,
    /// The clients that the servers saw.
    pub clients: BTreeSet<IpAddr>,
    /// What went wrong.
    pub failures: Vec<Failure>,
    /// The longest time to an answer.
    pub slowest: Duration,
}

impl Tally {
    /// How many this host answered.
    #[must_use]
    pub fn of(&self, name: &str) -> usize {
        self.answers.get(name).copied().unwrap_or_default()
    }

    /// The servers that responded.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.answers.keys().map(String::as_str).collect()
    }

    /// The tally, when nothing went wrong.
    #[must_use]
    #[track_caller]
    pub fn all_answered(self) -> Self {
        let wrong: Vec<String> = self.failures.iter().take(5).map(ToString::to_string).collect();
        assert!(wrong.is_empty(), "{} of {} failed: {wrong:#?}", self.failures.len(), self.asked);
        self
    }

    pub(super) fn add(&mut self, at: Duration, result: Result<Answer, Failure>) {
        self.asked += 1;
        match result {
            Ok(answer) => {
                *self.answers.entry(answer.name).or_default() += 1;
                self.clients.insert(answer.client.ip());
                self.slowest = self.slowest.max(answer.took);
            }
            Err(failure) => self.failures.push(Failure { at, ..failure }),
        }
    }
}

/// A thread that sends requests until it is stopped. Dropping it stops it too.
pub struct Hammer {
    shared: Arc<(Mutex<Tally>, Condvar)>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Hammer {
    pub(super) fn start(
        pace: Duration,
        namespace: Arc<Namespace>,
        mut ask: impl FnMut() -> Result<Answer, Failure> + Send + 'static,
    ) -> Self {
        let shared: Arc<(Mutex<Tally>, Condvar)> = Arc::default();
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                namespace.enter();
                let begun = Instant::now();
                while stopped.recv_timeout(pace) == Err(RecvTimeoutError::Timeout) {
                    let at = begun.elapsed();
                    let result = ask();
                    shared.0.lock().add(at, result);
                    shared.1.notify_all();
                }
            }
        });
        Self { shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Waits until the tally is as wanted, and answers whether it became so in time.
    #[must_use]
    pub fn wait_until(&self, timeout: Duration, wanted: impl Fn(&Tally) -> bool) -> bool {
        let deadline = Instant::now() + timeout;
        let mut tally = self.shared.0.lock();
        while !wanted(&tally) {
            if self.shared.1.wait_until(&mut tally, deadline).timed_out() {
                return wanted(&tally);
            }
        }
        true
    }

    /// The tally so far.
    #[must_use]
    pub fn so_far(&self) -> Tally {
        self.shared.0.lock().clone()
    }

    /// Stops after the current request, and returns the results of all.
    #[must_use]
    pub fn stop(mut self) -> Tally {
        self.end().unwrap_or_else(|panic| resume_unwind(panic));
        std::mem::take(&mut *self.shared.0.lock())
    }

    fn end(&mut self) -> std::thread::Result<()> {
        drop(self.stop.take());
        self.thread.take().map_or(Ok(()), JoinHandle::join)
    }
}

impl Drop for Hammer {
    fn drop(&mut self) {
        // What the thread had to say has been printed; a second panic here would end all tests.
        let _ = self.end();
    }
}
