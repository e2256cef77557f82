//! Another mode while the program runs.
//!
//! In: SIGHUP (`systemctl reload`), and the settings as they are then. Out: a message to the loop, which writes everything the new
//! way before the old one goes. On a terminal SIGHUP means that the terminal was closed, and ends the program as ever.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use anyhow::Context as _;
use dataplane::sync::{Message, Serving};
use dataplane::userspace::loopback::{LoopbackPorts, WithLoopback};
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};

use super::modes::{self, Way};
use crate::config::{self, ProxyArguments};

/// What all ways of one program share.
#[derive(Clone)]
pub(super) struct Switch {
    /// The way that serves now.
    pub(super) mode: Arc<Mutex<&'static str>>,
    /// Node ports on loopback, if they are wanted. They stay open while modes change.
    pub(super) loopback: Option<Arc<Mutex<LoopbackPorts>>>,
}

impl Switch {
    /// A way, made fit for the loop.
    pub(super) fn serving(&self, way: Way) -> Serving {
        let (shown, mode, rootless) = (self.mode.clone(), way.backend.mode(), way.rootless);
        let begun = move || {
            *shown.lock() = mode;
            if !rootless {
                take_over(mode, modes::clean_rules(Some(mode)));
            }
        };
        // Connections that IPVS carries have nobody else, so it gets the time to end the short ones.
        let is_awaited = move || !rootless && modes::ipvs_carries(mode);
        let parted = move || {
            if !rootless {
                take_over(mode, modes::clean_ipvs(Some(mode)));
            }
        };
        let backend = match &self.loopback {
            Some(ports) if !rootless => Box::new(WithLoopback::new(way.backend, ports.clone())),
            _ => way.backend,
        };
        let (begun, is_awaited, parted) = (Box::new(begun), Box::new(is_awaited), Box::new(parted));
        Serving { backend, conntrack: way.conntrack, begun, is_awaited, parted }
    }

    /// Follows the settings for as long as the program runs.
    pub(super) async fn follow(self, mut now: ProxyArguments, out: Sender<Message>) {
        if std::io::stdin().is_terminal() {
            return;
        }
        let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
        while hangup.recv().await.is_some() {
            match config::proxy_again().and_then(|next| self.change(&now, next, &out)) {
                Ok(next) => now = next,
                Err(error) => tracing::warn!("SIGHUP: {error:#}; Services are served as before"),
            }
        }
    }

    /// Has another mode take over, if the settings ask for one.
    fn change(
        &self,
        now: &ProxyArguments,
        next: ProxyArguments,
        out: &Sender<Message>,
    ) -> anyhow::Result<ProxyArguments> {
        if next == *now {
            tracing::info!("SIGHUP: the settings of the proxy are as they were");
            return Ok(next);
        }
        let way =
            modes::open(&next, false)?.context("nothing could serve so; restart with --proxy-mode none to stop")?;
        if way.backend.mode() == *self.mode.lock() {
            tracing::info!(mode = way.backend.mode(), "SIGHUP: the mode stays; other settings take a restart");
            return Ok(next);
        }
        out.send(Message::Serve(Box::new(self.serving(way)))).ok().context("the proxy has ended")?;
        Ok(next)
    }
}

/// Says what became of what other modes have left, now that this one serves.
fn take_over(mode: &'static str, cleaned: anyhow::Result<bool>) {
    match cleaned {
        Ok(true) => tracing::info!(mode, "rules of another mode are gone; this one has taken over"),
        Ok(false) => {}
        Err(error) => tracing::warn!("rules of another mode may be left: {error:#}; `waypost cleanup` removes all"),
    }
}
