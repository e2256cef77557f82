//! Watches over rules: looks now and then whether what every packet passes first is still there.
//!
//! Whoever empties a table takes the ways into our chains with it, whoever restores an old state brings other ones. Nobody
//! tells of that, so somebody must look; how often follows from how long a look takes, which with very many rules is not short.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use kernel::iptables::{Iptables, IptablesError, Table};

use super::frame;
use super::names::CANARY;
use crate::Tampered;

/// A look may take this part of the time, at most.
const SHARE: u32 = 50;

/// Looks until the other end of `ended` is dropped, and tells whenever something is missing.
pub(super) fn watch(mut port: impl Iptables, pause: Duration, ended: &Receiver<()>, tampered: &Tampered) {
    let mut wait = pause;
    while matches!(ended.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
        let started = Instant::now();
        match is_whole(&mut port) {
            Ok(true) => {}
            Ok(false) if !tampered() => return,
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "whether our rules are there could not be seen; looking again later"),
        }
        wait = pause.max(started.elapsed() * SHARE);
    }
}

/// Whether the canaries and the ways into our chains are there.
fn is_whole(port: &mut impl Iptables) -> Result<bool, IptablesError> {
    for family in port.families() {
        if !port.has(family, Table::Mangle, CANARY, &frame::canary())? {
            return Ok(false);
        }
        for (table, chain, rules) in frame::jumps() {
            // One stands for the others of its chain: they come and go together.
            if let Some(rule) = rules.last().filter(|_| ["PREROUTING", "FORWARD"].contains(&chain))
                && !port.has(family, table, chain, rule)?
            {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
