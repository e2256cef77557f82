//! The lines of the report about Pods.

use crate::report::{Row, key, less};

/// For each number of Pods on the machine.
#[must_use]
pub fn rows(counts: &[usize]) -> Vec<Row> {
    let of_count = |count: usize| {
        let line = |what: &str, text: &str| less(&key(what, count), text, None);
        let first = format!("{count} Pods: one created, until it is ready, p50 (ms)");
        vec![
            line("ready_p50_ms", &first),
            line("ready_p99_ms", "  p99 (ms)"),
            line("reached_p50_ms", "one created, until it is reached through its Service, p50 (ms)"),
            line("reached_p99_ms", "  p99 (ms)"),
            line("cpu_ms", "processor time of server and node for one that comes and goes (ms)"),
            line("crowd_ms_each", "the crowd scaled up, until all are ready, for each Pod (ms)"),
            line("server_mb", "memory of the server (MB)"),
            line("memory_mb", "memory of the node: agent and proxy (MB)"),
            line("memory_each_kb", "  more than before the first, for each Pod (kB)"),
            line("supervisor_kb", "memory of what supervises a container, with its part of shared pages (kB)"),
        ]
    };
    let before = less("memory_mb", "memory of the node after its first Pod (MB)", None);
    std::iter::once(before).chain(counts.iter().flat_map(|count| of_count(*count))).collect()
}
