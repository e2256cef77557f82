//! Units of systemd that say on which port they listen, as Pods.
//!
//! ```text
//! systemctl show ─▶ state and files of each service ─▶ section [X-Waypost] of its files ─▶ Pod; active ─▶ asked ─▶ ready
//! ```
//! systemd itself ignores sections that begin with `X-`. A unit that is active is asked like a program that was registered; one that
//! failed stays as a Pod that is not ready and says why; one that was stopped is no Pod. States are looked at every two seconds, by one call
//! for all units: nothing but the program `systemctl` is needed, and nothing is ever started, stopped or moved.

mod unit;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{MissedTickBehavior, interval};

use self::unit::Shown;
use super::{Inbox, News};

/// How often units are looked at.
const PERIOD: Duration = Duration::from_secs(2);
/// What is asked of each unit.
const PROPERTIES: &str = "--property=Id,ActiveState,Result,ExecMainStatus,InvocationID,FragmentPath,DropInPaths";

/// Follows units for ever: those that were named, or all that have a section for us.
pub async fn follow(systemctl: PathBuf, units: Vec<String>, inbox: Inbox) {
    let mut every = interval(PERIOD);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut files = Files::default();
    let mut told = String::new();
    loop {
        every.tick().await;
        let (program, names) = (systemctl.clone(), units.clone());
        let asked = tokio::task::spawn_blocking(move || show(&program, &names)).await;
        let shown = match asked.map_err(|error| error.to_string()).and_then(|shown| shown) {
            Ok(text) => unit::shown(&text),
            Err(error) => {
                if told != error {
                    tracing::warn!(error, program = %systemctl.display(), "systemd does not answer, its units stay as they were");
                    told = error;
                }
                continue;
            }
        };
        let mut complaints = Vec::new();
        let found = shown.iter().filter_map(|unit| match unit::read(unit, &files.of(unit)) {
            Ok(found) => found,
            Err(why) => {
                complaints.push(format!("{}: {why}", unit.id));
                None
            }
        });
        let found = found.collect();
        let complaints = complaints.join("; ");
        if !complaints.is_empty() && complaints != told {
            tracing::warn!("units that cannot become Pods: {complaints}");
        }
        told = complaints;
        if inbox.send(News::Found(api::adopted::SYSTEMD, found)).is_err() {
            return;
        }
    }
}

fn show(program: &Path, units: &[String]) -> Result<String, String> {
    let mut arguments = vec![OsStr::new("show"), OsStr::new(PROPERTIES), OsStr::new("--")];
    match units {
        [] => arguments.push(OsStr::new("*.service")),
        units => arguments.extend(units.iter().map(OsStr::new)),
    }
    kernel::process::run_to_end(program, &arguments).map_err(|error| error.to_string())
}

/// The files of units, read again when they have changed.
#[derive(Default)]
struct Files(BTreeMap<PathBuf, (SystemTime, String)>);

impl Files {
    /// The text of all files of a unit, in the order in which they count.
    fn of(&mut self, unit: &Shown) -> Vec<String> {
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
