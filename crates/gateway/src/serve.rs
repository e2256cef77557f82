//! Serves an accepted connection: TLS handshake if required, then HTTP or TCP proxying.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::annotations::Mode;
use crate::http_proxy::{self, ClientConnection};
use crate::port_config::{ConnectionGuard, until_closing};
use crate::tcp_proxy;
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
    let Ok(local) = stream.local_addr() else { return };
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let port_config = Arc::clone(&guard);
    let client = || ClientConnection::new(Arc::clone(&guard), worker, peer);
    match (&port_config.tls, port_config.port.mode) {
        (None, Mode::Tcp) => tcp_proxy::proxy(stream, &port_config, peer, local).await,
        (None, Mode::Http) => {
            let mut first = [0; PREFACE.len()];
            let mut closing = port_config.closing();
            let peeked = tokio::select! {
                peeked = timeout(port_config.idle(), stream.peek(&mut first)) => peeked,
                () = until_closing(&mut closing) => return,
            };
            // A preface that arrives in fragments is treated as HTTP/1.1.
            if let Ok(Ok(1..)) = peeked {
                http_proxy::serve(stream, first == PREFACE, client()).await;
            }
        }
        (Some(tls), mode) => {
            let accepting = TlsAcceptor::from(Arc::clone(tls)).accept(stream);
            let stream = match timeout(port_config.limits.handshake, accepting).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    port_config.metrics.handshake_failure();
                    tracing::debug!(service = &*port_config.service, %peer, %error, "TLS handshake with client failed");
                    return;
                }
                Err(_) => return port_config.metrics.handshake_failure(),
            };
            match mode {
                Mode::Tcp => tcp_proxy::proxy(stream, &port_config, peer, local).await,
                Mode::Http => {
                    let is_h2 = is_h2(stream.get_ref().1.alpn_protocol());
                    http_proxy::serve(stream, is_h2, client()).await;
                }
            }
        }
    }
}
