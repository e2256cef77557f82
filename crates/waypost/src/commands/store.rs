//! `waypost store backup|restore|check`: looking after the embedded store.

use std::path::Path;

use anyhow::{Context as _, ensure};
use store::{Embedded, Options, tools};

use super::server::{index, store_dir};
use crate::config::StoreSubject;

/// Runs the command.
pub(crate) fn exec(subject: StoreSubject) -> anyhow::Result<()> {
    match subject {
        StoreSubject::Backup { place, file } => backup(&store_dir(&place.data_dir), &file),
        StoreSubject::Restore { place, file } => restore(&file, &store_dir(&place.data_dir)),
        StoreSubject::Check { place } => check(&store_dir(&place.data_dir)),
    }
}

fn backup(dir: &Path, file: &Path) -> anyhow::Result<()> {
    ensure!(dir.join("FORMAT").exists(), "there is no store in {}; name its directory with --data-dir", dir.display());
    let store = Embedded::open(dir, index, Options::default()).context("opening the store")?;
    let revision = tools::backup(&store, file).context("writing the backup")?;
    say(&format!("revision {revision} is in {}", file.display()));
    Ok(())
}

fn restore(file: &Path, dir: &Path) -> anyhow::Result<()> {
    let revision = tools::restore(file, dir).context("restoring the backup")?;
    say(&format!("revision {revision} is in {}; start the server on it", dir.display()));
    Ok(())
}

fn check(dir: &Path) -> anyhow::Result<()> {
    let report = tools::check(dir).context("reading the store")?;
    say(&format!(
        "revision {}, {} snapshots, {} segments of log",
        report.revision,
        report.snapshots.len(),
        report.segments.len()
    ));
    for (table, entries) in &report.tables {
        say(&format!("  {entries:>8}  {table}"));
    }
    for note in &report.notes {
        say(&format!("note: {note}"));
    }
    for problem in &report.problems {
        say(&format!("problem: {problem}"));
    }
    ensure!(
        report.problems.is_empty(),
        "{} has problems; `waypost store restore` makes a new store from a backup",
        dir.display()
    );
    Ok(())
}

/// Prints what was asked for.
#[expect(clippy::print_stdout, reason = "this is the output of the command")]
fn say(text: &str) {
    println!("{text}");
}
