//! Listener of a port: accepts connections from allowed source addresses up to the connection limit and dispatches them
//! to workers.
//!
//! In: a local address; the kernel selects the port. Out: accepted connections. Disallowed connections are closed: the
//! port is reachable without passing the proxy's rules, so source ranges are checked here, too. Connections from the
//! node's own address are allowed: the userspace proxy has checked the client already, and local programs can reach
//! pods directly.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::task::AbortHandle;

use crate::port_config::PortConfig;
use crate::serve::AcceptedConnection;
use crate::workers::Workers;

/// Listen backlog.
const BACKLOG: u32 = 4096;
/// Delay before accepting again after EMFILE or ENFILE.
const EMFILE_BACKOFF: Duration = Duration::from_millis(50);

/// Listener. Dropping it closes it.
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    task: AbortHandle,
}

impl Listener {
    /// Opens a listener. Must be called within a tokio runtime.
    pub(crate) fn open(ip: IpAddr, port_config: &Arc<PortConfig>, workers: &Arc<Workers>) -> io::Result<Self> {
        let socket = if ip.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.bind(SocketAddr::new(ip, 0))?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let accepting = accept(listener, ip, Arc::clone(port_config), Arc::clone(workers));
        Ok(Self { address, task: tokio::spawn(accepting).abort_handle() })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, own: IpAddr, port_config: Arc<PortConfig>, workers: Arc<Workers>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // The kernel drops packets from outside with our own source address.
                if peer.ip() != own && !port_config.sources.load().allows(peer.ip().to_canonical()) {
                    continue;
                }
                // It is served on the runtime of a worker.
                if let (Some(guard), Ok(stream)) = (port_config.enter(), stream.into_std()) {
                    workers.dispatch(|load| AcceptedConnection { stream, peer, guard, load });
                }
            }
            // Aborted by the client before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::debug!(service = &*port_config.service, %error, "failed to accept connection");
                tokio::time::sleep(EMFILE_BACKOFF).await;
            }
        }
    }
}

/// Opens a listener for each address family of the load balancer (`vips`) for which this node has an address, keeps
/// those that are open there, and closes others. Returns why others could not be opened.
pub(crate) fn open_all<L>(
    listeners: &mut Vec<L>,
    address_of: impl Fn(&L) -> SocketAddr,
    (addresses, vips): (&[IpAddr], &[IpAddr]),
    port: u16,
    open: impl Fn(IpAddr) -> io::Result<L>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut opened = Vec::new();
    for is_v4 in [true, false] {
        let mut candidates = addresses.iter().filter(|ip| ip.is_ipv4() == is_v4);
        if !vips.iter().any(|ip| ip.is_ipv4() == is_v4) {
            continue;
        }
        let is_here = |listener: &L| candidates.clone().next() == Some(&address_of(listener).ip());
        if let Some(index) = listeners.iter().position(is_here) {
            opened.push(listeners.swap_remove(index));
            continue;
        }
        let mut why = "this node has no address of this family".to_owned();
        let found = candidates.find_map(|ip| open(*ip).map_err(|error| why = format!("{ip}: {error}")).ok());
        let family = if is_v4 { "IPv4" } else { "IPv6" };
        match found {
            Some(listener) => opened.push(listener),
            None => problems.push(format!("cannot listen for port {port} on {family} on this node: {why}")),
        }
    }
    *listeners = opened;
    problems
}
