//! BackendTLSPolicies: those that make their targets unreachable, and those that another one overrides.

use super::{Layer7, code, kubectl};
use crate::finding::{Finding, Level};

impl Layer7<'_> {
    /// The findings for a BackendTLSPolicy. Without a Gateway of ours, it is for other controllers.
    pub(super) fn policy_findings(&self, key: &str) -> Vec<Finding> {
        let Some(state) = self.cluster.policy(key).filter(|_| self.cluster.configs().next().is_some()) else {
            return Vec::new();
        };
        let edit = || kubectl("edit", "backendtlspolicy", key);
        let mut found = Vec::new();
        if !state.resolved_refs.holds() {
            let message = format!("validation.caCertificateRefs: {}", state.resolved_refs.message);
            // With another bundle that is valid, connections still work.
            let level = if state.accepted.holds() { Level::Degraded } else { Level::NotWorking };
            found.push(Finding::new(code::TLS_POLICY_INVALID, message, edit()).at(level));
        } else if state.accepted.reason == "Conflicted" {
            let finding = Finding::new(code::TLS_POLICY_CONFLICTED, state.accepted.message.clone(), edit());
            found.push(finding.at(Level::Degraded));
        } else if !state.accepted.holds() {
            found.push(Finding::new(code::TLS_POLICY_INVALID, state.accepted.message.clone(), edit()));
        }
        found
    }
}
