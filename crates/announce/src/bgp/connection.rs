//! I/O of a session: bytes between a socket and the state machine.
//!
//! In: a peer, its password, the addresses to announce, the request to end. Out: reports to an [`Observer`], and why the
//! session ended. The state machine makes all decisions. Output that a peer does not read is buffered up to a limit; beyond
//! it nothing is read from the peer either, until the hold timer ends the session.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest, Ready};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::password::{Password, PasswordWatch};
use super::peers::Peer;
use super::reasons::Down;
use super::routes::Hops;
use super::session::{Action, EndMode, Event, Offer, Report, Session};

/// Bytes of buffered output above which the peer is not read from.
const MAX_WRITE_BUFFER: usize = 1 << 20;
/// Bytes per read.
const READ_BUFFER_LEN: usize = 64 << 10;
/// Time limit for sending the last messages.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

type Connecting = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EndReason {
    /// On request.
    Requested,
    /// The password changed.
    NewPassword,
}

/// Inputs of the task of a peer.
pub(super) struct TaskInputs {
    pub(super) offers: watch::Receiver<Offer>,
    pub(super) end: oneshot::Receiver<EndMode>,
    pub(super) password: PasswordWatch,
}

/// Receives reports of a session.
pub(super) trait Observer {
    /// A message was sent.
    fn sent(&self);
    /// The session changed.
    fn report(&self, report: Report, session: &Session);
    /// Counters may have changed.
    fn update(&self, session: &Session);
}

struct Connection<'a> {
    peer: &'a Peer,
    password: Option<Vec<u8>>,
    stream: Option<TcpStream>,
    connecting: Option<Connecting>,
    write_buffer: Vec<u8>,
    read_buffer: Vec<u8>,
}

/// Why the loop woke up.
enum Wakeup {
    Timer,
    Connected(io::Result<TcpStream>),
    Ready(io::Result<Ready>),
    Offer,
    End(EndMode),
    Password,
}

/// Runs the session with a peer over any number of connections.
pub(super) async fn run(
    session: &mut Session,
    peer: &Peer,
    password: &Password,
    inputs: &mut TaskInputs,
    observer: &impl Observer,
) -> EndReason {
    let password = match password {
        Password::Set(password) => Some(password.clone()),
        _ => None,
    };
    let (stream, connecting, write_buffer, read_buffer) = (None, None, Vec::new(), vec![0; READ_BUFFER_LEN]);
    let mut connection = Connection { peer, password, stream, connecting, write_buffer, read_buffer };
    loop {
        let wakeup = tokio::select! {
            () = due(session.due()) => Wakeup::Timer,
            connected = connected(&mut connection.connecting) => Wakeup::Connected(connected),
            ready = ready(connection.stream.as_ref(), connection.write_buffer.len()) => Wakeup::Ready(ready),
            Ok(()) = inputs.offers.changed() => Wakeup::Offer,
            // The sender is dropped at shutdown.
            mode = &mut inputs.end => Wakeup::End(mode.unwrap_or(EndMode::GracefulRestart)),
            () = inputs.password.changed() => Wakeup::Password,
        };
        let (now, mut end) = (Instant::now(), None);
        let actions = match wakeup {
            Wakeup::Timer => session.on(Event::Timer, now),
            Wakeup::Offer => session.on(Event::Offer(inputs.offers.borrow_and_update().clone()), now),
            Wakeup::Connected(connected) => connection.connected(connected, session, now),
            Wakeup::Ready(ready) => connection.transferred(ready, session, now),
            Wakeup::End(mode) => {
                end = Some(EndReason::Requested);
                session.on(Event::End(mode), now)
            }
            Wakeup::Password => {
                end = Some(EndReason::NewPassword);
                session.on(Event::End(EndMode::GracefulRestart), now)
            }
        };
        for action in actions {
            match action {
                Action::Connect => connection.connecting = Some(Box::pin(connection.connect())),
                Action::Send(bytes) => {
                    connection.write_buffer.extend(bytes);
                    observer.sent();
                }
                Action::Close => connection.close().await,
                Action::Report(report) => observer.report(report, session),
            }
        }
        observer.update(session);
        if let Some(end) = end {
            return end;
        }
    }
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn connected(connecting: &mut Option<Connecting>) -> io::Result<TcpStream> {
    let Some(connect) = connecting else { return std::future::pending().await };
    let done = connect.await;
    *connecting = None;
    done
}

async fn ready(stream: Option<&TcpStream>, waiting: usize) -> io::Result<Ready> {
    let Some(stream) = stream else { return std::future::pending().await };
    let interest = match waiting {
        0 => Interest::READABLE,
        waiting if waiting > MAX_WRITE_BUFFER => Interest::WRITABLE,
        _ => Interest::READABLE | Interest::WRITABLE,
    };
    stream.ready(interest).await
}

impl Connection<'_> {
    fn connect(&self) -> impl Future<Output = io::Result<TcpStream>> + Send + use<> {
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
            // Send withdrawals at once.
            stream.set_nodelay(true)?;
            Ok(stream)
        }
    }

    fn connected(&mut self, connected: io::Result<TcpStream>, session: &mut Session, now: Instant) -> Vec<Action> {
        let opened = connected.and_then(|stream| Ok((stream.local_addr()?.ip(), stream)));
        match opened {
            Ok((local, stream)) => {
                self.stream = Some(stream);
                session.on(Event::Connected(Hops::new(local, &self.peer.node)), now)
            }
            Err(error) => session.on(Event::Failed(Down::connecting(&error, self.peer.source)), now),
        }
    }

    /// Writes and reads without blocking.
    fn transferred(&mut self, ready: io::Result<Ready>, session: &mut Session, now: Instant) -> Vec<Action> {
        let Some(stream) = &self.stream else { return Vec::new() };
        let transferred = ready.and_then(|ready| {
            if ready.is_writable() && !self.write_buffer.is_empty() {
                let sent = unless_would_block(stream.try_write(&self.write_buffer))?;
                self.write_buffer.drain(..sent.unwrap_or(0));
            }
            match ready.is_readable() || ready.is_read_closed() {
                true => unless_would_block(stream.try_read(&mut self.read_buffer)),
                false => Ok(None),
            }
        });
        match transferred {
            Ok(None) => Vec::new(),
            Ok(Some(0)) => session.on(Event::Closed("closed by the peer".to_owned()), now),
            Ok(Some(count)) => session.on(Event::Received(&self.read_buffer[..count]), now),
            Err(error) => session.on(Event::Closed(error.to_string()), now),
        }
    }

    /// Sends pending messages and closes the connection.
    async fn close(&mut self) {
        self.connecting = None;
        let write_buffer = std::mem::take(&mut self.write_buffer);
        let Some(mut stream) = self.stream.take() else { return };
        if write_buffer.is_empty() {
            return;
        }
        // Unread input would make the kernel reset the connection and drop the output.
        let flush = async {
            stream.write_all(&write_buffer).await?;
            stream.shutdown().await?;
            while stream.read(&mut self.read_buffer).await? > 0 {}
            Ok::<(), io::Error>(())
        };
        // The connection may have failed.
        let _ = timeout(CLOSE_TIMEOUT, flush).await;
    }
}

fn unless_would_block(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
