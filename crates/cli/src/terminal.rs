//! The terminal: colour, progress, raw mode.
//!
//! Without effect when the output is a file or a pipe; `NO_COLOR` is respected. Progress is written to standard error after one second and
//! erased at the end.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::termios::{OptionalActions, Termios};
use tokio::task::JoinHandle;

use crate::verbs::Ended;

/// Delay before progress is shown.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);
/// Interval at which progress is rewritten.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Writes text to standard output. A closed pipe ends the command with exit code 141, as SIGPIPE would.
///
/// # Errors
/// When it cannot be written.
pub fn print(text: &str) -> anyhow::Result<()> {
    write(text.as_bytes())
}

/// Writes bytes to standard output.
pub(crate) fn write(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Ended(141).into()),
        Err(error) => Err(anyhow::Error::new(error).context("writing to standard output")),
    }
}

/// Writes a remark to standard error.
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

/// Writes a remark of the program to standard error.
pub fn remark(text: &str) {
    eprintln!("waypost: {text}");
}

/// Writes a warning of the server to standard error.
pub(crate) fn warn(text: &str) {
    let mark = if has_colour(std::io::stderr().is_terminal()) { "\x1b[33mWarning:\x1b[0m" } else { "Warning:" };
    eprintln!("{mark} {text}");
}

/// Whether standard output supports colour.
pub(crate) fn colours() -> bool {
    has_colour(std::io::stdout().is_terminal())
}

/// Whether ANSI escapes may be written to an output: it is a terminal that supports them, and `NO_COLOR` is not set.
#[must_use]
pub fn has_colour(is_terminal: bool) -> bool {
    shows_colour(is_terminal, |name| std::env::var_os(name))
}

fn shows_colour(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let set = |name| variable(name).is_some_and(|value| !value.is_empty());
    let dumb = variable("TERM").is_some_and(|term| term == "dumb");
    is_terminal && !set("NO_COLOR") && !dumb
}

/// The state of the progress line.
#[derive(Default)]
struct Line {
    shown: bool,
    over: bool,
}

/// A progress line; erased on drop.
pub(crate) struct Progress {
    text: Arc<Mutex<String>>,
    line: Arc<Mutex<Line>>,
    task: Option<JoinHandle<()>>,
}

impl Progress {
    pub(crate) fn begin(text: impl Into<String>) -> Self {
        let (text, line) = (Arc::new(Mutex::new(text.into())), Arc::new(Mutex::new(Line::default())));
        let task = std::io::stderr().is_terminal().then(|| {
            let (text, line) = (text.clone(), line.clone());
            tokio::spawn(async move {
                tokio::time::sleep(PROGRESS_DELAY).await;
                for beat in 0_u64.. {
                    let mark = ['|', '/', '-', '\\'][usize::try_from(beat % 4).unwrap_or_default()];
                    {
                        let mut line = line.lock();
                        if line.over {
                            return;
                        }
                        eprint!("\r\x1b[K{mark} {} ({}s)", text.lock(), PROGRESS_DELAY.as_secs() + beat / 4);
                        line.shown = true;
                    }
                    tokio::time::sleep(PROGRESS_INTERVAL).await;
                }
            })
        });
        Self { text, line, task }
    }

    /// Replaces the text.
    pub(crate) fn say(&self, text: impl Into<String>) {
        *self.text.lock() = text.into();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        let mut line = self.line.lock();
        line.over = true;
        if line.shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// The terminal in raw mode; restored on drop.
pub(crate) struct Raw(Termios);

impl Raw {
    pub(crate) fn begin() -> std::io::Result<Self> {
        let stdin = std::io::stdin();
        let before = rustix::termios::tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(&stdin, OptionalActions::Drain, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = rustix::termios::tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Columns and rows of the terminal.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some((size.ws_col, size.ws_row))
}

/// Whether standard input is a terminal.
pub(crate) fn is_typed() -> bool {
    std::io::stdin().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_needs_a_terminal_that_supports_it() {
        let with = |set: &[(&str, &str)], is_terminal| {
            let value = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
            shows_colour(is_terminal, value)
        };
        assert!(with(&[], true) && with(&[("NO_COLOR", ""), ("TERM", "xterm")], true));
        assert!(!with(&[], false));
        assert!(!with(&[("NO_COLOR", "1")], true));
        assert!(!with(&[("TERM", "dumb")], true));
    }
}
