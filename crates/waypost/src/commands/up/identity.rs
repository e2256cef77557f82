//! Certificates of the agent of `waypost up`, the admin kubeconfig, and the added context, updated when the certificates of the server change.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rest::kubeconfig;
use rest::pki::{PkiError, Served};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::api::Api;
use super::context;
use super::order::Report;
use crate::commands::server;

/// Files with certificates of a report.
struct Files {
    kubeconfig: PathBuf,
    /// The data directory and the name of a context that was added.
    added: Option<(PathBuf, String)>,
}

/// The TLS settings of the agent in this process, and the task that keeps them, the kubeconfig and the context `added` up to date.
pub(super) fn start(
    api: &Api,
    data_dir: &Path,
    added: Option<&str>,
) -> Result<(::agent::serve::Tls, JoinSet<()>), PkiError> {
    let reports = api.reports.clone();
    let report = reports.borrow().clone();
    let served = Served::new(&report.ca);
    served.show(&report.agent)?;
    let (tls, mut task) = (served.configs(), JoinSet::new());
    let added = added.map(|name| (data_dir.to_owned(), name.to_owned()));
    task.spawn(follow(reports, served, Files { kubeconfig: api.kubeconfig.clone(), added }));
    Ok((tls, task))
}

/// Applies the reports of the server until it ends.
async fn follow(mut reports: watch::Receiver<Report>, served: Served, files: Files) {
    while reports.changed().await.is_ok() {
        let report = reports.borrow_and_update().clone();
        if let Err(error) = served.trust(&report.ca).and_then(|()| served.show(&report.agent)) {
            tracing::warn!(%error, "cannot update the certificates of the agent");
        }
        if let Err(error) = files.write(&report) {
            tracing::warn!("{error:#}");
        }
    }
}

impl Files {
    fn write(&self, report: &Report) -> anyhow::Result<()> {
        let server = server::reachable(report.address);
        kubeconfig::write_for_admin(&self.kubeconfig, &server, &report.ca, &report.admin)
            .context("writing the admin kubeconfig")?;
        match &self.added {
            Some((data_dir, name)) => context::add(data_dir, &self.kubeconfig, name),
            None => Ok(()),
        }
    }
}
