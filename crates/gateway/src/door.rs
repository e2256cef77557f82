//! A listener: lets in whom the Service lets in, as many as there is room for, and hands them to the workers.
//!
//! In: an address, of which the kernel chooses the port. Out: arrivals. Whoever is not let in is hung up on: the port can be reached past
//! the proxy's rules, so they are not the only guard. The machine itself is let in: its proxy may carry connections, and has looked at
//! who asks; and its own programs can reach pods without us.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::task::AbortHandle;

use crate::lane::Lane;
use crate::serve::Arrival;
use crate::workers::Workers;

/// How many connections may wait to be accepted.
const WAITING: u32 = 4096;
/// How long to wait when there are no more files.
const BREATH: Duration = Duration::from_millis(50);

/// A listener. Dropping it closes it.
pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    task: AbortHandle,
}

impl Door {
    /// Opens it; inside a tokio runtime.
    pub(crate) fn open(ip: IpAddr, lane: &Arc<Lane>, workers: &Arc<Workers>) -> io::Result<Self> {
        let socket = if ip.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.bind(SocketAddr::new(ip, 0))?;
        let listener = socket.listen(WAITING)?;
        let address = listener.local_addr()?;
        let accepting = accept(listener, ip, Arc::clone(lane), Arc::clone(workers));
        Ok(Self { address, task: tokio::spawn(accepting).abort_handle() })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, own: IpAddr, lane: Arc<Lane>, workers: Arc<Workers>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Nobody else can have our own address: the kernel takes no such packets from outside.
                if peer.ip() != own && !lane.sources.load().admit(peer.ip().to_canonical()) {
                    continue;
                }
                // It is served on another runtime than the one that heard of it.
                if let (Some(place), Ok(stream)) = (lane.enter(), stream.into_std()) {
                    workers.give(|turn| Arrival { stream, peer, place, turn });
                }
            }
            // The client has thought better of it, or there are no more files.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::debug!(service = &*lane.service, %error, "a connection could not be accepted");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}
