//! Service ports with a `Local` traffic policy and no endpoint on this node
//! (`sync_proxy_rules_no_local_endpoints_total`).
//!
//! Updated per port, so that reading the count is cheap with many Services.

use std::collections::HashSet;

use plan::{Plan, PortKey};

/// Ports without local endpoints, by traffic policy.
#[derive(Debug, Default)]
pub(crate) struct NoLocalEndpoints {
    internal: HashSet<PortKey>,
    external: HashSet<PortKey>,
}

impl NoLocalEndpoints {
    /// Updates one port that was added, changed or deleted.
    pub(crate) fn update(&mut self, plan: &Plan, key: &PortKey) {
        let port = plan.ports.get(key).filter(|port| port.has_any && port.local.is_empty());
        set_member(&mut self.internal, key, port.is_some_and(|port| port.internal_local && port.cluster_ip.is_some()));
        set_member(&mut self.external, key, port.is_some_and(|port| port.external_local && port.is_external()));
    }

    /// Counts for the internal and the external traffic policy.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.internal.len(), self.external.len())
    }
}

fn set_member(set: &mut HashSet<PortKey>, key: &PortKey, lacks: bool) {
    if lacks {
        set.insert(key.clone());
    } else {
        set.remove(key);
    }
}
