//! Detection of upstreams that forward back to this server (`loop`).
//!
//! In: upstreams of blocks with `loop`, and every query received. Out: which upstreams form a loop. Each upstream is
//! sent an HINFO probe for a random name; if this server receives the probe, the upstream forwards to us. Such an
//! upstream is logged, not used, and probed again later, since its configuration may change.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use super::Resolver;
use super::message::Outgoing;
use super::upstream::Upstream;
use crate::config::Name;

/// QTYPE of probes, rarely used otherwise.
pub(super) const HINFO: u16 = 13;
/// Timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of probes while a loop exists.
const LOOP_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Retry interval if there is no answer: the upstream may be this server before it listens.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Result of a probe.
enum ProbeResult {
    Loop,
    Answered,
    Timeout,
}

/// Probes in flight.
#[derive(Default)]
pub(super) struct LoopDetector {
    in_flight: Mutex<HashMap<Box<[u8]>, Arc<AtomicBool>>>,
}

impl LoopDetector {
    /// Whether a query is one of our probes.
    pub(super) fn is_own_probe(&self, lower: &[u8], qtype: u16) -> bool {
        if qtype != HINFO {
            return false;
        }
        let in_flight = self.in_flight.lock();
        let seen = in_flight.get(lower);
        if let Some(seen) = seen {
            seen.store(true, Ordering::Release);
        }
        seen.is_some()
    }

    /// Sends a probe and waits for its result.
    async fn probe(&self, upstream: &Upstream, zone: &Name) -> ProbeResult {
        let labels = [fastrand::u64(..), fastrand::u64(..)].map(|number| format!("\x10{number:016x}"));
        let Ok(name) = Name::join(labels.concat().as_bytes(), zone) else { return ProbeResult::Answered };
        let seen = Arc::new(AtomicBool::new(false));
        let key: Box<[u8]> = name.as_wire().into();
        self.in_flight.lock().insert(key.clone(), seen.clone());
        let answered = upstream.probe_once(&Outgoing::new(name, HINFO), PROBE_TIMEOUT).await;
        self.in_flight.lock().remove(&key);
        match (seen.load(Ordering::Acquire), answered) {
            (true, _) => ProbeResult::Loop,
            (false, true) => ProbeResult::Answered,
            (false, false) => ProbeResult::Timeout,
        }
    }
}

/// Starts loop detection for the upstreams of a resolver.
pub(super) fn start(resolver: &Arc<Resolver>) {
    for server_block in resolver.server_blocks.iter() {
        for group in &server_block.groups {
            for upstream in &group.upstreams {
                if resolver.config.listen_addresses.contains(&upstream.address) {
                    upstream.set_loop(Some("it is this server".into()));
                } else if server_block.block.detect_loop {
                    let zone = group.from.clone();
                    resolver.runtime.spawn(probe_upstream(Arc::downgrade(resolver), upstream.clone(), zone));
                }
            }
        }
    }
}

/// Probes an upstream until it answers without a loop.
async fn probe_upstream(resolver: Weak<Resolver>, upstream: Arc<Upstream>, zone: Name) {
    loop {
        let Some(strong) = resolver.upgrade() else { return };
        let result = strong.loop_detector.probe(&upstream, &zone).await;
        drop(strong);
        match result {
            ProbeResult::Answered => return upstream.set_loop(None),
            ProbeResult::Timeout => sleep(RETRY_INTERVAL).await,
            ProbeResult::Loop => {
                tracing::warn!(upstream = %upstream.address, "upstream forwards back to this server, not using it");
                upstream.set_loop(Some("it forwards back to this server; configure another upstream".into()));
                sleep(LOOP_RETRY_INTERVAL).await;
            }
        }
    }
}
