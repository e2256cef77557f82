//! Snapshots of the loop: copies of planned Service ports, and whether the kernel has them.

use std::sync::Arc;

use plan::{Plan, PortKey, ServicePort};

use super::{Pending, SyncLoop};
use crate::SyncScope;
use crate::frontends::owned;
use crate::report::{PortStatus, Snapshot, SnapshotRequest};

impl SyncLoop {
    /// Answers a snapshot request. Does not read the kernel.
    pub(super) fn take_snapshot(&self, request: SnapshotRequest, pending: &Pending) {
        let plan = self.planner.plan();
        let backend = &self.deps.active.backend;
        let status = |port: &Arc<ServicePort>| PortStatus {
            frontends: owned(plan, port).into_iter().map(|(frontend, _)| frontend).collect(),
            programmed: is_programmed(&port.key, pending),
            rules: if request.rules { backend.rules(plan, port) } else { String::new() },
            port: Arc::clone(port),
        };
        let concerns = |service: &str| request.service.as_deref().is_none_or(|asked| asked == service);
        let ports = match &request.service {
            Some(service) => of_service(plan, service).map(status).collect(),
            None => plan.ports.values().map(status).collect(),
        };
        let problems = self.reported.iter().filter(|problem| concerns(&problem.service)).cloned();
        let snapshot = Snapshot {
            mode: backend.mode(),
            options: plan.options.clone(),
            node_port_ips: plan.node_port_ips.iter().copied().collect(),
            synced: pending.ready && pending.failures == 0 && self.is_watched,
            problems: problems.collect(),
            leaders: self
                .planner
                .leaders()
                .map(|(lease, holder)| (Arc::clone(lease), holder.map(Into::into)))
                .collect(),
            ports,
        };
        (request.reply)(snapshot);
    }
}

/// Ports of a Service.
fn of_service<'a>(plan: &'a Plan, service: &str) -> impl Iterator<Item = &'a Arc<ServicePort>> {
    let first = PortKey {
        service: service.into(),
        port: "".into(),
        protocol: plan::Protocol::Tcp,
        family: api::ip::Family::V4,
        redirected: None,
    };
    let service = Arc::clone(&first.service);
    plan.ports.range(first..).take_while(move |(key, _)| key.service == service).map(|(_, port)| port)
}

/// Whether the kernel has the port as planned.
fn is_programmed(key: &PortKey, pending: &Pending) -> bool {
    match &pending.scope {
        SyncScope::FullResync | SyncScope::Tampered => !pending.dirty,
        SyncScope::Changed(touched) => !pending.dirty || !touched.ports.contains(key),
    }
}
