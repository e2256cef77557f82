//! TCP connections: many queries per connection, answered out of order.
//!
//! In: length-prefixed messages. Out: length-prefixed replies. Queries that need upstreams run concurrently with later
//! ones. Connections that are idle, read too slowly or exceed a limit are closed.

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

use super::clients::{Admission, Slot, Slots, write_refused};
use super::dispatch::{Dispatch, Handler, Wait};
use super::{ConnectionLimits, Shared};
use crate::answer::{QueryLabels, Scratch};
use crate::forward::{ClientAddr, Request, Transport};
use crate::metrics::Limited;

/// Replies queued for writing per connection.
const REPLY_QUEUE: usize = 64;
/// Bytes written at once.
const WRITE_CHUNK: usize = 16 << 10;

/// Accepts connections until the future is dropped.
pub(super) async fn listen(shared: Arc<Shared>, listener: TcpListener, limits: ConnectionLimits, slots: Arc<Slots>) {
    let mut connections = JoinSet::new();
    // Cannot fail for a listener; the fallback matches every server block.
    let at = listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer)) => {
                let from = ClientAddr::new(peer, at);
                if let Some(slot) = slots.enter(from.ip) {
                    connections.spawn(serve(shared.clone(), stream, from, limits, slot));
                } else {
                    shared.metrics.refused();
                    let now = shared.clients.ticks(Instant::now());
                    shared.clients.log(from.ip, "connections", limits.per_client, now);
                }
            }
            Err(error) => {
                // Usually EMFILE: wait for a connection to close.
                tracing::warn!(%error, "failed to accept TCP connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Serves a connection; `_slot` counts it until it ends.
async fn serve(shared: Arc<Shared>, stream: TcpStream, from: ClientAddr, limits: ConnectionLimits, _slot: Slot) {
    // Replies are small: do not delay them (Nagle).
    let _ = stream.set_nodelay(true);
    let (read, write) = stream.into_split();
    let (frames, queued) = mpsc::channel(REPLY_QUEUE);
    let reader_state = Reader {
        shared,
        from,
        frames,
        upstream_permits: Arc::new(Semaphore::new(limits.max_in_flight)),
        scratch: Scratch::new(fastrand::u32(..)),
        deferred: JoinSet::new(),
    };
    // If either half fails the other one is dropped: queries are not read if replies cannot be written.
    let writing = write_frames(write, queued, limits.write_timeout);
    tokio::pin!(writing);
    let reader = reader_state.run(BufReader::with_capacity(4096, read), limits);
    tokio::pin!(reader);
    tokio::select! {
        _ = &mut writing => {}
        // The reader returns when all its queries are answered; queued replies are written then.
        () = &mut reader => {
            let _ = writing.await;
        }
    }
}

struct Reader {
    shared: Arc<Shared>,
    from: ClientAddr,
    frames: mpsc::Sender<Vec<u8>>,
    upstream_permits: Arc<Semaphore>,
    scratch: Scratch,
    deferred: JoinSet<()>,
}

impl Reader {
    /// Reads queries until the end of the stream, then waits for all replies.
    async fn run(mut self, mut from: BufReader<OwnedReadHalf>, limits: ConnectionLimits) {
        let mut read_timeout = limits.first_query_timeout;
        while let Ok(Ok(length)) = timeout(read_timeout, from.read_u16()).await {
            let mut message = vec![0; usize::from(length)];
            match timeout(limits.first_query_timeout, from.read_exact(&mut message)).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => break,
            }
            if !self.answer(message).await {
                break;
            }
            read_timeout = limits.idle_timeout;
        }
        while self.deferred.join_next().await.is_some() {}
    }

    /// Answers a query now or later; false if the connection must be closed: replies cannot be written, or the client
    /// is far over its query rate.
    async fn answer(&mut self, message: Vec<u8>) -> bool {
        let (start, shared, mut out) = (Instant::now(), self.shared.clone(), Vec::new());
        let handler = shared.handler.load_full();
        let request = Request { message: &message, from: self.from, transport: Transport::Tcp };
        let (client, now) = (self.from.ip, shared.clients.ticks(start));
        let dispatch = match shared.clients.admit(client, now) {
            Admission::Answer => handler.answer(&request, &mut self.scratch, start, &mut out),
            Admission::Refuse => self.refuse(&request, Limited::Refused, &mut out),
            Admission::Drop => {
                shared.metrics.limited(Limited::Dropped);
                return false;
            }
        };
        let held = match &dispatch {
            Dispatch::Deferred(Wait::Ready) => shared.clients.wait_for_ready(client),
            Dispatch::Deferred(_) => shared.clients.forward(client, now),
            Dispatch::Drop | Dispatch::Reply => Ok(None),
        };
        let (wait, slot) = match (dispatch, held) {
            (Dispatch::Drop, _) => return true,
            (Dispatch::Deferred(wait), Ok(slot)) => (wait, slot),
            // The SERVFAIL reply of a server that is not ready is written already.
            (Dispatch::Reply | Dispatch::Deferred(Wait::Ready), _) => {
                return self.reply(&handler, &request, out, start).await;
            }
            (Dispatch::Deferred(_), Err(limit)) => {
                self.refuse(&request, limit, &mut out);
                return self.reply(&handler, &request, out, start).await;
            }
        };
        let Ok(permit) = self.upstream_permits.clone().acquire_owned().await else { return false };
        let (frames, from, labels) = (self.frames.clone(), self.from, self.scratch.labels);
        let deferred = DeferredQuery { shared, handler, from, message, wait, labels, start };
        self.deferred.spawn(async move {
            deferred.answer(&frames).await;
            drop((permit, slot));
        });
        while self.deferred.try_join_next().is_some() {}
        true
    }

    /// Refuses a query over a limit.
    fn refuse(&mut self, request: &Request<'_>, limit: Limited, out: &mut Vec<u8>) -> Dispatch {
        self.shared.metrics.limited(limit);
        if write_refused(request.message, &mut self.scratch.labels, out) { Dispatch::Reply } else { Dispatch::Drop }
    }

    async fn reply(&self, handler: &Handler, request: &Request<'_>, out: Vec<u8>, start: Instant) -> bool {
        let duration = start.elapsed();
        self.shared.count(self.scratch.labels, request, &out, duration);
        handler.log(request, &out, duration);
        out.is_empty() || self.frames.send(out).await.is_ok()
    }
}

/// Query that waits for upstreams or readiness.
struct DeferredQuery {
    shared: Arc<Shared>,
    handler: Arc<Handler>,
    from: ClientAddr,
    message: Vec<u8>,
    wait: Wait,
    labels: QueryLabels,
    start: Instant,
}

impl DeferredQuery {
    async fn answer(self, frames: &mpsc::Sender<Vec<u8>>) {
        let Self { shared, handler, from, message, wait, labels, start } = self;
        let request = Request { message: &message, from, transport: Transport::Tcp };
        let reply = handler.wait(request, wait, start, shared.readiness_timeout).await;
        shared.record(&handler, labels, &request, &reply, start);
        if !reply.is_empty() {
            // The connection may be closed already.
            let _ = frames.send(reply).await;
        }
    }
}

/// Writes replies, several per system call if several are queued.
async fn write_frames(
    mut to: OwnedWriteHalf,
    mut frames: mpsc::Receiver<Vec<u8>>,
    read_timeout: Duration,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(frame) = frames.recv().await {
        buffer.clear();
        add_frame(&mut buffer, &frame);
        while buffer.len() < WRITE_CHUNK {
            let Ok(frame) = frames.try_recv() else { break };
            add_frame(&mut buffer, &frame);
        }
        timeout(read_timeout, to.write_all(&buffer)).await??;
    }
    to.shutdown().await
}

fn add_frame(buffer: &mut Vec<u8>, frame: &[u8]) {
    let Ok(length) = u16::try_from(frame.len()) else { return };
    buffer.extend_from_slice(&length.to_be_bytes());
    buffer.extend_from_slice(frame);
}
