//! Idle connections to webhooks.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Sender;
use crate::webhooks::target::Target;

/// The idle timeout of a connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The largest number of idle connections for one webhook.
const MAX_IDLE: usize = 8;

/// Idle connections, by webhook: the certificate was verified for it.
#[derive(Default)]
pub(super) struct Pool(Mutex<HashMap<Target, Vec<Idle>>>);

struct Idle {
    address: SocketAddr,
    sender: Sender,
    since: Instant,
}

impl Pool {
    /// An idle connection to one of these addresses.
    pub(super) fn take(&self, target: &Target, addresses: &[SocketAddr]) -> Option<(SocketAddr, Sender)> {
        let mut kept = self.0.lock();
        let idle = kept.get_mut(target)?;
        idle.retain(Idle::is_usable);
        // The most recently used one is the least likely to have been closed.
        let at = idle.iter().rposition(|idle| addresses.contains(&idle.address))?;
        let Idle { address, sender, .. } = idle.remove(at);
        Some((address, sender))
    }

    /// Adds a connection.
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
