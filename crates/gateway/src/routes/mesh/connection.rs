//! Serves a connection to a Service at layer 7, of a Pod of this node or of the node itself.
//!
//! In: an accepted connection. Out: it is served as the routes for its client say: HTTP, bytes by server name, or bytes. Other
//! clients are refused.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;
use routing::model::ListenerProtocol;
use tokio::net::TcpStream;

use crate::access_log::LoggedConnection;
use crate::clients::Source;
use crate::http_proxy::ClientConnection;
use crate::port_config::PortConfig;
use crate::routes::client_hello::Replayed;
use crate::routes::connection::{StreamClient, by_stream, read_hello, reset};
use crate::routes::tables::{PortTable, RoutedPort, ServiceParent};
use crate::serve::plain_http;

/// Serves a connection.
pub(crate) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    port_config: &Arc<PortConfig>,
    (port, parent): (&RoutedPort, &ServiceParent),
    worker: usize,
) {
    let Some(source) = parent.clients.identify(peer.ip()).await else {
        tracing::debug!(service = &*port_config.service, %peer, "refused connection: neither this node nor a Pod of it");
        port_config.metrics.unknown_client();
        return reset(&stream);
    };
    let table = port.table.load_full();
    let PortTable::Mesh(mesh) = &*table else { return reset(&stream) };
    match mesh.protocol(&source) {
        ListenerProtocol::Http => {
            let forwarded = (port.number.clone(), HeaderValue::from_static("http"));
            let client = ClientConnection::new(Arc::clone(port_config), worker, peer, forwarded).of(source);
            drop(table);
            plain_http(stream, client).await;
        }
        ListenerProtocol::TlsPassthrough => {
            let Some((stream, hello)) = read_hello(stream, port_config).await else { return };
            let server_name = hello.server_name.as_deref();
            let mut logged = logged(port_config, peer, &source);
            if let Some(logged) = &mut logged {
                logged.server_name(server_name);
            }
            let rule = mesh.stream(&source, server_name);
            drop(table);
            let client = StreamClient { peer, listener: None, logged, protocol: "TLS" };
            by_stream(stream, |stream: &Replayed| reset(stream.get_ref()), client, rule, port_config).await;
        }
        _ => {
            let (logged, rule) = (logged(port_config, peer, &source), mesh.stream(&source, None));
            drop(table);
            let client = StreamClient { peer, listener: None, logged, protocol: "TCP" };
            by_stream(stream, reset, client, rule, port_config).await;
        }
    }
}

fn logged(port_config: &PortConfig, peer: SocketAddr, source: &Source) -> Option<LoggedConnection> {
    let mut logged = port_config.logged(peer)?;
    logged.source(source);
    Some(logged)
}
