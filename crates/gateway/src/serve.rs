//! Serves an accepted connection: TLS handshake if required, then HTTP or TCP proxying.

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
use crate::tcp_proxy::{self, proxy_header};
use crate::tls::is_h2;
use crate::workers::WorkerLoad;

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
    let AcceptedConnection { stream, peer, guard, load: _turn } = connection;
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    if stream.set_nodelay(true).is_err() {
        return;
    }
    match &guard.serving {
        Serving::Service(port) => by_service(stream, peer, &guard, port, worker).await,
        Serving::Routes(port) => routes::serve(stream, peer, &guard, port, worker).await,
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
    let header =
        || port.port.proxy_protocol.then(|| proxy_header(peer, SocketAddr::new(local.ip(), port_config.number)));
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
