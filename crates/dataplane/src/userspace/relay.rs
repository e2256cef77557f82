//! The relay: accepts connections on listeners and forwards them to endpoints.
//!
//! In: listeners, each with a [`Balancer`] that chooses the endpoint and whose endpoints can change at any time. Out:
//! data in both directions. The relay knows neither rules nor Services: traffic comes from redirect rules or from
//! clients on loopback.
//!
//! ```text
//! listen ─▶ tcp: accept ─▶ balancer: choose ─▶ connect, on failure the next ─▶ stream: both ways through pipes
//!        └▶ udp: datagram ─▶ its session, or a new one ─▶ endpoint ─▶ reply, from the address the client used
//! ```
//! It runs on worker threads of its own, so that it neither blocks nor waits for the rest of the process.

mod balancer;
mod limit;
mod pipes;
mod rotation;
mod sockets;
mod stream;
mod tcp;
mod udp;
mod workers;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use plan::Protocol;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

pub use balancer::{Balancer, Endpoints};
pub use plan::Scope;
pub use rotation::Selection;

use limit::Limit;
use pipes::Pipes;
use workers::Workers;

/// Options of a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Maximum number of connections and UDP sessions; by default derived from the limit of open files.
    pub connections: Option<usize>,
    /// Idle timeout of UDP sessions.
    pub udp_idle: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { connections: None, udp_idle: Duration::from_secs(10) }
    }
}

/// State shared by all connections.
struct Shared {
    workers: Arc<Workers>,
    pipes: Pipes,
    limit: Arc<Limit>,
    settings: Settings,
    /// SO_MARK of outgoing packets, if set.
    mark: Option<u32>,
}

/// Forwards connections. They continue when the relay is dropped. Clones share their limits.
#[derive(Clone)]
pub struct Relay(Arc<Shared>);

/// Accepts connections until dropped. Accepted TCP connections continue; UDP sessions end.
pub struct Listener {
    /// Local address.
    pub address: SocketAddr,
    task: AbortHandle,
    runtime: Handle,
    /// Disconnected when the socket is closed.
    open: Receiver<()>,
}

impl Listener {
    /// Closes the listener and waits until its address is free. Must not be called on a runtime thread.
    pub fn close(self) {
        self.task.abort();
        // Nothing is sent: the sender is dropped with the socket.
        let _ = self.open.recv_timeout(CLOSE_TIMEOUT);
    }

    /// Closes the listener after a delay, in which it accepts connections that are already queued.
    pub fn close_after(self, grace: Duration) {
        self.runtime.clone().spawn(async move {
            tokio::time::sleep(grace).await;
            drop(self);
        });
    }
}

/// Maximum time to wait for a listener to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    /// A relay without listeners. Raises the limit of open files of this process.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let files = limit::raise_file_limit();
        let limit = Arc::new(Limit::new(settings.connections.unwrap_or_else(|| limit::connections(files))));
        let (workers, pipes) = (Arc::default(), Pipes::new(limit::pipes(files)));
        Self(Arc::new(Shared { workers, pipes, limit, settings, mark: None }))
    }

    /// The same relay with SO_MARK on outgoing packets. Requires CAP_NET_ADMIN.
    #[must_use]
    pub fn marked(&self, bits: u32) -> Self {
        let Shared { workers, pipes, limit, settings, .. } = &*self.0;
        let (workers, pipes, limit) = (Arc::clone(workers), pipes.clone(), Arc::clone(limit));
        Self(Arc::new(Shared { workers, pipes, limit, settings: *settings, mark: Some(bits) }))
    }

    /// Starts to accept connections at an address; port 0 lets the kernel choose one.
    ///
    /// # Errors
    /// When the address cannot be bound, or the protocol is not supported.
    pub fn listen(
        &self,
        at: SocketAddr,
        protocol: Protocol,
        balancer: &Arc<Balancer>,
        scope: Scope,
    ) -> io::Result<Listener> {
        let (worker, runtime) = self.0.workers.next()?;
        let context = runtime.enter();
        let (shared, balancer) = (Arc::clone(&self.0), Arc::clone(balancer));
        let (held, open) = channel();
        let (address, task) = match protocol {
            Protocol::Tcp => {
                let socket = sockets::tcp_listener(at)?;
                let server = tcp::Server { worker, shared, balancer, scope };
                (socket.local_addr()?, runtime.spawn(tcp::accept((held, socket), server)))
            }
            Protocol::Udp => {
                let socket = sockets::udp_listener(at)?;
                (socket.local_addr()?, runtime.spawn(udp::listen((socket, held), shared, balancer, scope)))
            }
            Protocol::Sctp => {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "the relay does not support SCTP"));
            }
        };
        let task = task.abort_handle();
        drop(context);
        Ok(Listener { address, task, runtime, open })
    }
}

#[cfg(test)]
mod tests;
