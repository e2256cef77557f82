//! A changed Corefile, taken over by the server that runs.
//!
//! In: new contents of the file, found at its interval or on SIGHUP. Out: other parts that answer, exchanged when they can; or
//! a refusal, and everything stays.

use std::path::Path;
use std::sync::Arc;

use dns::config::Config;
use dns::reload::{self, Content, Figures, Takes};
use dns::serve::Switch;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::pages::{Pages, Plan, State};
use super::parts::Builder;

/// Takes configurations over.
pub(super) struct Taker {
    pub(super) builder: Builder,
    pub(super) state: Arc<State>,
    pub(super) switch: Switch,
    pub(super) pages: Option<Pages>,
}

impl Takes for Taker {
    async fn take(&mut self, config: Config) -> Result<(), String> {
        let old = self.state.parts();
        let parts = self.builder.next(&config, &old, &self.state.metrics).await;
        let parts = Arc::new(parts.map_err(|error| format!("{error:#}"))?);
        self.switch.exchange(parts.book.clone(), parts.resolver.clone());
        self.state.show(parts);
        if let Some(pages) = &mut self.pages {
            pages.follow(Plan::of_corefile(&config)).await;
        }
        Ok(())
    }
}

/// Follows the file among other tasks.
pub(super) fn follow(tasks: &mut JoinSet<()>, path: &Path, first: Content, figures: Arc<Figures>, taker: Taker) {
    let wish = Arc::new(Notify::new());
    tasks.spawn(reload::follow(path.to_owned(), first, wish.clone(), figures, taker));
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
