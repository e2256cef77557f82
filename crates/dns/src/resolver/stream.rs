//! Questions over connections: TCP, or TLS over it.
//!
//! In: questions, many at a time. Out: their answers, in whatever order they come. A connection is kept while it is used and
//! for a while after; a question that meets a connection just closed by the other side goes over a new one.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;

use super::datagram::random_id;
use super::ledger::Account;
use super::message::{Outgoing, u16_at};
use super::stats::count;

/// Connections to one upstream.
const MAX_CONNECTIONS: usize = 4;
/// Questions under way on one connection.
const MAX_UNDER_WAY: usize = 256;
/// How long a connection that owes us answers may be silent.
const SILENCE: Duration = Duration::from_secs(4);

/// How TLS is spoken to an upstream.
#[derive(Clone)]
pub(super) struct Secured {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
}

/// The connections to one upstream.
pub(super) struct Streams {
    to: SocketAddr,
    secured: Option<Secured>,
    /// How long an idle connection stays.
    expire: Duration,
    account: Arc<Account>,
    open: Mutex<Vec<mpsc::Sender<Job>>>,
}

struct Job {
    message: Vec<u8>,
    answer: oneshot::Sender<io::Result<Vec<u8>>>,
}

impl Streams {
    pub(super) fn new(to: SocketAddr, secured: Option<Secured>, expire: Duration, account: Arc<Account>) -> Self {
        Self { to, secured, expire, account, open: Mutex::default() }
    }

    /// Asks once. The caller limits the time.
    pub(super) async fn ask(&self, outgoing: &Outgoing, edns: bool) -> io::Result<Vec<u8>> {
        let message = outgoing.message(0, edns);
        let (sender, is_new) = self.connection();
        match exchange(&sender, message.clone()).await {
            Err(_) if !is_new => {
                // It may have been closed while it was idle; that says nothing about the upstream.
                let fresh = self.connect();
                check(exchange(&fresh, message).await?, outgoing)
            }
            result => check(result?, outgoing),
        }
    }

    /// A connection with room, and whether it is new.
    fn connection(&self) -> (mpsc::Sender<Job>, bool) {
        let mut open = self.open.lock();
        open.retain(|sender| !sender.is_closed());
        let roomy = open.iter().find(|sender| sender.capacity() > MAX_UNDER_WAY / 2);
        if let Some(sender) = roomy.or_else(|| open.first().filter(|_| open.len() >= MAX_CONNECTIONS)) {
            count(&self.account.kept[usize::from(self.secured.is_some())]);
            return (sender.clone(), false);
        }
        drop(open);
        (self.connect(), true)
    }

    fn connect(&self) -> mpsc::Sender<Job> {
        count(&self.account.opened[usize::from(self.secured.is_some())]);
        let (sender, jobs) = mpsc::channel(MAX_UNDER_WAY);
        tokio::spawn(run(self.to, self.secured.clone(), self.expire, jobs));
        let mut open = self.open.lock();
        if open.len() >= MAX_CONNECTIONS {
            open.remove(0);
        }
        open.push(sender.clone());
        sender
    }
}

fn check(answer: Vec<u8>, outgoing: &Outgoing) -> io::Result<Vec<u8>> {
    if outgoing.is_answered_by(&answer) {
        return Ok(answer);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is to another question"))
}

async fn exchange(connection: &mpsc::Sender<Job>, message: Vec<u8>) -> io::Result<Vec<u8>> {
    let (answer, answered) = oneshot::channel();
    let closed = || io::Error::from(io::ErrorKind::ConnectionAborted);
    connection.send(Job { message, answer }).await.map_err(|_| closed())?;
    answered.await.map_err(|_| closed())?
}

/// Opens a connection and serves it to its end.
async fn run(to: SocketAddr, secured: Option<Secured>, expire: Duration, mut jobs: mpsc::Receiver<Job>) {
    let outcome = match open(to, secured).await {
        Ok(Opened::Plain(stream)) => serve(stream, expire, &mut jobs).await,
        Ok(Opened::Secured(stream)) => serve(*stream, expire, &mut jobs).await,
        Err(error) => Err(error),
    };
    jobs.close();
    let Err(error) = outcome else { return };
    while let Ok(job) = jobs.try_recv() {
        let _ = job.answer.send(Err(io::Error::new(error.kind(), error.to_string())));
    }
}

enum Opened {
    Plain(TcpStream),
    Secured(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

async fn open(to: SocketAddr, secured: Option<Secured>) -> io::Result<Opened> {
    let opening = async {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        match secured {
            None => Ok(Opened::Plain(stream)),
            Some(secured) => {
                let stream = secured.connector.connect(secured.name, stream).await?;
                Ok(Opened::Secured(Box::new(stream)))
            }
        }
    };
    timeout(SILENCE, opening).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

type Waiting = HashMap<u16, oneshot::Sender<io::Result<Vec<u8>>>>;

async fn serve<S>(stream: S, expire: Duration, jobs: &mut mpsc::Receiver<Job>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut waiting = Waiting::new();
    let mut buffer = Vec::new();
    let mut until = Instant::now() + expire;
    loop {
        tokio::select! {
            job = jobs.recv(), if waiting.len() < MAX_UNDER_WAY => {
                let Some(job) = job else { return Ok(()) };
                let frame = frame(job, &mut waiting)?;
                let written = timeout(SILENCE, writer.write_all(&frame)).await;
                written.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                if waiting.len() == 1 {
                    until = Instant::now() + SILENCE;
                }
            }
            read = reader.read_buf(&mut buffer) => {
                if read? == 0 {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                deliver(&mut buffer, &mut waiting);
                until = Instant::now() + if waiting.is_empty() { expire } else { SILENCE };
            }
            () = sleep_until(until) => {
                waiting.retain(|_, answer| !answer.is_closed());
                let kind = if waiting.is_empty() { io::ErrorKind::ConnectionAborted } else { io::ErrorKind::TimedOut };
                return Err(kind.into());
            }
        }
    }
}

/// Gives a question an id that no other one has here, and its length.
fn frame(job: Job, waiting: &mut Waiting) -> io::Result<Vec<u8>> {
    waiting.retain(|_, answer| !answer.is_closed());
    let mut id = random_id()?;
    while waiting.contains_key(&id) {
        id = id.wrapping_add(1);
    }
    let length = u16::try_from(job.message.len()).map_err(io::Error::other)?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend(&job.message);
    frame[2..4].copy_from_slice(&id.to_be_bytes());
    waiting.insert(id, job.answer);
    Ok(frame)
}

/// Hands out the whole messages of a buffer.
fn deliver(buffer: &mut Vec<u8>, waiting: &mut Waiting) {
    let mut at = 0;
    while let Some(length) = u16_at(buffer, at) {
        let Some(message) = buffer.get(at + 2..at + 2 + usize::from(length)) else { break };
        if let Some(answer) = u16_at(message, 0).and_then(|id| waiting.remove(&id)) {
            let _ = answer.send(Ok(message.to_vec()));
        }
        at += 2 + usize::from(length);
    }
    buffer.drain(..at);
}

/// A connector for this configuration.
pub(super) fn connector(config: Arc<rustls::ClientConfig>) -> TlsConnector {
    TlsConnector::from(config)
}
