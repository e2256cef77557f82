//! The local socket: components of this machine that run in another process come here, without TLS.
//!
//! In: connections. Out: those of one user, as the kernel says (`SO_PEERCRED`), are served as [`crate::auth::LOCAL`]; all others are closed and
//! logged. They are not counted against the limits of other connections: those who flood the API must not cut off the proxy.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixListener as StdListener;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use super::Open;
use crate::handler::Peer;

/// How long nothing is accepted after that has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket, and whose processes may use it.
#[derive(Debug)]
pub struct LocalSocket {
    /// The socket, which listens.
    pub listener: StdListener,
    /// The user who may connect.
    pub uid: u32,
}

/// The same, on the present tokio runtime.
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
    pub(super) async fn run(self, open: Open, alive: mpsc::Sender<()>) {
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
                    tracing::warn!(%error, "failed to accept a local connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn is_allowed(&self, stream: &UnixStream) -> bool {
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == self.uid => true,
            Ok(peer) => {
                tracing::warn!(uid = peer.uid(), pid = peer.pid(), "refused a local connection of another user");
                false
            }
            Err(error) => {
                tracing::warn!(%error, "refused a local connection of an unknown user");
                false
            }
        }
    }
}
