//! The connection of a session: bytes between a socket and the machine of states.
//!
//! In: a peer, its password, the addresses to announce, a wish to end. Out: what happened, told to people; and why it is over. The machine
//! decides everything; here things are waited for and done. What a peer does not read is held up to a limit; beyond it the peer is not
//! listened to either, until its silence ends the session.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest, Ready};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::password::{Followed, Password};
use super::peers::Peer;
use super::reasons::Down;
use super::routes::Hops;
use super::session::{Action, Event, Farewell, Offer, Report, Session};

/// How much waits for a peer that does not read, before it is not listened to.
const FULL: usize = 1 << 20;
/// How much is read at once.
const PIECE: usize = 64 << 10;
/// How long last words may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

type Dialing = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Why a connection is no longer held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    /// Somebody wished so.
    Ended,
    /// The password is another one: there must be a new one.
    NewPassword,
}

/// What whoever holds a connection looks at beside it.
pub(super) struct Wishes {
    pub(super) offers: watch::Receiver<Offer>,
    pub(super) end: oneshot::Receiver<Farewell>,
    pub(super) password: Followed,
}

/// Whom is told what happens.
pub(super) trait Watcher {
    /// A message goes out.
    fn sent(&self);
    /// Something for people.
    fn report(&self, report: Report, session: &Session);
    /// Something may have changed.
    fn see(&self, session: &Session);
}

struct Connection<'a> {
    peer: &'a Peer,
    password: Option<Vec<u8>>,
    line: Option<TcpStream>,
    dialing: Option<Dialing>,
    outbox: Vec<u8>,
    piece: Vec<u8>,
}

/// What was waited for.
enum Came {
    Time,
    Dialed(io::Result<TcpStream>),
    Ready(io::Result<Ready>),
    Offer,
    End(Farewell),
    Password,
}

/// Holds the session with a peer, over as many connections as it takes.
pub(super) async fn hold(
    session: &mut Session,
    peer: &Peer,
    password: &Password,
    wishes: &mut Wishes,
    watcher: &impl Watcher,
) -> Over {
    let password = match password {
        Password::Is(password) => Some(password.clone()),
        _ => None,
    };
    let (line, dialing, outbox, piece) = (None, None, Vec::new(), vec![0; PIECE]);
    let mut connection = Connection { peer, password, line, dialing, outbox, piece };
    loop {
        let came = tokio::select! {
            () = due(session.due()) => Came::Time,
            dialed = dialed(&mut connection.dialing) => Came::Dialed(dialed),
            ready = ready(connection.line.as_ref(), connection.outbox.len()) => Came::Ready(ready),
            Ok(()) = wishes.offers.changed() => Came::Offer,
            // Whoever could wish for an end is gone: so is the program.
            farewell = &mut wishes.end => Came::End(farewell.unwrap_or(Farewell::ComeBack)),
            () = wishes.password.changed() => Came::Password,
        };
        let (now, mut over) = (Instant::now(), None);
        let actions = match came {
            Came::Time => session.on(Event::Time, now),
            Came::Offer => session.on(Event::Offer(wishes.offers.borrow_and_update().clone()), now),
            Came::Dialed(dialed) => connection.dialed(dialed, session, now),
            Came::Ready(ready) => connection.moved(ready, session, now),
            Came::End(farewell) => {
                over = Some(Over::Ended);
                session.on(Event::End(farewell), now)
            }
            Came::Password => {
                over = Some(Over::NewPassword);
                session.on(Event::End(Farewell::ComeBack), now)
            }
        };
        for action in actions {
            match action {
                Action::Connect => connection.dialing = Some(Box::pin(connection.dial())),
                Action::Send(bytes) => {
                    connection.outbox.extend(bytes);
                    watcher.sent();
                }
                Action::Close => connection.close().await,
                Action::Tell(report) => watcher.report(report, session),
            }
        }
        watcher.see(session);
        if let Some(over) = over {
            return over;
        }
    }
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn dialed(dialing: &mut Option<Dialing>) -> io::Result<TcpStream> {
    let Some(dial) = dialing else { return std::future::pending().await };
    let done = dial.await;
    *dialing = None;
    done
}

async fn ready(line: Option<&TcpStream>, waiting: usize) -> io::Result<Ready> {
    let Some(line) = line else { return std::future::pending().await };
    let interest = match waiting {
        0 => Interest::READABLE,
        waiting if waiting > FULL => Interest::WRITABLE,
        _ => Interest::READABLE | Interest::WRITABLE,
    };
    line.ready(interest).await
}

impl Connection<'_> {
    fn dial(&self) -> impl Future<Output = io::Result<TcpStream>> + Send + use<> {
        let (to, source, ttl, password) = (self.peer.address, self.peer.source, self.peer.ttl, self.password.clone());
        async move {
            let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            if let Some(ttl) = ttl {
                kernel::socket::limit_hops(&socket, to.is_ipv4(), ttl)?;
            }
            if let Some(password) = password {
                kernel::socket::sign(&socket, to.ip(), &password)?;
            }
            if let Some(source) = source {
                socket.bind(SocketAddr::new(source, 0))?;
            }
            let stream = socket.connect(to).await?;
            // A withdrawal should not wait for company.
            stream.set_nodelay(true)?;
            Ok(stream)
        }
    }

    fn dialed(&mut self, dialed: io::Result<TcpStream>, session: &mut Session, now: Instant) -> Vec<Action> {
        let opened = dialed.and_then(|stream| Ok((stream.local_addr()?.ip(), stream)));
        match opened {
            Ok((local, stream)) => {
                self.line = Some(stream);
                session.on(Event::Connected(Hops::new(local, &self.peer.node)), now)
            }
            Err(error) => session.on(Event::Failed(Down::connecting(&error, self.peer.source)), now),
        }
    }

    /// Sends and reads what can be without waiting.
    fn moved(&mut self, ready: io::Result<Ready>, session: &mut Session, now: Instant) -> Vec<Action> {
        let Some(line) = &self.line else { return Vec::new() };
        let moved = ready.and_then(|ready| {
            if ready.is_writable() && !self.outbox.is_empty() {
                let sent = unless_waiting(line.try_write(&self.outbox))?;
                self.outbox.drain(..sent.unwrap_or(0));
            }
            match ready.is_readable() || ready.is_read_closed() {
                true => unless_waiting(line.try_read(&mut self.piece)),
                false => Ok(None),
            }
        });
        match moved {
            Ok(None) => Vec::new(),
            Ok(Some(0)) => session.on(Event::Closed("the peer hung up".to_owned()), now),
            Ok(Some(count)) => session.on(Event::Heard(&self.piece[..count]), now),
            Err(error) => session.on(Event::Closed(error.to_string()), now),
        }
    }

    /// Says the last words, as far as somebody listens, and hangs up.
    async fn close(&mut self) {
        self.dialing = None;
        let outbox = std::mem::take(&mut self.outbox);
        let Some(mut line) = self.line.take() else { return };
        if outbox.is_empty() {
            return;
        }
        // What a peer has sent and nobody read would make the kernel cut the line, last words and all.
        let farewell = async {
            line.write_all(&outbox).await?;
            line.shutdown().await?;
            while line.read(&mut self.piece).await? > 0 {}
            Ok::<(), io::Error>(())
        };
        // It may be broken, or nobody may be there.
        let _ = timeout(LAST_WORDS, farewell).await;
    }
}

fn unless_waiting(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
