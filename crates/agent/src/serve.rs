//! The agent's port: the paths of a kubelet that the API server forwards to, over TLS.
//!
//! In: connections of clients whose certificate the caller approves of. Out: logs, streams of commands, forwarded ports, and the list
//! of Pods, all of it asked of [`Workloads`]; and how the proxy stands, asked of [`Reports`]. `ask` reads what a request wants, `handler` answers it, `upgrade` gives the
//! connection to the protocols in [`crate::streams`].

mod ask;
mod body;
mod handler;
pub mod reports;
#[cfg(test)]
mod tests;
mod upgrade;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use self::reports::{Reports, Silent};
use crate::streams;
use crate::workloads::Workloads;

/// How long a client may take to shake hands, and to send the headers of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many streams of logs, commands and ports there may be at once.
const SESSIONS: usize = 512;

/// Says whether the holder of a certificate (DER), which the cluster's authority signed, may look into Pods.
pub type Allow = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// The TLS settings of each next connection: certificates and CAs are replaced while the port is open.
pub type Tls = watch::Receiver<Option<Arc<rustls::ServerConfig>>>;

/// What answers requests.
pub struct Agent {
    workloads: Arc<dyn Workloads>,
    reports: Arc<dyn Reports>,
    sessions: Arc<Semaphore>,
    idle: Duration,
    creation: Duration,
}

impl Agent {
    /// Answers from these workloads.
    #[must_use]
    pub fn new(workloads: Arc<dyn Workloads>) -> Self {
        let sessions = Arc::new(Semaphore::new(SESSIONS));
        let reports = Arc::new(Silent);
        Self { workloads, reports, sessions, idle: streams::IDLE, creation: streams::CREATION }
    }

    /// Also tells how the proxy of this node stands.
    #[must_use]
    pub fn telling(self, reports: Arc<dyn Reports>) -> Self {
        Self { reports, ..self }
    }

    /// Answers the requests of one connection.
    pub async fn connection(self: Arc<Self>, io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let service = service_fn(move |request| {
            let agent = Arc::clone(&self);
            async move { Ok::<_, Infallible>(handler::handle(&agent, request).await) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
        if let Err(error) = builder.serve_connection(TokioIo::new(io), service).with_upgrades().await {
            tracing::debug!(%error, "a connection to the agent ended");
        }
    }
}

/// A port that is open.
pub struct Listening {
    listener: TcpListener,
    tls: Tls,
    allow: Allow,
    agent: Arc<Agent>,
}

impl Listening {
    /// Opens the port. The TLS settings must demand a certificate of the client; while there are none, connections are closed.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn open(address: SocketAddr, tls: Tls, allow: Allow, workloads: Arc<dyn Workloads>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { listener, tls, allow, agent: Arc::new(Agent::new(workloads)) })
    }

    /// Also tells how the proxy of this node stands.
    #[must_use]
    pub fn telling(self, reports: Arc<dyn Reports>) -> Self {
        let agent = Agent::new(Arc::clone(&self.agent.workloads)).telling(reports);
        Self { agent: Arc::new(agent), ..self }
    }

    /// Where it is.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` resolves.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = &mut stop => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    let Some(tls) = self.tls.borrow().clone() else { continue };
                    let (acceptor, allow) = (TlsAcceptor::from(tls), Arc::clone(&self.allow));
                    tokio::spawn(greet(stream, acceptor, allow, Arc::clone(&self.agent)));
                }
                // Out of file descriptors, most likely: those that are open will end.
                Err(error) => {
                    tracing::warn!(%error, "a connection to the agent could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn greet(stream: TcpStream, acceptor: TlsAcceptor, allow: Allow, agent: Arc<Agent>) {
    // Bytes of people who type must not wait for more.
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await else { return };
    let certificates = stream.get_ref().1.peer_certificates();
    if certificates.and_then(|chain| chain.first()).is_some_and(|first| allow(first)) {
        agent.connection(stream).await;
    } else {
        tracing::warn!("a client of the agent was turned away: its certificate is not the API server's");
    }
}
