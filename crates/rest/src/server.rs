//! The listener: TCP and TLS in, requests to the handler, a clean end.
//!
//! Connections are counted, and closed when they bring no request ([`crate::connections`]). Limits that cost nothing to keep live
//! here: how long the headers of a request may take, how many headers there may be, how many streams one connection may open.

mod local;

use api::admission::Plugins;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::audit::Audit;
use crate::auth::impersonate::Impersonation;
use crate::auth::{Authenticator, certificate};
use crate::authz::Authorizer;
use crate::connections::{Activity, ConnectionLimits, Connections, Counted, Slot, Tracked};
use crate::dial::DialPolicy;
use crate::download::Downloads;
use crate::dynamic_admission::DynamicAdmission;
use crate::dynamic_admission::client::WebhookClient;
use crate::fairness::Fairness;
use crate::handler::{self, Peer, Shared};
use crate::metrics::{Figures, Metrics};
use crate::offload::Offload;
use crate::openapi::OpenApi;
use crate::page;
use crate::pki::{Clients, Live, Pki};
use crate::registry::Registry;
use crate::upload::Uploads;

use local::LocalListener;
pub use local::LocalSocket;

/// How long requests in progress may take after the server was asked to stop.
const DRAIN: Duration = Duration::from_secs(10);
/// How many requests of one HTTP/2 connection may be open at once.
const STREAMS: u32 = 1000;

/// What a server needs.
pub struct Options {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Other addresses at which to listen, at the same port, as far as it can be had there.
    pub beside: Vec<IpAddr>,
    /// A socket for components of this machine, if they run in another process.
    pub local: Option<LocalSocket>,
    /// Certificates; they may be replaced while the server runs.
    pub identity: Live,
    /// Where it is noted which client showed a certificate of which CA.
    pub clients: Arc<Clients>,
    /// Who may come in.
    pub authn: Authenticator,
    /// The objects.
    pub store: Arc<dyn store::Store>,
    /// Whether there may be agents of nodes to speak to.
    pub agents: bool,
    /// The Node whose agent runs in this process, if one does.
    pub local_node: Option<String>,
    /// What Services may have.
    pub ranges: store::allocation::Ranges,
    /// Which admission plugins run.
    pub plugins: Plugins,
    /// Whether this cluster gives Nodes their pod CIDRs.
    pub allocates_pod_cidrs: bool,
    /// How many connections there may be, and how long they may be idle.
    pub connections: ConnectionLimits,
    /// How many requests may be answered at once; more wait.
    pub max_in_flight: usize,
    /// How long a request that is no watch may take.
    pub request_timeout: Duration,
    /// The audit log, if there is to be one.
    pub audit: Option<Audit>,
    /// Reads the figures of the store.
    pub figures: Box<Figures>,
}

/// A server that listens, and is not ready yet.
pub struct Server {
    /// The one that was asked for, then those beside it.
    listeners: Vec<TcpListener>,
    local: Option<LocalListener>,
    address: SocketAddr,
    identity: Live,
    clients: Arc<Clients>,
    connections: Arc<Connections>,
    shared: Arc<Shared>,
    ready: watch::Sender<bool>,
    draining: watch::Sender<bool>,
}

impl Server {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn bind(options: Options) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).await?;
        let address = listener.local_addr()?;
        let mut listeners = vec![listener];
        for ip in options.beside {
            match TcpListener::bind((ip, address.port())).await {
                Ok(listener) => listeners.push(listener),
                Err(error) => tracing::warn!(%error, %ip, port = address.port(), "the API is not served at an address"),
            }
        }
        let local = options.local.map(LocalListener::open).transpose()?;
        let (ready, is_ready) = watch::channel(false);
        let (draining, is_draining) = watch::channel(false);
        let listening = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let metrics = Metrics::new(options.figures, options.audit.as_ref().map(Audit::metrics));
        let connections = Connections::new(options.connections, metrics.clone());
        let fairness = Fairness::new(options.max_in_flight, options.request_timeout, metrics.clone());
        let dial = Arc::new(DialPolicy::new(listening, options.local_node));
        let authorizer = Arc::new(Authorizer::new(options.store.clone()));
        let webhooks = WebhookClient::new(options.store.clone(), options.ranges.clone(), dial.clone());
        let dynamic =
            DynamicAdmission::new(options.store.clone(), authorizer.clone(), Box::new(webhooks), &options.plugins);
        let dynamic = Arc::new(dynamic);
        let shared = Arc::new(Shared {
            registry: Registry {
                authorizer,
                dynamic,
                store: options.store,
                ranges: options.ranges,
                plugins: options.plugins,
                allocates_pod_cidrs: options.allocates_pod_cidrs,
            },
            authn: options.authn,
            impersonation: Impersonation::default(),
            sessions: page::Sessions::default(),
            metrics,
            audit: options.audit.map(Arc::new),
            openapi: OpenApi::new(api::kinds::KINDS),
            address: address.to_string(),
            agents: options.agents.then(|| options.identity.clone()),
            uploads: Uploads::default(),
            downloads: Downloads::default(),
            offload: Offload::default(),
            dial,
            fairness,
            request_timeout: options.request_timeout,
            ready: is_ready,
            draining: is_draining,
        });
        let Options { identity, clients, .. } = options;
        Ok(Self { listeners, local, address, identity, clients, connections, shared, ready, draining })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every address at which it listens.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok())
    }

    /// The next connection, wherever it comes.
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        std::future::poll_fn(|context| {
            let mut accepted = self.listeners.iter().map(|listener| listener.poll_accept(context));
            accepted.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// A switch that tells `/readyz` the truth.
    #[must_use]
    pub fn readiness(&self) -> watch::Sender<bool> {
        self.ready.clone()
    }

    /// The policies and webhooks, for objects that controllers create.
    #[must_use]
    pub fn dynamic_admission(&self) -> store::admission::Dynamic {
        store::admission::Dynamic(self.shared.registry.dynamic.clone())
    }

    /// What every connection needs.
    fn open(&self) -> Open {
        Open {
            builder: Arc::new(builder()),
            identity: self.identity.subscribe(),
            clients: self.clients.clone(),
            connections: self.connections.clone(),
            shared: self.shared.clone(),
        }
    }

    /// Answers requests until `stop` resolves, then lets those in progress end.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let open = self.open();
        // Every connection holds a sender; when all are gone, so are the connections.
        let (alive, mut ended) = mpsc::channel::<()>(1);
        let local = self.local.take().map(|local| tokio::spawn(local.run(open.clone(), alive.clone())));
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // One over a limit is closed before it costs anything more.
                    let Ok(slot) = self.connections.admit(peer.ip()) else { continue };
                    let (open, alive) = (open.clone(), alive.clone());
                    tokio::spawn(async move {
                        open.serve(stream, peer.ip(), slot).await;
                        drop(alive);
                    });
                }
                // Out of file descriptors, most likely: those that are open will end.
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        // Whoever comes now is refused at once instead of waiting for an answer that will not come.
        drop(self.listeners);
        if let Some(local) = local {
            local.abort();
        }
        drop(alive);
        let _ = self.draining.send(true);
        tokio::select! {
            _ = ended.recv() => {}
            () = tokio::time::sleep(DRAIN) => tracing::warn!("some requests did not end in time"),
        }
        if let Some(audit) = &self.shared.audit {
            audit.close().await;
        }
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // The limit to idle connections covers headers that are not sent; this one would also close every connection that waits for its next request.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(Duration::from_secs(30));
    builder
}

/// What a connection needs.
#[derive(Clone)]
struct Open {
    builder: Arc<auto::Builder<TokioExecutor>>,
    identity: watch::Receiver<Arc<Pki>>,
    clients: Arc<Clients>,
    connections: Arc<Connections>,
    shared: Arc<Shared>,
}

impl Open {
    /// Notes whose certificate of which CA was shown.
    fn note(&self, certificate: &[u8]) {
        let (now, identity) = (Timestamp::now(), self.identity.borrow().clone());
        if let (Ok(Some(user)), Some(ca)) = (certificate::user(certificate, now), identity.client_issuer(certificate)) {
            self.clients.note(&user.name, ca, now);
        }
    }

    /// Secures a connection, and serves it.
    async fn serve(mut self, stream: TcpStream, address: IpAddr, mut slot: Slot) {
        // Answers are written whole; waiting to fill a packet only delays the small ones.
        let _ = stream.set_nodelay(true);
        let timeout = self.connections.limits().handshake_timeout;
        let mut draining = self.shared.draining.clone();
        let acceptor = TlsAcceptor::from(self.identity.borrow_and_update().server_config());
        let stream = tokio::select! {
            shaken = tokio::time::timeout(timeout, acceptor.accept(stream)) => shaken,
            // No request has begun: there is nothing to wait for.
            _ = draining.wait_for(|draining| *draining) => return,
        };
        let Ok(Ok(stream)) = stream else { return };
        slot.secured();
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let certificate: Option<Arc<[u8]>> = certificate.map(|first| Arc::from(first.as_ref()));
        if let Some(certificate) = &certificate {
            self.note(certificate);
        }
        self.requests(Counted::new(stream, slot), Peer { address, certificate, is_local: false }).await;
    }

    /// Serves a connection until it ends: by the client, by its being idle, by the end of the server, or because the CA of the client's certificate
    /// is no longer trusted.
    async fn requests(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer) {
        let limits = *self.connections.limits();
        let mut draining = self.shared.draining.clone();
        let mut distrusted = std::pin::pin!(until_distrusted(self.identity, peer.certificate.clone()));
        let (shared, activity) = (self.shared, Activity::new());
        let requests = activity.clone();
        let service = service_fn(move |request| {
            let (shared, peer, busy) = (shared.clone(), peer.clone(), requests.begin());
            async move {
                let response = handler::handle(shared, peer, request).await;
                Ok::<_, std::convert::Infallible>(response.map(|body| Tracked::new(body, busy)))
            }
        });
        let mut serving = std::pin::pin!(self.builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
        let is_idle = tokio::select! {
            ended = &mut serving => return log_end(ended),
            () = activity.idle(limits.first_request_timeout, limits.idle_timeout) => true,
            _ = draining.wait_for(|draining| *draining) => false,
            // Whatever goes on, also a watch, is of somebody who is not known any more.
            () = &mut distrusted => return,
        };
        serving.as_mut().graceful_shutdown();
        // A client may have sent a request before it heard of the end; one that only withholds its acknowledgement is not waited for.
        let silence = async {
            tokio::time::sleep(limits.close_timeout).await;
            activity.none().await;
        };
        tokio::select! {
            ended = &mut serving => log_end(ended),
            () = silence, if is_idle => {}
        }
    }
}

/// Comes back when the CA of a client's certificate is not trusted any more; never for clients without one.
async fn until_distrusted(mut identity: watch::Receiver<Arc<Pki>>, certificate: Option<Arc<[u8]>>) {
    let Some(certificate) = certificate else { return std::future::pending().await };
    while identity.changed().await.is_ok() {
        if identity.borrow_and_update().client_issuer(&certificate).is_none() {
            return;
        }
    }
    std::future::pending::<()>().await;
}

fn log_end(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

#[cfg(test)]
mod tests;
