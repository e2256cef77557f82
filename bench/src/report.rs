//! Figures side by side: ours, the peer's, how many times better, the budget.

use std::fmt::{Display, Write as _};

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

    /// Takes over all figures of another part.
    pub fn extend(&mut self, other: Self) {
        for (key, value) in other.values {
            self.set(&key, value);
        }
    }

    fn json(&self) -> Value {
        let entries = self.values.iter().map(|(key, value)| (key.clone(), json!(rounded(*value))));
        Value::Object(entries.collect::<Map<_, _>>())
    }
}

/// The key of a figure that is measured with several sizes of load.
#[must_use]
pub fn key(what: &str, objects: impl Display) -> String {
    format!("{what}@{objects}")
}

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// At most this.
    AtMost(f64),
    /// At least this multiple of the peer's figure; without a peer in this run, its figure on a machine like the
    /// budget's.
    TimesPeer(f64, f64),
}

/// A line of the report; omitted when no subject was measured.
#[derive(Clone, Debug)]
pub struct Row {
    /// The key of its figure.
    pub key: String,
    /// Its text.
    pub what: String,
    /// Whether a greater figure is the better one.
    pub more_is_better: bool,
    /// What it must be.
    pub budget: Option<Budget>,
}

/// The report of a run.
pub struct Report {
    /// What ran where: lines above the table.
    pub about: Vec<(String, String)>,
    /// The lines there may be.
    pub rows: Vec<Row>,
    /// What the peer is.
    pub peer_name: &'static str,
    /// Ours.
    pub ours: Option<Figures>,
    /// The peer's.
    pub peer: Option<Figures>,
}

impl Report {
    /// As text.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        for (what, value) in &self.about {
            let _ = writeln!(out, "{what}: {value}");
        }
        let mut lines = vec![["", "waypost", self.peer_name, "ratio", "budget", ""].map(str::to_owned)];
        for row in &self.rows {
            let (ours, peer) = self.values(&row.key);
            if ours.is_none() && peer.is_none() {
                continue;
            }
            let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), show);
            let ratio = ratio(row, ours, peer).map_or_else(|| "–".to_owned(), |ratio| format!("{}×", show(ratio)));
            let budget = row.budget.map_or_else(String::new, describe);
            let met = met(row, ours, peer).map_or("", |met| if met { "met" } else { "MISSED" });
            lines.push([row.what.clone(), shown(ours), shown(peer), ratio, budget, met.to_owned()]);
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
        let rows = self.rows.iter().filter_map(|row| {
            let (ours, peer) = self.values(&row.key);
            ours.or(peer)?;
            Some(json!({
                "key": row.key, "what": row.what, "waypost": ours.map(rounded), "kubernetes": peer.map(rounded),
                "ratio": ratio(row, ours, peer).map(rounded), "budget": row.budget.map(describe),
                "met": met(row, ours, peer),
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
}

/// A line whose figure should be small.
#[must_use]
pub fn less(key: &str, what: &str, at_most: Option<f64>) -> Row {
    Row { key: key.to_owned(), what: what.to_owned(), more_is_better: false, budget: at_most.map(Budget::AtMost) }
}

/// A line whose figure should be great.
#[must_use]
pub fn more(key: &str, what: &str) -> Row {
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

/// Three digits are the precision of such a measurement.
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

    fn report(ours: f64, peer: Option<f64>) -> Report {
        let figures = |value: f64| {
            let mut figures = Figures::default();
            figures.set("rate", value);
            figures
        };
        let rate = Row { budget: Some(Budget::TimesPeer(20.0, 201.0)), ..more("rate", "made per second") };
        let (ours, peer) = (Some(figures(ours)), peer.map(figures));
        Report { about: vec![], rows: vec![rate, less("other", "other", None)], peer_name: "peer", ours, peer }
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
