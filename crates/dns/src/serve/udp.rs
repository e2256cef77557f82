//! UDP listener thread; answers datagrams in batches.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::Cache;
use kernel::datagrams::{Batch, Peer, Socket, pin};

use super::Shared;
use super::clients::{Admission, Slot, Ticks, write_refused};
use super::dispatch::{Dispatch, Handler, Wait};
use crate::answer::{QueryLabels, Scratch};
use crate::forward::{ClientAddr, Request, Transport};
use crate::metrics::{Limited, Observation, ThreadCounters};

/// Consecutive receive errors after which they are logged as errors and retried with a delay.
const MAX_QUIET_ERRORS: u32 = 100;

/// Starts a listener thread, pinned to a CPU if given.
pub(super) fn spawn(shared: Arc<Shared>, socket: Arc<Socket>, processor: Option<usize>) -> io::Result<JoinHandle<()>> {
    Builder::new().name("dns".to_owned()).spawn(move || {
        if let Some(Err(error)) = processor.map(pin) {
            tracing::debug!(%error, "failed to pin UDP thread");
        }
        let counters = shared.metrics.thread();
        while !shared.is_stopping() {
            let run = || Listener::new(&shared, &socket, &counters).run();
            match catch_unwind(AssertUnwindSafe(run)) {
                Ok(()) => {}
                Err(_) => {
                    shared.metrics.panicked();
                    tracing::error!("recovered from panic, dropped one batch of queries");
                }
            }
        }
    })
}

struct Listener<'s> {
    shared: &'s Arc<Shared>,
    socket: &'s Arc<Socket>,
    counters: &'s ThreadCounters,
    batch: Batch,
    scratch: Scratch,
    /// Observations of the current batch with their slot; counted when its duration is known.
    observations: Vec<(usize, Observation)>,
}

/// Datagram that waits for upstreams or readiness.
struct DeferredQuery {
    handler: Arc<Handler>,
    message: Vec<u8>,
    peer: Peer,
    wait: Wait,
    labels: QueryLabels,
    start: Instant,
    /// Counts it as in flight for its client.
    slot: Option<Slot>,
}

impl<'s> Listener<'s> {
    fn new(shared: &'s Arc<Shared>, socket: &'s Arc<Socket>, counters: &'s ThreadCounters) -> Self {
        let (batch, scratch) = (Batch::new(), Scratch::new(fastrand::u32(..)));
        Self { shared, socket, counters, batch, scratch, observations: Vec::new() }
    }

    /// Serves until the socket is shut down.
    fn run(mut self) {
        let mut failures = 0;
        // Checks for a new handler once per batch without touching shared cache lines.
        let mut latest = Cache::new(&self.shared.handler);
        while !self.shared.is_stopping() {
            let count = match self.socket.receive(&mut self.batch) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    failures = self.failed(&error, failures);
                    continue;
                }
            };
            failures = 0;
            let start = Instant::now();
            let now = self.shared.clients.ticks(start);
            let handler = latest.load();
            let mut replies = 0;
            for slot in 0..count {
                replies += usize::from(self.answer(handler, slot, start, now));
            }
            let sent = self.socket.send(&mut self.batch);
            if sent < replies {
                self.counters.unsent(replies - sent);
            }
            let duration = start.elapsed();
            if handler.logs {
                self.log(handler, duration);
            }
            for (_, observation) in self.observations.drain(..) {
                self.counters.count(&Observation { duration, ..observation });
            }
        }
    }

    /// Logs the replies of a batch after they are sent.
    fn log(&mut self, handler: &Handler, duration: Duration) {
        for (slot, _) in &self.observations {
            let Some((message, peer, reply)) = self.batch.exchange(*slot) else { continue };
            let from = ClientAddr::new(peer.address, self.socket.local());
            handler.log(&Request { message, from, transport: Transport::Udp }, reply, duration);
        }
    }

    /// Receive errors may stem from ICMP errors of earlier replies and do not affect the socket. Persistent errors are
    /// retried with a delay.
    fn failed(&self, error: &io::Error, before: u32) -> u32 {
        if before < MAX_QUIET_ERRORS {
            tracing::debug!(%error, "failed to receive datagrams");
            return before + 1;
        }
        tracing::error!(%error, listen = %self.socket.local(), "failed to receive datagrams repeatedly");
        std::thread::park_timeout(Duration::from_millis(100));
        before
    }

    /// Answers or defers one datagram; returns whether there is a reply to send.
    fn answer(&mut self, handler: &Arc<Handler>, slot: usize, start: Instant, now: Ticks) -> bool {
        let Some((message, peer, out)) = self.batch.exchange(slot) else { return false };
        let (from, transport) = (ClientAddr::new(peer.address, self.socket.local()), Transport::Udp);
        let request = Request { message, from, transport };
        let (clients, scratch) = (&self.shared.clients, &mut self.scratch);
        let mut dispatch = match clients.admit(from.ip, now) {
            Admission::Answer => handler.answer(&request, scratch, start, out),
            Admission::Refuse => refuse(self.counters, Limited::Refused, message, scratch, out),
            Admission::Drop => {
                self.counters.limited(Limited::Dropped);
                Dispatch::Drop
            }
        };
        if let Dispatch::Deferred(wait) = dispatch {
            let not_ready = matches!(wait, Wait::Ready);
            let held = if not_ready { clients.wait_for_ready(from.ip) } else { clients.forward(from.ip, now) };
            dispatch = match held {
                Ok(slot) => {
                    let (handler, labels) = (handler.clone(), scratch.labels);
                    let deferred =
                        DeferredQuery { handler, message: message.to_vec(), peer, wait, labels, start, slot };
                    // If too many queries wait for readiness, reply SERVFAIL at once.
                    if spawn_deferred(self.shared, self.socket, deferred) || !not_ready {
                        Dispatch::Drop
                    } else {
                        Dispatch::Reply
                    }
                }
                Err(_) if not_ready => Dispatch::Reply,
                Err(limit) => refuse(self.counters, limit, message, scratch, out),
            };
        }
        if matches!(dispatch, Dispatch::Drop) {
            out.clear();
            return false;
        }
        let (labels, v4, request_size, duration) =
            (self.scratch.labels, from.ip.is_ipv4(), message.len(), Duration::ZERO);
        let (response_size, rcode) = ((!out.is_empty()).then_some(out.len()), Observation::rcode_of(out));
        self.observations
            .push((slot, Observation { labels, transport, v4, request_size, response_size, rcode, duration }));
        response_size.is_some()
    }
}

/// Refuses a query over a client limit.
fn refuse(
    counters: &ThreadCounters,
    limit: Limited,
    message: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Dispatch {
    counters.limited(limit);
    if write_refused(message, &mut scratch.labels, out) { Dispatch::Reply } else { Dispatch::Drop }
}

/// Hands a query to the runtime; false if too many are in flight. It is then dropped and the client retries.
fn spawn_deferred(shared: &Arc<Shared>, socket: &Arc<Socket>, deferred: DeferredQuery) -> bool {
    let Ok(permit) = shared.upstream_permits.clone().try_acquire_owned() else {
        if !matches!(deferred.wait, Wait::Ready) {
            shared.metrics.dropped();
        }
        return false;
    };
    let (shared, socket, runtime) = (shared.clone(), socket.clone(), shared.runtime.clone());
    runtime.spawn(async move {
        let DeferredQuery { handler, message, peer, wait, labels, start, slot } = deferred;
        let from = ClientAddr::new(peer.address, socket.local());
        let request = Request { message: &message, from, transport: Transport::Udp };
        let mut reply = handler.wait(request, wait, start, shared.readiness_timeout).await;
        if !reply.is_empty()
            && let Err(error) = socket.send_to(&mut reply, &peer)
        {
            tracing::debug!(%error, ?peer, "failed to send reply");
        }
        shared.record(&handler, labels, &request, &reply, start);
        drop((permit, slot));
    });
    true
}
