//! Serves a connection to a Gateway: HTTP, TLS by server name, or bytes.
//!
//! In: an accepted connection. Out: it is served by the listener that its port and server name select, as they are at
//! that moment. A connection that no listener or rule takes is reset.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::HeaderValue;
use routing::model::{ListenerConfig, ListenerProtocol};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client_hello::{ClientHello, Replayed};
use super::mesh;
use super::rule::CompiledStream;
use super::tables::{PortTable, RoutedPort};
use crate::access_log::{LoggedConnection, Trail};
use crate::cause::Cause;
use crate::http_proxy::{self, ClientConnection};
use crate::policy::Reason;
use crate::port_config::PortConfig;
use crate::serve::{accept_tls, plain_http};
use crate::tcp_proxy;
use crate::tls::is_h2;
use crate::upstream::Upstream;

/// Serves a connection.
pub(crate) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    port_config: &Arc<PortConfig>,
    port: &RoutedPort,
    worker: usize,
) {
    if let Some(parent) = port.service() {
        return mesh::serve(stream, peer, port_config, (port, parent), worker).await;
    }
    let client = |proto: &'static str| {
        let forwarded = (port.number.clone(), HeaderValue::from_static(proto));
        ClientConnection::new(Arc::clone(port_config), worker, peer, forwarded)
    };
    let table = port.table.load_full();
    match &*table {
        PortTable::Closed | PortTable::Mesh(_) => reset(&stream),
        PortTable::Http(_) => plain_http(stream, client("http")).await,
        PortTable::Stream(listener) => {
            let _open = listener.metrics.open();
            let logged = port_config.logged(peer);
            let client = StreamClient { peer, listener: Some(&listener.config), logged, protocol: "TCP" };
            let rule = listener.tables.load().stream(None).cloned();
            by_stream(stream, reset, client, rule, port_config).await;
        }
        PortTable::Ingress { listener, .. } if listener.config.protocol == ListenerProtocol::Http => {
            plain_http(stream, client("http")).await;
        }
        PortTable::Ingress { listener, .. } => {
            let Some(config) = listener.tls.load_full() else { return reset(&stream) };
            let _open = listener.metrics.open();
            let client = client("https").at(listener.config.id.clone());
            drop(table);
            // The ClientHello is read apart only while there is a challenge.
            if !port.gateway().is_some_and(|gateway| port.challenges.has_tls(gateway)) {
                return https(stream, &config, client, peer).await;
            }
            let Some((stream, hello)) = read_hello(stream, port_config).await else { return };
            match challenge(port, &hello) {
                Some(challenge) => drop(accept_tls(stream, &challenge, port_config, peer).await),
                None => https(stream, &config, client, peer).await,
            }
        }
        PortTable::Tls(hosts) => {
            let Some((stream, hello)) = read_hello(stream, port_config).await else { return };
            if let Some(challenge) = challenge(port, &hello) {
                return drop(accept_tls(stream, &challenge, port_config, peer).await);
            }
            let name = hello.server_name.as_deref();
            let Some(listener) = hosts.find(name.unwrap_or_default()).cloned() else { return reset(stream.get_ref()) };
            drop(table);
            let _open = listener.metrics.open();
            if listener.config.protocol == ListenerProtocol::TlsPassthrough {
                let reset = |stream: &Replayed| reset(stream.get_ref());
                let mut logged = port_config.logged(peer);
                if let Some(logged) = &mut logged {
                    logged.server_name(name);
                }
                let client = StreamClient { peer, listener: Some(&listener.config), logged, protocol: "TLS" };
                let rule = listener.tables.load().stream(name).cloned();
                return by_stream(stream, reset, client, rule, port_config).await;
            }
            let Some(config) = listener.tls.load_full() else { return reset(stream.get_ref()) };
            if listener.config.protocol == ListenerProtocol::TlsTerminate {
                let Some(stream) = accept_tls(stream, &config, port_config, peer).await else { return };
                let reset = |stream: &tokio_rustls::server::TlsStream<Replayed>| reset(stream.get_ref().0.get_ref());
                let mut logged = port_config.logged(peer);
                if let Some(logged) = &mut logged {
                    logged.tls(stream.get_ref().1);
                }
                let client = StreamClient { peer, listener: Some(&listener.config), logged, protocol: "TLS" };
                let rule = listener.tables.load().stream(name).cloned();
                return by_stream(stream, reset, client, rule, port_config).await;
            }
            https(stream, &config, client("https").at(listener.config.id.clone()), peer).await;
        }
    }
}

/// Serves HTTP after the TLS handshake.
async fn https<I>(stream: I, config: &Arc<ServerConfig>, client: ClientConnection, peer: SocketAddr)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Some(stream) = accept_tls(stream, config, &client.port_config, peer).await else { return };
    let (_, tls) = stream.get_ref();
    let (is_h2, client) = (is_h2(tls.alpn_protocol()), client.over(tls));
    http_proxy::serve(stream, is_h2, client).await;
}

/// The TLS that answers a challenge; the connection has served its purpose after the handshake.
fn challenge(port: &RoutedPort, hello: &ClientHello) -> Option<Arc<ServerConfig>> {
    let host = hello.server_name.as_deref().filter(|_| hello.is_challenge)?;
    port.challenges.tls(port.gateway()?, host)
}

/// Reads the ClientHello of a connection, which can be read again.
pub(super) async fn read_hello(mut stream: TcpStream, port_config: &PortConfig) -> Option<(Replayed, ClientHello)> {
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

/// A client whose bytes are forwarded.
pub(super) struct StreamClient<'a> {
    pub(super) peer: SocketAddr,
    /// None at a Service.
    pub(super) listener: Option<&'a Arc<ListenerConfig>>,
    /// None without an access log.
    pub(super) logged: Option<LoggedConnection>,
    pub(super) protocol: &'static str,
}

/// Copies bytes between a client and a backend of a rule, if there is one and it admits the client.
pub(super) async fn by_stream<I>(
    stream: I,
    reset: impl Fn(&I),
    client: StreamClient<'_>,
    rule: Option<Arc<CompiledStream>>,
    port_config: &Arc<PortConfig>,
) where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let StreamClient { peer, listener, logged, protocol } = client;
    let trail = logged.map(|logged| Trail::of_connection(logged, protocol));
    if let Some((trail, listener)) = trail.as_ref().zip(listener) {
        trail.accepted(listener);
    }
    match choose(rule, peer.ip(), trail.as_deref()) {
        Ok(upstream) => tcp_proxy::proxy(stream, &upstream, port_config, None, trail).await,
        Err(cause) => {
            if let Some(trail) = &trail {
                trail.failed(cause);
            }
            reset(&stream);
        }
    }
}

/// The upstream of a connection.
fn choose(rule: Option<Arc<CompiledStream>>, client: IpAddr, trail: Option<&Trail>) -> Result<Arc<Upstream>, Cause> {
    let rule = rule.ok_or(Cause::NoRoute)?;
    if let Some(trail) = trail {
        trail.matched(&rule.place);
    }
    if !rule.admits(client) {
        return Err(Cause::Refused(Reason::Source));
    }
    let upstream = rule.next().cloned().ok_or(Cause::InvalidRule)?;
    rule.metrics.connected();
    if upstream.backends.load().all().is_empty() {
        upstream.failed();
        if let Some(trail) = trail {
            trail.forwarded(&upstream);
        }
        return Err(Cause::NoEndpoints);
    }
    Ok(upstream)
}

/// Makes the connection end with a reset when it is dropped.
pub(super) fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
