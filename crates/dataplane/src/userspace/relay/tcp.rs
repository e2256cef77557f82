//! TCP: takes connections, finds an endpoint that answers, and carries.
//!
//! An endpoint that does not answer costs the client a moment, not the connection: others are asked, each with more patience than
//! the one before.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;

use super::balancer::{Balancer, Scope};
use super::lanes::Place;
use super::{Shared, sockets, stream};

/// How long endpoints have to answer, one after the other.
const PATIENCE: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_millis(1000), Duration::from_millis(2000)];

/// What a listener knows.
#[derive(Clone)]
pub(super) struct Desk {
    /// The thread it is on.
    pub(super) lane: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) balancer: Arc<Balancer>,
    pub(super) scope: Scope,
}

/// Takes connections, for ever. Those that were taken go on when this is dropped.
pub(super) async fn accept((held, listener): (Sender<()>, TcpListener), desk: Desk) {
    // What comes first goes last: whoever waits for the end finds the address free.
    let (_held, listener) = (held, listener);
    loop {
        let (client, from) = match listener.accept().await {
            Ok(taken) => taken,
            Err(error) => {
                desk.shared.limit.pause(&error).await;
                continue;
            }
        };
        // Without room for it no other is taken.
        let Some(permit) = desk.shared.limit.admit().await else { return };
        let Some(place) = desk.shared.lanes.place(desk.lane) else { return };
        let desk = desk.clone();
        match place.elsewhere() {
            None => tokio::spawn(async move { desk.serve(client, from.ip(), (permit, place)).await }),
            Some(runtime) => runtime.spawn(async move {
                if let Ok(client) = client.into_std().and_then(TcpStream::from_std) {
                    desk.serve(client, from.ip(), (permit, place)).await;
                }
            }),
        };
    }
}

impl Desk {
    /// Serves a client, who keeps a place until the end.
    async fn serve(&self, client: TcpStream, from: IpAddr, _held: (OwnedSemaphorePermit, Place)) {
        match find(from, &self.balancer, self.scope, self.shared.mark).await {
            Some(server) => stream::carry(client, server, &self.shared.pipes).await,
            None => stream::reset(&client),
        }
    }
}

/// Finds an endpoint that answers. Each is asked once; only where that leaves tries over, those that were slow are asked again:
/// one lost packet must not cost a connection.
async fn find(client: IpAddr, balancer: &Balancer, scope: Scope, mark: Option<u32>) -> Option<TcpStream> {
    let (mut tried, mut slow): (Vec<SocketAddr>, Vec<SocketAddr>) = (Vec::new(), Vec::new());
    for patience in PATIENCE {
        let endpoint = match balancer.choose(scope, client, Instant::now(), &tried) {
            Some(endpoint) => endpoint,
            None if slow.is_empty() => break,
            None => slow.remove(0),
        };
        match tokio::time::timeout(patience, sockets::dial(endpoint, mark)).await {
            Ok(Ok(server)) => {
                if tried.contains(&endpoint) {
                    balancer.remember(client, endpoint, Instant::now());
                }
                return Some(server);
            }
            Ok(Err(error)) => tracing::debug!(%endpoint, %error, "an endpoint does not answer; another is asked"),
            Err(_) => {
                tracing::debug!(%endpoint, ?patience, "an endpoint does not answer in time; another is asked");
                slow.push(endpoint);
            }
        }
        balancer.failed(client, endpoint);
        tried.push(endpoint);
    }
    tracing::debug!(%client, ?tried, "no endpoint answers; the connection is closed");
    None
}
