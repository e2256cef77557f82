//! Both attackers at once, from their start to what became of their requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::slow::Held;
use super::{Scenario, flood, runtime, slow};

/// Threads of the attackers.
const THREADS: usize = 2;
/// Connections of the account that sends without a pause.
const CONNECTIONS: usize = 16;

/// The attack, in progress.
pub struct Attack {
    runtime: Runtime,
    held: Held,
    flood: Vec<JoinHandle<()>>,
    counts: Arc<Counts>,
}

/// What the requests of the tight loop came to.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) is_over: AtomicBool,
    pub(super) answered: AtomicUsize,
    pub(super) rejected: AtomicUsize,
}

/// What the attackers achieved.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Slow requests that were open at once: bodies, watches and readers of large lists.
    pub slow: usize,
    /// Of these, the slow readers.
    pub readers: usize,
    /// Slow readers that were rejected with 429.
    pub readers_rejected: usize,
    /// Requests of the tight loop that were answered with success.
    pub answered: usize,
    /// Requests of the tight loop that were rejected with 429.
    pub rejected: usize,
}

impl Scenario {
    /// Starts the attack; returns when all slow requests are open.
    ///
    /// # Panics
    /// When one of them cannot be opened.
    #[must_use]
    pub fn attack(&self) -> Attack {
        let runtime = runtime(THREADS);
        let held = runtime.block_on(slow::open(self));
        let counts = Arc::<Counts>::default();
        let client = self.client(&self.fast);
        let send = |number| runtime.spawn(flood::send(client.another(), number, counts.clone()));
        let flood = (0..CONNECTIONS).map(send).collect();
        Attack { runtime, held, flood, counts }
    }
}

impl Attack {
    /// Ends the attack: the slow bodies arrive, and every one of these requests must be answered.
    ///
    /// # Panics
    /// When one is not.
    #[must_use]
    pub fn end(self) -> Outcome {
        let Self { runtime, held, flood, counts } = self;
        counts.is_over.store(true, Relaxed);
        let outcome = Outcome {
            slow: held.count(),
            readers: held.readers.len(),
            readers_rejected: held.readers_rejected,
            answered: counts.answered.load(Relaxed),
            rejected: counts.rejected.load(Relaxed),
        };
        runtime.block_on(async move {
            for task in flood {
                task.await.expect("the tight loop");
            }
            held.finish().await;
        });
        outcome
    }
}
