//! Connections: many questions on each, answered as they are ready.
//!
//! Frames flow in, each with its length; what is known is answered at once, what others must be asked for runs beside
//! the next question and may be answered after it. A connection that is silent, slow to read, or one too many is
//! closed.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::turn::{Serving, Turn, Wait};
use super::{Connections, Shared};
use crate::answer::{Scratch, Seen};
use crate::beyond::{Ends, Question, Transport};

/// How many answers may wait to be written.
const QUEUE: usize = 64;
/// How much is written at once.
const CHUNK: usize = 16 << 10;

/// How many connections there are.
pub(super) struct Limits {
    allowed: Connections,
    now: Mutex<(usize, HashMap<IpAddr, usize>)>,
}

/// A place among the connections.
struct Place {
    limits: Arc<Limits>,
    client: IpAddr,
}

impl Limits {
    pub(super) fn new(allowed: Connections) -> Self {
        Self { allowed, now: Mutex::default() }
    }

    fn enter(self: &Arc<Self>, client: IpAddr) -> Option<Place> {
        let (all, each) = &mut *self.now.lock();
        let own = each.get(&client).copied().unwrap_or(0);
        if *all >= self.allowed.all || own >= self.allowed.each {
            return None;
        }
        *all += 1;
        each.insert(client, own + 1);
        Some(Place { limits: self.clone(), client })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (all, each) = &mut *self.limits.now.lock();
        *all -= 1;
        match each.get_mut(&self.client) {
            Some(own) if *own > 1 => *own -= 1,
            _ => {
                each.remove(&self.client);
            }
        }
    }
}

/// Takes connections until it is dropped.
pub(super) async fn listen(shared: Arc<Shared>, listener: TcpListener, limits: Arc<Limits>) {
    let mut connections = JoinSet::new();
    // A listener has an address; without one every block answers.
    let at = listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer)) => match limits.enter(peer.ip().to_canonical()) {
                Some(place) => {
                    connections.spawn(serve(shared.clone(), stream, Ends::new(peer, at), place));
                }
                None => shared.metrics.refused(),
            },
            Err(error) => {
                // Mostly: no descriptors left. One that is closed makes room; until then nobody is served by trying at
                // once.
                tracing::warn!(%error, "a connection was not taken");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream, ends: Ends, place: Place) {
    let allowed = place.limits.allowed;
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

    /// Answers a question or has it answered; false when nobody takes answers.
    async fn answer(&mut self, message: Vec<u8>) -> bool {
        let (start, shared, mut out) = (Instant::now(), self.shared.clone(), Vec::new());
        let serving = shared.serving.load_full();
        let question = Question { message: &message, ends: self.ends, transport: Transport::Tcp };
        let wait = match serving.answer(&question, &mut self.scratch, start, &mut out) {
            Turn::Silent => return true,
            Turn::Reply => return self.reply(&serving, &question, out, start).await,
            Turn::Later(wait) => wait,
        };
        let Ok(permit) = self.others.clone().acquire_owned().await else { return false };
        let (frames, ends, seen) = (self.frames.clone(), self.ends, self.scratch.seen);
        let late = Late { shared, serving, ends, message, wait, seen, start };
        self.late.spawn(async move {
            late.answer(&frames).await;
            drop(permit);
        });
        while self.late.try_join_next().is_some() {}
        true
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
