//! The API server of `up`: in this process, which reads its store, or in a child process with its own user, behind a socket.
//!
//! In: settings, and the other components. Out: what they use: watches, a client, and a certificate for the agent.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use client::kubeconfig::Access;
use client::remote::Remote;
use client::watch::Source;
use rest::kubeconfig;
use tokio::sync::watch;

use super::apart::ApiServer;
use super::child::local_socket;
use super::order::{Machine, Report};
use super::reporter::Reporter;
use crate::commands::down;
use crate::commands::server::{self, Beside};
use crate::config::ServerArguments;

/// See the module.
pub(super) struct Api {
    pub(super) address: SocketAddr,
    /// The administrator's kubeconfig.
    pub(super) kubeconfig: PathBuf,
    /// The source of objects.
    pub(super) source: Arc<dyn Source>,
    /// The client.
    pub(super) remote: Remote,
    /// Its certificates, and those of the agent; updated on rotation.
    pub(super) reports: watch::Receiver<Report>,
    place: Place,
}

enum Place {
    /// With its data directory.
    Here(Box<server::Running>, PathBuf),
    Apart(ApiServer),
}

impl Api {
    /// Starts it in this process.
    ///
    /// # Errors
    /// When it does not start.
    pub(super) async fn here(settings: &ServerArguments, machine: Machine) -> anyhow::Result<Self> {
        let Machine { addresses, node, agent } = machine;
        let data_dir = &settings.place.data_dir;
        std::fs::create_dir_all(data_dir).with_context(|| format!("creating {}", data_dir.display()))?;
        let socket = Some(local_socket(data_dir)?);
        let running = server::start(settings, Beside { addresses, node, socket, is_apart: false }).await?;
        let reports = follow(Reporter::new(&running, agent)?);
        Ok(Self {
            address: running.address,
            kubeconfig: running.kubeconfig.clone(),
            source: Arc::new(running.source()),
            remote: Remote::of(Arc::new(Access::local(&data_dir.join(down::SOCKET)))),
            reports,
            place: Place::Here(Box::new(running), data_dir.clone()),
        })
    }

    /// Waits until it serves in a child process, and writes the admin kubeconfig: the user of the server may not write the data directory,
    /// and root uses the file.
    ///
    /// # Errors
    /// When it does not start.
    pub(super) async fn apart(server: ApiServer, settings: &ServerArguments) -> anyhow::Result<Self> {
        let reports = server.reports().await?;
        let report = reports.borrow().clone();
        let kubeconfig = settings.place.data_dir.join("kubeconfig");
        kubeconfig::write_for_admin(&kubeconfig, &server::reachable(report.address), &report.ca, &report.admin)
            .context("writing the admin kubeconfig")?;
        let remote = Remote::of(Arc::new(Access::local(&server.socket())));
        Ok(Self {
            address: report.address,
            kubeconfig,
            source: Arc::new(remote.clone()),
            remote,
            reports,
            place: Place::Apart(server),
        })
    }

    /// Waits for its unexpected end.
    pub(super) async fn ended(&self) -> anyhow::Error {
        match &self.place {
            Place::Here(..) => std::future::pending().await,
            Place::Apart(_) => {
                ended(self.reports.clone()).await;
                anyhow!("the API server has ended; see its log")
            }
        }
    }

    /// Stops it after requests in progress.
    pub(super) async fn stop(self) {
        match self.place {
            Place::Here(running, data_dir) => {
                running.stop().await;
                // Clients of this process are gone; a leftover would be replaced by the next start.
                let _ = std::fs::remove_file(data_dir.join(down::SOCKET));
            }
            Place::Apart(server) => server.stop(ended(self.reports)).await,
        }
    }
}

/// Waits until the reports end, which is when the server has ended.
async fn ended(mut reports: watch::Receiver<Report>) {
    while reports.changed().await.is_ok() {}
}

/// The reports of a server in this process.
fn follow(mut reporter: Reporter) -> watch::Receiver<Report> {
    let (sender, reports) = watch::channel(reporter.report());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = sender.closed() => return,
                report = reporter.next() => match report {
                    Ok(report) => drop(sender.send_replace(report)),
                    Err(error) => tracing::warn!(%error, "failed to certify the agent"),
                },
            }
        }
    });
    reports
}
