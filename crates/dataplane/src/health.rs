//! Health of the proxy and of Services with a health-check node port.
//!
//! The sync loop records its state here. `/healthz` and `/livez` report it; each Service with a health-check port has a
//! listener of its own ([`serve`]).

pub mod handlers;
pub mod ports;
mod serve;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use plan::Plan;
use serde_json::{Value, json};
use tokio::sync::watch;

pub use serve::{Handler, Reply, serve};

/// The proxy is unhealthy when an update has been pending for longer.
const SYNC_TIMEOUT: Duration = Duration::from_secs(60);

/// Health state of a proxy.
#[derive(Debug)]
pub struct Health {
    state: Mutex<State>,
    checks: watch::Sender<Checks>,
    first_sync: watch::Sender<bool>,
    /// Number of redirects of cluster IPs that are in the kernel.
    redirected: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct State {
    /// Time of the oldest pending update.
    waiting: Option<Instant>,
    last: Option<Timestamp>,
    error: Option<String>,
    eligible: bool,
}

/// Services with a health-check node port, by port.
pub type Checks = BTreeMap<u16, Check>;

/// A Service with a health-check node port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// `namespace/name`.
    pub service: String,
    /// Ready endpoints on this node.
    pub local: usize,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            checks: watch::channel(Checks::new()).0,
            first_sync: watch::channel(false).0,
            redirected: watch::channel(0).0,
        }
    }
}

impl Health {
    /// Records that an update is pending.
    pub(crate) fn queued(&self) {
        self.state.lock().waiting.get_or_insert_with(Instant::now);
    }

    /// Records a successful sync.
    pub(crate) fn synced(&self, plan: &Plan) {
        let mut state = self.state.lock();
        *state = State { waiting: None, last: Some(Timestamp::now()), error: None, eligible: plan.node_eligible };
        drop(state);
        self.first_sync.send_replace(true);
        let fresh = checks(plan);
        self.checks.send_if_modified(|checks| {
            let changed = *checks != fresh;
            *checks = fresh;
            changed
        });
    }

    /// Records how many redirects of cluster IPs are in the kernel.
    pub(crate) fn set_redirected(&self, count: usize) {
        self.redirected.send_if_modified(|known| std::mem::replace(known, count) != count);
    }

    /// Waits until no cluster IP is redirected: connections go to endpoints, without the gateway.
    pub async fn wait_without_redirects(&self) {
        // The sender is a field of self and cannot be dropped.
        let _ = self.redirected.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Records a failed sync.
    pub(crate) fn failed(&self, error: &str) {
        self.state.lock().error = Some(error.to_owned());
    }

    /// Last successful sync and the error since.
    #[must_use]
    pub fn last_sync(&self) -> crate::report::LastSync {
        let state = self.state.lock();
        crate::report::LastSync { at: state.last, error: state.error.clone() }
    }

    /// Whether no update has been pending for too long.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.state.lock().waiting.is_none_or(|since| since.elapsed() < SYNC_TIMEOUT)
    }

    /// Waits until the first sync has succeeded.
    pub async fn wait_first_sync(&self) {
        // The sender is a field of self and cannot be dropped.
        let _ = self.first_sync.subscribe().wait_for(|first_sync| *first_sync).await;
    }

    /// Health checks, now and after each change.
    #[must_use]
    pub fn checks(&self) -> watch::Receiver<Checks> {
        self.checks.subscribe()
    }

    /// The response of `/healthz` (`with_node`) or `/livez`: whether healthy, and a document with the reason if not.
    #[must_use]
    pub fn document(&self, with_node: bool) -> (bool, Value) {
        let in_time = self.is_healthy();
        let state = self.state.lock();
        let now = Timestamp::now();
        let healthy = in_time && (!with_node || state.eligible);
        let last = if in_time { Some(now) } else { state.last };
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let family = json!({"lastUpdated": time(last), "healthy": in_time});
        let mut document = json!({
            "lastUpdated": time(last), "currentTime": now.to_string(), "healthy": healthy,
            "status": {"IPv4": family, "IPv6": family},
        });
        if with_node {
            document["nodeEligible"] = state.eligible.into();
        }
        if let (false, Some(since)) = (in_time, state.waiting) {
            document["pendingSeconds"] = since.elapsed().as_secs().into();
            document["lastError"] = state.error.clone().into();
        }
        (healthy, document)
    }
}

/// Health checks of a plan. The families of a Service share a port.
fn checks(plan: &Plan) -> Checks {
    let mut checks = Checks::new();
    for ((service, _), health) in &plan.health {
        let check = checks.entry(health.port).or_insert_with(|| Check { service: service.to_string(), local: 0 });
        check.local = check.local.max(health.local_ready);
    }
    checks
}
