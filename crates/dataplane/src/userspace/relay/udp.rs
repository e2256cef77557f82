//! UDP: a session for each client, with a socket of its own to one endpoint.
//!
//! A session lasts as long as datagrams come, either way, and as long as its endpoint answers. Answers leave from the address
//! that the client asked.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use kernel::socket::{Arrival, Here};
use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::JoinSet;

use super::balancer::{Balancer, Scope};
use super::{Shared, sockets};

/// The longest datagram.
const LONGEST: usize = 65_536;
/// After how many milliseconds without a datagram a session may be ended for another that needs its place.
const QUIET: u64 = 250;
/// How many endpoints are tried for a datagram.
const TRIES: usize = 4;

thread_local! {
    /// Where a datagram is between two sockets: never longer than one call, so each thread needs only one.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; LONGEST].into());
}

/// A client, and the address that it asks.
type Who = (SocketAddr, Here);

/// Takes datagrams, for ever. Sessions end when this is dropped.
pub(super) async fn listen(
    (socket, held): (UdpSocket, Sender<()>),
    shared: Arc<Shared>,
    balancer: Arc<Balancer>,
    scope: Scope,
) {
    let (sessions, begun) = (Mutex::default(), Instant::now());
    let desk = Arc::new(Desk { socket, _held: held, shared, balancer, scope, sessions, begun });
    let mut tasks = JoinSet::new();
    loop {
        let mut new = None;
        let taken = desk.socket.async_io(Interest::READABLE, || {
            BUFFER.with_borrow_mut(|buffer| {
                let arrival = kernel::socket::receive(&desk.socket, buffer)?;
                new = desk.pass_on(&buffer[..arrival.length], &arrival);
                Ok(())
            })
        });
        if let Err(error) = taken.await {
            desk.shared.limit.pause(&error).await;
        }
        if let Some((who, session)) = new {
            tasks.spawn(answer(Arc::clone(&desk), who, session));
        }
        while tasks.try_join_next().is_some() {}
    }
}

/// A listener and its sessions.
struct Desk {
    socket: UdpSocket,
    /// Dropped after the socket.
    _held: Sender<()>,
    shared: Arc<Shared>,
    balancer: Arc<Balancer>,
    scope: Scope,
    sessions: Mutex<HashMap<Who, Arc<Session>>>,
    begun: Instant,
}

/// What one client has with one endpoint.
struct Session {
    socket: UdpSocket,
    endpoint: SocketAddr,
    /// When the last datagram came, in milliseconds since the listener began.
    last: AtomicU64,
    /// Its part of the limit, until another session needs it more.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// Told when it has lost that.
    over: Notify,
}

impl Desk {
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Passes a datagram on to its session; the session too, if it is new.
    fn pass_on(&self, bytes: &[u8], arrival: &Arrival) -> Option<(Who, Arc<Session>)> {
        let who = (arrival.from, arrival.at);
        let known = self.sessions.lock().get(&who).cloned();
        if let Some(session) = known {
            session.last.store(self.now(), Ordering::Relaxed);
            match session.socket.try_send(bytes) {
                // A full socket loses datagrams, as a full link does.
                Ok(_) => return None,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) => self.give_up(who, &session, &error),
            }
        }
        let session = Arc::new(self.begin(bytes, arrival)?);
        self.sessions.lock().insert(who, Arc::clone(&session));
        Some((who, session))
    }

    /// Begins a session with an endpoint that takes the datagram.
    fn begin(&self, bytes: &[u8], arrival: &Arrival) -> Option<Session> {
        let permit =
            self.shared.limit.spare().or_else(|| self.make_room()).or_else(|| self.shared.limit.try_admit())?;
        let (client, mut tried) = (arrival.from.ip(), Vec::new());
        for _ in 0..TRIES {
            let endpoint = self.balancer.choose(self.scope, client, Instant::now(), &tried)?;
            let reached = sockets::udp_to(endpoint, self.shared.mark).and_then(|socket| {
                // A socket that was just made has room, but the runtime does not know that yet.
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
                    tracing::debug!(%endpoint, %error, "an endpoint cannot be reached; another is asked");
                    self.balancer.failed(client, endpoint);
                    tried.push(endpoint);
                }
            }
        }
        None
    }

    /// Ends the sessions that have been quiet longest, a quarter of those that are quiet at all: many a client asks once and never
    /// comes back, and must not keep out those who ask now. Answers the room that this makes for one.
    fn make_room(&self) -> Option<OwnedSemaphorePermit> {
        let mut sessions = self.sessions.lock();
        let until = self.now().saturating_sub(QUIET);
        let quiet = sessions.iter().map(|(who, session)| (session.last.load(Ordering::Relaxed), *who));
        let mut quiet: Vec<(u64, Who)> = quiet.filter(|(last, _)| *last <= until).collect();
        quiet.sort_unstable_by_key(|(last, _)| *last);
        let mut room = None;
        for (_, who) in quiet.iter().take(quiet.len().div_ceil(4)) {
            if let Some(session) = sessions.remove(who) {
                room = session.permit.lock().take().or(room);
                session.over.notify_one();
            }
        }
        room
    }

    /// Forgets a session, unless another has taken its place.
    fn forget(&self, who: Who, session: &Arc<Session>) {
        let mut sessions = self.sessions.lock();
        if sessions.get(&who).is_some_and(|known| Arc::ptr_eq(known, session)) {
            sessions.remove(&who);
        }
    }

    /// Forgets a session whose endpoint does not answer.
    fn give_up(&self, who: Who, session: &Arc<Session>, error: &io::Error) {
        tracing::debug!(endpoint = %session.endpoint, %error, "an endpoint does not answer; the session is over");
        self.balancer.failed(who.0.ip(), session.endpoint);
        self.forget(who, session);
    }
}

/// Brings the answers of an endpoint back to the client, until the session is over.
async fn answer(desk: Arc<Desk>, who: Who, session: Arc<Session>) {
    let idle = desk.shared.settings.udp_idle;
    let mut changes = desk.balancer.changes();
    // It may have left before we listened for that.
    while desk.balancer.serves(session.endpoint) {
        let quiet = desk.now().saturating_sub(session.last.load(Ordering::Relaxed));
        let Some(left) = idle.checked_sub(Duration::from_millis(quiet)).filter(|left| !left.is_zero()) else { break };
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(left) => {}
            () = session.over.notified() => return,
            error = bring_back(&desk, who, &session) => {
                desk.give_up(who, &session, &error);
                return;
            }
        }
    }
    desk.forget(who, &session);
}

/// Brings answers back until that fails.
async fn bring_back(desk: &Desk, (client, asked): Who, session: &Session) -> io::Error {
    loop {
        let brought = session.socket.async_io(Interest::READABLE, || {
            BUFFER.with_borrow_mut(|buffer| {
                let (length, _) = rustix::net::recv(&session.socket, &mut **buffer, rustix::net::RecvFlags::empty())?;
                session.last.store(desk.now(), Ordering::Relaxed);
                // What the client or the way to it does not take is lost, as datagrams are.
                let _ = kernel::socket::send(&desk.socket, &buffer[..length], client, asked);
                Ok(())
            })
        });
        if let Err(error) = brought.await {
            return error;
        }
    }
}
