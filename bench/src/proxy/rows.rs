//! The lines of the report about the proxy, and the budgets.

use super::objects::Size;
use crate::report::{Row, key, less};

/// The lines, with these sizes of the load.
#[must_use]
pub fn rows(sizes: &[Size]) -> Vec<Row> {
    sizes.iter().flat_map(|size| of_size(*size)).collect()
}

fn of_size(size: Size) -> Vec<Row> {
    let Size { services, endpoints } = size;
    // Most budgets are set for ten thousand Services of ten endpoints; that of connections for thirty thousand.
    let is_usual = services == 10_000 && endpoints == 10;
    let usual = |limit: f64| is_usual.then_some(limit);
    let ratio = (services == 30_000).then_some(1.1);
    let line = |what: &str, text: &str| less(&key(what, size), text, None);
    let limited = |what: &str, text: &str, limit| less(&key(what, size), text, limit);
    let start = format!("{services} Services × {endpoints} endpoints: process started, until all work (s)");
    vec![
        limited("start_s", &start, usual(0.5)),
        line("start_sync_s", "  of it writing the rules, by its own clock (s)"),
        line("start_cpu_s", "  processor time (s)"),
        line("move_p50_ms", "one endpoint moves, write sent to connection led there, p50 (ms)"),
        limited("move_p99_ms", "  p99 (ms)", usual(5.0)),
        line("move_most_ms", "  at most (ms)"),
        line("move_write_p50_ms", "  the write itself, p50 (ms)"),
        line("move_write_p99_ms", "  the write itself, p99 (ms)"),
        line("move_after_p50_ms", "  write answered to connection led there, p50 (ms)"),
        line("move_after_p99_ms", "  write answered to connection led there, p99 (ms)"),
        line("move_cpu_us", "  processor time for one change (µs)"),
        line("join_p50_ms", "one endpoint joins, write sent to connection led there, p50 (ms)"),
        limited("join_p99_ms", "  p99 (ms)", usual(5.0)),
        line("join_most_ms", "  at most (ms)"),
        line("join_after_p50_ms", "  write answered to connection led there, p50 (ms)"),
        line("join_after_p99_ms", "  write answered to connection led there, p99 (ms)"),
        line("join_cpu_us", "  processor time for one change (µs)"),
        line("outgrow_p50_ms", "six join, as many as no other Service has, write sent to connection, p50 (ms)"),
        line("outgrow_p99_ms", "  p99 (ms)"),
        line("outgrow_after_p50_ms", "  write answered to connection led there, p50 (ms)"),
        line("outgrow_cpu_us", "  processor time for one change (µs)"),
        line("new_p50_ms", "new Service, first write sent to connection, p50 (ms)"),
        limited("new_p99_ms", "  p99 (ms)", usual(10.0)),
        line("new_most_ms", "  at most (ms)"),
        line("new_write_p50_ms", "  the two writes themselves, p50 (ms)"),
        line("new_write_p99_ms", "  the two writes themselves, p99 (ms)"),
        line("new_after_p50_ms", "  writes answered to connection, p50 (ms)"),
        line("new_after_p99_ms", "  writes answered to connection, p99 (ms)"),
        line("new_cpu_us", "  processor time for one Service (µs)"),
        limited("restart_s", "restarted, until a change made meanwhile works (s)", usual(1.0)),
        line("restart_cpu_s", "  processor time (s)"),
        line("restart_writes", "  changes of nftables written, with one endpoint moved"),
        limited("memory_start_mb", "memory after start (MB)", usual(60.0)),
        line("memory_start_peak_mb", "  at most so far, with the programs it runs (MB)"),
        limited("memory_worked_mb", "memory after changes and new Services (MB)", usual(60.0)),
        line("memory_worked_peak_mb", "  at most so far, with the programs it runs (MB)"),
        limited("memory_restart_mb", "memory after restart (MB)", usual(60.0)),
        line("memory_restart_peak_mb", "  at most so far, with the programs it runs (MB)"),
        line("idle_cpu_ms", "processor time in 10 s without work (ms)"),
        line("direct_us", "connect() to an endpoint, median (µs)"),
        line("first_us", "  to the first Service (µs)"),
        line("last_us", "  to the last Service (µs)"),
        limited("first_ratio", "  to the first Service, times that", ratio),
        limited("last_ratio", "  to the last Service, times that", ratio),
    ]
}
