//! Connections that wait for the next call of the same webhook.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Sender;
use crate::dynamic_admission::target::Target;

/// How long a connection is kept without a call.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How many connections are kept for one webhook.
const MAX_IDLE: usize = 8;

/// Idle connections, by the webhook they are for: its certificate was checked for that one.
#[derive(Default)]
pub(super) struct Pool(Mutex<HashMap<Target, Vec<Idle>>>);

struct Idle {
    address: SocketAddr,
    sender: Sender,
    since: Instant,
}

impl Pool {
    /// A connection to one of these addresses that was open when last looked at.
    pub(super) fn take(&self, target: &Target, addresses: &[SocketAddr]) -> Option<(SocketAddr, Sender)> {
        let mut kept = self.0.lock();
        let idle = kept.get_mut(target)?;
        idle.retain(Idle::is_usable);
        // The one that was used last is the least likely to have been closed.
        let at = idle.iter().rposition(|idle| addresses.contains(&idle.address))?;
        let Idle { address, sender, .. } = idle.remove(at);
        Some((address, sender))
    }

    /// Keeps a connection.
    pub(super) fn keep(&self, target: &Target, address: SocketAddr, sender: Sender) {
        let mut kept = self.0.lock();
        kept.retain(|_, idle| {
            idle.retain(Idle::is_usable);
            !idle.is_empty()
        });
        let idle = kept.entry(target.clone()).or_default();
        if idle.len() < MAX_IDLE && !sender.is_closed() {
            idle.push(Idle { address, sender, since: Instant::now() });
        }
    }
}

impl Idle {
    fn is_usable(&self) -> bool {
        !self.sender.is_closed() && self.since.elapsed() < IDLE_TIMEOUT
    }
}
