//! The lines of the report about controllers, and the budget.

use super::objects::Size;
use crate::report::{Row, key, less};

/// The processes of the peer.
const PROCESSES: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];

/// The lines, with these sizes of the load.
#[must_use]
pub fn rows(sizes: &[Size]) -> Vec<Row> {
    sizes.iter().flat_map(|size| of_size(*size)).collect()
}

fn of_size(size: Size) -> Vec<Row> {
    let Size { services, pods } = size;
    // The budget is set for ten thousand Services of ten Pods.
    let budget = (services == 10_000 && pods == 10).then_some(10.0);
    let line = |what: &str, text: &str| less(&key(what, size), text, None);
    let mut rows = vec![
        line("load_s", &format!("{services} Services × {pods} Pods made, until endpoints are right (s)")),
        line("load_ready_s", "  from the first Pod that becomes ready (s)"),
        line("load_after_s", "  from the answer to the last write (s)"),
        line("load_slice_writes", "  writes of slices for one Pod"),
        line("load_endpoints_writes", "  writes of Endpoints for one Pod"),
        line("flip_p50_ms", "one Pod changes, write sent to slice received, p50 (ms)"),
        less(&key("flip_p99_ms", size), "  p99 (ms)", budget),
        line("flip_most_ms", "  at most (ms)"),
        line("patch_p50_ms", "  the write itself, p50 (ms)"),
        line("patch_p99_ms", "  the write itself, p99 (ms)"),
        line("after_p50_ms", "  write answered to slice received, p50 (ms)"),
        line("after_p99_ms", "  write answered to slice received, p99 (ms)"),
        line("flip_slice_writes", "  writes of slices for one change"),
        line("flip_endpoints_writes", "  writes of Endpoints for one change"),
        line("flip_cpu_us", "  processor time of all processes for one change (µs)"),
        line("nothing_s", "from nothing: controllers started, until endpoints are right (s)"),
        line("nothing_cpu_s", "  processor time of all processes (s)"),
    ];
    for (when, text) in [("empty", "empty"), ("loaded", "all objects"), ("nothing", "after the start from nothing")] {
        rows.push(line(&format!("memory_{when}_mb"), &format!("memory, {text} (MB)")));
        let of_process = |process| line(&format!("memory_{when}_mb/{process}"), &format!("    of it {process}"));
        rows.extend(PROCESSES.map(of_process));
        rows.push(line(&format!("memory_{when}_peak_mb"), "  at most so far (MB)"));
    }
    rows
}
