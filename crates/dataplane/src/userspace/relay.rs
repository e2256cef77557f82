//! The relay: takes connections at listeners and carries them to endpoints.
//!
//! In: listeners, each with a [`Balancer`] that says where connections go; balancers are told of other endpoints while they are
//! in use. Out: bytes, both ways. It knows nothing of rules or Services, so it serves whoever brings traffic to a listener:
//! rules that redirect it, or clients that ask at loopback.
//!
//! ```text
//! listen ─▶ tcp: accept ─▶ balancer: whom? ─▶ dial, and dial another ─▶ stream: both ways through pipes
//!        └▶ udp: datagram ─▶ its session, or a new one ─▶ endpoint ─▶ answer, from the address that was asked
//! ```
//! It works on threads of its own, the lanes: what it carries waits neither for the rest of the program nor the other way round.

mod balancer;
mod lanes;
mod limit;
mod pipes;
mod sockets;
mod stream;
mod tcp;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use plan::Protocol;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

pub use balancer::{Balancer, Places, Scope};

use lanes::Lanes;
use limit::Limit;
use pipes::Pipes;

/// How a relay behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How many connections and UDP sessions there may be at a time; if nothing is said, as many as this process may have
    /// files for.
    pub connections: Option<usize>,
    /// After which time without a datagram a UDP session ends.
    pub udp_idle: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { connections: None, udp_idle: Duration::from_secs(10) }
    }
}

/// What all connections share.
struct Shared {
    lanes: Arc<Lanes>,
    pipes: Pipes,
    limit: Arc<Limit>,
    settings: Settings,
    /// The mark of what is sent, by which rules know it, if it has one.
    mark: Option<u32>,
}

/// Carries connections. Those that run go on when it is dropped. Clones share their limits.
#[derive(Clone)]
pub struct Relay(Arc<Shared>);

/// Takes connections as long as it is there. TCP connections that it took go on without it; UDP sessions end.
pub struct Listener {
    /// Where it listens.
    pub address: SocketAddr,
    task: AbortHandle,
    runtime: Handle,
    /// Ends when the socket is closed.
    open: Receiver<()>,
}

impl Listener {
    /// Ends it and waits until its address is free for others. Not to be called on a thread of the runtime.
    pub fn close(self) {
        self.task.abort();
        // Whoever holds the other end never says anything; it is dropped with the socket.
        let _ = self.open.recv_timeout(CLOSING);
    }

    /// Ends it after a while, in which it lets in those who have come already.
    pub fn close_after(self, grace: Duration) {
        self.runtime.clone().spawn(async move {
            tokio::time::sleep(grace).await;
            drop(self);
        });
    }
}

/// How long closing may take.
const CLOSING: Duration = Duration::from_secs(1);

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    /// A relay without listeners. Raises the number of files that this process may open.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let files = limit::raise_files();
        let limit = Arc::new(Limit::new(settings.connections.unwrap_or_else(|| limit::connections(files))));
        let (lanes, pipes) = (Arc::default(), Pipes::new(limit::pipes(files)));
        Self(Arc::new(Shared { lanes, pipes, limit, settings, mark: None }))
    }

    /// The same relay, but what it sends has a mark, by which rules know it. Takes the right to administer the network.
    #[must_use]
    pub fn marked(&self, bits: u32) -> Self {
        let Shared { lanes, pipes, limit, settings, .. } = &*self.0;
        let (lanes, pipes, limit) = (Arc::clone(lanes), pipes.clone(), Arc::clone(limit));
        Self(Arc::new(Shared { lanes, pipes, limit, settings: *settings, mark: Some(bits) }))
    }

    /// Begins to take connections at an address; at port 0 the kernel chooses one.
    ///
    /// # Errors
    /// When nobody can listen there, or by this protocol.
    pub fn listen(
        &self,
        at: SocketAddr,
        protocol: Protocol,
        balancer: &Arc<Balancer>,
        scope: Scope,
    ) -> io::Result<Listener> {
        let (lane, runtime) = self.0.lanes.next()?;
        let context = runtime.enter();
        let (shared, balancer) = (Arc::clone(&self.0), Arc::clone(balancer));
        let (held, open) = channel();
        let (address, task) = match protocol {
            Protocol::Tcp => {
                let socket = sockets::tcp_listener(at)?;
                let desk = tcp::Desk { lane, shared, balancer, scope };
                (socket.local_addr()?, runtime.spawn(tcp::accept((held, socket), desk)))
            }
            Protocol::Udp => {
                let socket = sockets::udp_listener(at)?;
                (socket.local_addr()?, runtime.spawn(udp::listen((socket, held), shared, balancer, scope)))
            }
            Protocol::Sctp => return Err(io::Error::new(io::ErrorKind::Unsupported, "SCTP cannot be relayed")),
        };
        let task = task.abort_handle();
        drop(context);
        Ok(Listener { address, task, runtime, open })
    }
}

#[cfg(test)]
mod tests;
