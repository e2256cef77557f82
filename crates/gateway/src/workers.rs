//! Worker threads, each with its own single-threaded runtime.
//!
//! In: connections, and QUIC listeners, whose connections stay on their thread. Out: each is served by the thread with the
//! fewest connections. Threads start with the first of them, so that nodes without gateway Services have none.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::serve::{AcceptedConnection, serve};

/// Maximum number of workers; more do not help if pods run on the same node.
const MAX_WORKERS: usize = 16;

/// Worker threads.
pub(crate) struct Workers {
    count: usize,
    all: OnceLock<Vec<Worker>>,
}

struct Worker {
    queue: mpsc::UnboundedSender<Work>,
    open: Arc<AtomicUsize>,
}

/// What a worker does.
enum Work {
    Serve(AcceptedConnection),
    /// Called within the runtime of the worker, with its number.
    Run(Box<dyn FnOnce(usize) + Send>),
}

/// Counts a connection of a worker until it is dropped.
pub(crate) struct WorkerLoad(Arc<AtomicUsize>);

impl Workers {
    pub(crate) fn new() -> Self {
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS);
        Self { count, all: OnceLock::new() }
    }

    /// Number of workers, started or not.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Passes a connection to the worker with the fewest.
    pub(crate) fn dispatch(&self, connection: impl FnOnce(WorkerLoad) -> AcceptedConnection) {
        self.send(|load| Work::Serve(connection(load)));
    }

    /// Calls this within the runtime of the worker with the fewest connections, with its number; for as long as the load is
    /// kept it counts as one.
    pub(crate) fn run(&self, work: impl FnOnce(usize, WorkerLoad) + Send + 'static) {
        self.send(|load| Work::Run(Box::new(move |worker| work(worker, load))));
    }

    fn send(&self, work: impl FnOnce(WorkerLoad) -> Work) {
        let all = self.all.get_or_init(|| (0..self.count).filter_map(Worker::start).collect());
        let Some(worker) = all.iter().min_by_key(|worker| worker.open.load(Relaxed)) else { return };
        // Workers run until the process exits.
        let _ = worker.queue.send(work(WorkerLoad::new(&worker.open)));
    }
}

impl WorkerLoad {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Relaxed);
        Self(Arc::clone(open))
    }

    /// Counts another connection of the same worker.
    pub(crate) fn another(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Worker {
    fn start(index: usize) -> Option<Self> {
        let (queue, mut works) = mpsc::unbounded_channel();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| tracing::error!(%error, "failed to start gateway worker")).ok()?;
        let work = move || {
            runtime.block_on(async move {
                while let Some(work) = works.recv().await {
                    match work {
                        Work::Serve(connection) => drop(tokio::spawn(serve(connection, index))),
                        Work::Run(work) => work(index),
                    }
                }
            });
        };
        let thread = std::thread::Builder::new().name(format!("gateway-{index}")).spawn(work);
        thread.map_err(|error| tracing::error!(%error, "failed to start gateway worker")).ok()?;
        Some(Self { queue, open: Arc::default() })
    }
}

impl Drop for WorkerLoad {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
