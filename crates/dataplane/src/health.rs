//! What load balancers and supervisors ask: is this node's proxy well, and does this Service have endpoints here?
//!
//! `/healthz` and `/livez` answer from what the loop last did; each Service with a health-check port has a listener of its own.
//! The loop only writes down the state and goes on; serving it is the business of [`serve`].

pub mod pages;
pub mod ports;
mod serve;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use plan::Plan;
use serde_json::{Value, json};
use tokio::sync::watch;

pub use serve::{Answer, Answers, serve};

/// An update that waits for so long means that something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// The state of a proxy.
#[derive(Debug)]
pub struct Health {
    state: Mutex<State>,
    checks: watch::Sender<Checks>,
    served: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// Since when an update has been waiting.
    waiting: Option<Instant>,
    last: Option<Timestamp>,
    error: Option<String>,
    eligible: bool,
}

/// The Services that load balancers ask about, by port.
pub type Checks = BTreeMap<u16, Check>;

/// A Service that load balancers ask about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// `namespace/name`.
    pub service: String,
    /// How many of its endpoints are ready here.
    pub local: usize,
}

impl Default for Health {
    fn default() -> Self {
        Self { state: Mutex::default(), checks: watch::channel(Checks::new()).0, served: watch::channel(false).0 }
    }
}

impl Health {
    /// An update waits to be written.
    pub(crate) fn queued(&self) {
        self.state.lock().waiting.get_or_insert_with(Instant::now);
    }

    /// Everything is written.
    pub(crate) fn synced(&self, plan: &Plan) {
        let mut state = self.state.lock();
        *state = State { waiting: None, last: Some(Timestamp::now()), error: None, eligible: plan.node_eligible };
        drop(state);
        self.served.send_replace(true);
        let fresh = checks(plan);
        self.checks.send_if_modified(|checks| {
            let changed = *checks != fresh;
            *checks = fresh;
            changed
        });
    }

    /// Writing failed.
    pub(crate) fn failed(&self, error: &str) {
        self.state.lock().error = Some(error.to_owned());
    }

    /// When rules were last written, and what went wrong since.
    #[must_use]
    pub fn written(&self) -> crate::report::Written {
        let state = self.state.lock();
        crate::report::Written { at: state.last, error: state.error.clone() }
    }

    /// Whether updates are written in time.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.state.lock().waiting.is_none_or(|since| since.elapsed() < PATIENCE)
    }

    /// Waits until rules have been written once.
    pub async fn served(&self) {
        // The other end is ours, so it is there.
        let _ = self.served.subscribe().wait_for(|served| *served).await;
    }

    /// The Services that load balancers ask about, now and whenever they change.
    #[must_use]
    pub fn checks(&self) -> watch::Receiver<Checks> {
        self.checks.subscribe()
    }

    /// What `/healthz` (or `/livez`) answers: whether all is well, and a document that says so. When it is not, it says why.
    #[must_use]
    pub fn document(&self, with_node: bool) -> (bool, Value) {
        let well = self.is_well();
        let state = self.state.lock();
        let now = Timestamp::now();
        let healthy = well && (!with_node || state.eligible);
        let last = if well { Some(now) } else { state.last };
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let family = json!({"lastUpdated": time(last), "healthy": well});
        let mut document = json!({
            "lastUpdated": time(last), "currentTime": now.to_string(), "healthy": healthy,
            "status": {"IPv4": family, "IPv6": family},
        });
        if with_node {
            document["nodeEligible"] = state.eligible.into();
        }
        if let (false, Some(since)) = (well, state.waiting) {
            document["pendingSeconds"] = since.elapsed().as_secs().into();
            document["lastError"] = state.error.clone().into();
        }
        (healthy, document)
    }
}

/// The Services of a plan that load balancers ask about. The families of a Service share its health-check port.
fn checks(plan: &Plan) -> Checks {
    let mut checks = Checks::new();
    for ((service, _), health) in &plan.health {
        let check = checks.entry(health.port).or_insert_with(|| Check { service: service.to_string(), local: 0 });
        check.local = check.local.max(health.local_ready);
    }
    checks
}
