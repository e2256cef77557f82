//! The local socket for components of this machine in other processes, without TLS.
//!
//! In: connections. Out: those of one uid (`SO_PEERCRED`) are served as [`crate::auth::LOCAL`]; all others are closed and logged. They do
//! not count towards the limits of other connections: a flood on the API must not cut off the proxy.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixListener as StdListener;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use super::ConnectionContext;
use crate::handler::Peer;

/// The delay after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A socket, and the uid that may use it.
#[derive(Debug)]
pub struct LocalSocket {
    /// The listening socket.
    pub listener: StdListener,
    /// The uid that may connect.
    pub uid: u32,
}

/// The same, registered with the tokio runtime.
pub(super) struct LocalListener {
    listener: UnixListener,
    uid: u32,
}

impl LocalListener {
    pub(super) fn open(socket: LocalSocket) -> io::Result<Self> {
        socket.listener.set_nonblocking(true)?;
        Ok(Self { listener: UnixListener::from_std(socket.listener)?, uid: socket.uid })
    }

    /// Serves connections; each holds a clone of `alive`.
    pub(super) async fn run(self, open: ConnectionContext, alive: mpsc::Sender<()>) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    if !self.is_allowed(&stream) {
                        continue;
                    }
                    let (open, alive) = (open.clone(), alive.clone());
                    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
                    tokio::spawn(async move {
                        open.requests(stream, Peer { address, certificate: None, is_local: true }).await;
                        drop(alive);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept local connection");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    fn is_allowed(&self, stream: &UnixStream) -> bool {
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == self.uid => true,
            Ok(peer) => {
                tracing::warn!(uid = peer.uid(), pid = peer.pid(), "refused local connection of another user");
                false
            }
            Err(error) => {
                tracing::warn!(%error, "refused local connection of unknown user");
                false
            }
        }
    }
}
