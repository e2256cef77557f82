//! Load from a network namespace: a number of requests, or continuous requests until stopped.
//!
//! In: a network namespace and an address. Out: a [`Tally`]. Each request has its own connection, so each is balanced.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::ensure;
use kernel::namespace;
use parking_lot::Mutex;

use super::seen::Tally;
use super::{http, picture};

/// Delay between continuous requests.
const REQUEST_DELAY: Duration = Duration::from_millis(4);
/// Timeout of a reachability check.
const CHECK_TIMEOUT: Duration = Duration::from_millis(250);

/// Sends one request from a network namespace, with a short timeout: a SYN that arrived before its rule is retransmitted only after a
/// second. Returns whether there was a response.
pub(super) fn is_there(from: &Path, to: SocketAddr) -> io::Result<bool> {
    namespace::inside(from, || http::ask(to, "/healthz", &[], CHECK_TIMEOUT).is_ok())
}

/// Sends a number of requests from a network namespace.
pub(super) fn ask_many(from: &Path, to: SocketAddr, times: usize) -> io::Result<Tally> {
    namespace::inside(from, || {
        let client = Client::new(to);
        let mut tally = Tally::default();
        for _ in 0..times {
            client.ask(&mut tally);
        }
        tally
    })
}

/// A client that sends requests continuously.
pub(super) struct Load {
    begun: Instant,
    stop: Sender<()>,
    thread: Option<JoinHandle<io::Result<()>>>,
    tally: Arc<Mutex<Tally>>,
}

impl Load {
    /// Starts the client in a network namespace.
    pub(super) fn begin(from: PathBuf, to: SocketAddr) -> Self {
        let (stop, stopped) = channel();
        let tally = Arc::new(Mutex::new(Tally::default()));
        let shared = tally.clone();
        let begun = Instant::now();
        let work = move || {
            let client = Client { begun, ..Client::new(to) };
            while stopped.recv_timeout(REQUEST_DELAY) == Err(RecvTimeoutError::Timeout) {
                // The lock is not held during a request.
                let mut one = Tally::default();
                client.ask(&mut one);
                let mut all = shared.lock();
                *all = std::mem::take(&mut *all).and(one);
            }
        };
        let thread = std::thread::spawn(move || namespace::inside(&from, work));
        Self { begun, stop, thread: Some(thread), tally }
    }

    /// The results so far.
    pub(super) fn so_far(&self) -> Tally {
        self.tally.lock().clone()
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Stops the client; returns the results.
    pub(super) fn end(mut self) -> Tally {
        let _ = self.stop.send(());
        let ended = self.thread.take().map(JoinHandle::join);
        let mut tally = std::mem::take(&mut *self.tally.lock());
        let problem = match ended {
            Some(Ok(Ok(()))) | None => None,
            Some(Ok(Err(error))) => Some(error.to_string()),
            Some(Err(_)) => Some("the client failed".to_owned()),
        };
        tally.failures.extend(problem.map(|why| (Duration::ZERO, why)));
        tally
    }
}

/// The client.
struct Client {
    to: SocketAddr,
    begun: Instant,
    picture: Vec<u8>,
    wanted: Option<Vec<u8>>,
}

impl Client {
    fn new(to: SocketAddr) -> Self {
        let picture = picture::sample();
        let wanted = picture::thumbnail(&picture).ok();
        Self { to, begun: Instant::now(), picture, wanted }
    }

    fn ask(&self, tally: &mut Tally) {
        tally.asked += 1;
        match self.answer() {
            Ok((pod, version)) => {
                *tally.pods.entry(pod).or_default() += 1;
                tally.versions.insert(version);
            }
            Err(error) => tally.failures.push((self.begun.elapsed(), error.to_string())),
        }
    }

    /// The responding Pod and its version; the picture is checked.
    fn answer(&self) -> anyhow::Result<(String, String)> {
        let answer = http::ask(self.to, "/thumbnail", &self.picture, http::TIMEOUT)?;
        let is_right = answer.subject() == "200" && Some(&answer.body) == self.wanted.as_ref();
        ensure!(is_right, "the answer is {} and not the picture, small", answer.first);
        Ok((answer.header("x-pod").to_owned(), answer.header("x-version").to_owned()))
    }
}
