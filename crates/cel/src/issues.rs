//! Compile errors of an expression, with the messages and the layout of cel-go.
//!
//! Each issue has a message and a location. Displayed, they are sorted by location; each is followed by the line of the
//! expression and a caret below the place:
//!
//! ```text
//! ERROR: <input>:1:12: undefined field 'frob'
//!  | object.spec.frob == 'x'
//!  | ...........^
//! ```

use std::fmt;

use crate::source::{Location, Source};

/// Issues beyond this number are counted and not displayed.
const DISPLAYED: usize = 100;
/// Lines longer than this many bytes are not displayed.
const LONGEST_LINE: usize = 16_384;

/// One message about an expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issue {
    /// What is wrong, without the location.
    pub message: String,
    /// Line from 1, or −1 when the message concerns the expression as a whole.
    pub line: i64,
    /// Column from 1 in code points, or 0 when there is none.
    pub column: i64,
}

/// Why an expression was refused: at least one [`Issue`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issues {
    issues: Vec<Issue>,
    text: String,
}

impl Issues {
    /// The issues, sorted by location; at most 100.
    #[must_use]
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Issues {}

/// Issues while they are collected.
#[derive(Debug, Default)]
pub(crate) struct Report {
    found: Vec<(Location, String)>,
    count: usize,
}

impl Report {
    pub(crate) fn add(&mut self, location: Location, message: impl Into<String>) {
        self.count += 1;
        if self.count <= DISPLAYED {
            self.found.push((location, message.into()));
        }
    }

    pub(crate) fn at(&mut self, source: &Source, position: usize, message: impl Into<String>) {
        self.add(source.location(position), message);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many were added so far, for [`Self::forget_after`].
    pub(crate) fn mark(&self) -> usize {
        self.count
    }

    /// Drops what was added after a mark.
    pub(crate) fn forget_after(&mut self, mark: usize) {
        self.count = mark;
        self.found.truncate(mark.min(DISPLAYED));
    }

    /// Adds the issues of another report behind those of this one.
    pub(crate) fn append(&mut self, other: Self) {
        let beyond = other.count - other.found.len();
        for (location, message) in other.found {
            self.add(location, message);
        }
        self.count += beyond;
    }

    pub(crate) fn finish(mut self, source: &Source) -> Issues {
        self.found.sort_by_key(|(location, _)| *location);
        let truncated = self.count - self.found.len();
        let mut parts: Vec<String> =
            self.found.iter().map(|(location, message)| display(source, *location, message)).collect();
        if truncated > 0 {
            parts.push(format!("{truncated} more errors were truncated"));
        }
        let issues = self
            .found
            .into_iter()
            .map(|(location, message)| Issue { message, line: location.line, column: location.column + 1 })
            .collect();
        Issues { issues, text: parts.join("\n") }
    }
}

fn display(source: &Source, location: Location, message: &str) -> String {
    let mut out = format!("ERROR: <input>:{}:{}: {message}", location.line, location.column + 1);
    let Some(line) = source.line(location.line).filter(|line| line.len() <= LONGEST_LINE) else { return out };
    let line = line.replace('\t', " ");
    out.push_str("\n | ");
    out.push_str(&line);
    out.push_str("\n | ");
    let mut chars = line.chars();
    for _ in 0..location.column.max(0) {
        match chars.next() {
            Some(c) => out.push(if c.is_ascii() { '.' } else { '\u{ff0e}' }),
            None => break,
        }
    }
    out.push(if chars.next().is_none_or(|c| c.is_ascii()) { '^' } else { '\u{ff3e}' });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issues_are_sorted_and_point_at_their_place() {
        let source = Source::new("a\n\t'ü' + x");
        let mut report = Report::default();
        report.at(&source, 9, "second");
        report.at(&source, 0, "first");
        report.add(Location::NONE, "whole");
        let issues = report.finish(&source);
        assert_eq!(
            issues.to_string(),
            "ERROR: <input>:-1:0: whole\nERROR: <input>:1:1: first\n | a\n | ^\nERROR: <input>:2:8: second\n |  'ü' + x\n | ..\u{ff0e}....^"
        );
        assert_eq!(issues.issues().len(), 3);
    }

    #[test]
    fn a_wide_character_gets_a_wide_caret_and_long_lists_are_cut() {
        let source = Source::new("ü");
        let mut report = Report::default();
        for _ in 0..103 {
            report.at(&source, 0, "m");
        }
        let text = report.finish(&source).to_string();
        assert!(text.starts_with("ERROR: <input>:1:1: m\n | ü\n | \u{ff3e}\n"), "{text}");
        assert!(text.ends_with("\n3 more errors were truncated"), "{text}");
    }

    #[test]
    fn marks_forget_what_came_later() {
        let source = Source::new("x");
        let mut report = Report::default();
        report.at(&source, 0, "kept");
        let mark = report.mark();
        report.at(&source, 0, "dropped");
        report.forget_after(mark);
        assert!(!report.is_empty());
        assert_eq!(report.finish(&source).issues().len(), 1);
    }
}
