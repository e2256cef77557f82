//! Port-forward: connections into a Pod, each a pair of streams, one for its bytes and one for what went wrong.
//!
//! In: streams that the client opens (SPDY, also inside WebSocket), or a fixed list of ports (WebSocket of old). Out: connections that
//! [`Workloads::dial`] makes. Ends of either side are kept apart: who has finished sending may still receive. One connection that
//! fails says so on its error stream and leaves the others alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::drive::Opened;
use super::mux::{Mux, Stream};
use super::wire::{Headers, header};
use crate::workloads::{PodId, Workloads};

/// Whether a stream is one of a forwarded connection: SPDY has no way to say what else it might be.
pub(crate) fn welcome(headers: &Headers) -> bool {
    port(headers).is_some() && matches!(header(headers, "streamtype"), Some("data" | "error"))
}

fn port(headers: &Headers) -> Option<u16> {
    header(headers, "port").and_then(|port| port.parse().ok()).filter(|port| *port > 0)
}

/// Two streams that belong together, or one that waits for the other.
struct Pair {
    data: Option<(Stream, u16)>,
    error: Option<Stream>,
    until: Instant,
}

/// Forwards what a client of SPDY opens until it is gone.
pub(crate) async fn streams(
    workloads: Arc<dyn Workloads>,
    pod: PodId,
    mux: Arc<Mux>,
    mut opened: mpsc::Receiver<Opened>,
    patience: Duration,
) {
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut connections = JoinSet::new();
    loop {
        let oldest = pairs.values().map(|pair| pair.until).min();
        tokio::select! {
            next = opened.recv() => {
                let Some(Opened { stream, headers }) = next else { break };
                let id = request(&headers, stream.id());
                let new = || Pair { data: None, error: None, until: Instant::now() + patience };
                let pair = pairs.entry(id.clone()).or_insert_with(new);
                if let Some(again) = pair.add(stream, &headers) {
                    let text = format!("error processing stream for request {id}: {again} stream already assigned");
                    if let Some(error) = &mut pair.error {
                        let _ = error.write_all(text.as_bytes()).await;
                    }
                }
                if let (Some(_), Some(_)) = (&pair.data, &pair.error)
                    && let Some(Pair { data: Some((data, port)), error: Some(error), .. }) = pairs.remove(&id)
                {
                    connections.spawn(connection(Arc::clone(&workloads), pod.clone(), port, data, error));
                }
            }
            () = sleep_until(oldest.unwrap_or_else(Instant::now)), if oldest.is_some() => late(&mut pairs).await,
            Some(_) = connections.join_next() => {}
            () = mux.ended() => break,
        }
    }
}

/// Which request a stream belongs to. Clients of old do not say: theirs are two streams that follow each other, the error one first.
fn request(headers: &Headers, id: u32) -> String {
    match (header(headers, "requestid"), header(headers, "streamtype")) {
        (Some(request), _) if !request.is_empty() => request.to_owned(),
        (_, Some("data")) => format!("stream {}", id.saturating_sub(2)),
        _ => format!("stream {id}"),
    }
}

impl Pair {
    /// Adds a stream; says which kind when there was one of it.
    fn add(&mut self, stream: Stream, headers: &Headers) -> Option<&'static str> {
        match (header(headers, "streamtype"), port(headers)) {
            (Some("data"), Some(port)) if self.data.is_none() => self.data = Some((stream, port)),
            (Some("data"), _) => return Some("data"),
            _ if self.error.is_none() => self.error = Some(stream),
            _ => return Some("error"),
        }
        None
    }
}

/// Gives up on streams whose other half did not come.
async fn late(pairs: &mut BTreeMap<String, Pair>) {
    let now = Instant::now();
    let ids: Vec<String> = pairs.iter().filter(|(_, pair)| pair.until <= now).map(|(id, _)| id.clone()).collect();
    for id in ids {
        if let Some(Pair { error: Some(mut error), .. }) = pairs.remove(&id) {
            let text = format!("(request={id}) timed out waiting for streams");
            let _ = error.write_all(text.as_bytes()).await;
            let _ = error.shutdown().await;
        }
    }
}

/// One connection into the Pod, from its first byte to its last.
async fn connection(workloads: Arc<dyn Workloads>, pod: PodId, port: u16, mut data: Stream, mut error: Stream) {
    match workloads.dial(&pod, port).await {
        Ok(mut socket) => {
            // Bytes of people who type must not wait for more.
            let _ = socket.set_nodelay(true);
            // A connection that breaks is reset like one between neighbours. It is not said on the error stream: kubectl would give
            // up all the others, too.
            if tokio::io::copy_bidirectional(&mut data, &mut socket).await.is_ok() {
                let _ = data.shutdown().await;
            }
        }
        Err(why) => {
            let text = format!("error forwarding port {port} to pod {}, uid : {why}", pod.name);
            let _ = error.write_all(text.as_bytes()).await;
        }
    }
    let _ = error.shutdown().await;
}

/// Forwards one connection to each port over the channels of a WebSocket: for the port at place n, 2n has the bytes and 2n+1 what
/// went wrong. Both begin with the number of the port.
pub(crate) async fn channels(workloads: Arc<dyn Workloads>, pod: PodId, mux: Arc<Mux>, ports: Vec<u16>) {
    let mut connections = JoinSet::new();
    for (place, port) in (0..).zip(ports) {
        let (Some(mut data), Some(mut error)) = (mux.add(2 * place), mux.add(2 * place + 1)) else { break };
        let _ = data.write_all(&port.to_le_bytes()).await;
        let _ = error.write_all(&port.to_le_bytes()).await;
        connections.spawn(connection(Arc::clone(&workloads), pod.clone(), port, data, error));
    }
    tokio::select! {
        () = async { while connections.join_next().await.is_some() {} } => mux.close(),
        () = mux.ended() => {}
    }
}
