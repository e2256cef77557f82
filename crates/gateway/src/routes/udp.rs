//! UDP listener of a Gateway: one flow per client, with its own socket connected to one endpoint.
//!
//! In: a local address; the kernel selects the port. Out: datagrams to the endpoint that the flow began with, and its
//! replies, from the address of the listener. A flow ends when it is idle, or when its endpoint fails. The number of flows is bounded:
//! beyond, the flow that was idle longest makes room if it was quiet for a while, otherwise new flows are dropped.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::tables::{PortTable, RoutedListener};
use crate::balance::Selection;
use crate::endpoint::InFlight;
use crate::port_config::{PortConfig, Serving};

/// Maximum size of a datagram in bytes.
const MAX_DATAGRAM: usize = 65_536;
/// Idle timeout of a flow.
const IDLE: Duration = Duration::from_secs(60);
/// Flows per listener.
const MAX_FLOWS: usize = 16_384;
/// Idle time in milliseconds after which a flow may be closed for a new one.
const QUIET_MS: u64 = 250;
/// Milliseconds between searches for such flows: each looks at all flows.
const SEARCH_PAUSE_MS: u64 = 10;
/// Endpoints tried for a flow.
const MAX_TRIES: usize = 3;
/// Delay after an error of the socket.
const BACKOFF: Duration = Duration::from_millis(10);

/// Listener. Dropping it closes it and its flows.
pub(super) struct UdpListener {
    pub(super) address: SocketAddr,
    task: AbortHandle,
}

/// A listener and its flows.
struct Server {
    socket: UdpSocket,
    port_config: Arc<PortConfig>,
    flows: Mutex<HashMap<SocketAddr, Arc<Flow>>>,
    searches: Searches,
    started: Instant,
}

/// How often flows that make room are searched for. Clients can forge addresses: without a limit each of their datagrams would cost a search while
/// few flows are quiet.
#[derive(Default)]
struct Searches {
    /// The time of the next one, in milliseconds since the listener started.
    next: AtomicU64,
}

/// A client and its endpoint.
struct Flow {
    socket: UdpSocket,
    _endpoint: InFlight,
    /// Time of the last datagram, in milliseconds since the listener started.
    last: AtomicU64,
    /// Notified when it must make room.
    over: Notify,
}

impl UdpListener {
    /// Opens a listener. Must be called within a tokio runtime.
    pub(super) fn open(ip: IpAddr, port_config: &Arc<PortConfig>) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(SocketAddr::new(ip, 0))?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket)?;
        let address = socket.local_addr()?;
        let (flows, port_config) = (Mutex::default(), Arc::clone(port_config));
        let server = Server { socket, port_config, flows, searches: Searches::default(), started: Instant::now() };
        Ok(Self { address, task: tokio::spawn(serve(Arc::new(server))).abort_handle() })
    }
}

impl Searches {
    /// Whether a search may begin.
    fn may_begin(&self, now: u64) -> bool {
        let is_due = now >= self.next.load(Relaxed);
        if is_due {
            self.next.store(now + SEARCH_PAUSE_MS, Relaxed);
        }
        is_due
    }
}

impl Drop for UdpListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Forwards datagrams forever.
async fn serve(server: Arc<Server>) {
    let mut buffer = vec![0; MAX_DATAGRAM];
    let mut flows = JoinSet::new();
    let own = server.socket.local_addr().map(|address| address.ip()).ok();
    loop {
        let (length, client) = match server.socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(service = &*server.port_config.service, %error, "failed to receive datagram");
                sleep(BACKOFF).await;
                continue;
            }
        };
        while flows.try_join_next().is_some() {}
        let allowed = || server.port_config.sources.load().allows(client.ip().to_canonical());
        if own != Some(client.ip()) && !allowed() {
            continue;
        }
        let known = server.flows.lock().get(&client).cloned();
        let flow = match known {
            Some(flow) => flow,
            None => {
                let Some(flow) = server.start(client).await else { continue };
                flows.spawn(run(Arc::clone(&server), client, Arc::clone(&flow)));
                flow
            }
        };
        flow.last.store(server.now(), Relaxed);
        // A full socket drops datagrams, as a full link does; an endpoint that refuses them ends the flow.
        match timeout(BACKOFF, flow.socket.send(&buffer[..length])).await {
            Ok(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => server.remove(client, &flow),
            _ => {}
        }
    }
}

impl Server {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn listener(&self) -> Option<Arc<RoutedListener>> {
        let Serving::Routes(port) = &self.port_config.serving else { return None };
        match &**port.table.load() {
            PortTable::Stream(listener) => Some(Arc::clone(listener)),
            _ => None,
        }
    }

    /// Starts a flow at the next backend; none without a rule, an endpoint, or room.
    async fn start(&self, client: SocketAddr) -> Option<Arc<Flow>> {
        let rule = self.listener()?.tables.load().stream(None).cloned()?;
        if !rule.admits(client.ip()) {
            return None;
        }
        let upstream = Arc::clone(rule.next()?);
        if self.flows.lock().len() >= MAX_FLOWS && !self.make_room() {
            return None;
        }
        let mut tried = Vec::new();
        while tried.len() < MAX_TRIES {
            let Some(endpoint) = upstream.backends.load().choose(&Selection::default(), &tried) else { break };
            let any: IpAddr = match endpoint.address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
            };
            tried.push(endpoint.address);
            let Ok(socket) = UdpSocket::bind(SocketAddr::new(any, 0)).await else { continue };
            if socket.connect(endpoint.address).await.is_err() {
                continue;
            }
            rule.metrics.connected();
            let last = AtomicU64::new(self.now());
            let flow = Arc::new(Flow { socket, _endpoint: endpoint, last, over: Notify::new() });
            self.flows.lock().insert(client, Arc::clone(&flow));
            return Some(flow);
        }
        upstream.failed();
        None
    }

    /// Closes the longest idle quarter of the quiet flows: many clients send one query and never return, and must not
    /// block new ones. False when there is none, or when they were searched for just before.
    fn make_room(&self) -> bool {
        let now = self.now();
        if !self.searches.may_begin(now) {
            return false;
        }
        let mut flows = self.flows.lock();
        let until = now.saturating_sub(QUIET_MS);
        let mut quiet: Vec<(u64, SocketAddr)> =
            flows.iter().map(|(client, flow)| (flow.last.load(Relaxed), *client)).collect();
        quiet.retain(|(last, _)| *last <= until);
        quiet.sort_unstable();
        quiet.truncate(quiet.len().div_ceil(4));
        for (_, client) in &quiet {
            if let Some(flow) = flows.remove(client) {
                flow.over.notify_one();
            }
        }
        !quiet.is_empty()
    }

    /// Forwards one reply, if there is one.
    async fn pass_reply(&self, client: SocketAddr, flow: &Flow) -> io::Result<()> {
        // Flows that wait have no buffer: there may be many, and clients can forge addresses.
        let mut buffer = Vec::with_capacity(MAX_DATAGRAM);
        match flow.socket.try_recv_buf(&mut buffer) {
            Ok(_) => {
                flow.last.store(self.now(), Relaxed);
                let _ = self.socket.send_to(&buffer, client).await;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes a flow, unless it was replaced.
    fn remove(&self, client: SocketAddr, flow: &Arc<Flow>) {
        let mut flows = self.flows.lock();
        if flows.get(&client).is_some_and(|known| Arc::ptr_eq(known, flow)) {
            flows.remove(&client);
        }
        flow.over.notify_one();
    }
}

/// Forwards replies to the client until the flow ends.
async fn run(server: Arc<Server>, client: SocketAddr, flow: Arc<Flow>) {
    loop {
        let quiet = Duration::from_millis(server.now().saturating_sub(flow.last.load(Relaxed)));
        let Some(left) = IDLE.checked_sub(quiet).filter(|left| !left.is_zero()) else { break };
        tokio::select! {
            ready = flow.socket.readable() => {
                let passed = match ready {
                    Ok(()) => server.pass_reply(client, &flow).await,
                    Err(error) => Err(error),
                };
                if passed.is_err() {
                    break;
                }
            }
            () = sleep(left) => {}
            () = flow.over.notified() => return,
        }
    }
    server.remove(client, &flow);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_new_clients_does_not_cause_a_search_each() {
        let searches = Searches::default();
        let begun = (0..1000).filter(|now| (0..100).filter(|_| searches.may_begin(*now)).count() > 0).count();
        assert_eq!(begun, 100, "of 100 000 new clients in a second");
    }
}
