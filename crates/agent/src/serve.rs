//! The agent's HTTPS endpoint: the kubelet API that the API server forwards to.
//!
//! In: TLS connections whose client certificate is authorized. Out: logs, exec, attach, port-forward and the list of Pods from [`Workloads`]; the state
//! of the proxy from [`Reports`]. `request` parses a request, `handler` serves it, `upgrade` hands the connection to the protocols in
//! [`crate::streams`].

mod body;
mod handler;
pub mod reports;
mod request;
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

use self::reports::{NoReports, Reports};
use crate::streams;
use crate::workloads::Workloads;

/// The time limit of the TLS handshake and of request headers.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The most concurrent logs, exec, attach and port-forward sessions.
const MAX_SESSIONS: usize = 512;

/// Authorizes a client certificate (DER) that the cluster CA signed.
pub type Allow = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// The TLS configuration of new connections; it is replaced when certificates rotate.
pub type Tls = watch::Receiver<Option<Arc<rustls::ServerConfig>>>;

/// Serves requests.
pub struct Agent {
    workloads: Arc<dyn Workloads>,
    reports: Arc<dyn Reports>,
    sessions: Arc<Semaphore>,
    idle: Duration,
    creation: Duration,
}

impl Agent {
    /// Serves these workloads.
    #[must_use]
    pub fn new(workloads: Arc<dyn Workloads>) -> Self {
        let sessions = Arc::new(Semaphore::new(MAX_SESSIONS));
        let reports = Arc::new(NoReports);
        Self { workloads, reports, sessions, idle: streams::IDLE, creation: streams::CREATION }
    }

    /// Also serves reports of the node's proxy.
    #[must_use]
    pub fn with_reports(self, reports: Arc<dyn Reports>) -> Self {
        Self { reports, ..self }
    }

    /// Serves the requests of one connection.
    pub async fn connection(self: Arc<Self>, io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let service = service_fn(move |request| {
            let agent = Arc::clone(&self);
            async move { Ok::<_, Infallible>(handler::handle(&agent, request).await) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
        if let Err(error) = builder.serve_connection(TokioIo::new(io), service).with_upgrades().await {
            tracing::debug!(%error, "connection closed with an error");
        }
    }
}

/// A listening endpoint.
pub struct Listening {
    listener: TcpListener,
    tls: Tls,
    allow: Allow,
    agent: Arc<Agent>,
}

impl Listening {
    /// Listens on an address. The TLS configuration must require client certificates; while there is none, connections are closed.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn open(address: SocketAddr, tls: Tls, allow: Allow, workloads: Arc<dyn Workloads>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { listener, tls, allow, agent: Arc::new(Agent::new(workloads)) })
    }

    /// Also serves reports of the node's proxy.
    #[must_use]
    pub fn with_reports(self, reports: Arc<dyn Reports>) -> Self {
        let agent = Agent::new(Arc::clone(&self.agent.workloads)).with_reports(reports);
        Self { agent: Arc::new(agent), ..self }
    }

    /// The local address.
    ///
    /// # Errors
    /// When the kernel reports none.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` resolves.
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
                    tokio::spawn(accept_tls(stream, acceptor, allow, Arc::clone(&self.agent)));
                }
                // Probably EMFILE: retry when other connections have ended.
                Err(error) => {
                    tracing::warn!(%error, "failed to accept connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn accept_tls(stream: TcpStream, acceptor: TlsAcceptor, allow: Allow, agent: Arc<Agent>) {
    // Interactive sessions need low latency.
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await else { return };
    let certificates = stream.get_ref().1.peer_certificates();
    if certificates.and_then(|chain| chain.first()).is_some_and(|first| allow(first)) {
        agent.connection(stream).await;
    } else {
        tracing::warn!("rejected client: its certificate is not the API server's");
    }
}
