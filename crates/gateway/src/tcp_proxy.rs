//! TCP proxy: copies bytes between a client and a pod until both directions are closed or the idle timeout expires.
//!
//! In: a client stream. Out: the same bytes at a pod, optionally after a PROXY protocol header. Half-closed connections
//! are supported.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy_bidirectional_with_sizes};
use tokio::time::{sleep, timeout};

use crate::access_log::Trail;
use crate::balance::Selection;
use crate::cause::Cause;
use crate::ejection::Outcome;
use crate::port_config::{PortConfig, until_closing};
use crate::stall::{Activity, MonitoredStream, until_idle};
use crate::upstream::{Upstream, connect, handshake};

/// Maximum number of pods tried per connection.
const MAX_TRIES: usize = 3;
/// Copy buffer size in bytes.
const COPY_BUFFER: usize = 16 * 1024;

/// Proxies a connection; `header` is sent to the pod first. It is closed if no pod can be reached.
pub(crate) async fn proxy<I>(
    client: I,
    upstream: &Arc<Upstream>,
    port_config: &PortConfig,
    header: Option<String>,
    trail: Option<Arc<Trail>>,
) where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let mut tried = Vec::new();
    if let Some(trail) = &trail {
        trail.forwarded(upstream);
    }
    let note = |transferred| {
        if let Some(trail) = &trail {
            trail.transferred(transferred);
        }
    };
    while tried.len() < MAX_TRIES {
        let Some(mut chosen) = upstream.backends.load().choose(&Selection::default(), &tried) else { break };
        tried.push(chosen.address);
        if let Some(trail) = &trail {
            trail.sent_to(chosen.address);
        }
        let mut pod = match connect(&chosen, upstream.limits.connect).await {
            Ok(pod) => pod,
            Err(why) => {
                if why.is_of_endpoint() {
                    chosen.report(Outcome::Refused, None);
                }
                continue;
            }
        };
        chosen.report(Outcome::Connected, None);
        if let Some(header) = &header {
            // TLS starts after the header.
            if !matches!(timeout(upstream.limits.connect, pod.write_all(header.as_bytes())).await, Ok(Ok(()))) {
                continue;
            }
        }
        let tls = upstream.tls.load_full();
        let Some(tls) = tls else { return note(join(client, pod, port_config).await) };
        match handshake(upstream, &tls, &chosen, pod, &tls.tcp).await {
            Ok(pod) => return note(join(client, pod, port_config).await),
            Err(why) => {
                chosen.report(Outcome::Refused, None);
                tracing::debug!(service = &*upstream.service, pod = %chosen.address, ?why, "TLS handshake with pod failed");
            }
        }
    }
    upstream.failed();
    if let Some(trail) = &trail {
        trail.failed(if tried.is_empty() { Cause::NoEndpoints } else { Cause::ConnectFailed });
    }
    tracing::debug!(service = &*upstream.service, ?tried, "no pod accepted the connection");
}

/// Copies both directions until both are closed; returns how many bytes came from the client, and went to it.
pub(crate) async fn join<A, B>(client: A, pod: B, port_config: &PortConfig) -> (u64, u64)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (idle, activity, mut closing) = (port_config.tcp_idle(), Activity::default(), port_config.closing());
    let mut client = MonitoredStream::counted(client, idle, &activity);
    let mut pod = MonitoredStream::counted(pod, idle, &activity);
    let drained = async {
        until_closing(&mut closing).await;
        sleep(port_config.limits.drain).await;
    };
    tokio::select! {
        biased;
        // Both sides are closed when the streams are dropped.
        _ = copy_bidirectional_with_sizes(&mut client, &mut pod, COPY_BUFFER, COPY_BUFFER) => {}
        () = until_idle(activity, idle) => {}
        () = drained => {}
    }
    client.transferred()
}
