//! Threads that serve connections: each has a runtime of its own, and nothing that it would have to share.
//!
//! In: connections. Out: each goes to the thread that has the fewest. Threads begin with the first connection, so that a node without such
//! Services has none.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::serve::{Arrival, serve};

/// More threads than this do not help a load balancer whose pods run beside it.
const MOST: usize = 16;

/// See the module.
pub(crate) struct Workers {
    count: usize,
    all: OnceLock<Vec<Worker>>,
}

struct Worker {
    queue: mpsc::UnboundedSender<Arrival>,
    open: Arc<AtomicUsize>,
}

/// One connection of a worker.
pub(crate) struct Turn(Arc<AtomicUsize>);

impl Workers {
    pub(crate) fn new() -> Self {
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(MOST);
        Self { count, all: OnceLock::new() }
    }

    /// How many there are, or will be.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Gives a connection to the worker with the fewest.
    pub(crate) fn give(&self, arrival: impl FnOnce(Turn) -> Arrival) {
        let all = self.all.get_or_init(|| (0..self.count).filter_map(Worker::start).collect());
        let Some(worker) = all.iter().min_by_key(|worker| worker.open.load(Relaxed)) else { return };
        worker.open.fetch_add(1, Relaxed);
        // A worker ends only with the process.
        let _ = worker.queue.send(arrival(Turn(Arc::clone(&worker.open))));
    }
}

impl Worker {
    fn start(index: usize) -> Option<Self> {
        let (queue, mut arrivals) = mpsc::unbounded_channel();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| tracing::error!(%error, "a worker of the gateway cannot begin")).ok()?;
        let work = move || {
            runtime.block_on(async move {
                while let Some(arrival) = arrivals.recv().await {
                    tokio::spawn(serve(arrival, index));
                }
            });
        };
        let thread = std::thread::Builder::new().name(format!("gateway-{index}")).spawn(work);
        thread.map_err(|error| tracing::error!(%error, "a worker of the gateway cannot begin")).ok()?;
        Some(Self { queue, open: Arc::default() })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
