//! The threads of the relay, one for each processor, and who works on which.
//!
//! A connection stays on one thread from its first byte to its last: threads that share their work wake each other at every step.
//! A listener belongs to one thread too, and what it takes stays there unless another has fewer connections.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, oneshot};

/// Less than any patience with an endpoint.
const BEAT: Duration = Duration::from_millis(100);

/// All threads. They are started when the first is needed, and end when nobody needs them any more.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: OnceLock<Vec<Lane>>,
    /// Whose turn it is to get a listener.
    next: AtomicUsize,
}

/// A thread.
struct Lane {
    handle: Handle,
    /// Told of every connection.
    pulse: Arc<Notify>,
    /// How many connections it has.
    busy: Arc<AtomicUsize>,
    /// Ends it when it is dropped.
    _running: oneshot::Sender<()>,
}

/// A connection's place on a thread, until it is dropped.
pub(super) struct Place {
    busy: Arc<AtomicUsize>,
    elsewhere: Option<Handle>,
}

impl Place {
    /// The thread to go to, if it is another.
    pub(super) fn elsewhere(&self) -> Option<Handle> {
        self.elsewhere.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lanes {
    /// The thread of a new listener.
    pub(super) fn next(&self) -> io::Result<(usize, Handle)> {
        let lanes = self.started()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed) % lanes.len().max(1);
        let lane = lanes.get(number).ok_or(io::ErrorKind::NotFound)?;
        Ok((number, lane.handle.clone()))
    }

    /// A place for a connection that came to a thread: there, or where there is less to do.
    pub(super) fn place(&self, own: usize) -> Option<Place> {
        let lanes = self.lanes.get()?;
        let chosen = choose(own, lanes.iter().map(|lane| lane.busy.load(Ordering::Relaxed)))?;
        let lane = lanes.get(chosen)?;
        lane.busy.fetch_add(1, Ordering::Relaxed);
        lane.pulse.notify_one();
        Some(Place { busy: lane.busy.clone(), elsewhere: (chosen != own).then(|| lane.handle.clone()) })
    }

    fn started(&self) -> io::Result<&[Lane]> {
        if self.lanes.get().is_none() {
            let count = std::thread::available_parallelism().map_or(1, Into::into);
            let lanes = (0..count).map(|_| Lane::start()).collect::<io::Result<_>>()?;
            // Whoever was first has started those that stay.
            let _ = self.lanes.set(lanes);
        }
        Ok(self.lanes.get().map(Vec::as_slice).unwrap_or_default())
    }
}

/// Which thread takes a connection that came to one of them, by how many each has.
fn choose(own: usize, mut busy: impl Iterator<Item = usize> + Clone) -> Option<usize> {
    let (idle, least) = busy.clone().enumerate().min_by_key(|(_, busy)| *busy)?;
    let stays = busy.nth(own)? == least;
    Some(if stays { own } else { idle })
}

impl Lane {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<()>();
        let pulse = Arc::<Notify>::default();
        let beating = pulse.clone();
        std::thread::Builder::new().name("relay".to_owned()).spawn(move || {
            runtime.spawn(beat(beating));
            // Nothing is ever sent: it ends when the other half is dropped.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Self { handle, pulse, busy: Arc::default(), _running: running })
    }
}

/// Keeps a timer set while connections come. A timer that is due before all others has the runtime wake itself, with two calls and a
/// round of its own; with this one before them, those of connections never are.
async fn beat(pulse: Arc<Notify>) {
    loop {
        pulse.notified().await;
        tokio::time::sleep(BEAT).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_stays_where_it_came_unless_another_thread_has_less_to_do() {
        for (own, busy, chosen) in
            [(0, &[0, 0][..], 0), (1, &[0, 0], 1), (0, &[1, 0], 1), (1, &[3, 2, 2], 1), (2, &[9, 4, 6], 1)]
        {
            assert_eq!(choose(own, busy.iter().copied()), Some(chosen), "{busy:?}");
        }
        assert_eq!(choose(0, std::iter::empty()), None);
    }

    #[test]
    fn a_place_is_free_again_when_its_connection_is_over() {
        let lanes = Lanes::default();
        let (own, _) = lanes.next().expect("threads");
        let busy = |lanes: &Lanes| {
            lanes.lanes.get().into_iter().flatten().map(|lane| lane.busy.load(Ordering::Relaxed)).sum::<usize>()
        };
        let places: Vec<Place> = (0..10).filter_map(|_| lanes.place(own)).collect();
        assert_eq!((places.len(), busy(&lanes)), (10, 10));
        drop(places);
        assert_eq!(busy(&lanes), 0);
    }
}
