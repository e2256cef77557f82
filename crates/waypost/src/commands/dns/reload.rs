//! Reload of a changed Corefile at run time.
//!
//! In: new contents of the file, read at its interval or on SIGHUP. Out: new components, swapped in when they are ready; or an error, and
//! the old ones stay.

use std::path::Path;
use std::sync::Arc;

use dns::config::Config;
use dns::reload::{self, ApplyConfig, Content, ReloadMetrics};
use dns::serve::HandlerSwap;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::components::Builder;
use super::http::{Endpoints, HttpListeners, State};

/// Applies configurations.
pub(super) struct ConfigApplier {
    pub(super) builder: Builder,
    pub(super) state: Arc<State>,
    pub(super) switch: HandlerSwap,
    pub(super) listeners: Option<HttpListeners>,
}

impl ApplyConfig for ConfigApplier {
    type Error = anyhow::Error;

    async fn apply(&mut self, config: Config) -> anyhow::Result<()> {
        let old = self.state.components();
        let components = Arc::new(self.builder.next(&config, &old, &self.state.metrics).await?);
        self.switch.swap(components.snapshot.clone(), components.resolver.clone());
        self.state.replace(components);
        if let Some(listeners) = &mut self.listeners {
            listeners.follow(Endpoints::of_corefile(&config)).await;
        }
        Ok(())
    }
}

/// Watches the file and SIGHUP in background tasks.
pub(super) fn follow(
    tasks: &mut JoinSet<()>,
    path: &Path,
    first: Content,
    metrics: Arc<ReloadMetrics>,
    applier: ConfigApplier,
) {
    let requested = Arc::new(Notify::new());
    tasks.spawn(reload::watch(path.to_owned(), first, requested.clone(), metrics, applier));
    match signal(SignalKind::hangup()) {
        Ok(mut hangup) => {
            tasks.spawn(async move {
                while hangup.recv().await.is_some() {
                    requested.notify_one();
                }
            });
        }
        Err(error) => tracing::warn!(%error, "SIGHUP: reload not available; the Corefile is read at its interval"),
    }
}
