//! Serves an accepted connection: TLS handshake if required, then HTTP or TCP proxying.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::access_log::Trail;
use crate::annotations::Mode;
use crate::http_proxy::{self, ClientConnection};
use crate::port_config::{ConnectionGuard, PortConfig, ServicePort, Serving, until_closing};
use crate::routes;
use crate::tls::is_h2;
use crate::workers::WorkerLoad;
use crate::{proxy_protocol, tcp_proxy};

/// Start of the HTTP/2 connection preface; not an HTTP/1.1 method.
const PREFACE: &[u8] = b"PRI";

/// Accepted connection.
pub(crate) struct AcceptedConnection {
    pub(crate) stream: std::net::TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) guard: ConnectionGuard,
    /// Load accounting of its worker.
    pub(crate) load: WorkerLoad,
}

/// Serves the connection until it is closed.
pub(crate) async fn serve(connection: AcceptedConnection, worker: usize) {
    let AcceptedConnection { stream, mut peer, guard, load: _turn } = connection;
    let Ok(mut stream) = TcpStream::from_std(stream) else { return };
    if stream.set_nodelay(true).is_err() {
        return;
    }
    if guard.is_proxy(peer.ip()) {
        let Some(client) = client_of_proxy(&mut stream, peer, &guard).await else { return };
        peer = client;
    }
    match &guard.serving {
        Serving::Service(port) => by_service(stream, peer, &guard, port, worker).await,
        Serving::Routes(port) => routes::serve(stream, peer, &guard, port, worker).await,
    }
}

/// The client of a proxy, as its header tells; none if there is no valid header, or the client may not connect.
async fn client_of_proxy(stream: &mut TcpStream, peer: SocketAddr, port_config: &PortConfig) -> Option<SocketAddr> {
    let received = timeout(port_config.limits.handshake, proxy_protocol::receive(stream)).await;
    match received.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        // Without a client it is a connection of the proxy itself, which was admitted.
        Ok(None) => Some(peer),
        Ok(Some(client)) => port_config.sources.load().allows(client.ip()).then_some(client),
        Err(error) => {
            tracing::debug!(service = &*port_config.service, %peer, %error, "failed to receive PROXY header");
            port_config.metrics.proxy_header_failure();
            None
        }
    }
}

/// Serves a connection to a Service.
async fn by_service(
    stream: TcpStream,
    peer: SocketAddr,
    port_config: &Arc<PortConfig>,
    port: &ServicePort,
    worker: usize,
) {
    let Ok(local) = stream.local_addr() else { return };
    let client = || ClientConnection::new(Arc::clone(port_config), worker, peer, port.forwarded.clone());
    let header = || {
        port.port.proxy_protocol.then(|| proxy_protocol::header(peer, SocketAddr::new(local.ip(), port_config.number)))
    };
    match (&port.tls, port.port.mode) {
        (None, Mode::Tcp) => {
            let trail = port_config.logged(peer).map(|logged| Trail::of_connection(logged, "TCP"));
            tcp_proxy::proxy(stream, &port.upstream, port_config, header(), trail).await;
        }
        (None, Mode::Http) => plain_http(stream, client()).await,
        (Some(tls), mode) => {
            let Some(stream) = accept_tls(stream, tls, port_config, peer).await else { return };
            match mode {
                Mode::Tcp => {
                    let trail = port_config.logged(peer).map(|mut logged| {
                        logged.tls(stream.get_ref().1);
                        Trail::of_connection(logged, "TLS")
                    });
                    tcp_proxy::proxy(stream, &port.upstream, port_config, header(), trail).await;
                }
                Mode::Http => {
                    let is_h2 = is_h2(stream.get_ref().1.alpn_protocol());
                    let client = client().over(stream.get_ref().1);
                    http_proxy::serve(stream, is_h2, client).await;
                }
            }
        }
    }
}

/// Serves HTTP without TLS, after its version is known.
pub(crate) async fn plain_http(stream: TcpStream, client: ClientConnection) {
    let port_config = Arc::clone(&client.port_config);
    let mut first = [0; PREFACE.len()];
    let mut closing = port_config.closing();
    let peeked = tokio::select! {
        peeked = timeout(port_config.idle(), stream.peek(&mut first)) => peeked,
        () = until_closing(&mut closing) => return,
    };
    // A preface that arrives in fragments is treated as HTTP/1.1.
    if let Ok(Ok(1..)) = peeked {
        http_proxy::serve(stream, first == PREFACE, client).await;
    }
}

/// TLS handshake with a client.
pub(crate) async fn accept_tls<I>(
    stream: I,
    config: &Arc<ServerConfig>,
    port_config: &PortConfig,
    peer: SocketAddr,
) -> Option<TlsStream<I>>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let accepting = TlsAcceptor::from(Arc::clone(config)).accept(stream);
    match timeout(port_config.limits.handshake, accepting).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(service = &*port_config.service, %peer, %error, "TLS handshake with client failed");
        }
        Err(_) => {}
    }
    port_config.metrics.handshake_failure();
    None
}
