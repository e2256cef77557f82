//! Connections: many questions on each, answered as they are ready.
//!
//! Frames flow in, each with its length; what is known is answered at once, what others must be asked for runs beside
//! the next question and may be answered after it. A connection that is silent, slow to read, or one too many is
//! closed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::clients::{Admission, Slot, Slots, refuse};
use super::turn::{Serving, Turn, Wait};
use super::{Connections, Shared};
use crate::answer::{Scratch, Seen};
use crate::beyond::{Ends, Question, Transport};
use crate::metrics::Limited;

/// How many answers may wait to be written.
const QUEUE: usize = 64;
/// How much is written at once.
const CHUNK: usize = 16 << 10;

/// Takes connections until it is dropped.
pub(super) async fn listen(shared: Arc<Shared>, listener: TcpListener, allowed: Connections, slots: Arc<Slots>) {
    let mut connections = JoinSet::new();
    // A listener has an address; without one every block answers.
    let at = listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer)) => {
                let ends = Ends::new(peer, at);
                if let Some(slot) = slots.enter(ends.client) {
                    connections.spawn(serve(shared.clone(), stream, ends, allowed, slot));
                } else {
                    shared.metrics.refused();
                    let now = shared.clients.ticks(Instant::now());
                    shared.clients.log(ends.client, "connections", allowed.each, now);
                }
            }
            Err(error) => {
                // Mostly: no descriptors left. One that is closed makes room; until then nobody is served by trying at
                // once.
                tracing::warn!(%error, "a connection was not taken");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Serves a connection, which counts as one of its client until this ends.
async fn serve(shared: Arc<Shared>, stream: TcpStream, ends: Ends, allowed: Connections, _slot: Slot) {
    // Answers are small and wanted now.
    let _ = stream.set_nodelay(true);
    let (read, write) = stream.into_split();
    let (frames, waiting) = mpsc::channel(QUEUE);
    let reading = Reading {
        shared,
        ends,
        frames,
        others: Arc::new(Semaphore::new(allowed.waiting)),
        scratch: Scratch::new(fastrand::u32(..)),
        late: JoinSet::new(),
    };
    // Whichever side gives up first ends the other: nobody reads what cannot be answered.
    let writing = write_frames(write, waiting, allowed.write);
    tokio::pin!(writing);
    let reader = reading.run(BufReader::with_capacity(4096, read), allowed);
    tokio::pin!(reader);
    tokio::select! {
        _ = &mut writing => {}
        // The reader is done only when all its questions are; what is queued then is written out.
        () = &mut reader => {
            let _ = writing.await;
        }
    }
}

struct Reading {
    shared: Arc<Shared>,
    ends: Ends,
    frames: mpsc::Sender<Vec<u8>>,
    others: Arc<Semaphore>,
    scratch: Scratch,
    late: JoinSet<()>,
}

impl Reading {
    /// Reads questions until there are no more, and waits for the answers of all.
    async fn run(mut self, mut from: BufReader<OwnedReadHalf>, allowed: Connections) {
        let mut patience = allowed.first;
        while let Ok(Ok(length)) = timeout(patience, from.read_u16()).await {
            let mut message = vec![0; usize::from(length)];
            match timeout(allowed.first, from.read_exact(&mut message)).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => break,
            }
            if !self.answer(message).await {
                break;
            }
            patience = allowed.idle;
        }
        while self.late.join_next().await.is_some() {}
    }

    /// Answers a query now or later; false when the connection is to be closed: the client takes no answers, or sends far
    /// more queries than it may.
    async fn answer(&mut self, message: Vec<u8>) -> bool {
        let (start, shared, mut out) = (Instant::now(), self.shared.clone(), Vec::new());
        let serving = shared.serving.load_full();
        let question = Question { message: &message, ends: self.ends, transport: Transport::Tcp };
        let (client, now) = (self.ends.client, shared.clients.ticks(start));
        let turn = match shared.clients.admit(client, now) {
            Admission::Answer => serving.answer(&question, &mut self.scratch, start, &mut out),
            Admission::Refuse => self.refuse(&question, Limited::Refused, &mut out),
            Admission::Drop => {
                shared.metrics.limited(Limited::Dropped);
                return false;
            }
        };
        let held = match &turn {
            Turn::Later(Wait::Ready) => shared.clients.hold(client),
            Turn::Later(_) => shared.clients.forward(client, now),
            Turn::Silent | Turn::Reply => Ok(None),
        };
        let (wait, slot) = match (turn, held) {
            (Turn::Silent, _) => return true,
            (Turn::Later(wait), Ok(slot)) => (wait, slot),
            // The reply of a server that is not ready is written already.
            (Turn::Reply | Turn::Later(Wait::Ready), _) => return self.reply(&serving, &question, out, start).await,
            (Turn::Later(_), Err(limit)) => {
                self.refuse(&question, limit, &mut out);
                return self.reply(&serving, &question, out, start).await;
            }
        };
        let Ok(permit) = self.others.clone().acquire_owned().await else { return false };
        let (frames, ends, seen) = (self.frames.clone(), self.ends, self.scratch.seen);
        let late = Late { shared, serving, ends, message, wait, seen, start };
        self.late.spawn(async move {
            late.answer(&frames).await;
            drop((permit, slot));
        });
        while self.late.try_join_next().is_some() {}
        true
    }

    /// Refuses a query over a limit.
    fn refuse(&mut self, question: &Question<'_>, limit: Limited, out: &mut Vec<u8>) -> Turn {
        self.shared.metrics.limited(limit);
        if refuse(question.message, &mut self.scratch.seen, out) { Turn::Reply } else { Turn::Silent }
    }

    async fn reply(&self, serving: &Serving, question: &Question<'_>, out: Vec<u8>, start: Instant) -> bool {
        let took = start.elapsed();
        self.shared.count(self.scratch.seen, question, &out, took);
        serving.log(question, &out, took);
        out.is_empty() || self.frames.send(out).await.is_ok()
    }
}

/// A question that has to wait.
struct Late {
    shared: Arc<Shared>,
    serving: Arc<Serving>,
    ends: Ends,
    message: Vec<u8>,
    wait: Wait,
    seen: Seen,
    start: Instant,
}

impl Late {
    async fn answer(self, frames: &mpsc::Sender<Vec<u8>>) {
        let Self { shared, serving, ends, message, wait, seen, start } = self;
        let question = Question { message: &message, ends, transport: Transport::Tcp };
        let reply = serving.wait(question, wait, start, shared.hold).await;
        shared.note(&serving, seen, &question, &reply, start);
        if !reply.is_empty() {
            // Nobody there any more: then nobody misses it.
            let _ = frames.send(reply).await;
        }
    }
}

/// Writes answers, several at once when several are ready.
async fn write_frames(
    mut to: OwnedWriteHalf,
    mut frames: mpsc::Receiver<Vec<u8>>,
    patience: Duration,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(frame) = frames.recv().await {
        buffer.clear();
        add_frame(&mut buffer, &frame);
        while buffer.len() < CHUNK {
            let Ok(frame) = frames.try_recv() else { break };
            add_frame(&mut buffer, &frame);
        }
        timeout(patience, to.write_all(&buffer)).await??;
    }
    to.shutdown().await
}

fn add_frame(buffer: &mut Vec<u8>, frame: &[u8]) {
    let Ok(length) = u16::try_from(frame.len()) else { return };
    buffer.extend_from_slice(&length.to_be_bytes());
    buffer.extend_from_slice(frame);
}
