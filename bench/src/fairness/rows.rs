//! The lines of the report about access control, and the budgets it was given.

use crate::report::{Row, less, more};

/// The lines. "Without" is without RBAC, audit log and queues in the first part, and without an attack in the second.
#[must_use]
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (key, what) in
        [("create", "Services created"), ("get", "Services read"), ("list", "pages of 100 Services listed")]
    {
        let budget = (key == "create").then_some(10.0);
        rows.extend([
            more(&format!("{key}_rate"), &format!("{what} per second, RBAC, audit log and fair queues")),
            less(&format!("{key}_cost"), "  cost, median of the rounds (%)", budget),
            less(&format!("{key}_cost_low"), "  lower quartile (%)", None),
            less(&format!("{key}_cost_high"), "  upper quartile (%)", None),
            less(&format!("{key}_cpu_us"), "  processor time of the server for one (µs)", None),
            more(&format!("{key}_account_rate"), "  the same with the token of a ServiceAccount, per second"),
        ]);
    }
    for (key, what) in [("renewal", "a node renews its Lease"), ("admin", "the administrator lists Services or Pods")] {
        rows.extend([
            less(&format!("{key}_p50_ms"), &format!("{what}, during the attack, p50 (ms)"), None),
            less(&format!("{key}_p99_ms"), "  p99 (ms)", Some(50.0)),
            less(&format!("{key}_most_ms"), "  the slowest (ms)", None),
        ]);
    }
    rows.push(less("attack_memory_mb", "memory, at most (MB)", None));
    rows
}
