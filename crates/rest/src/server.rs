//! The listener: TCP and TLS in, requests to the handler, a clean end.
//!
//! Limits that cost nothing to keep live here: how long a handshake and the headers of a request may take, how many
//! headers there may be, how many streams one connection may open.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::auth::Authenticator;
use crate::handler::{self, Shared};
use crate::metrics::{Figures, Metrics};
use crate::openapi::OpenApi;
use crate::page;
use crate::registry::Registry;

/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may take to send the headers of a request.
const HEADERS: Duration = Duration::from_secs(10);
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
    /// Certificates.
    pub tls: Arc<rustls::ServerConfig>,
    /// Who may come in.
    pub authn: Authenticator,
    /// The objects.
    pub store: Arc<dyn store::Store>,
    /// How agents of nodes are spoken to, if there may be any.
    pub agents: Option<Arc<rustls::ClientConfig>>,
    /// What Services may have.
    pub ranges: store::allocation::Ranges,
    /// How many requests may be answered at once.
    pub max_in_flight: usize,
    /// How long a request that is no watch may take.
    pub request_timeout: Duration,
    /// Reads the figures of the store.
    pub figures: Box<Figures>,
}

/// A server that listens, and is not ready yet.
pub struct Server {
    /// The one that was asked for, then those beside it.
    listeners: Vec<TcpListener>,
    address: SocketAddr,
    acceptor: TlsAcceptor,
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
        let (ready, is_ready) = watch::channel(false);
        let (draining, is_draining) = watch::channel(false);
        let shared = Arc::new(Shared {
            registry: Registry { store: options.store, ranges: options.ranges },
            authn: options.authn,
            visits: page::Visits::default(),
            metrics: Metrics::new(options.figures),
            openapi: OpenApi::new(api::kinds::KINDS),
            address: address.to_string(),
            agents: options.agents,
            in_flight: Arc::new(Semaphore::new(options.max_in_flight)),
            request_timeout: options.request_timeout,
            ready: is_ready,
            draining: is_draining,
        });
        Ok(Self { listeners, address, acceptor: TlsAcceptor::from(options.tls), shared, ready, draining })
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

    /// Answers requests until `stop` resolves, then lets those in progress end.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let graceful = GracefulShutdown::new();
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .keep_alive_interval(Duration::from_secs(30));
        let builder = Arc::new(builder);
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (builder, acceptor, shared) = (builder.clone(), self.acceptor.clone(), self.shared.clone());
                    tokio::spawn(connection(stream, acceptor, builder, shared, graceful.watcher()));
                }
                // Out of file descriptors, most likely: those that are open will end.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        // Whoever comes now is refused at once instead of waiting for an answer that will not come.
        drop(self.listeners);
        let _ = self.draining.send(true);
        tokio::select! {
            () = graceful.shutdown() => {}
            () = tokio::time::sleep(DRAIN) => tracing::warn!("some requests did not end in time"),
        }
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    builder: Arc<auto::Builder<TokioExecutor>>,
    shared: Arc<Shared>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Answers are written whole; waiting to fill a packet only delays the small ones.
    let _ = stream.set_nodelay(true);
    let mut draining = shared.draining.clone();
    let stream = tokio::select! {
        shaken = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)) => shaken,
        // No request has begun: there is nothing to wait for.
        _ = draining.wait_for(|draining| *draining) => return,
    };
    let Ok(Ok(stream)) = stream else { return };
    let certificate: Option<Arc<[u8]>> =
        stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).map(|first| Arc::from(first.as_ref()));
    let service = service_fn(move |request| {
        let (shared, certificate) = (shared.clone(), certificate.clone());
        async move { Ok::<_, std::convert::Infallible>(handler::handle(shared, certificate, request).await) }
    });
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(serving).await {
        tracing::debug!(%error, "a connection ended");
    }
}
