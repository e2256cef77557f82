//! TCP: accepts connections, finds a reachable endpoint, and copies data.
//!
//! An unreachable endpoint costs the client time, not the connection: the next endpoints are tried, with growing
//! timeouts.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use plan::Scope;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;

use super::balancer::Balancer;
use super::workers::WorkerSlot;
use super::{Shared, sockets, stream};

/// Connect timeouts of successive attempts.
const CONNECT_TIMEOUTS: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_millis(1000), Duration::from_millis(2000)];

/// State of a listener.
#[derive(Clone)]
pub(super) struct Server {
    /// Index of its worker.
    pub(super) worker: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) balancer: Arc<Balancer>,
    pub(super) scope: Scope,
}

/// Accepts connections forever. Accepted ones continue when the future is dropped.
pub(super) async fn accept((held, listener): (Sender<()>, TcpListener), server: Server) {
    // Declared first, dropped last: the address is free when the sender is dropped.
    let (_held, listener) = (held, listener);
    loop {
        let (client, from) = match listener.accept().await {
            Ok(taken) => taken,
            Err(error) => {
                server.shared.limit.back_off(&error).await;
                continue;
            }
        };
        // Wait for a permit before the next accept.
        let Some(permit) = server.shared.limit.acquire().await else { return };
        let Some(place) = server.shared.workers.assign(server.worker) else { return };
        let server = server.clone();
        match place.elsewhere() {
            None => tokio::spawn(async move { server.serve(client, from.ip(), (permit, place)).await }),
            Some(runtime) => runtime.spawn(async move {
                if let Ok(client) = client.into_std().and_then(TcpStream::from_std) {
                    server.serve(client, from.ip(), (permit, place)).await;
                }
            }),
        };
    }
}

impl Server {
    /// Serves a client, which holds its permit and worker slot until the end.
    async fn serve(&self, client: TcpStream, from: IpAddr, _held: (OwnedSemaphorePermit, WorkerSlot)) {
        match find(from, &self.balancer, self.scope, self.shared.mark).await {
            Some((server, endpoint)) => {
                let _open = self.balancer.opened(endpoint);
                let excluded = self.balancer.excluded(endpoint);
                stream::carry_until(client, server, &self.shared.pipes, excluded).await;
            }
            None => stream::reset(&client),
        }
    }
}

/// Finds a reachable endpoint. Each is tried once; remaining attempts retry those that timed out, since a single lost
/// packet must not cost the connection.
async fn find(client: IpAddr, balancer: &Balancer, scope: Scope, mark: Option<u32>) -> Option<(TcpStream, SocketAddr)> {
    let (mut tried, mut slow): (Vec<SocketAddr>, Vec<SocketAddr>) = (Vec::new(), Vec::new());
    for timeout in CONNECT_TIMEOUTS {
        let endpoint = match balancer.choose(scope, client, Instant::now(), &tried) {
            Some(endpoint) => endpoint,
            None if slow.is_empty() => break,
            None => slow.remove(0),
        };
        match tokio::time::timeout(timeout, sockets::dial(endpoint, mark)).await {
            Ok(Ok(server)) => {
                if tried.contains(&endpoint) {
                    balancer.record(client, endpoint, Instant::now());
                }
                return Some((server, endpoint));
            }
            Ok(Err(error)) => tracing::debug!(%endpoint, %error, "cannot connect to endpoint; trying the next one"),
            Err(_) => {
                tracing::debug!(%endpoint, ?timeout, "connecting to endpoint timed out; trying the next one");
                slow.push(endpoint);
            }
        }
        balancer.failed(client, endpoint);
        tried.push(endpoint);
    }
    tracing::debug!(%client, ?tried, "no endpoint reachable; closing the connection");
    None
}
