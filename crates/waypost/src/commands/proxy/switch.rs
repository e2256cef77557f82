//! Switches the proxy mode at run time.
//!
//! In: SIGHUP (`systemctl reload`) and the new configuration. Out: a message to the sync loop, which syncs the new
//! backend before the old one drains. On a terminal SIGHUP means that the terminal was closed and ends the process, as
//! usual.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use anyhow::Context as _;
use dataplane::sync::{ActiveBackend, Message};
use dataplane::userspace::loopback::{LoopbackPorts, WithLoopback};
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};

use super::modes::{self, SelectedMode};
use crate::config::{self, ProxyArguments};

/// State shared by all modes of the process.
#[derive(Clone)]
pub(super) struct Switch {
    /// Active mode.
    pub(super) mode: Arc<Mutex<&'static str>>,
    /// Node ports on loopback, if enabled. They stay open across mode changes.
    pub(super) loopback: Option<Arc<Mutex<LoopbackPorts>>>,
}

impl Switch {
    /// The backend of a mode, with its callbacks.
    pub(super) fn active_backend(&self, selected: SelectedMode) -> ActiveBackend {
        let (shown, mode, rootless) = (self.mode.clone(), selected.backend.mode(), selected.rootless);
        let on_active = move || {
            *shown.lock() = mode;
            if !rootless {
                log_cleanup(mode, modes::clean_rules(Some(mode)));
            }
        };
        // IPVS connections cannot move, so short ones get time to end.
        let has_open_connections = move || !rootless && modes::ipvs_has_connections(mode);
        let on_drained = move || {
            if !rootless {
                log_cleanup(mode, modes::clean_ipvs(Some(mode)));
            }
        };
        let backend = match &self.loopback {
            Some(ports) if !rootless => Box::new(WithLoopback::new(selected.backend, ports.clone())),
            _ => selected.backend,
        };
        let (on_active, has_open_connections, on_drained) =
            (Box::new(on_active), Box::new(has_open_connections), Box::new(on_drained));
        ActiveBackend { backend, conntrack: selected.conntrack, on_active, has_open_connections, on_drained }
    }

    /// Handles SIGHUP while the process runs.
    pub(super) async fn follow(self, mut now: ProxyArguments, out: Sender<Message>) {
        if std::io::stdin().is_terminal() {
            return;
        }
        let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
        while hangup.recv().await.is_some() {
            match config::reload_proxy_arguments().and_then(|next| self.change(&now, next, &out)) {
                Ok(next) => now = next,
                Err(error) => tracing::warn!("SIGHUP: {error:#}; keeping the current proxy mode"),
            }
        }
    }

    /// Switches the mode if the configuration has another one.
    fn change(
        &self,
        now: &ProxyArguments,
        next: ProxyArguments,
        out: &Sender<Message>,
    ) -> anyhow::Result<ProxyArguments> {
        if next == *now {
            tracing::info!("SIGHUP: proxy configuration unchanged");
            return Ok(next);
        }
        let selected =
            modes::open(&next, false)?.context("no such mode is available; restart with --proxy-mode none to stop")?;
        if selected.backend.mode() == *self.mode.lock() {
            tracing::info!(
                mode = selected.backend.mode(),
                "SIGHUP: proxy mode unchanged; other settings need a restart"
            );
            return Ok(next);
        }
        out.send(Message::SwitchBackend(Box::new(self.active_backend(selected))))
            .ok()
            .context("the proxy has ended")?;
        Ok(next)
    }
}

/// Logs the result of the cleanup of other modes.
fn log_cleanup(mode: &'static str, cleaned: anyhow::Result<bool>) {
    match cleaned {
        Ok(true) => tracing::info!(mode, "removed rules of another mode; takeover complete"),
        Ok(false) => {}
        Err(error) => tracing::warn!("cannot remove rules of another mode: {error:#}; run `waypost cleanup`"),
    }
}
