//! The lines of the report about custom resources.

use super::manifests::RULES;
use super::measure::Plan;
use crate::report::{Row, less, more};

/// The lines, with these numbers of objects, definitions and
/// watchers.
#[must_use]
pub fn rows(plan: &Plan) -> Vec<Row> {
    let (objects, watchers, all) = (plan.objects, plan.fan_out.watchers, plan.single + plan.definitions);
    vec![
        more("creates_per_s", &format!("objects created per second, {RULES} rules, 0 to {objects}")),
        less("create_p50_ms", "  one creation, p50 (ms)", None),
        less("create_p99_ms", "  one creation, p99 (ms)", None),
        less("create_cpu_us", "  processor time of the server for one (µs)", None),
        less("memory_objects_mb", &format!("memory, {objects} objects (MB)"), None),
        less("list_s", &format!("list of {objects} objects (s)"), None),
        less("list_mb", "  its size (MB)", None),
        less("watch_initial_s", &format!("watch that begins with {objects} objects, all read (s)"), None),
        more("watch_events_per_s", &format!("events delivered per second, {watchers} watchers")),
        less("watch_sent_p50_ms", "  one event, write sent to delivery, p50 (ms)", None),
        less("watch_sent_p99_ms", "  one event, write sent to delivery, p99 (ms)", None),
        less("watch_cpu_us", "  processor time of the server for one delivery (µs)", None),
        less("watch_cut_off", "  watchers cut off", None),
        less("established_p50_ms", "one definition, created to Established, p50 (ms)", None),
        less("established_p99_ms", "  the same, p99 (ms)", None),
        less("established_all_s", &format!("{} definitions, created to Established (s)", plan.definitions), None),
        less("discovered_s", "  until discovery lists all of them (s)", None),
        less("definition_cpu_us", "  processor time of the server for one, with discovery (µs)", None),
        less("definition_memory_kb", &format!("memory for one definition, {all} present (kB)"), None),
        less("published_memory_kb", "  the same, after OpenAPI was read (kB)", None),
        less("discovery_legacy_s", &format!("legacy discovery of {all} kinds (s)"), None),
        less("discovery_legacy_requests", "  requests", None),
        less("discovery_aggregated_s", &format!("aggregated discovery of {all} kinds (s)"), None),
        less("discovery_aggregated_mb", "  its size (MB)", None),
        less("openapi_index_s", "OpenAPI v3: index, first request until it lists all groups (s)", None),
        less("openapi_documents_s", "  documents of all groups, first request (s)", None),
        less("openapi_documents_mb", "  their size (MB)", None),
        less("openapi_again_s", "  index and documents again (s)", None),
        less("restart_s", &format!("restart with {all} definitions (s)"), None),
    ]
}
