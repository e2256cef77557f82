//! The listener: accepts TCP and TLS connections, passes requests to the handler, shuts down gracefully.
//!
//! Connections are counted, and closed when they are idle ([`crate::connections`]). Limits of HTTP itself are set here: time
//! for headers, number of headers, streams per connection.

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
use crate::authz::{Authorizer, ServedIngresses};
use crate::connections::{Activity, ConnectionLimits, Connections, Counted, Slot, Tracked};
use crate::conversion::Converter;
use crate::dial::DialPolicy;
use crate::download::Downloads;
use crate::dynamic_admission::DynamicAdmission;
use crate::fairness::Fairness;
use crate::handler::{self, Peer, Shared};
use crate::metrics::{ExtraMetrics, Metrics};
use crate::offload::Offload;
use crate::openapi::OpenApiCache;
use crate::pki::{Clients, Live, Pki};
use crate::registry::Registry;
use crate::ui;
use crate::upload::Uploads;
use crate::webhooks::Caller;
use crate::webhooks::client::WebhookClient;

use local::LocalListener;
pub use local::LocalSocket;

/// The grace period of requests in progress when the server shuts down.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest number of concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 1000;

/// Options of a server.
pub struct Options {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Further addresses to listen on, at the same port; errors there are only logged.
    pub beside: Vec<IpAddr>,
    /// A Unix socket for components of this machine in other processes.
    pub local: Option<LocalSocket>,
    /// Certificates; can be replaced at run time.
    pub identity: Live,
    /// Records which clients use certificates of which CA.
    pub clients: Arc<Clients>,
    /// The authenticator.
    pub authn: Authenticator,
    /// The store.
    pub store: Arc<dyn store::Store>,
    /// Whether the cluster may have agents to connect to.
    pub agents: bool,
    /// The Node whose agent runs in this process, if any.
    pub local_node: Option<String>,
    /// The ranges of Service addresses and node ports.
    pub ranges: store::allocation::Ranges,
    /// Which admission plugins run.
    pub plugins: Plugins,
    /// Whether this cluster allocates pod CIDRs of Nodes.
    pub allocates_pod_cidrs: bool,
    /// Which Ingresses the nodes serve.
    pub ingresses: ServedIngresses,
    /// Limits of connections, and their idle timeout.
    pub connections: ConnectionLimits,
    /// The concurrency limit of requests; more are queued.
    pub max_in_flight: usize,
    /// The timeout of requests other than watches.
    pub request_timeout: Duration,
    /// The audit log, if enabled.
    pub audit: Option<Audit>,
    /// Renders metrics of other components.
    pub extra_metrics: Box<ExtraMetrics>,
}

/// A bound server that is not ready yet.
pub struct Server {
    /// The listener of `address`, then the further ones.
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
    /// Binds the listeners.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(options: Options) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).await?;
        let address = listener.local_addr()?;
        let mut listeners = vec![listener];
        for ip in options.beside {
            match TcpListener::bind((ip, address.port())).await {
                Ok(listener) => listeners.push(listener),
                Err(error) => tracing::warn!(%error, %ip, port = address.port(), "cannot listen on additional address"),
            }
        }
        let local = options.local.map(LocalListener::open).transpose()?;
        let (ready, is_ready) = watch::channel(false);
        let (draining, is_draining) = watch::channel(false);
        let listening = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let metrics = Metrics::new(options.extra_metrics, options.audit.as_ref().map(Audit::metrics));
        let connections = Connections::new(options.connections, metrics.clone());
        let fairness = Fairness::new(options.max_in_flight, options.request_timeout, metrics.clone());
        let dial = Arc::new(DialPolicy::new(listening, options.local_node));
        let authorizer = Arc::new(Authorizer::new(options.store.clone()).with_ingresses(options.ingresses));
        let webhooks: Arc<dyn Caller> =
            Arc::new(WebhookClient::new(options.store.clone(), options.ranges.clone(), dial.clone()));
        let conversion = Arc::new(Converter::new(webhooks.clone()));
        let dynamic = DynamicAdmission::new(
            options.store.clone(),
            authorizer.clone(),
            webhooks,
            conversion.clone(),
            &options.plugins,
        );
        let dynamic = Arc::new(dynamic);
        let shared = Arc::new(Shared {
            registry: Registry {
                authorizer,
                dynamic,
                conversion,
                catalog: store::KindCatalog::new(&*options.store),
                store: options.store,
                ranges: options.ranges,
                plugins: options.plugins,
                allocates_pod_cidrs: options.allocates_pod_cidrs,
            },
            authn: options.authn,
            impersonation: Impersonation::default(),
            sessions: ui::Sessions::default(),
            documents: ui::Documents::default(),
            metrics,
            audit: options.audit.map(Arc::new),
            openapi: OpenApiCache::default(),
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

    /// The address of the main listener.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The addresses of all listeners.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok())
    }

    /// Accepts the next connection of any listener.
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        std::future::poll_fn(|context| {
            let mut accepted = self.listeners.iter().map(|listener| listener.poll_accept(context));
            accepted.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Sets the result of `/readyz`.
    #[must_use]
    pub fn readiness(&self) -> watch::Sender<bool> {
        self.ready.clone()
    }

    /// The policies and webhooks, for objects that controllers create.
    #[must_use]
    pub fn dynamic_admission(&self) -> store::admission::Dynamic {
        store::admission::Dynamic(self.shared.registry.dynamic.clone())
    }

    /// The state of a new connection.
    fn open(&self) -> ConnectionContext {
        ConnectionContext {
            builder: Arc::new(builder()),
            identity: self.identity.subscribe(),
            clients: self.clients.clone(),
            connections: self.connections.clone(),
            shared: self.shared.clone(),
        }
    }

    /// Serves until `stop` resolves, then drains requests in progress.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let open = self.open();
        // Every connection holds a sender; the channel closes with the last connection.
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
                    // Connections over a limit are closed at once.
                    let Ok(slot) = self.connections.admit(peer.ip()) else { continue };
                    let (open, alive) = (open.clone(), alive.clone());
                    tokio::spawn(async move {
                        open.serve(stream, peer.ip(), slot).await;
                        drop(alive);
                    });
                }
                // Most likely out of file descriptors: wait for connections to close.
                Err(error) => {
                    tracing::warn!(%error, "failed to accept connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        // Closes the listeners, so that new connections are refused at once.
        drop(self.listeners);
        if let Some(local) = local {
            local.abort();
        }
        drop(alive);
        let _ = self.draining.send(true);
        tokio::select! {
            _ = ended.recv() => {}
            () = tokio::time::sleep(DRAIN_TIMEOUT) => tracing::warn!("drain timeout exceeded: close remaining requests"),
        }
        if let Some(audit) = &self.shared.audit {
            audit.close().await;
        }
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // The idle timeout covers headers that do not arrive; hyper's own would also close connections that wait for their next request.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(Duration::from_secs(30));
    builder
}

/// The state of a connection.
#[derive(Clone)]
struct ConnectionContext {
    builder: Arc<auto::Builder<TokioExecutor>>,
    identity: watch::Receiver<Arc<Pki>>,
    clients: Arc<Clients>,
    connections: Arc<Connections>,
    shared: Arc<Shared>,
}

impl ConnectionContext {
    /// Records the CA of a client certificate.
    fn note(&self, certificate: &[u8]) {
        let (now, identity) = (Timestamp::now(), self.identity.borrow().clone());
        if let (Ok(Some(user)), Some(ca)) = (certificate::user(certificate, now), identity.client_issuer(certificate)) {
            self.clients.note(&user.name, ca, now);
        }
    }

    /// Completes the TLS handshake and serves the connection.
    async fn serve(mut self, stream: TcpStream, address: IpAddr, mut slot: Slot) {
        // Responses are written whole; Nagle's algorithm would only delay small ones.
        let _ = stream.set_nodelay(true);
        let timeout = self.connections.limits().handshake_timeout;
        let mut draining = self.shared.draining.clone();
        let acceptor = TlsAcceptor::from(self.identity.borrow_and_update().server_config());
        let stream = tokio::select! {
            shaken = tokio::time::timeout(timeout, acceptor.accept(stream)) => shaken,
            // No request has started: nothing to drain.
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

    /// Serves a connection until the client closes it, it is idle, the server shuts down, or the CA of the client certificate is no
    /// longer trusted.
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
            // Ends watches too: their user is no longer authenticated.
            () = &mut distrusted => return,
        };
        serving.as_mut().graceful_shutdown();
        // A request may have crossed our GOAWAY; a client that withholds its acknowledgement is not waited for.
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

/// Returns when the CA of a client certificate is no longer trusted; never for clients without one.
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
