//! The output of the demo: lines while it runs, or one JSON document at the end.
//!
//! In: acts and their results. Out: standard output. Colour only on a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use serde_json::{Value, json};

use super::acts::Act;
use super::{Arguments, Output};

/// The width of a line, with the time at its right end.
const WIDTH: usize = 100;

/// Prints the results.
pub(super) struct Teller {
    to_people: bool,
    to_programs: bool,
    colour: bool,
    told: Vec<Value>,
}

/// Prints a line. A closed output does not end the demo.
pub(super) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

impl Teller {
    /// From the arguments.
    pub(super) fn new(arguments: &Arguments) -> Self {
        let to_programs = arguments.output == Output::Json;
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { to_people: !to_programs && !arguments.quiet, to_programs, colour, told: Vec::new() }
    }

    fn say(&self, text: &str) {
        if self.to_people {
            line(text);
        }
    }

    fn painted(&self, how: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{how}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Before the first act.
    pub(super) fn opens(&self, text: &str) {
        self.say(text);
    }

    /// An act starts.
    pub(super) fn begins(&self, number: usize, act: &Act) {
        self.say(&format!("\n{}", self.painted("1", &format!("{number:2}. {}", act.title))));
        self.say(&format!("    {}", act.does));
    }

    /// An act succeeded.
    pub(super) fn seen(&mut self, number: usize, act: &Act, lines: &[String], took: Duration) {
        let (last, others) = lines.split_last().map_or(("", lines), |(last, others)| (last.as_str(), others));
        let mark = self.painted("32", "✓");
        for other in others {
            self.say(&format!("    {mark} {other}"));
        }
        self.say(&format!("    {mark} {}", with_time(last, took)));
        self.note(number, act, lines, took, true);
    }

    /// An act failed.
    pub(super) fn failed(&mut self, number: usize, act: &Act, why: &str, took: Duration) {
        let mark = self.painted("31", "✗");
        self.say(&format!("    {mark} {}", with_time(why.lines().next().unwrap_or_default(), took)));
        self.note(number, act, &[why.to_owned()], took, false);
    }

    fn note(&mut self, number: usize, act: &Act, seen: &[String], took: Duration, ok: bool) {
        self.told.push(json!({
            "act": number, "title": act.title, "does": act.does, "must": act.must,
            "seen": seen, "seconds": took.as_secs_f64(), "ok": ok,
        }));
    }

    /// After the last act, or the one that failed.
    pub(super) fn ends(&self, all: usize, mode: &str, took: Duration) {
        let ok = self.told.len() == all && self.told.iter().all(|act| act["ok"] == true);
        if self.to_programs {
            line(&json!({"ok": ok, "proxyMode": mode, "seconds": took.as_secs_f64(), "acts": self.told}).to_string());
        }
        self.say("");
    }
}

/// A line with a time at its right end.
fn with_time(text: &str, took: Duration) -> String {
    let time = format!("{:.1} s", took.as_secs_f64());
    // The mark and the indent are before it.
    let room = (WIDTH - 6).saturating_sub(text.chars().count());
    format!("{text} {time:>room$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_at_the_right() {
        let long = "x".repeat(200);
        let [short, other, long] = ["a", "ähm", &long].map(|text| with_time(text, Duration::from_millis(1234)));
        assert_eq!(short.chars().count(), other.chars().count());
        assert!(short.ends_with(" 1.2 s") && long.ends_with("x 1.2 s"));
    }
}
