//! The API server of `up` as a child process, from the side of its parent.
//!
//! In: an order. Out: a process that serves the API with its own user, and its reports. When it ends, the parent ends, too. Requests use its
//! local socket, where the kernel authenticates the peer.

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use kernel::process::Spawned;
use rustix::fs::{FlockOperation, flock};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::watch;
use tokio::time::timeout;

use super::child;
use super::order::{Order, Report};
use crate::commands::down::{self, Running};

/// Time limit of requests in progress while stopping.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// The process.
pub(super) struct ApiServer {
    process: Spawned,
    control: UnixStream,
    data_dir: PathBuf,
    /// The lock of the data directory.
    _lock: OwnedFd,
    _note: Running,
}

impl ApiServer {
    /// Starts it. The process must have one thread.
    ///
    /// # Errors
    /// When the data directory belongs to another user or is in use, or the process cannot be started.
    pub(super) fn start(order: &Order) -> anyhow::Result<Self> {
        let data_dir = order.data_dir.clone();
        let lock = kernel::privileges::directory(&std::fs::canonicalize(&data_dir)?)?;
        ensure!(
            flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
            "another `waypost up` serves {}; stop it first (waypost down --keep-data), or choose another --data-dir",
            data_dir.display()
        );
        Running::await_server(&data_dir)?;
        let (mut control, theirs) = UnixStream::pair().context("creating a socket")?;
        let process = Spawned::begin_role(child::NAME, std::env::args_os().skip(1), theirs.into());
        let process = process.context("starting the API server in another process")?;
        order.write(&mut control)?;
        let who = process.identity().context("the API server has ended")?;
        let note = Running::note_server(&data_dir, who)?;
        Ok(Self { process, control, data_dir, _lock: lock, _note: note })
    }

    /// The socket for requests.
    pub(super) fn socket(&self) -> PathBuf {
        self.data_dir.join(down::SOCKET)
    }

    /// Waits until it serves; returns its reports, which end with the process.
    ///
    /// # Errors
    /// When it does not start.
    pub(super) async fn reports(&self) -> anyhow::Result<watch::Receiver<Report>> {
        let (mut lines, mut line) = (BufReader::new(self.listen()?), String::new());
        lines.read_line(&mut line).await?;
        let (sender, reports) = watch::channel(Report::parse(&line)?);
        tokio::spawn(async move {
            let mut lines = lines.lines();
            // The connection is closed when the process ends.
            while let Ok(Some(line)) = lines.next_line().await {
                match Report::parse(&line) {
                    Ok(report) => drop(sender.send_replace(report)),
                    Err(error) => tracing::warn!("failed to read a report of the API server: {error:#}"),
                }
            }
        });
        Ok(reports)
    }

    fn listen(&self) -> std::io::Result<tokio::net::UnixStream> {
        let control = self.control.try_clone()?;
        control.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(control)
    }

    /// Stops it after requests in progress, and waits; kills it after the time limit.
    pub(super) async fn stop(mut self, ended: impl Future<Output = ()>) {
        // It stops when the connection is closed.
        if let Err(error) = self.control.shutdown(Shutdown::Write) {
            tracing::debug!(%error, "the API server has closed its connection");
        }
        match timeout(STOP_TIMEOUT, ended).await {
            Ok(()) => match self.process.wait() {
                Ok(0) => {}
                Ok(code) => tracing::warn!(code, "API server failed"),
                Err(error) => tracing::warn!(%error, "cannot wait for API server"),
            },
            Err(_) => tracing::warn!("killing API server after timeout"),
        }
        // It may have ended already.
        let _ = std::fs::remove_file(self.socket());
    }
}
