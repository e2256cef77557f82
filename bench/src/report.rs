//! Figures side by side: ours, the peer's, how many times better, the budget.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// What was measured of one subject, by key.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    values: Vec<(String, f64)>,
}

impl Figures {
    /// Sets a figure.
    pub fn set(&mut self, key: &str, value: f64) {
        self.values.retain(|(known, _)| known != key);
        self.values.push((key.to_owned(), value));
    }

    /// A figure, when it was measured.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<f64> {
        self.values.iter().find(|(known, _)| known == key).map(|(_, value)| *value)
    }

    fn json(&self) -> Value {
        let entries = self.values.iter().map(|(key, value)| (key.clone(), json!(rounded(*value))));
        Value::Object(entries.collect::<Map<_, _>>())
    }
}

/// The key of a figure that is measured with several numbers of objects.
#[must_use]
pub fn key(what: &str, objects: usize) -> String {
    format!("{what}@{objects}")
}

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// At most this.
    AtMost(f64),
    /// At least so many times the peer's; without a peer in this run, what it had on a machine like the budget's.
    TimesPeer(f64, f64),
}

/// A line of the report.
#[derive(Clone, Debug)]
struct Row {
    key: String,
    what: String,
    more_is_better: bool,
    budget: Option<Budget>,
}

/// The report of a run.
pub struct Report<'a> {
    /// What ran where: lines above the table.
    pub about: Vec<(String, String)>,
    /// With so many objects.
    pub objects: &'a [usize],
    /// How many watchers.
    pub watchers: usize,
    /// Ours.
    pub ours: Option<Figures>,
    /// The peer's.
    pub peer: Option<Figures>,
}

impl Report<'_> {
    /// As text.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        for (what, value) in &self.about {
            let _ = writeln!(out, "{what}: {value}");
        }
        let mut lines = vec![["", "waypost", "kube-apiserver + etcd", "ratio", "budget", ""].map(str::to_owned)];
        for row in self.rows() {
            let (ours, peer) = self.values(&row.key);
            if ours.is_none() && peer.is_none() {
                continue;
            }
            let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), show);
            let ratio = ratio(&row, ours, peer).map_or_else(|| "–".to_owned(), |ratio| format!("{}×", show(ratio)));
            let budget = row.budget.map_or_else(String::new, describe);
            let met = met(&row, ours, peer).map_or("", |met| if met { "met" } else { "MISSED" });
            lines.push([row.what, shown(ours), shown(peer), ratio, budget, met.to_owned()]);
        }
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..6).map(width).collect();
        for (place, line) in lines.iter().enumerate() {
            let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            let _ = writeln!(out, "| {} |", cells.join(" | "));
            if place == 0 {
                let rulers: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
                let _ = writeln!(out, "|{}|", rulers.join("|"));
            }
        }
        out
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let rows = self.rows().into_iter().filter_map(|row| {
            let (ours, peer) = self.values(&row.key);
            ours.or(peer)?;
            Some(json!({
                "key": row.key, "what": row.what, "waypost": ours.map(rounded), "kubernetes": peer.map(rounded),
                "ratio": ratio(&row, ours, peer).map(rounded), "budget": row.budget.map(describe),
                "met": met(&row, ours, peer),
            }))
        });
        json!({
            "about": self.about.iter().map(|(what, value)| (what.clone(), json!(value))).collect::<Map<_, _>>(),
            "rows": rows.collect::<Vec<_>>(),
            "waypost": self.ours.as_ref().map(Figures::json),
            "kubernetes": self.peer.as_ref().map(Figures::json),
        })
    }

    fn values(&self, key: &str) -> (Option<f64>, Option<f64>) {
        let value = |figures: &Option<Figures>| figures.as_ref().and_then(|figures| figures.get(key));
        (value(&self.ours), value(&self.peer))
    }

    fn rows(&self) -> Vec<Row> {
        let most = self.objects.iter().copied().max().unwrap_or_default();
        // The budgets are set for ten thousand.
        let budget = |at_most: f64| (most == 10_000).then_some(at_most);
        let watchers = self.watchers;
        let mut rows = vec![less("ready_s", "start to ready, empty (s)", Some(0.2))];
        rows.extend(self.objects.iter().flat_map(|objects| creation_rows(*objects)));
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
}

/// The lines about creations with so many objects present.
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

fn less(key: &str, what: &str, at_most: Option<f64>) -> Row {
    Row { key: key.to_owned(), what: what.to_owned(), more_is_better: false, budget: at_most.map(Budget::AtMost) }
}

fn more(key: &str, what: &str) -> Row {
    Row { key: key.to_owned(), what: what.to_owned(), more_is_better: true, budget: None }
}

/// How many times better ours is.
fn ratio(row: &Row, ours: Option<f64>, peer: Option<f64>) -> Option<f64> {
    let (ours, peer) = (ours?, peer?);
    let (good, bad) = if row.more_is_better { (ours, peer) } else { (peer, ours) };
    (good > 0.0 && bad > 0.0).then(|| good / bad)
}

fn met(row: &Row, ours: Option<f64>, peer: Option<f64>) -> Option<bool> {
    let ours = ours?;
    Some(match row.budget? {
        Budget::AtMost(limit) => ours <= limit,
        Budget::TimesPeer(times, before) => ours >= times * peer.unwrap_or(before),
    })
}

fn describe(budget: Budget) -> String {
    match budget {
        Budget::AtMost(limit) => format!("≤ {limit}"),
        Budget::TimesPeer(times, before) => format!("≥ {times}× ({before}/s)"),
    }
}

/// Three digits are as much as such a measurement says.
fn show(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ours: f64, peer: Option<f64>) -> Report<'static> {
        let figures = |value: f64| {
            let mut figures = Figures::default();
            figures.set("creates_per_s@1000", value);
            figures
        };
        let (ours, peer) = (Some(figures(ours)), peer.map(figures));
        Report { about: vec![], objects: &[1000], watchers: 10, ours, peer }
    }

    #[test]
    fn a_budget_in_times_the_peer_uses_the_peer_of_this_run() {
        let met = |ours, peer| report(ours, peer).json()["rows"][0]["met"].as_bool();
        assert_eq!(met(3000.0, Some(150.0)), Some(true));
        assert_eq!(met(3000.0, Some(151.0)), Some(false));
        assert_eq!(met(3000.0, None), Some(false), "201/s is what the budget was set against");
        assert_eq!(met(4020.0, None), Some(true));
    }

    #[test]
    fn what_was_not_measured_has_no_line() {
        let text = report(3000.0, Some(150.0)).table();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("| 3000 ") && text.contains("| 20.0× ") && text.contains("| met "), "{text}");
    }
}
