//! A changed Corefile, taken over by the server that runs.
//!
//! In: new contents of the file, found at its interval or on SIGHUP. Out: other parts that answer, exchanged when they can; or
//! a refusal, and everything stays.

use std::path::Path;
use std::sync::Arc;

use dns::config::Config;
use dns::reload::{self, ApplyConfig, Content, ReloadMetrics};
use dns::serve::HandlerSwap;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::pages::{Pages, Plan, State};
use super::parts::Builder;

/// Takes configurations over.
pub(super) struct Taker {
    pub(super) builder: Builder,
    pub(super) state: Arc<State>,
    pub(super) switch: HandlerSwap,
    pub(super) pages: Option<Pages>,
}

impl ApplyConfig for Taker {
    async fn apply(&mut self, config: Config) -> Result<(), String> {
        let old = self.state.parts();
        let parts = self.builder.next(&config, &old, &self.state.metrics).await;
        let parts = Arc::new(parts.map_err(|error| format!("{error:#}"))?);
        self.switch.swap(parts.book.clone(), parts.resolver.clone());
        self.state.show(parts);
        if let Some(pages) = &mut self.pages {
            pages.follow(Plan::of_corefile(&config)).await;
        }
        Ok(())
    }
}

/// Follows the file among other tasks.
pub(super) fn follow(tasks: &mut JoinSet<()>, path: &Path, first: Content, figures: Arc<ReloadMetrics>, taker: Taker) {
    let wish = Arc::new(Notify::new());
    tasks.spawn(reload::watch(path.to_owned(), first, wish.clone(), figures, taker));
    match signal(SignalKind::hangup()) {
        Ok(mut hangup) => {
            tasks.spawn(async move {
                while hangup.recv().await.is_some() {
                    wish.notify_one();
                }
            });
        }
        Err(error) => tracing::warn!(%error, "SIGHUP has the Corefile not looked at; its interval does"),
    }
}
