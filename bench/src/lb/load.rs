//! The load generator: connections that each send a request, wait for the whole response, and repeat.
//!
//! In: where, how many connections, for how long. Out: how many answers, and how long each took. Connections are made inside the client's
//! namespace; the runtime that carries them is here.

use std::net::{SocketAddr, TcpStream as Plain};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use testbed::net::Outside;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::pod::BODY;
use super::stage::HOST;

pub(crate) const REQUEST: &[u8] =
    b"GET /index.html HTTP/1.1\r\nHost: web.example\r\nUser-Agent: bench/1\r\nAccept: */*\r\n\r\n";
const LAST: &[u8] =
    b"GET /index.html HTTP/1.1\r\nHost: web.example\r\nUser-Agent: bench/1\r\nAccept: */*\r\nConnection: close\r\n\r\n";

/// What kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Requests on connections that stay.
    Plain,
    /// The same by TLS.
    Tls,
    /// A connection, a whole handshake and one request, again and again.
    Handshakes,
}

/// All of them.
pub const LOADS: [Load; 3] = [Load::Plain, Load::Tls, Load::Handshakes];

/// The result.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How long each answer took.
    pub times: Vec<Duration>,
    /// How long it went on.
    pub lasted: Duration,
}

/// TLS configuration of a client: it trusts one certificate, and does not resume sessions.
///
/// # Errors
/// When the certificate cannot be read.
pub fn tls(certificate: &std::path::Path) -> anyhow::Result<Arc<ClientConfig>> {
    trusting(CertificateDer::from_pem_file(certificate).context("reading a certificate")?)
}

/// The same for a certificate in memory.
///
/// # Errors
/// When it is not valid.
pub fn trusting(certificate: CertificateDer<'static>) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).context("believing in a certificate")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Waits until a first answer comes.
///
/// # Errors
/// When none does.
pub fn until_served(from: &Outside, to: SocketAddr, config: Option<&Arc<ClientConfig>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let begun = Instant::now();
    loop {
        let tried = from.in_namespace(|| runtime.block_on(once(to, config)));
        match tried {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > Duration::from_secs(30) => {
                return Err(error.context(format!("asking {to}")));
            }
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// Sends requests for this duration, over this number of connections, from this number of threads.
///
/// # Errors
/// When a request fails.
pub fn run(
    from: &Outside,
    to: SocketAddr,
    config: Option<&Arc<ClientConfig>>,
    load: Load,
    (connections, threads): (usize, usize),
    lasting: Duration,
) -> anyhow::Result<Outcome> {
    let is_over = AtomicBool::new(false);
    let begun = Instant::now();
    let parts: Vec<anyhow::Result<Vec<Duration>>> = from.in_namespace(|| {
        std::thread::scope(|scope| {
            let asking: Vec<_> = (0..threads)
                .map(|_| scope.spawn(|| thread(to, config, load, connections / threads.max(1), &is_over)))
                .collect();
            std::thread::park_timeout(lasting);
            is_over.store(true, Relaxed);
            asking
                .into_iter()
                .map(|one| one.join().unwrap_or_else(|_| bail!("a thread of the load panicked")))
                .collect()
        })
    });
    let lasted = begun.elapsed();
    let mut times = Vec::new();
    for part in parts {
        times.extend(part?);
    }
    Ok(Outcome { times, lasted })
}

/// Connections of one thread.
fn thread(
    to: SocketAddr,
    config: Option<&Arc<ClientConfig>>,
    load: Load,
    connections: usize,
    is_over: &AtomicBool,
) -> anyhow::Result<Vec<Duration>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let asking = (0..connections.max(1)).map(|_| async {
            let mut times = Vec::new();
            while !is_over.load(Relaxed) {
                match (load, config) {
                    (Load::Handshakes, _) => {
                        let begun = Instant::now();
                        once(to, config).await?;
                        times.push(begun.elapsed());
                    }
                    (_, None) => ask(connect(to)?, is_over, &mut times).await?,
                    (_, Some(config)) => ask(secure(connect(to)?, config).await?, is_over, &mut times).await?,
                }
            }
            anyhow::Ok(times)
        });
        let all = futures_util::future::try_join_all(asking).await?;
        Ok(all.concat())
    })
}

/// A connection. Made by a call that waits: the thread is inside the namespace, and the other side is near.
pub(crate) fn connect(to: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = Plain::connect(to).context("connecting")?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(TcpStream::from_std(stream)?)
}

/// A TLS connection.
///
/// # Errors
/// When the handshake fails.
pub async fn secure(
    stream: TcpStream,
    config: &Arc<ClientConfig>,
) -> anyhow::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let name = ServerName::try_from(HOST).context("a name")?;
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await.context("a handshake")
}

/// One connection, one request.
async fn once(to: SocketAddr, config: Option<&Arc<ClientConfig>>) -> anyhow::Result<()> {
    let stream = connect(to)?;
    match config {
        None => last(stream).await,
        Some(config) => last(secure(stream, config).await?).await,
    }
}

async fn last(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> anyhow::Result<()> {
    stream.write_all(LAST).await?;
    answer(&mut stream, &mut Vec::new()).await
}

/// Sends requests repeatedly.
async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    is_over: &AtomicBool,
    times: &mut Vec<Duration>,
) -> anyhow::Result<()> {
    let mut buffer = Vec::with_capacity(4096);
    while !is_over.load(Relaxed) {
        let begun = Instant::now();
        stream.write_all(REQUEST).await?;
        answer(&mut stream, &mut buffer).await?;
        times.push(begun.elapsed());
    }
    Ok(())
}

/// Reads one answer, whose body is of the length that the pod's always are.
pub(crate) async fn answer(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> anyhow::Result<()> {
    buffer.clear();
    loop {
        ensure!(stream.read_buf(buffer).await? > 0, "the connection ended within an answer");
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        ensure!(buffer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&buffer[..end]));
        if buffer.len() >= end + 4 + BODY {
            return Ok(());
        }
    }
}
