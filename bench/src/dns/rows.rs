//! The lines of the report about names, and the budgets.

use super::contender::Kind;
use super::objects::Size;
use super::questions::MIXES;
use crate::report::{Budget, Figures, Row, key, less, more};

/// The lines, with these sizes of the load, for a comparison with this peer. Budgets that are ratios need its figures of this
/// run.
#[must_use]
pub fn rows(sizes: &[Size], peer: Kind, measured: Option<&Figures>) -> Vec<Row> {
    sizes.iter().flat_map(|size| of_size(*size, peer, measured)).collect()
}

fn of_size(size: Size, peer: Kind, measured: Option<&Figures>) -> Vec<Row> {
    let Size { services, endpoints } = size;
    let mut rows = traffic(size, peer, measured);
    if peer == Kind::Echo {
        return rows;
    }
    // The budget of memory is set for ten thousand Services of ten endpoints.
    let memory = (services == 10_000 && endpoints == 10).then_some(30.0);
    let line = |what: &str, text: &str| less(&key(what, size), text, None);
    let limited = |what: &str, text: &str, limit| less(&key(what, size), text, limit);
    let start = format!("{services} Services × {endpoints} endpoints: process started, until every name is known (s)");
    rows.extend([
        line("start_s", &start),
        line("start_cpu_s", "  processor time (s)"),
        limited("memory_start_mb", "memory after start (MB)", memory),
        limited("memory_worked_mb", "memory after all questions (MB)", memory),
        line("memory_worked_peak_mb", "  at most so far (MB)"),
        line("move_p50_ms", "an endpoint moves, write sent to answer that shows it, p50 (ms)"),
        limited("move_p99_ms", "  p99 (ms)", Some(20.0)),
        line("move_write_p50_ms", "  the write itself, p50 (ms)"),
        line("move_after_p50_ms", "  write answered to answer that shows it, p50 (ms)"),
        line("move_after_p99_ms", "  write answered to answer that shows it, p99 (ms)"),
        line("new_p50_ms", "a new Service, write sent to answer that shows it, p50 (ms)"),
        limited("new_p99_ms", "  p99 (ms)", Some(20.0)),
        line("new_write_p50_ms", "  the write itself, p50 (ms)"),
        line("new_after_p50_ms", "  write answered to answer that shows it, p50 (ms)"),
        line("new_after_p99_ms", "  write answered to answer that shows it, p99 (ms)"),
    ]);
    rows
}

/// Five lines for each kind of traffic.
fn traffic(size: Size, peer: Kind, measured: Option<&Figures>) -> Vec<Row> {
    let times = if peer == Kind::Echo { 0.6 } else { 10.0 };
    let budget = |key: &str| measured.and_then(|peer| peer.get(key)).map(|core| Budget::TimesPeer(times, core.round()));
    let of_mix = |mix: super::questions::Mix| {
        let named = |what: &str| key(&format!("{}_{what}", mix.key()), size);
        let core = more(&named("core"), &format!("{size}: {}: answers for a second of processor time", mix.title()));
        [
            Row { budget: budget(&core.key), ..core },
            more(&named("rate"), "  answers a second"),
            less(&named("lost"), "  questions without an answer", None),
            less(&named("p50_us"), "  time to the answer at a fixed rate, p50 (µs)", None),
            less(&named("p99_us"), "  p99 (µs)", None),
        ]
    };
    MIXES.into_iter().flat_map(of_mix).collect()
}
