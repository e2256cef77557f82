//! The lines of the report about the API server, and the budgets it was given.

use crate::report::{Budget, Row, key, less, more};

/// The lines, with these numbers of Services (ascending) and of watchers.
#[must_use]
pub fn rows(objects: &[usize], watchers: usize) -> Vec<Row> {
    let most = objects.iter().copied().max().unwrap_or_default();
    // The budgets are set for ten thousand.
    let budget = |at_most: f64| (most == 10_000).then_some(at_most);
    let mut rows = vec![less("ready_s", "start to ready, empty (s)", Some(0.2))];
    rows.extend(objects.iter().flat_map(|objects| creation_rows(*objects)));
    rows.extend([
        less("list_s", &format!("list of {most} Services (s)"), budget(0.05)),
        less("list_mb", "  its size (MB)", None),
        less("watch_open_s", &format!("{watchers} watches opened (s)"), None),
        more("watch_events_per_s", &format!("events delivered per second, {watchers} watchers")),
        less("watch_p50_ms", "  one event, write answered to delivery, p50 (ms)", None),
        less("watch_p99_ms", "  one event, write answered to delivery, p99 (ms)", None),
        less("watch_sent_p50_ms", "  one event, write sent to delivery, p50 (ms)", None),
        less("watch_sent_p99_ms", "  one event, write sent to delivery, p99 (ms)", None),
        less("watch_cpu_us", "  processor time of the server for one delivery (µs)", None),
        less("watch_cut_off", "  watchers cut off", None),
        less("watch_memory_mb", "  memory for them, at most (MB)", None),
        less("memory_empty_mb", "memory, empty (MB)", None),
        more("fill_services_per_s", &format!("Services created per second, 0 to {most}")),
        less("memory_services_mb", &format!("memory, {most} Services (MB)"), None),
        less("memory_services_peak_mb", "  at most so far (MB)", None),
        more("fill_slices_per_s", &format!("EndpointSlices of 10 created per second, 0 to {most}")),
        less("memory_all_mb", &format!("memory, {most} Services and slices (MB)"), budget(120.0)),
        less("memory_all_peak_mb", "  at most so far (MB)", None),
        less("restart_s", &format!("restart with {most} Services and slices (s)"), None),
        less("memory_restarted_mb", "  memory then (MB)", budget(120.0)),
    ]);
    rows
}

/// The lines about creations with this number of objects present.
fn creation_rows(objects: usize) -> [Row; 4] {
    // What the peer had when the budgets were set.
    let before = match objects {
        1_000 => Some(201.0),
        10_000 => Some(54.0),
        _ => None,
    };
    let rate = more(&key("creates_per_s", objects), &format!("Services created per second, {objects} present"));
    [
        Row { budget: before.map(|before| Budget::TimesPeer(20.0, before)), ..rate },
        less(&key("create_p50_ms", objects), "  one creation, p50 (ms)", None),
        less(&key("create_p99_ms", objects), "  one creation, p99 (ms)", None),
        less(&key("create_cpu_us", objects), "  processor time of the server for one (µs)", None),
    ]
}
