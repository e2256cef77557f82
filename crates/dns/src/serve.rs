//! UDP and TCP listeners.
//!
//! In: addresses, a [`ZoneSnapshot`], a [`Forwarder`]. Out: replies. UDP is served by dedicated threads, one per CPU
//! and address, which never wait for anything but datagrams; queries that need upstreams are handed to the tokio
//! runtime, bounded in number. No client input stops a listener. Snapshot and forwarder can be replaced while listeners
//! run; each query sees either the old or the new pair.

mod clients;
mod dispatch;
mod failure_log;
mod tcp;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use kernel::datagrams::Socket;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use self::clients::ClientLimits;
use self::clients::{Clients, Slots};
use self::dispatch::Handler;
use self::failure_log::FailureLog;
use crate::answer::QueryLabels;
use crate::forward::{Forwarder, Request};
use crate::metrics::{Metrics, Observation};
use crate::snapshot::ZoneSnapshot;

/// Listener options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Listen addresses, for UDP and TCP. Port 0 selects a free port, the same for both.
    pub listen: Vec<SocketAddr>,
    /// UDP threads per address; `None` means one per CPU.
    pub threads: Option<usize>,
    /// Whether UDP threads are pinned to CPUs.
    pub pinned: bool,
    /// Socket receive buffer per UDP thread in bytes.
    pub receive_buffer: usize,
    /// Maximum number of UDP queries waiting for upstreams.
    pub max_in_flight: usize,
    /// Queries that take at least this long are logged.
    pub slow: Duration,
    /// How long queries are held before the snapshot is ready.
    pub readiness_timeout: Duration,
    /// TCP connection limits.
    pub connections: ConnectionLimits,
    /// Limits per client.
    pub clients: ClientLimits,
}

/// TCP connection limits.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections in total.
    pub total: usize,
    /// Connections per client address.
    pub per_client: usize,
    /// Queries of one connection that wait for upstreams.
    pub max_in_flight: usize,
    /// Timeout for the first query, and for the rest of a query once its length is received.
    pub first_query_timeout: Duration,
    /// Idle timeout between queries.
    pub idle_timeout: Duration,
    /// Timeout for writing a reply.
    pub write_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let connections = ConnectionLimits {
            total: 4096,
            per_client: 256,
            max_in_flight: 128,
            first_query_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(5),
        };
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 53))],
            threads: None,
            pinned: true,
            receive_buffer: 4 << 20,
            max_in_flight: 4096,
            slow: Duration::from_secs(1),
            readiness_timeout: Duration::from_secs(1),
            connections,
            clients: ClientLimits::default(),
        }
    }
}

/// State shared by all listeners.
struct Shared {
    handler: ArcSwap<Handler>,
    metrics: Arc<Metrics>,
    upstream_permits: Arc<Semaphore>,
    readiness_timeout: Duration,
    failure_log: FailureLog,
    clients: Clients,
    runtime: Handle,
    stopping: AtomicBool,
}

/// Running DNS server. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    sockets: Vec<Arc<Socket>>,
    threads: Vec<JoinHandle<()>>,
    tasks: JoinSet<()>,
    addresses: Vec<SocketAddr>,
}

impl Server {
    /// Binds all addresses and starts serving. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub async fn start(
        snapshot: Arc<ZoneSnapshot>,
        forwarder: Arc<dyn Forwarder>,
        metrics: Arc<Metrics>,
        options: &Options,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            handler: ArcSwap::from_pointee(Handler::new(snapshot, forwarder)),
            metrics,
            upstream_permits: Arc::new(Semaphore::new(options.max_in_flight)),
            readiness_timeout: options.readiness_timeout,
            failure_log: FailureLog::new(options.slow),
            clients: Clients::new(options.clients, Instant::now()),
            runtime: Handle::current(),
            stopping: AtomicBool::new(false),
        });
        let (sockets, threads, tasks, addresses) = (Vec::new(), Vec::new(), JoinSet::new(), Vec::new());
        let mut server = Self { shared, sockets, threads, tasks, addresses };
        let count = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
        // Bind all addresses first: if one fails, none is served.
        let mut listeners = Vec::new();
        for wanted in &options.listen {
            let (first, listener) = match bind(*wanted, options.receive_buffer) {
                // A wildcard address of a family that the kernel does not support is skipped.
                Err(error) if wanted.ip().is_unspecified() && is_unsupported_family(&error) => continue,
                bound => bound?,
            };
            let address = first.local();
            listeners.push(listener);
            server.sockets.push(Arc::new(first));
            for _ in 1..count {
                server.sockets.push(Arc::new(Socket::bind(address, options.receive_buffer)?));
            }
            server.addresses.push(address);
        }
        for (number, socket) in server.sockets.iter().enumerate() {
            let pin = options.pinned.then_some(number % count);
            server.threads.push(udp::spawn(server.shared.clone(), socket.clone(), pin)?);
        }
        let shared = server.shared.clone();
        server.tasks.spawn(async move { shared.clients.maintain().await });
        let (limits, slots) =
            (options.connections, Slots::new(options.connections.total, options.connections.per_client));
        for listener in listeners {
            server.tasks.spawn(tcp::listen(server.shared.clone(), listener, limits, slots.clone()));
        }
        Ok(server)
    }

    /// Addresses it listens on.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Handle that replaces snapshot and forwarder.
    #[must_use]
    pub fn handler_swap(&self) -> HandlerSwap {
        HandlerSwap(self.shared.clone())
    }

    /// Stops listening; replies in progress are sent.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.tasks.abort_all();
        self.sockets.iter().for_each(|socket| socket.shut());
        for thread in self.threads.drain(..) {
            // A panic was counted already.
            let _ = thread.join();
        }
    }
}

/// Replaces snapshot and forwarder of a running server.
pub struct HandlerSwap(Arc<Shared>);

impl HandlerSwap {
    /// Replaces both for new queries; queries in progress keep the old ones. The zones of the snapshot must be those
    /// that [`Metrics`] was created with.
    pub fn swap(&self, snapshot: Arc<ZoneSnapshot>, forwarder: Arc<dyn Forwarder>) {
        self.0.handler.store(Arc::new(Handler::new(snapshot, forwarder)));
    }
}

impl std::fmt::Debug for HandlerSwap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandlerSwap")
    }
}

/// Whether the kernel does not support the address family (IPv6 disabled).
fn is_unsupported_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(kernel::Errno::AFNOSUPPORT.raw_os_error())
}

/// Binds UDP and TCP sockets on one address. With port 0, another port is tried if the UDP port is in use for TCP.
fn bind(wanted: SocketAddr, receive_buffer: usize) -> io::Result<(Socket, TcpListener)> {
    let mut tries = if wanted.port() == 0 { 16 } else { 1 };
    loop {
        tries -= 1;
        let socket = Socket::bind(wanted, receive_buffer)?;
        match kernel::socket::listen(socket.local()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
            listener => return Ok((socket, TcpListener::from_std(listener?)?)),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server on {:?}", self.addresses)
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Counts a query outside a UDP batch.
    fn count(&self, labels: QueryLabels, request: &Request<'_>, reply: &[u8], duration: Duration) {
        let (request_size, response_size) = (request.message.len(), (!reply.is_empty()).then_some(reply.len()));
        let (v4, rcode, transport) = (request.from.ip.is_ipv4(), Observation::rcode_of(reply), request.transport);
        self.metrics.count(&Observation { labels, transport, v4, request_size, response_size, rcode, duration });
    }

    /// Counts a query that waited, and logs it if it failed or was slow.
    fn record(&self, handler: &Handler, labels: QueryLabels, request: &Request<'_>, reply: &[u8], start: Instant) {
        let duration = start.elapsed();
        self.count(labels, request, reply, duration);
        handler.log(request, reply, duration);
        self.failure_log.record(request, reply, duration);
    }
}
