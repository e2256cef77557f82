//! Which Service port owns a frontend.

use plan::{Frontend, Plan, Role, ServicePort};

/// The frontends that a Service port owns: those for which its claim comes first.
pub(crate) fn owned(plan: &Plan, port: &ServicePort) -> Vec<(Frontend, Role)> {
    let has = |(frontend, role): &(Frontend, Role)| {
        let first = plan.frontends.get(frontend).and_then(|claims| claims.first());
        first.is_some_and(|(winner, key)| winner == role && *key == port.key)
    };
    port.frontends().into_iter().filter(has).collect()
}
