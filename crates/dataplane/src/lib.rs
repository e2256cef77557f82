//! Backends of the proxy: write a plan into the kernel and keep it there.
//!
//! In: [`plan::Update`]s. Out: kernel rules written by one [`Backend`]; stale UDP flows deleted; health and metrics.
//! One thread runs everything ([`sync`]), so there is no locking: receive updates, plan, apply one transaction, clean
//! up, report.

pub mod conntrack;
mod frontends;
pub mod health;
pub mod inputs;
pub mod iptables;
pub mod ipvs;
mod leases;
pub mod metrics;
pub mod nft;
pub mod nftables;
mod no_local_endpoints;
pub mod report;
pub mod sync;
#[cfg(test)]
mod testing;
pub mod userspace;

use std::time::Duration;

use plan::{DataPlane, Plan, Problem, ServicePort, Touched};

/// What a sync must write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SyncScope {
    /// The kernel state is unknown: read it and correct the differences.
    FullResync,
    /// Another program changed our rules: read them, and rewrite what cannot be compared.
    Tampered,
    /// Write only these changes.
    Changed(Touched),
}

/// A failed write to the kernel.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct BackendError {
    /// Cause, for logs and `/healthz`.
    pub message: String,
}

/// Result of a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SyncStats {
    /// Changes written to the kernel.
    pub changes: usize,
    /// Failed attempts to delete unused objects.
    pub cleanup_failures: usize,
}

/// Called when another program changed our rules. Returns false when the watcher should stop.
pub type TamperCallback = Box<dyn Fn() -> bool + Send>;

/// Writes plans into the kernel.
pub trait Backend: Send {
    /// Mode name, a value of `--proxy-mode`.
    fn mode(&self) -> &'static str;

    /// Whether IPVS balances connections instead of netfilter NAT.
    fn is_ipvs(&self) -> bool {
        false
    }

    /// The load-balancing policies that it can apply.
    fn data_plane(&mut self) -> DataPlane {
        DataPlane::of_mode(self.mode())
    }

    /// Makes the kernel match the plan. On failure the previous state stays in force.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn sync(&mut self, plan: &Plan, scope: &SyncScope) -> Result<SyncStats, BackendError>;

    /// Starts to watch the rules, once, after the first sync; `on_tampering` is called whenever another program changes
    /// them.
    ///
    /// # Errors
    /// When it cannot be watched.
    fn watch_tampering(&mut self, on_tampering: TamperCallback) -> Result<(), BackendError>;

    /// Time until [`Self::maintain`] is due, if it ever is.
    fn next_maintenance(&self) -> Option<Duration> {
        None
    }

    /// Periodic work on a plan that is already synced, such as deleting drained destinations.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn maintain(&mut self, _plan: &Plan) -> Result<SyncStats, BackendError> {
        Ok(SyncStats::default())
    }

    /// The rules of one Service port in readable form; empty where a port has none of its own.
    fn rules(&self, _plan: &Plan, _port: &ServicePort) -> String {
        String::new()
    }

    /// Services that this backend cannot serve as specified.
    fn problems(&self) -> Vec<Problem> {
        Vec::new()
    }
}
