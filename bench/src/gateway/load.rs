//! The load: connections that each send a request, wait for the whole response, and repeat.
//!
//! In: where, which protocol, how many connections, for how long. Out: how many responses, how long each took, and the processor time of the
//! proxy meanwhile. Requests count from the moment at which every connection has been established and used for a while.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use futures_util::future::try_join_all;
use rustls::ClientConfig;
use testbed::net::Outside;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::contender::{Addresses, GRPC_HOST};
use super::h2_client::{Request, converse};
use crate::lb::load::{REQUEST, answer, connect, secure};
use crate::lb::stage::HOST;

/// How long connections may take to be established.
const CONNECTING: Duration = Duration::from_secs(60);
/// How long they are used before the measurement begins.
const WARM_UP: Duration = Duration::from_millis(500);
/// The interval at which the state of connections is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// The phase in which requests count; 0 comes before it, and greater numbers behind it.
pub const MEASURING: u8 = 1;
const OVER: u8 = 2;

/// A protocol, as the client speaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 over TLS.
    Tls,
    /// HTTP/2 over TLS.
    H2,
    /// HTTP/2 without TLS, with prior knowledge.
    H2c,
    /// Unary gRPC calls over HTTP/2 without TLS.
    Grpc,
}

/// How much load.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Connections.
    pub connections: usize,
    /// Threads of the client, at most.
    pub threads: usize,
    /// Requests at once on each connection of HTTP/2.
    pub streams: usize,
    /// How long requests count.
    pub lasting: Duration,
}

/// TLS configurations of the client, by ALPN.
pub struct Secure {
    h1: Arc<ClientConfig>,
    h2: Arc<ClientConfig>,
}

/// The result.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How long each response took.
    pub times: Vec<Duration>,
    /// How long it went on.
    pub lasted: Duration,
    /// The processor time of the proxy.
    pub worked: Duration,
}

/// When requests of one connection are sent, and when they count.
pub struct Gate<'a> {
    phase: &'a AtomicU8,
    most: Option<usize>,
    ready: Option<&'a AtomicUsize>,
    responses: Cell<usize>,
}

impl<'a> Gate<'a> {
    /// A gate that closes after the phase [`MEASURING`].
    #[must_use]
    pub const fn new(phase: &'a AtomicU8) -> Self {
        Self { phase, most: None, ready: None, responses: Cell::new(0) }
    }

    /// The same, which also closes after so many responses.
    #[must_use]
    pub fn at_most(self, responses: usize) -> Self {
        Self { most: Some(responses), ..self }
    }

    /// The same, which counts itself when the first response has come.
    fn counted(self, ready: &'a AtomicUsize) -> Self {
        Self { ready: Some(ready), ..self }
    }

    /// Whether no further request is sent.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase.load(Relaxed) > MEASURING || self.most.is_some_and(|most| self.responses.get() >= most)
    }

    /// Whether a request counts that is sent now.
    #[must_use]
    pub fn is_measuring(&self) -> bool {
        self.phase.load(Relaxed) == MEASURING
    }

    /// Takes in a response: whether its request was sent while requests counted, and when.
    pub fn take(&self, is_measured: bool, begun: Instant, times: &mut Vec<Duration>) {
        if self.responses.replace(self.responses.get() + 1) == 0
            && let Some(ready) = self.ready
        {
            ready.fetch_add(1, Relaxed);
        }
        if is_measured && self.is_measuring() {
            times.push(begun.elapsed());
        }
    }
}

impl Load {
    /// Where it is sent.
    #[must_use]
    pub const fn address(self, of: &Addresses) -> SocketAddr {
        match self {
            Self::Http => of.plain,
            Self::Tls | Self::H2 => of.tls,
            Self::H2c => of.h2c,
            Self::Grpc => of.grpc,
        }
    }

    /// Its name in keys of figures.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tls => "tls",
            Self::H2 => "h2",
            Self::H2c => "h2c",
            Self::Grpc => "grpc",
        }
    }
}

impl Secure {
    /// Configurations that trust one certificate, and do not resume sessions.
    ///
    /// # Errors
    /// When the certificate cannot be read.
    pub fn new(certificate: &std::path::Path) -> anyhow::Result<Self> {
        let h1 = crate::lb::load::tls(certificate)?;
        let mut h2 = ClientConfig::clone(&h1);
        h2.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { h1, h2: Arc::new(h2) })
    }
}

/// Waits until one request of this protocol is answered.
///
/// # Errors
/// When none is in time.
pub fn until_served(from: &Outside, to: SocketAddr, load: Load, tls: &Secure) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let phase = AtomicU8::new(MEASURING);
    let begun = Instant::now();
    loop {
        let once = || {
            runtime.block_on(async {
                let (gate, mut times) = (Gate::new(&phase).at_most(1), Vec::new());
                let asked = connection(to, load, tls, 1, &gate, &mut times);
                tokio::time::timeout(Duration::from_secs(5), asked).await?
            })
        };
        match from.in_namespace(once) {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > CONNECTING => return Err(error.context(format!("asking {to}"))),
            Err(_) => std::thread::park_timeout(LOOK),
        }
    }
}

/// Sends this amount of load, and reads the proxy's processor time when it begins to count and when it ends.
///
/// # Errors
/// When a request fails.
pub fn run(
    from: &Outside,
    to: SocketAddr,
    load: Load,
    tls: &Secure,
    amount: Amount,
    worked: impl Fn() -> anyhow::Result<Duration> + Send + Sync,
) -> anyhow::Result<Outcome> {
    let (phase, ready) = (AtomicU8::new(0), AtomicUsize::new(0));
    let (phase, ready) = (&phase, &ready);
    let threads = amount.threads.clamp(1, amount.connections.max(1));
    from.in_namespace(|| {
        std::thread::scope(|scope| {
            let share = |index| amount.connections / threads + usize::from(index < amount.connections % threads);
            let asking: Vec<_> = (0..threads)
                .map(|index| scope.spawn(move || thread(to, load, tls, (share(index), amount.streams), phase, ready)))
                .collect();
            let begun = Instant::now();
            let has_failed = || asking.iter().any(std::thread::ScopedJoinHandle::is_finished);
            while ready.load(Relaxed) < amount.connections && begun.elapsed() < CONNECTING && !has_failed() {
                std::thread::park_timeout(LOOK);
            }
            match has_failed() {
                true => phase.store(OVER, Relaxed),
                false => wait(WARM_UP),
            }
            let before = worked();
            phase.fetch_max(MEASURING, Relaxed);
            let begun = Instant::now();
            while begun.elapsed() < amount.lasting && !has_failed() {
                wait(amount.lasting.saturating_sub(begun.elapsed()).min(WARM_UP));
            }
            phase.store(OVER, Relaxed);
            let (lasted, after) = (begun.elapsed(), worked());
            let mut times = Vec::new();
            for one in asking {
                times.extend(one.join().unwrap_or_else(|_| bail!("a thread of the load panicked"))?);
            }
            let established = ready.load(Relaxed);
            ensure!(established >= amount.connections, "only {established} connections were established");
            ensure!(!times.is_empty(), "there was no answer at all");
            Ok(Outcome { times, lasted, worked: after?.saturating_sub(before?) })
        })
    })
}

/// Returns when this time is over; a thread that is unparked by chance continues to wait.
fn wait(lasting: Duration) {
    let begun = Instant::now();
    while let Some(left) = lasting.checked_sub(begun.elapsed()) {
        std::thread::park_timeout(left);
    }
}

/// Connections of one thread.
fn thread(
    to: SocketAddr,
    load: Load,
    tls: &Secure,
    (connections, streams): (usize, usize),
    phase: &AtomicU8,
    ready: &AtomicUsize,
) -> anyhow::Result<Vec<Duration>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let asking = (0..connections).map(|_| async {
            let (gate, mut times) = (Gate::new(phase).counted(ready), Vec::new());
            while !gate.is_over() {
                connection(to, load, tls, streams, &gate, &mut times).await?;
            }
            anyhow::Ok(times)
        });
        Ok(try_join_all(asking).await?.concat())
    })
}

/// One connection, for as long as the gate is open and the server keeps it.
async fn connection(
    to: SocketAddr,
    load: Load,
    tls: &Secure,
    streams: usize,
    gate: &Gate<'_>,
    times: &mut Vec<Duration>,
) -> anyhow::Result<()> {
    let stream = connect(to)?;
    match load {
        Load::Http => ask(stream, gate, times).await,
        Load::Tls => ask(secure(stream, &tls.h1).await?, gate, times).await,
        Load::H2 => {
            let stream = secure(stream, &tls.h2).await?;
            ensure!(stream.get_ref().1.alpn_protocol() == Some(b"h2"), "the server does not offer HTTP/2");
            converse(stream, &Request::get("https", HOST), streams, gate, times).await
        }
        Load::H2c => converse(stream, &Request::get("http", HOST), streams, gate, times).await,
        Load::Grpc => converse(stream, &Request::grpc(GRPC_HOST), streams, gate, times).await,
    }
    .with_context(|| format!("{load:?} to {to}"))
}

/// Sends requests of HTTP/1.1 repeatedly.
async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    gate: &Gate<'_>,
    times: &mut Vec<Duration>,
) -> anyhow::Result<()> {
    let mut buffer = Vec::with_capacity(4096);
    while !gate.is_over() {
        let (begun, is_measured) = (Instant::now(), gate.is_measuring());
        stream.write_all(REQUEST).await?;
        answer(&mut stream, &mut buffer).await?;
        gate.take(is_measured, begun, times);
    }
    Ok(())
}
