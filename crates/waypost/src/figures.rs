//! Metrics of the store for `/metrics`.

use std::fmt::Write as _;

use store::Stats;

/// The metrics as text.
pub(crate) fn text(figures: &Stats) -> String {
    let mut out = String::new();
    for (name, help, value) in named(figures) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let family = name.strip_suffix("_total").unwrap_or(name);
        let _ = writeln!(out, "# HELP {family} {help}.\n# TYPE {family} {kind}\n{name} {value}");
    }
    out
}

/// Name, help and value of each metric.
fn named(figures: &Stats) -> Vec<(&'static str, &'static str, f64)> {
    #[expect(clippy::cast_precision_loss, reason = "a metric may be off by one in 2^53")]
    let number = |value: u64| value as f64;
    vec![
        ("waypost_store_commits_total", "Transactions that changed something", number(figures.commits)),
        (
            "waypost_store_conflicts_total",
            "Transactions refused because something had changed",
            number(figures.conflicts),
        ),
        ("waypost_store_failures_total", "Transactions that could not be written", number(figures.failures)),
        ("waypost_store_batches_total", "Writes to the log, each of one or more transactions", number(figures.batches)),
        ("waypost_store_fsyncs_total", "Times the log was made durable", number(figures.fsyncs)),
        ("waypost_store_fsync_seconds_total", "Time spent making the log durable", figures.fsync_seconds_total),
        ("waypost_store_written_bytes_total", "Bytes written to the log", number(figures.bytes_written)),
        ("waypost_store_entries", "Entries", number(figures.entries)),
        ("waypost_store_events", "Events that can still be watched", number(figures.events_kept)),
        ("waypost_store_watchers", "Watches", number(figures.watchers)),
        ("waypost_store_log_bytes", "Bytes of log that a restart reads", number(figures.log_bytes)),
        ("waypost_store_snapshots_total", "Snapshots written", number(figures.snapshots)),
        (
            "waypost_store_reencryptions_total",
            "Times everything was rewritten because the encryption configuration changed",
            number(figures.reencryptions),
        ),
        (
            "waypost_store_reencrypting",
            "1 while files may hold what another encryption configuration wrote",
            number(figures.reencrypting),
        ),
        (
            "waypost_store_secrets_encrypted",
            "1 while Secrets are encrypted when they are written",
            number(figures.secrets_encrypted),
        ),
    ]
}
