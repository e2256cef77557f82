//! Serves a connection to a Gateway: HTTP, TLS by server name, or bytes.
//!
//! In: an accepted connection. Out: it is served by the listener that its port and server name select, as they are at
//! that moment. A connection that no listener or rule takes is reset.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;
use routing::model::ListenerProtocol;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client_hello::{ClientHello, Replayed};
use super::tables::{PortTable, RoutedListener, RoutedPort};
use crate::http_proxy::{self, ClientConnection};
use crate::port_config::PortConfig;
use crate::serve::{accept_tls, plain_http};
use crate::tcp_proxy;
use crate::tls::is_h2;

/// Serves a connection.
pub(crate) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    port_config: &Arc<PortConfig>,
    port: &RoutedPort,
    worker: usize,
) {
    let client = |proto: &'static str| {
        let forwarded = (port.number.clone(), HeaderValue::from_static(proto));
        ClientConnection::new(Arc::clone(port_config), worker, peer, forwarded)
    };
    let table = port.table.load_full();
    match &*table {
        PortTable::Closed => reset(&stream),
        PortTable::Http(_) => plain_http(stream, client("http")).await,
        PortTable::Stream(listener) => {
            let _open = listener.metrics.open();
            by_stream(stream, reset, (peer, None), listener, port_config).await;
        }
        PortTable::Ingress { listener, .. } if listener.config.protocol == ListenerProtocol::Http => {
            plain_http(stream, client("http")).await;
        }
        PortTable::Ingress { listener, .. } => {
            let Some(config) = listener.tls.load_full() else { return reset(&stream) };
            let _open = listener.metrics.open();
            let client = client("https").at(listener.config.id.clone());
            drop(table);
            let Some(stream) = accept_tls(stream, &config, port_config, peer).await else { return };
            let is_h2 = is_h2(stream.get_ref().1.alpn_protocol());
            http_proxy::serve(stream, is_h2, client).await;
        }
        PortTable::Tls(hosts) => {
            let Some((stream, hello)) = read_hello(stream, port_config).await else { return };
            let name = hello.server_name.as_deref();
            let Some(listener) = hosts.find(name.unwrap_or_default()).cloned() else { return reset(stream.get_ref()) };
            drop(table);
            let _open = listener.metrics.open();
            if listener.config.protocol == ListenerProtocol::TlsPassthrough {
                let reset = |stream: &Replayed| reset(stream.get_ref());
                return by_stream(stream, reset, (peer, name), &listener, port_config).await;
            }
            let Some(config) = listener.tls.load_full() else { return reset(stream.get_ref()) };
            let Some(stream) = accept_tls(stream, &config, port_config, peer).await else { return };
            if listener.config.protocol == ListenerProtocol::TlsTerminate {
                let reset = |stream: &tokio_rustls::server::TlsStream<Replayed>| reset(stream.get_ref().0.get_ref());
                return by_stream(stream, reset, (peer, name), &listener, port_config).await;
            }
            let is_h2 = is_h2(stream.get_ref().1.alpn_protocol());
            let client = client("https").at(listener.config.id.clone());
            http_proxy::serve(stream, is_h2, client).await;
        }
    }
}

/// Reads the ClientHello of a connection, which can be read again.
async fn read_hello(mut stream: TcpStream, port_config: &PortConfig) -> Option<(Replayed, ClientHello)> {
    let reading = ClientHello::read(&mut stream);
    match timeout(port_config.limits.handshake, reading).await {
        Ok(Ok((bytes, hello))) => Some((Replayed::new(bytes, stream), hello)),
        Ok(Err(error)) => {
            tracing::debug!(service = &*port_config.service, %error, "cannot read ClientHello");
            port_config.metrics.handshake_failure();
            None
        }
        Err(_) => {
            port_config.metrics.handshake_failure();
            None
        }
    }
}

/// Copies bytes between a client and a backend of the rule for this server name, if the rule admits the client.
async fn by_stream<I>(
    stream: I,
    reset: impl Fn(&I),
    (peer, server_name): (SocketAddr, Option<&str>),
    listener: &Arc<RoutedListener>,
    port_config: &Arc<PortConfig>,
) where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let rule = listener.tables.load().stream(server_name).filter(|rule| rule.admits(peer.ip())).cloned();
    let upstream = rule.as_ref().and_then(|rule| rule.next()).cloned();
    let (Some(rule), Some(upstream)) = (rule, upstream) else { return reset(&stream) };
    rule.metrics.connected();
    if upstream.backends.load().all().is_empty() {
        upstream.failed();
        return reset(&stream);
    }
    tcp_proxy::proxy(stream, &upstream, port_config, None).await;
}

/// Makes the connection end with a reset when it is dropped.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
