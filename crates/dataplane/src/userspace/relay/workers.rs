//! Worker threads of the relay, one per CPU, and the assignment of connections.
//!
//! A connection stays on one thread: threads that share work wake each other at every step. A listener belongs to one
//! thread too, and its connections stay there unless another has fewer.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, oneshot};

/// Shorter than any connect timeout.
const TICK: Duration = Duration::from_millis(100);

/// All workers. Started on first use; they end when dropped.
#[derive(Default)]
pub(super) struct Workers {
    workers: OnceLock<Vec<Worker>>,
    /// Round-robin counter for listeners.
    next: AtomicUsize,
}

/// A worker thread.
struct Worker {
    handle: Handle,
    /// Notified of every connection.
    activity: Arc<Notify>,
    /// Number of its connections.
    busy: Arc<AtomicUsize>,
    /// Stops the thread when dropped.
    _running: oneshot::Sender<()>,
}

/// A connection's slot on a worker, released when dropped.
pub(super) struct WorkerSlot {
    busy: Arc<AtomicUsize>,
    elsewhere: Option<Handle>,
}

impl WorkerSlot {
    /// The worker to move to, if it is another one.
    pub(super) fn elsewhere(&self) -> Option<Handle> {
        self.elsewhere.clone()
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// The worker of a new listener.
    pub(super) fn next(&self) -> io::Result<(usize, Handle)> {
        let workers = self.started()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed) % workers.len().max(1);
        let worker = workers.get(number).ok_or(io::ErrorKind::NotFound)?;
        Ok((number, worker.handle.clone()))
    }

    /// A slot for a connection accepted on a worker: there, or on a less busy one.
    pub(super) fn assign(&self, own: usize) -> Option<WorkerSlot> {
        let workers = self.workers.get()?;
        let chosen = choose(own, workers.iter().map(|worker| worker.busy.load(Ordering::Relaxed)))?;
        let worker = workers.get(chosen)?;
        worker.busy.fetch_add(1, Ordering::Relaxed);
        worker.activity.notify_one();
        Some(WorkerSlot { busy: worker.busy.clone(), elsewhere: (chosen != own).then(|| worker.handle.clone()) })
    }

    fn started(&self) -> io::Result<&[Worker]> {
        if self.workers.get().is_none() {
            let count = std::thread::available_parallelism().map_or(1, Into::into);
            let workers = (0..count).map(|_| Worker::start()).collect::<io::Result<_>>()?;
            // Another thread may have started them first.
            let _ = self.workers.set(workers);
        }
        Ok(self.workers.get().map(Vec::as_slice).unwrap_or_default())
    }
}

/// Chooses the worker of a connection by the number of connections of each.
fn choose(own: usize, mut busy: impl Iterator<Item = usize> + Clone) -> Option<usize> {
    let (idle, least) = busy.clone().enumerate().min_by_key(|(_, busy)| *busy)?;
    let is_kept = busy.nth(own)? == least;
    Some(if is_kept { own } else { idle })
}

impl Worker {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<()>();
        let activity = Arc::<Notify>::default();
        let beating = activity.clone();
        std::thread::Builder::new().name("relay".to_owned()).spawn(move || {
            runtime.spawn(tick(beating));
            // Nothing is sent: the receiver ends when the sender is dropped.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Self { handle, activity, busy: Arc::default(), _running: running })
    }
}

/// Keeps a timer armed while connections arrive. A new earliest timer makes the runtime wake itself, which costs two
/// system calls and a loop; with this timer, those of connections are never the earliest.
async fn tick(activity: Arc<Notify>) {
    loop {
        activity.notified().await;
        tokio::time::sleep(TICK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_stays_on_its_worker_unless_another_is_less_busy() {
        for (own, busy, chosen) in
            [(0, &[0, 0][..], 0), (1, &[0, 0], 1), (0, &[1, 0], 1), (1, &[3, 2, 2], 1), (2, &[9, 4, 6], 1)]
        {
            assert_eq!(choose(own, busy.iter().copied()), Some(chosen), "{busy:?}");
        }
        assert_eq!(choose(0, std::iter::empty()), None);
    }

    #[test]
    fn a_slot_is_released_when_its_connection_ends() {
        let workers = Workers::default();
        let (own, _) = workers.next().expect("threads");
        let busy = |workers: &Workers| {
            workers.workers.get().into_iter().flatten().map(|worker| worker.busy.load(Ordering::Relaxed)).sum::<usize>()
        };
        let places: Vec<WorkerSlot> = (0..10).filter_map(|_| workers.assign(own)).collect();
        assert_eq!((places.len(), busy(&workers)), (10, 10));
        drop(places);
        assert_eq!(busy(&workers), 0);
    }
}
