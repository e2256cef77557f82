//! Upstream queries over TCP or TLS.
//!
//! In: concurrent queries. Out: their replies in any order. Connections are pooled and closed after an idle timeout; if
//! a pooled connection was closed by the upstream, the query is retried on a new one.

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

use super::message::{Outgoing, u16_at};
use super::stats::count;
use super::udp::random_id;
use super::upstream_metrics::UpstreamMetrics;

/// Maximum number of connections per upstream.
const MAX_CONNECTIONS: usize = 4;
/// Maximum number of queries in flight per connection.
const MAX_IN_FLIGHT: usize = 256;
/// Timeout for connecting, writing, and replies.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(4);

/// TLS parameters of an upstream.
#[derive(Clone)]
pub(super) struct TlsParams {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
}

/// Connection pool of one upstream.
pub(super) struct ConnectionPool {
    to: SocketAddr,
    secured: Option<TlsParams>,
    /// Idle timeout.
    expire: Duration,
    metrics: Arc<UpstreamMetrics>,
    open: Mutex<Vec<mpsc::Sender<Job>>>,
}

struct Job {
    message: Vec<u8>,
    answer: oneshot::Sender<io::Result<Vec<u8>>>,
}

impl ConnectionPool {
    pub(super) fn new(
        to: SocketAddr,
        secured: Option<TlsParams>,
        expire: Duration,
        metrics: Arc<UpstreamMetrics>,
    ) -> Self {
        Self { to, secured, expire, metrics, open: Mutex::default() }
    }

    /// Sends one query. The caller sets the timeout.
    pub(super) async fn query(&self, outgoing: &Outgoing, edns: bool) -> io::Result<Vec<u8>> {
        let message = outgoing.message(0, edns);
        let (sender, is_new) = self.connection();
        match exchange(&sender, message.clone()).await {
            Err(_) if !is_new => {
                // The pooled connection may have been closed while idle: not a failure of the upstream.
                let fresh = self.connect();
                check(exchange(&fresh, message).await?, outgoing)
            }
            result => check(result?, outgoing),
        }
    }

    /// Connection with capacity, and whether it is new.
    fn connection(&self) -> (mpsc::Sender<Job>, bool) {
        let mut open = self.open.lock();
        open.retain(|sender| !sender.is_closed());
        let available = open.iter().find(|sender| sender.capacity() > MAX_IN_FLIGHT / 2);
        if let Some(sender) = available.or_else(|| open.first().filter(|_| open.len() >= MAX_CONNECTIONS)) {
            count(&self.metrics.reused[usize::from(self.secured.is_some())]);
            return (sender.clone(), false);
        }
        drop(open);
        (self.connect(), true)
    }

    fn connect(&self) -> mpsc::Sender<Job> {
        count(&self.metrics.opened[usize::from(self.secured.is_some())]);
        let (sender, jobs) = mpsc::channel(MAX_IN_FLIGHT);
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
    Err(io::Error::new(io::ErrorKind::InvalidData, "reply does not match the query"))
}

async fn exchange(connection: &mpsc::Sender<Job>, message: Vec<u8>) -> io::Result<Vec<u8>> {
    let (answer, answered) = oneshot::channel();
    let closed = || io::Error::from(io::ErrorKind::ConnectionAborted);
    connection.send(Job { message, answer }).await.map_err(|_| closed())?;
    answered.await.map_err(|_| closed())?
}

/// Opens a connection and serves it until it is closed.
async fn run(to: SocketAddr, secured: Option<TlsParams>, expire: Duration, mut jobs: mpsc::Receiver<Job>) {
    let outcome = match open(to, secured).await {
        Ok(Opened::Plain(stream)) => serve(stream, expire, &mut jobs).await,
        Ok(Opened::Tls(stream)) => serve(*stream, expire, &mut jobs).await,
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
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

async fn open(to: SocketAddr, secured: Option<TlsParams>) -> io::Result<Opened> {
    let opening = async {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        match secured {
            None => Ok(Opened::Plain(stream)),
            Some(secured) => {
                let stream = secured.connector.connect(secured.name, stream).await?;
                Ok(Opened::Tls(Box::new(stream)))
            }
        }
    };
    timeout(RESPONSE_TIMEOUT, opening).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
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
            job = jobs.recv(), if waiting.len() < MAX_IN_FLIGHT => {
                let Some(job) = job else { return Ok(()) };
                let frame = frame(job, &mut waiting)?;
                let written = timeout(RESPONSE_TIMEOUT, writer.write_all(&frame)).await;
                written.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                if waiting.len() == 1 {
                    until = Instant::now() + RESPONSE_TIMEOUT;
                }
            }
            read = reader.read_buf(&mut buffer) => {
                if read? == 0 {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                deliver(&mut buffer, &mut waiting);
                until = Instant::now() + if waiting.is_empty() { expire } else { RESPONSE_TIMEOUT };
            }
            () = sleep_until(until) => {
                waiting.retain(|_, answer| !answer.is_closed());
                let kind = if waiting.is_empty() { io::ErrorKind::ConnectionAborted } else { io::ErrorKind::TimedOut };
                return Err(kind.into());
            }
        }
    }
}

/// Assigns an id that is unique on the connection and adds the length prefix.
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

/// Delivers the complete messages of a buffer.
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

pub(super) fn connector(config: Arc<rustls::ClientConfig>) -> TlsConnector {
    TlsConnector::from(config)
}
