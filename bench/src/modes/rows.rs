//! The lines of the reports about modes.

use crate::proxy::objects::Size;
use crate::report::{Budget, Row, key, less, more};

/// What a way carries.
#[must_use]
pub fn carried() -> Vec<Row> {
    let datagrams = more("datagram_rate", "UDP, one datagram to and fro (1/s)");
    connections(None).into_iter().chain([datagrams]).collect()
}

/// What a way of connections carries; how many times the peer's it should be, if that was promised.
#[must_use]
pub fn connections(budget: Option<f64>) -> Vec<Row> {
    let line = |what: &str, text: &str| {
        // Without the peer in the run there is nothing to be held against.
        Row { budget: budget.map(|times| Budget::TimesPeer(times, 0.0)), ..more(what, text) }
    };
    vec![
        line("stream_gbit", "one TCP stream (Gbit/s)"),
        line("short_rate", "short connections, each with an answer (1/s)"),
    ]
}

/// What starts and changes cost.
#[must_use]
pub fn kept(sizes: &[Size]) -> Vec<Row> {
    let of_size = |size: Size| {
        let line = |what: &str, text: &str| less(&key(what, size), text, None);
        let start = format!("{size}: process started, until all Services work (s)");
        vec![
            line("start_s", &start),
            line("start_cpu_s", "  processor time (s)"),
            line("move_p50_ms", "one endpoint moves, write sent to connection led there, p50 (ms)"),
            line("move_cpu_us", "  processor time for one change (µs)"),
            line("new_p50_ms", "new Service, first write sent to connection, p50 (ms)"),
            line("new_cpu_us", "  processor time for one Service (µs)"),
            line("restart_s", "restarted, until a change made meanwhile works (s)"),
            line("memory_worked_mb", "memory after changes and new Services (MB)"),
            line("memory_worked_peak_mb", "  at most so far, with the programs it runs (MB)"),
        ]
    };
    sizes.iter().flat_map(|size| of_size(*size)).collect()
}
