//! A thread that answers datagrams, a batch at a time.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::Cache;
use kernel::datagrams::{Batch, Peer, Socket, pin};

use super::Shared;
use super::clients::{Admission, Slot, Ticks, refuse};
use super::turn::{Serving, Turn, Wait};
use crate::answer::{Scratch, Seen};
use crate::beyond::{Ends, Question, Transport};
use crate::metrics::{Fact, Limited, Tally};

/// How many failures in a row are no accident.
const MANY: u32 = 100;

/// Starts a thread, which stays on a processor if it should.
pub(super) fn spawn(shared: Arc<Shared>, socket: Arc<Socket>, processor: Option<usize>) -> io::Result<JoinHandle<()>> {
    Builder::new().name("dns".to_owned()).spawn(move || {
        if let Some(Err(error)) = processor.map(pin) {
            tracing::debug!(%error, "this thread is not kept on one processor");
        }
        let tally = shared.metrics.tally();
        while !shared.is_stopping() {
            let run = || Listener::new(&shared, &socket, &tally).run();
            match catch_unwind(AssertUnwindSafe(run)) {
                Ok(()) => {}
                Err(_) => {
                    shared.metrics.panicked();
                    tracing::error!("answering a question failed; the batch it was in is lost, the next ones are not");
                }
            }
        }
    })
}

struct Listener<'s> {
    shared: &'s Arc<Shared>,
    socket: &'s Arc<Socket>,
    tally: &'s Tally,
    batch: Batch,
    scratch: Scratch,
    /// What is to be counted of this batch, by its place in it, when it is known how long it took.
    facts: Vec<(usize, Fact)>,
}

/// A datagram that has to wait.
struct Late {
    serving: Arc<Serving>,
    message: Vec<u8>,
    peer: Peer,
    wait: Wait,
    seen: Seen,
    start: Instant,
    /// Counts it as one of its client in flight.
    slot: Option<Slot>,
}

impl<'s> Listener<'s> {
    fn new(shared: &'s Arc<Shared>, socket: &'s Arc<Socket>, tally: &'s Tally) -> Self {
        let (batch, scratch) = (Batch::new(), Scratch::new(fastrand::u32(..)));
        Self { shared, socket, tally, batch, scratch, facts: Vec::new() }
    }

    /// Answers until the socket is shut.
    fn run(mut self) {
        let mut failures = 0;
        // Looks for a new one once in a batch, and touches nothing that other threads write.
        let mut latest = Cache::new(&self.shared.serving);
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
            let serving = latest.load();
            let mut replies = 0;
            for slot in 0..count {
                replies += usize::from(self.answer(serving, slot, start, now));
            }
            let sent = self.socket.send(&mut self.batch);
            if sent < replies {
                self.tally.unsent(replies - sent);
            }
            let took = start.elapsed();
            if serving.logs {
                self.log(serving, took);
            }
            for (_, fact) in self.facts.drain(..) {
                self.tally.count(&Fact { took, ..fact });
            }
        }
    }

    /// Logs what was answered at once. It is sent already: nobody waits for the log.
    fn log(&mut self, serving: &Serving, took: Duration) {
        for (slot, _) in &self.facts {
            let Some((message, peer, reply)) = self.batch.exchange(*slot) else { continue };
            let ends = Ends::new(peer.address, self.socket.local());
            serving.log(&Question { message, ends, transport: Transport::Udp }, reply, took);
        }
    }

    /// What the network says of an earlier reply leaves the socket as good as before. What does not end is not tried at
    /// full speed.
    fn failed(&self, error: &io::Error, before: u32) -> u32 {
        if before < MANY {
            tracing::debug!(%error, "a batch of datagrams was not received");
            return before + 1;
        }
        tracing::error!(%error, listen = %self.socket.local(), "datagrams cannot be received");
        std::thread::park_timeout(Duration::from_millis(100));
        before
    }

    /// Answers one datagram, or hands it on; whether there is a reply.
    fn answer(&mut self, serving: &Arc<Serving>, slot: usize, start: Instant, now: Ticks) -> bool {
        let Some((message, peer, out)) = self.batch.exchange(slot) else { return false };
        let (ends, transport) = (Ends::new(peer.address, self.socket.local()), Transport::Udp);
        let question = Question { message, ends, transport };
        let (clients, scratch) = (&self.shared.clients, &mut self.scratch);
        let mut turn = match clients.admit(ends.client, now) {
            Admission::Answer => serving.answer(&question, scratch, start, out),
            Admission::Refuse => refuse_over(self.tally, Limited::Refused, message, scratch, out),
            Admission::Drop => {
                self.tally.limited(Limited::Dropped);
                Turn::Silent
            }
        };
        if let Turn::Later(wait) = turn {
            let unready = matches!(wait, Wait::Ready);
            let held = if unready { clients.hold(ends.client) } else { clients.forward(ends.client, now) };
            turn = match held {
                Ok(slot) => {
                    let (serving, seen) = (serving.clone(), scratch.seen);
                    let late = Late { serving, message: message.to_vec(), peer, wait, seen, start, slot };
                    // Too many are held: the others get at once the reply that those get in the end.
                    if later(self.shared, self.socket, late) || !unready { Turn::Silent } else { Turn::Reply }
                }
                Err(_) if unready => Turn::Reply,
                Err(limit) => refuse_over(self.tally, limit, message, scratch, out),
            };
        }
        if matches!(turn, Turn::Silent) {
            out.clear();
            return false;
        }
        let (seen, v4, asked, took) = (self.scratch.seen, ends.client.is_ipv4(), message.len(), Duration::ZERO);
        let (answered, rcode) = ((!out.is_empty()).then_some(out.len()), Fact::rcode_of(out));
        self.facts.push((slot, Fact { seen, transport, v4, asked, answered, rcode, took }));
        answered.is_some()
    }
}

/// Refuses a query over a limit of its client.
fn refuse_over(tally: &Tally, limit: Limited, message: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Turn {
    tally.limited(limit);
    if refuse(message, &mut scratch.seen, out) { Turn::Reply } else { Turn::Silent }
}

/// Hands a question to the runtime, unless too many are there already: then it is lost, as datagrams are, and asked
/// again.
fn later(shared: &Arc<Shared>, socket: &Arc<Socket>, late: Late) -> bool {
    let Ok(permit) = shared.waiting.clone().try_acquire_owned() else {
        if !matches!(late.wait, Wait::Ready) {
            shared.metrics.dropped();
        }
        return false;
    };
    let (shared, socket, runtime) = (shared.clone(), socket.clone(), shared.runtime.clone());
    runtime.spawn(async move {
        let Late { serving, message, peer, wait, seen, start, slot } = late;
        let ends = Ends::new(peer.address, socket.local());
        let question = Question { message: &message, ends, transport: Transport::Udp };
        let mut reply = serving.wait(question, wait, start, shared.hold).await;
        if !reply.is_empty()
            && let Err(error) = socket.send_to(&mut reply, &peer)
        {
            tracing::debug!(%error, ?peer, "a reply was not sent");
        }
        shared.note(&serving, seen, &question, &reply, start);
        drop((permit, slot));
    });
    true
}
