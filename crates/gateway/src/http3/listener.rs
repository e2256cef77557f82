//! QUIC listener of a port: one socket, served by one worker.
//!
//! In: a local address; the kernel selects the port. Out: connections from allowed source addresses, up to the limit of the port, which TCP
//! connections count towards, too. While many handshakes are in progress with clients whose address is not proven, others have to prove it
//! first (Retry), which costs no memory here. A connection keeps the address that was checked: it cannot migrate.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::HeaderValue;
use quinn::{Endpoint, EndpointConfig, IdleTimeout, Incoming, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use tokio::sync::watch;
use tokio::time::timeout;

use super::connection;
use super::hello::{HelloReader, Selected};
use crate::http_proxy::ClientConnection;
use crate::metrics::QuicLimit;
use crate::port_config::{ConnectionGuard, PortConfig, Serving, until_closing};
use crate::workers::{WorkerLoad, Workers};

/// Unidirectional streams of a client: one for control, two for QPACK, and some that are ignored.
const STREAMS: u32 = 8;
/// Flow control: bytes of a connection, and of a stream, that are received and not read.
const WINDOW: u32 = 1024 * 1024;
const STREAM_WINDOW: u32 = 256 * 1024;
/// Bytes of a connection that are sent and not acknowledged.
const SEND_WINDOW: u64 = 1024 * 1024;
/// Bytes of handshake messages that arrive out of order.
const CRYPTO_BUFFER: usize = 16 * 1024;
/// Clients that have sent a first packet and are not accepted yet, and bytes of further packets: of each, and of all.
const MAX_INCOMING: usize = 1024;
const INCOMING_BUFFER: u64 = 16 * 1024;
const INCOMING_BUFFERS: u64 = 1024 * 1024;

/// Listener. Dropping it closes it; its connections drain.
pub(crate) struct QuicListener {
    pub(crate) address: SocketAddr,
    _open: watch::Sender<bool>,
}

/// Accepts connections.
struct Server {
    endpoint: Endpoint,
    port_config: Arc<PortConfig>,
    own: IpAddr,
    worker: usize,
    load: WorkerLoad,
    /// Handshakes in progress with clients whose address is not proven.
    unproven: Arc<AtomicUsize>,
    /// Whether the listener is closed.
    closing: watch::Receiver<bool>,
}

/// Counts a handshake until it is dropped.
struct Unproven(Arc<AtomicUsize>);

impl QuicListener {
    /// Opens a listener.
    pub(crate) fn open(ip: IpAddr, port_config: &Arc<PortConfig>, workers: &Workers) -> io::Result<Self> {
        let socket = UdpSocket::bind(SocketAddr::new(ip, 0))?;
        let address = socket.local_addr()?;
        let hello = HelloReader::new(Arc::clone(port_config)).map_err(io::Error::other)?;
        let config = server_config(hello, port_config)?;
        let (open, closing) = watch::channel(false);
        let port_config = Arc::clone(port_config);
        workers.run(move |worker, load| {
            let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, Arc::new(TokioRuntime));
            match endpoint {
                Ok(endpoint) => {
                    let unproven = Arc::default();
                    let server = Server { endpoint, port_config, own: ip, worker, load, unproven, closing };
                    tokio::spawn(server.run());
                }
                Err(error) => tracing::error!(service = &*port_config.service, %error, "failed to open QUIC endpoint"),
            }
        });
        Ok(Self { address, _open: open })
    }
}

fn server_config(hello: HelloReader, port_config: &PortConfig) -> io::Result<ServerConfig> {
    let limits = port_config.limits;
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(limits.streams))
        .max_concurrent_uni_streams(VarInt::from_u32(STREAMS))
        .max_idle_timeout(Some(IdleTimeout::try_from(port_config.idle()).map_err(io::Error::other)?))
        .receive_window(VarInt::from_u32(WINDOW))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .send_window(SEND_WINDOW)
        .crypto_buffer_size(CRYPTO_BUFFER)
        .allow_spin(false)
        .datagram_receive_buffer_size(None);
    let mut config = ServerConfig::with_crypto(Arc::new(hello));
    config
        .transport_config(Arc::new(transport))
        .migration(false)
        .max_incoming(MAX_INCOMING)
        .incoming_buffer_size(INCOMING_BUFFER)
        .incoming_buffer_size_total(INCOMING_BUFFERS);
    Ok(config)
}

impl Server {
    async fn run(self) {
        let mut closing = self.closing.clone();
        loop {
            tokio::select! {
                incoming = self.endpoint.accept() => match incoming {
                    Some(incoming) => self.take(incoming),
                    None => return,
                },
                () = until_closing(&mut closing) => break,
            }
        }
        // Connections keep the socket open until they are closed.
        self.endpoint.set_server_config(None);
    }

    /// Begins a handshake, or does not.
    fn take(&self, incoming: Incoming) {
        let (client, metrics) = (incoming.remote_address().ip(), &self.port_config.metrics.quic);
        // The kernel drops packets from outside with our own source address.
        if client != self.own && !self.port_config.sources.load().allows(client.to_canonical()) {
            return incoming.ignore();
        }
        let is_proven = incoming.remote_address_validated();
        if !is_proven && self.unproven.load(Relaxed) >= self.port_config.limits.unproven_handshakes {
            metrics.limited(QuicLimit::Handshakes);
            // It is allowed: the client has not proven its address.
            let _ = incoming.retry();
            return;
        }
        let Some(guard) = self.port_config.enter() else {
            metrics.limited(QuicLimit::Connections);
            return incoming.refuse();
        };
        let unproven = (!is_proven).then(|| Unproven::new(&self.unproven));
        let (place, closing) = ((self.worker, self.load.another()), self.closing.clone());
        tokio::spawn(serve(incoming, guard, unproven, place, closing));
    }
}

/// Serves a connection until it is closed.
async fn serve(
    incoming: Incoming,
    guard: ConnectionGuard,
    unproven: Option<Unproven>,
    (worker, _load): (usize, WorkerLoad),
    closing: watch::Receiver<bool>,
) {
    let connected = match incoming.accept() {
        Ok(connecting) => timeout(guard.limits.handshake, connecting).await,
        Err(error) => Ok(Err(error)),
    };
    drop(unproven);
    let connection = match connected {
        Ok(Ok(connection)) => connection,
        failed => {
            if let Ok(Err(error)) = failed {
                tracing::debug!(service = &*guard.service, %error, "QUIC handshake with client failed");
            }
            return guard.metrics.handshake_failure();
        }
    };
    let selected = connection.handshake_data().and_then(|data| data.downcast::<Arc<Selected>>().ok());
    let (Some(selected), Serving::Routes(port)) = (selected, &guard.serving) else { return };
    let _open = selected.listener.metrics.open();
    let forwarded = (port.number.clone(), HeaderValue::from_static("https"));
    let client = ClientConnection::new(Arc::clone(&guard), worker, connection.remote_address(), forwarded)
        .at(selected.listener.config.id.clone())
        .over_quic(selected.server_name.as_deref());
    connection::serve(connection, client, closing).await;
}

impl Unproven {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Unproven {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
