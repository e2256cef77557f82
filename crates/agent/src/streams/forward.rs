//! Port-forward sessions: connections into a Pod, each with a data stream and an error stream.
//!
//! In: streams that the client opens (SPDY, also tunneled through WebSocket), or a fixed list of ports (legacy WebSocket). Out: connections of
//! [`Workloads::dial`]. Half-closes are preserved. A failed connection is reported on its error stream and does not affect the others.

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

/// Whether a stream belongs to a forwarded connection.
pub(crate) fn accepts(headers: &Headers) -> bool {
    port(headers).is_some() && matches!(header(headers, "streamtype"), Some("data" | "error"))
}

fn port(headers: &Headers) -> Option<u16> {
    header(headers, "port").and_then(|port| port.parse().ok()).filter(|port| *port > 0)
}

/// The data and error stream of a connection, until both are open.
struct Pair {
    data: Option<(Stream, u16)>,
    error: Option<Stream>,
    until: Instant,
}

/// Forwards the streams of a SPDY client until it disconnects.
pub(crate) async fn streams(
    workloads: Arc<dyn Workloads>,
    pod: PodId,
    mux: Arc<Mux>,
    mut opened: mpsc::Receiver<Opened>,
    limit: Duration,
) {
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut connections = JoinSet::new();
    loop {
        let oldest = pairs.values().map(|pair| pair.until).min();
        tokio::select! {
            next = opened.recv() => {
                let Some(Opened { stream, headers }) = next else { break };
                let id = request(&headers, stream.id());
                let new = || Pair { data: None, error: None, until: Instant::now() + limit };
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

/// The request ID of a stream. Legacy clients send none: their error and data streams have consecutive IDs.
fn request(headers: &Headers, id: u32) -> String {
    match (header(headers, "requestid"), header(headers, "streamtype")) {
        (Some(request), _) if !request.is_empty() => request.to_owned(),
        (_, Some("data")) => format!("stream {}", id.saturating_sub(2)),
        _ => format!("stream {id}"),
    }
}

impl Pair {
    /// Adds a stream; returns its type when it is a duplicate.
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

/// Reports incomplete pairs whose timeout has passed.
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

/// Forwards one connection.
async fn connection(workloads: Arc<dyn Workloads>, pod: PodId, port: u16, mut data: Stream, mut error: Stream) {
    match workloads.dial(&pod, port).await {
        Ok(mut socket) => {
            // Interactive sessions need low latency.
            let _ = socket.set_nodelay(true);
            // A broken connection is reset. It is not reported on the error stream, because kubectl would close all others, too.
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

/// Forwards one connection per port over WebSocket channels: for port n, channel 2n has the data and 2n+1 the error. Both start with the port
/// number.
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
