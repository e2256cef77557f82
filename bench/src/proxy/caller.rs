//! Real connections from the client pod, which alone say what works.
//!
//! In: an address, and what should come of a connection to it. Out: the moment that came to pass.
#![expect(clippy::disallowed_methods, reason = "between two looks at the world there must be a pause")]

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::net::sockopt;
use testbed::net::Pod;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long one connection of a sentry may take: a hundred times what it needs. Some proxies drop what they do not know yet.
const SHORT: Duration = Duration::from_millis(5);
/// How long one that should work may take.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// What came of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Somebody listens.
    Accepted,
    /// Nobody does.
    Refused,
    /// No way there, or no answer.
    Lost,
}

/// Calls, from a thread inside the pod, until the outcome is the wanted one.
pub struct Sentry {
    seen: JoinHandle<Option<Instant>>,
    enough: Arc<AtomicBool>,
    what: String,
}

/// Connects once and hangs up. The calling thread must be inside.
#[must_use]
pub fn call(to: SocketAddr, patience: Duration) -> Outcome {
    match TcpStream::connect_timeout(&to, patience) {
        Ok(connection) => {
            hang_up(&connection);
            Outcome::Accepted
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Outcome::Refused,
        Err(_) => Outcome::Lost,
    }
}

/// Ends a connection with a reset, so that its port is free again at once.
pub fn hang_up(connection: &TcpStream) {
    // It ends with an ordinary end then, which is only slower.
    let _ = sockopt::set_socket_linger(connection, Some(Duration::ZERO));
}

impl Sentry {
    /// Begins to call, with so long a pause between two calls; returns after the first call.
    ///
    /// # Errors
    /// When it ends before.
    pub async fn post(pod: &Pod, to: SocketAddr, wanted: Outcome, pause: Duration) -> anyhow::Result<Self> {
        let (pod, enough) = (pod.clone(), Arc::new(AtomicBool::new(false)));
        let (begun, has_begun) = oneshot::channel();
        let seen = tokio::task::spawn_blocking({
            let enough = Arc::clone(&enough);
            move || pod.in_namespace(|| watch(to, wanted, pause, &enough, begun))
        });
        has_begun.await.context("nobody calls")?;
        Ok(Self { seen, enough, what: format!("{to} is {wanted:?}") })
    }

    /// The moment of the first call with the wanted outcome.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn seen(mut self, patience: Duration) -> anyhow::Result<Instant> {
        match tokio::time::timeout(patience, &mut self.seen).await {
            Ok(seen) => seen.context("a caller")?.context("it was told to stop"),
            Err(_) => bail!("after {patience:?} it was not yet so that {}", self.what),
        }
    }

    /// Whether the outcome has come.
    #[must_use]
    pub fn has_seen(&self) -> bool {
        self.seen.is_finished()
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
    }
}

fn watch(
    to: SocketAddr,
    wanted: Outcome,
    pause: Duration,
    enough: &AtomicBool,
    begun: oneshot::Sender<()>,
) -> Option<Instant> {
    let mut begun = Some(begun);
    while !enough.load(Ordering::Relaxed) {
        let outcome = call(to, SHORT);
        let at = Instant::now();
        if outcome == wanted {
            // Whoever waits for the first call may have gone.
            let _ = begun.take().map(|begun| begun.send(()));
            return Some(at);
        }
        let _ = begun.take().map(|begun| begun.send(()));
        std::thread::sleep(pause);
    }
    None
}
