//! Adapter for systemd units with an `[X-Waypost]` section.
//!
//! ```text
//! systemctl show ─▶ state and files of each service ─▶ section [X-Waypost] of its files ─▶ Pod; active ─▶ probed ─▶ ready
//! ```
//! systemd ignores sections that begin with `X-`. An active unit is probed; a failed one is a Pod that is not ready and shows the reason; a
//! stopped one is no Pod. States are polled with one `systemctl show` for all units. Units are never started, stopped or changed.

mod unit;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{MissedTickBehavior, interval};

use self::unit::UnitStatus;
use super::{AdapterEvent, Queue};

/// How often units are polled.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The properties that are read.
const PROPERTIES: &str = "--property=Id,ActiveState,Result,ExecMainStatus,InvocationID,FragmentPath,DropInPaths";

/// Polls units: the named ones, or all that have the section.
pub async fn watch_units(systemctl: PathBuf, units: Vec<String>, queue: Queue) {
    let mut every = interval(POLL_INTERVAL);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut files = Files::default();
    let mut reported = String::new();
    loop {
        every.tick().await;
        let (program, names) = (systemctl.clone(), units.clone());
        let asked = tokio::task::spawn_blocking(move || show(&program, &names)).await;
        let parse_show = match asked.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(text) => unit::parse_show(&text),
            Err(error) => {
                let error = error.to_string();
                if reported != error {
                    tracing::warn!(error, program = %systemctl.display(), "systemctl failed; Pods of units are left unchanged");
                    reported = error;
                }
                continue;
            }
        };
        let mut complaints = Vec::new();
        let found = parse_show.iter().filter_map(|unit| match unit::read(unit, &files.of(unit)) {
            Ok(found) => found,
            Err(why) => {
                complaints.push(format!("{}: {why}", unit.id));
                None
            }
        });
        let found = found.collect();
        let complaints = complaints.join("; ");
        if !complaints.is_empty() && complaints != reported {
            tracing::warn!(errors = complaints, "skipped systemd units with invalid settings");
        }
        reported = complaints;
        if queue.send(AdapterEvent::Discovered(api::adopted::SYSTEMD, found)).is_err() {
            return;
        }
    }
}

fn show(program: &Path, units: &[String]) -> io::Result<String> {
    let mut arguments = vec![OsStr::new("show"), OsStr::new(PROPERTIES), OsStr::new("--")];
    match units {
        [] => arguments.push(OsStr::new("*.service")),
        units => arguments.extend(units.iter().map(OsStr::new)),
    }
    kernel::process::run_to_end(program, &arguments)
}

/// A cache of unit files, by modification time.
#[derive(Default)]
struct Files(BTreeMap<PathBuf, (SystemTime, String)>);

impl Files {
    /// The contents of all files of a unit, in order of precedence.
    fn of(&mut self, unit: &UnitStatus) -> Vec<String> {
        unit.files.iter().map(|path| self.read(path)).collect()
    }

    fn read(&mut self, path: &Path) -> String {
        let Ok(changed) = std::fs::metadata(path).and_then(|about| about.modified()) else { return String::new() };
        if let Some((_, text)) = self.0.get(path).filter(|(at, _)| *at == changed) {
            return text.clone();
        }
        let text = std::fs::read_to_string(path).unwrap_or_default();
        self.0.insert(path.to_owned(), (changed, text.clone()));
        text
    }
}
