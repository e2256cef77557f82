//! Which frontends are whose.

use plan::{Frontend, Plan, Role, ServicePort};

/// The frontends that a Service port has: those it claims before everybody else.
pub(crate) fn owned(plan: &Plan, port: &ServicePort) -> Vec<(Frontend, Role)> {
    let has = |(frontend, role): &(Frontend, Role)| {
        let first = plan.frontends.get(frontend).and_then(|claims| claims.first());
        first.is_some_and(|(winner, key)| winner == role && *key == port.key)
    };
    port.frontends().into_iter().filter(has).collect()
}
