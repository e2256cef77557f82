//! The text of an expression and places in it.
//!
//! Positions are counted in code points from the start of the text. Lines are separated by `\n`; a location for display
//! has a line from 1 and a column from 0.

/// An expression's text, split into code points.
#[derive(Debug)]
pub(crate) struct Source {
    chars: Vec<char>,
    /// Positions at which the second and later lines start.
    lines: Vec<usize>,
}

/// A place in a source. `None` as a location means that a message concerns the expression as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Location {
    pub(crate) line: i64,
    pub(crate) column: i64,
}

impl Location {
    /// The location of messages without a place.
    pub(crate) const NONE: Self = Self { line: -1, column: -1 };
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let lines = chars.iter().enumerate().filter(|(_, c)| **c == '\n').map(|(at, _)| at + 1).collect();
        Self { chars, lines }
    }

    pub(crate) fn chars(&self) -> &[char] {
        &self.chars
    }

    pub(crate) fn len(&self) -> usize {
        self.chars.len()
    }

    /// The text from `start` up to `end`, both cut to the length of the source.
    pub(crate) fn slice(&self, start: usize, end: usize) -> String {
        self.chars.get(start.min(self.len())..end.min(self.len())).unwrap_or_default().iter().collect()
    }

    /// The location of a position. An empty source has no first column, and neither has a position beyond the text.
    pub(crate) fn location(&self, position: usize) -> Location {
        if position > self.len() {
            return Location { line: 1, column: -1 };
        }
        let before = self.lines.partition_point(|start| *start <= position);
        let start = before.checked_sub(1).and_then(|last| self.lines.get(last)).copied().unwrap_or(0);
        let column = if self.chars.is_empty() { -1 } else { signed(position - start) };
        Location { line: signed(before + 1), column }
    }

    /// The text of a line, if the source has it.
    pub(crate) fn line(&self, line: i64) -> Option<String> {
        let index = usize::try_from(line).ok()?.checked_sub(1)?;
        let start = if index == 0 { 0 } else { *self.lines.get(index - 1)? };
        let end = self.lines.get(index).map_or(self.len(), |next| next - 1);
        (!self.chars.is_empty()).then(|| self.slice(start, end))
    }
}

fn signed(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_become_lines_and_columns() {
        let source = Source::new("ab\ncd\n");
        let at = |position| source.location(position);
        assert_eq!(at(0), Location { line: 1, column: 0 });
        assert_eq!(at(2), Location { line: 1, column: 2 });
        assert_eq!(at(3), Location { line: 2, column: 0 });
        assert_eq!(at(6), Location { line: 3, column: 0 });
        assert_eq!(source.line(2).as_deref(), Some("cd"));
        assert_eq!(source.line(3).as_deref(), Some(""));
        assert_eq!(source.line(4), None);
        assert_eq!(source.line(-1), None);
    }

    #[test]
    fn an_empty_source_has_no_column_and_no_line() {
        let source = Source::new("");
        assert_eq!(source.location(0), Location { line: 1, column: -1 });
        assert_eq!(source.line(1), None);
    }
}
