//! How things stand, told to somebody who asks: copies of what the plan has, and what of it is not in the kernel yet.

use std::sync::Arc;

use plan::{Plan, PortKey, ServicePort};

use super::{Loop, Pending};
use crate::Since;
use crate::frontends::owned;
use crate::report::{Question, Snapshot, Stand};

impl Loop {
    /// Answers a question. Nothing is read from the kernel for it.
    pub(super) fn answer(&self, question: Question, pending: &Pending) {
        let plan = self.planner.plan();
        let backend = &self.tools.serving.backend;
        let stand = |port: &Arc<ServicePort>| Stand {
            owned: owned(plan, port).into_iter().map(|(frontend, _)| frontend).collect(),
            written: is_written(&port.key, pending),
            rules: if question.rules { backend.rules(plan, port) } else { String::new() },
            port: Arc::clone(port),
        };
        let concerns = |service: &str| question.service.as_deref().is_none_or(|asked| asked == service);
        let ports = match &question.service {
            Some(service) => of_service(plan, service).map(stand).collect(),
            None => plan.ports.values().map(stand).collect(),
        };
        let told = self.told.iter().filter(|problem| concerns(&problem.service)).cloned();
        let snapshot = Snapshot {
            mode: backend.mode(),
            options: plan.options.clone(),
            node_port_ips: plan.node_port_ips.iter().copied().collect(),
            synced: pending.ready && pending.failures == 0 && self.guarded,
            problems: told.collect(),
            ports,
        };
        (question.answer)(snapshot);
    }
}

/// The ports of a Service.
fn of_service<'a>(plan: &'a Plan, service: &str) -> impl Iterator<Item = &'a Arc<ServicePort>> {
    let first = PortKey {
        service: service.into(),
        port: "".into(),
        protocol: plan::Protocol::Tcp,
        family: api::ip::Family::V4,
    };
    let service = Arc::clone(&first.service);
    plan.ports.range(first..).take_while(move |(key, _)| key.service == service).map(|(_, port)| port)
}

/// Whether the kernel has a port as the plan has it.
fn is_written(key: &PortKey, pending: &Pending) -> bool {
    match &pending.since {
        Since::Ever | Since::Tampered => !pending.dirty,
        Since::Last(touched) => !pending.dirty || !touched.ports.contains(key),
    }
}
