//! Periodically checks that the jumps into our chains and the canary exist.
//!
//! Other programs may flush or restore tables, and the kernel does not report it. The interval grows with the duration
//! of a check, which with very many rules is not short.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use kernel::iptables::{Iptables, IptablesError, Table};

use super::base;
use super::names::CANARY;
use crate::TamperCallback;

/// A check may take at most this fraction of the time.
const MAX_LOAD_DIVISOR: u32 = 50;

/// Checks until the sender of `stop` is dropped; calls back when something is missing.
pub(super) fn watch(mut port: impl Iptables, interval: Duration, stop: &Receiver<()>, on_tampering: &TamperCallback) {
    let mut wait = interval;
    while matches!(stop.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
        let started = Instant::now();
        match is_intact(&mut port) {
            Ok(true) => {}
            Ok(false) if !on_tampering() => return,
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "cannot check rules; retrying later"),
        }
        wait = interval.max(started.elapsed() * MAX_LOAD_DIVISOR);
    }
}

/// Whether the canary and the jumps into our chains exist.
fn is_intact(port: &mut impl Iptables) -> Result<bool, IptablesError> {
    for family in port.families() {
        if !port.has(family, Table::Mangle, CANARY, &base::canary())? {
            return Ok(false);
        }
        for (table, chain, rules) in base::jumps() {
            // Jumps of a chain are added and removed together: checking one is enough.
            if let Some(rule) = rules.last().filter(|_| ["PREROUTING", "FORWARD"].contains(&chain))
                && !port.has(family, table, chain, rule)?
            {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
