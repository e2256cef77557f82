//! The API server of `up` in another process, seen from its parent.
//!
//! In: an order. Out: a process that serves the API as its own user; its report; its end, which is the end of the parent too. Requests go
//! through its local socket, where the kernel says who asks.

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

/// How long requests in progress may take at the end.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// The process.
pub(super) struct ApiServer {
    process: Spawned,
    control: UnixStream,
    data_dir: PathBuf,
    /// Whoever has it is the one parent of this data directory.
    _lock: OwnedFd,
    _note: Running,
}

impl ApiServer {
    /// Starts it. The process must have one thread.
    ///
    /// # Errors
    /// When the data directory is somebody else's, or in use, or no process can be started.
    pub(super) fn start(order: &Order) -> anyhow::Result<Self> {
        let data_dir = order.data_dir.clone();
        let lock = kernel::privileges::directory(&std::fs::canonicalize(&data_dir)?)?;
        ensure!(
            flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
            "another `waypost up` serves {}; stop it first (waypost down --keep-data), or choose another --data-dir",
            data_dir.display()
        );
        Running::await_server(&data_dir)?;
        let (mut control, theirs) = UnixStream::pair().context("making a socket")?;
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

    /// Waits until it serves. Gives its reports, which end when it does.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) async fn reports(&self) -> anyhow::Result<watch::Receiver<Report>> {
        let (mut lines, mut line) = (BufReader::new(self.listen()?), String::new());
        lines.read_line(&mut line).await?;
        let (sender, reports) = watch::channel(Report::parse(&line)?);
        tokio::spawn(async move {
            let mut lines = lines.lines();
            // Its side of the connection is closed with the process.
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

    /// Lets requests end, and waits for its end. What does not end in time is killed.
    pub(super) async fn stop(mut self, ended: impl Future<Output = ()>) {
        // It ends when the connection does.
        if let Err(error) = self.control.shutdown(Shutdown::Write) {
            tracing::debug!(%error, "the API server has closed its connection");
        }
        match timeout(STOP_TIMEOUT, ended).await {
            Ok(()) => match self.process.wait() {
                Ok(0) => {}
                Ok(code) => tracing::warn!(code, "the API server ended with an error"),
                Err(error) => tracing::warn!(%error, "the API server cannot be waited for"),
            },
            Err(_) => tracing::warn!("killing the API server, which does not end in time"),
        }
        // It may not have been there any more.
        let _ = std::fs::remove_file(self.socket());
    }
}
