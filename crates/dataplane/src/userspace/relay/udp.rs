//! UDP: one session per client, with its own socket connected to one endpoint.
//!
//! A session lasts while datagrams arrive in either direction and its endpoint serves. Replies are sent from the
//! address that the client used.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use kernel::socket::{Arrival, LocalAddress};
use parking_lot::Mutex;
use plan::Scope;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::JoinSet;

use super::balancer::Balancer;
use super::{Shared, sockets};

/// Maximum datagram size in bytes.
const MAX_DATAGRAM: usize = 65_536;
/// Idle time in milliseconds after which a session may be evicted for a new one.
const QUIET_MS: u64 = 250;
/// Endpoints tried for a datagram.
const MAX_ATTEMPTS: usize = 4;

thread_local! {
    /// Datagram buffer. Used only within one call, so one per thread is enough.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; MAX_DATAGRAM].into());
}

/// Client address, and the local address it used.
type SessionKey = (SocketAddr, LocalAddress);

/// Forwards datagrams forever. Sessions end when the future is dropped.
pub(super) async fn listen(
    (socket, held): (UdpSocket, Sender<()>),
    shared: Arc<Shared>,
    balancer: Arc<Balancer>,
    scope: Scope,
) {
    let (sessions, started) = (Mutex::default(), Instant::now());
    let server = Arc::new(Server { socket, _held: held, shared, balancer, scope, sessions, started });
    let mut tasks = JoinSet::new();
    loop {
        let mut new = None;
        let taken = server.socket.async_io(Interest::READABLE, || {
            BUFFER.with_borrow_mut(|buffer| {
                let arrival = kernel::socket::receive(&server.socket, buffer)?;
                new = server.forward(&buffer[..arrival.length], &arrival);
                Ok(())
            })
        });
        if let Err(error) = taken.await {
            server.shared.limit.back_off(&error).await;
        }
        if let Some((key, session)) = new {
            tasks.spawn(run_session(Arc::clone(&server), key, session));
        }
        while tasks.try_join_next().is_some() {}
    }
}

/// A listener and its sessions.
struct Server {
    socket: UdpSocket,
    /// Dropped after the socket.
    _held: Sender<()>,
    shared: Arc<Shared>,
    balancer: Arc<Balancer>,
    scope: Scope,
    sessions: Mutex<HashMap<SessionKey, Arc<Session>>>,
    started: Instant,
}

/// A client and its endpoint.
struct Session {
    socket: UdpSocket,
    endpoint: SocketAddr,
    /// Time of the last datagram, in milliseconds since the listener started.
    last: AtomicU64,
    /// Its share of the limit, until it is evicted.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// Notified on eviction.
    over: Notify,
}

impl Server {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Forwards a datagram to its session; returns the session if it is new.
    fn forward(&self, bytes: &[u8], arrival: &Arrival) -> Option<(SessionKey, Arc<Session>)> {
        let key = (arrival.from, arrival.at);
        let known = self.sessions.lock().get(&key).cloned();
        if let Some(session) = known {
            session.last.store(self.now(), Ordering::Relaxed);
            match session.socket.try_send(bytes) {
                // A full socket drops datagrams, as a full link does.
                Ok(_) => return None,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) => self.fail(key, &session, &error),
            }
        }
        let session = Arc::new(self.start_session(bytes, arrival)?);
        self.sessions.lock().insert(key, Arc::clone(&session));
        Some((key, session))
    }

    /// Starts a session with an endpoint that accepts the datagram.
    fn start_session(&self, bytes: &[u8], arrival: &Arrival) -> Option<Session> {
        let permit = self
            .shared
            .limit
            .try_acquire()
            .or_else(|| self.evict_quiet())
            .or_else(|| self.shared.limit.try_acquire_logged())?;
        let (client, mut tried) = (arrival.from.ip(), Vec::new());
        for _ in 0..MAX_ATTEMPTS {
            let endpoint = self.balancer.choose(self.scope, client, Instant::now(), &tried)?;
            let reached = sockets::udp_to(endpoint, self.shared.mark).and_then(|socket| {
                // A new socket is writable, but the runtime does not know that yet.
                rustix::net::send(&socket, bytes, rustix::net::SendFlags::empty())?;
                Ok(socket)
            });
            match reached {
                Ok(socket) => {
                    let last = AtomicU64::new(self.now());
                    let permit = Mutex::new(Some(permit));
                    return Some(Session { socket, endpoint, last, permit, over: Notify::new() });
                }
                Err(error) => {
                    tracing::debug!(%endpoint, %error, "cannot reach endpoint; trying the next one");
                    self.balancer.failed(client, endpoint);
                    tried.push(endpoint);
                }
            }
        }
        None
    }

    /// Evicts the longest idle quarter of the quiet sessions: many clients send one query and never return, and must
    /// not block new ones. Returns the permit of one of them.
    fn evict_quiet(&self) -> Option<OwnedSemaphorePermit> {
        let mut sessions = self.sessions.lock();
        let until = self.now().saturating_sub(QUIET_MS);
        let quiet = sessions.iter().map(|(key, session)| (session.last.load(Ordering::Relaxed), *key));
        let mut quiet: Vec<(u64, SessionKey)> = quiet.filter(|(last, _)| *last <= until).collect();
        quiet.sort_unstable_by_key(|(last, _)| *last);
        let mut room = None;
        for (_, key) in quiet.iter().take(quiet.len().div_ceil(4)) {
            if let Some(session) = sessions.remove(key) {
                room = session.permit.lock().take().or(room);
                session.over.notify_one();
            }
        }
        room
    }

    /// Removes a session, unless it was replaced.
    fn remove(&self, key: SessionKey, session: &Arc<Session>) {
        let mut sessions = self.sessions.lock();
        if sessions.get(&key).is_some_and(|known| Arc::ptr_eq(known, session)) {
            sessions.remove(&key);
        }
    }

    /// Removes a session whose endpoint failed.
    fn fail(&self, key: SessionKey, session: &Arc<Session>, error: &io::Error) {
        tracing::debug!(endpoint = %session.endpoint, %error, "endpoint failed; closing the UDP session");
        self.balancer.failed(key.0.ip(), session.endpoint);
        self.remove(key, session);
    }
}

/// Forwards replies to the client until the session ends.
async fn run_session(server: Arc<Server>, key: SessionKey, session: Arc<Session>) {
    let idle = server.shared.settings.udp_idle;
    let mut changes = server.balancer.changes();
    // The endpoint may have been removed before we subscribed.
    while server.balancer.serves(session.endpoint) {
        let quiet = server.now().saturating_sub(session.last.load(Ordering::Relaxed));
        let Some(left) = idle.checked_sub(Duration::from_millis(quiet)).filter(|left| !left.is_zero()) else { break };
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(left) => {}
            () = session.over.notified() => return,
            error = forward_replies(&server, key, &session) => {
                server.fail(key, &session, &error);
                return;
            }
        }
    }
    server.remove(key, &session);
}

/// Forwards replies until an error.
async fn forward_replies(server: &Server, (client, asked): SessionKey, session: &Session) -> io::Error {
    loop {
        let brought = session.socket.async_io(Interest::READABLE, || {
            BUFFER.with_borrow_mut(|buffer| {
                let (length, _) = rustix::net::recv(&session.socket, &mut **buffer, rustix::net::RecvFlags::empty())?;
                session.last.store(server.now(), Ordering::Relaxed);
                // Errors towards the client are dropped datagrams.
                let _ = kernel::socket::send(&server.socket, &buffer[..length], client, asked);
                Ok(())
            })
        });
        if let Err(error) = brought.await {
            return error;
        }
    }
}
