//! Tables: cells in, aligned lines out. Pure.
//!
//! Columns are as wide as kubectl makes them: the longest cell and three spaces, at least six in all; the last is not padded. A table
//! that is extended (`get -w`) keeps the widths of its columns. Tables of the server become rows here (`Shown`).

use api::value::ValueExt as _;
use serde_json::Value;

const PADDING: usize = 3;
const NARROWEST: usize = 6;

/// States shown in green, yellow and red.
const GOOD: [&str; 6] = ["Running", "Ready", "Active", "Completed", "Succeeded", "Bound"];
const PROGRESSING: [&str; 6] = ["Pending", "ContainerCreating", "PodInitializing", "Terminating", "Unknown", "Warning"];
const BAD: [&str; 9] = [
    "Error",
    "Failed",
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "CreateContainerError",
    "OOMKilled",
    "NotReady",
];

/// Rows, and how wide their columns are.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    widths: Vec<usize>,
    /// The first of the rows is a heading.
    headed: bool,
}

impl Table {
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        for (at, cell) in cells.iter().enumerate() {
            let width = (cell.chars().count() + PADDING).max(NARROWEST);
            match self.widths.get_mut(at) {
                Some(have) => *have = (*have).max(width),
                None => self.widths.push(width),
            }
        }
        self.rows.push(cells);
    }

    pub(crate) fn heading(&mut self, cells: impl IntoIterator<Item = String>) {
        self.headed = self.rows.is_empty();
        self.row(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows added since the last call.
    pub(crate) fn text(&mut self, colours: bool) -> String {
        let mut out = String::new();
        let headed = std::mem::take(&mut self.headed);
        for (number, row) in std::mem::take(&mut self.rows).iter().enumerate() {
            for (at, cell) in row.iter().enumerate() {
                let paint = if colours { paint(cell, headed && number == 0, at) } else { None };
                match paint {
                    Some(code) => out.push_str(&format!("\x1b[{code}m{cell}\x1b[0m")),
                    None => out.push_str(cell),
                }
                if at + 1 < row.len() {
                    let width = self.widths.get(at).copied().unwrap_or_default();
                    out.push_str(&" ".repeat(width.saturating_sub(cell.chars().count())));
                }
            }
            out.push('\n');
        }
        out
    }
}

/// The colour of a cell; the first column are names.
fn paint(cell: &str, heading: bool, column: usize) -> Option<u8> {
    let is = |words: &[&str]| words.contains(&cell);
    match () {
        () if heading => Some(1),
        () if column == 0 => None,
        () if is(&GOOD) => Some(32),
        () if is(&PROGRESSING) => Some(33),
        () if is(&BAD) || cell.starts_with("Init:Err") => Some(31),
        () => None,
    }
}

/// What to show of a table of the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) wide: bool,
    /// In front of each row.
    pub(crate) namespaces: bool,
    /// In front of each name: `service`.
    pub(crate) prefix: Option<String>,
    pub(crate) labels: bool,
    /// Labels that have columns of their own.
    pub(crate) label_columns: Vec<String>,
}

impl Shown {
    /// The headings of the columns.
    pub(crate) fn headings(&self, columns: &[Value]) -> Vec<String> {
        let mut out = Vec::new();
        if self.namespaces {
            out.push("NAMESPACE".to_owned());
        }
        let own = columns.iter().filter(|column| self.shows(column));
        out.extend(own.map(|column| column.text("name").to_uppercase()));
        out.extend(self.label_columns.iter().map(|key| key.rsplit('/').next().unwrap_or(key).to_uppercase()));
        if self.labels {
            out.push("LABELS".to_owned());
        }
        out
    }

    fn shows(&self, column: &Value) -> bool {
        self.wide || column.int("priority") == 0
    }

    /// The cells of a row.
    pub(crate) fn cells(&self, columns: &[Value], row: &Value) -> Vec<String> {
        let metadata = row.at("object.metadata");
        let mut out = Vec::new();
        if self.namespaces {
            out.push(metadata.text("namespace").to_owned());
        }
        for (at, column) in columns.iter().enumerate().filter(|(_, column)| self.shows(column)) {
            let text = row.items("cells").get(at).map(cell).unwrap_or_default();
            match &self.prefix {
                Some(prefix) if column.text("format") == "name" => out.push(format!("{prefix}/{text}")),
                _ => out.push(text),
            }
        }
        let labels = metadata.at("labels").as_object();
        for key in &self.label_columns {
            out.push(labels.and_then(|labels| labels.get(key)).and_then(Value::as_str).unwrap_or_default().to_owned());
        }
        if self.labels {
            let all: Vec<String> = labels
                .into_iter()
                .flatten()
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect();
            out.push(if all.is_empty() { "<none>".to_owned() } else { all.join(",") });
        }
        out
    }
}

/// A cell as text: one line without control characters.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    match text.find(['\n', '\r', '\x0c']) {
        Some(end) => format!("{}...", clean(&text[..end])),
        None => clean(&text),
    }
}

fn clean(text: &str) -> String {
    text.replace('\x1b', "^[")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(row: [&str; 2]) -> [String; 2] {
        row.map(str::to_owned)
    }

    #[test]
    fn columns_are_as_wide_as_those_of_kubectl_and_keep_their_width() {
        let mut table = Table::default();
        table.heading(words(["NAME", "AGE"]));
        table.row(words(["kubernetes", "5s"]));
        assert_eq!(table.text(false), "NAME         AGE\nkubernetes   5s\n");
        table.row(words(["a", "1s"]));
        assert_eq!(table.text(false), "a            1s\n");
    }

    #[test]
    fn colour_does_not_move_columns() {
        let mut table = Table::default();
        table.heading(words(["NAME", "STATUS"]));
        table.row(words(["Running", "Running"]));
        assert_eq!(
            table.text(true),
            "\x1b[1mNAME\x1b[0m      \x1b[1mSTATUS\x1b[0m\nRunning   \x1b[32mRunning\x1b[0m\n"
        );
    }

    #[test]
    fn rows_of_the_server_become_cells() {
        let columns = [
            json!({"name": "Name", "format": "name", "priority": 0}),
            json!({"name": "Port(s)", "priority": 0}),
            json!({"name": "Selector", "priority": 1}),
        ];
        let row = json!({"cells": ["web", 80, "two\nlines"],
                         "object": {"metadata": {"namespace": "ns", "labels": {"a.b/app": "x", "z": "y"}}}});
        let shown = Shown { labels: true, namespaces: true, ..Shown::default() };
        assert_eq!(shown.headings(&columns), ["NAMESPACE", "NAME", "PORT(S)", "LABELS"]);
        assert_eq!(shown.cells(&columns, &row), ["ns", "web", "80", "a.b/app=x,z=y"]);
        let wide = Shown {
            wide: true,
            prefix: Some("service".to_owned()),
            label_columns: vec!["a.b/app".to_owned(), "none".to_owned()],
            ..Shown::default()
        };
        assert_eq!(wide.headings(&columns), ["NAME", "PORT(S)", "SELECTOR", "APP", "NONE"]);
        assert_eq!(wide.cells(&columns, &row), ["service/web", "80", "two...", "x", ""]);
    }

    #[test]
    fn control_characters_are_removed() {
        assert_eq!(cell(&json!("a\x1b[31m")), "a^[[31m");
    }
}
