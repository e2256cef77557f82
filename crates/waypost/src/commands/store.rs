//! `waypost store backup|restore|check`: tools for the embedded store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use store::encryption::Values;
use store::{Embedded, Encryption, Options, tools};

use super::encryption;
use super::server::{index, store_dir};
use crate::config::{StorePlace, StoreSubject};

/// Runs the command.
pub(crate) fn exec(subject: StoreSubject) -> anyhow::Result<()> {
    match subject {
        StoreSubject::Backup { place, file } => backup(&dir(&place), load(&place)?, &file),
        StoreSubject::Restore { place, file } => restore(&file, &dir(&place), &load(&place)?),
        StoreSubject::Check { place } => check(&dir(&place), &load(&place)?),
    }
}

fn dir(place: &StorePlace) -> PathBuf {
    store_dir(&place.place.data_dir)
}

fn load(place: &StorePlace) -> anyhow::Result<Encryption> {
    encryption::load(&place.encryption, &place.place.data_dir)
}

fn backup(dir: &Path, encryption: Encryption, file: &Path) -> anyhow::Result<()> {
    ensure!(dir.join("FORMAT").exists(), "there is no store in {}; name its directory with --data-dir", dir.display());
    let options = Options { encryption: Arc::new(encryption), ..Options::default() };
    let store = Embedded::open(dir, index, options).context("opening the store")?;
    let revision = tools::backup(&store, file).context("writing the backup")?;
    say(&format!("revision {revision} is in {}", file.display()));
    Ok(())
}

fn restore(file: &Path, dir: &Path, encryption: &Encryption) -> anyhow::Result<()> {
    let revision = tools::restore(file, dir, encryption).context("restoring the backup")?;
    say(&format!("revision {revision} is in {}; start the server on it", dir.display()));
    Ok(())
}

fn check(dir: &Path, encryption: &Encryption) -> anyhow::Result<()> {
    let report = tools::check(dir, encryption).context("reading the store")?;
    say(&format!(
        "revision {}, {} snapshots, {} segments of log",
        report.revision,
        report.snapshots.len(),
        report.segments.len()
    ));
    for (table, entries) in &report.tables {
        say(&format!("  {entries:>8}  {table}"));
    }
    if report.values.values().all(|values| values.encrypted.is_empty()) && !encryption.encrypts() {
        say("encryption: no value is encrypted");
    } else {
        for (table, values) in &report.values {
            say(&format!("encryption: {table}: {}", described(values)));
        }
    }
    for note in &report.notes {
        say(&format!("note: {note}"));
    }
    for problem in &report.problems {
        say(&format!("problem: {problem}"));
    }
    ensure!(
        report.unreadable == 0,
        "{} values in {} cannot be read with the given keys; name the file that has them with --encryption-provider-config",
        report.unreadable,
        dir.display()
    );
    ensure!(
        report.problems.is_empty(),
        "{} has problems; `waypost store restore` makes a new store from a backup",
        dir.display()
    );
    Ok(())
}

/// The encryption of the values of a table: `12 values with key "one" (id 0123456789abcdef), 3 plain`.
fn described(values: &Values) -> String {
    let keys = values.encrypted.iter().map(|(id, (name, count))| format!("{count} values with key {name:?} (id {id})"));
    let plain = (values.plain > 0).then(|| format!("{} values plain", values.plain));
    keys.chain(plain).collect::<Vec<_>>().join(", ")
}

/// Prints the result.
#[expect(clippy::print_stdout, reason = "this is the output of the command")]
fn say(text: &str) {
    println!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_described_by_key() {
        assert_eq!(described(&Values { plain: 3, ..Values::default() }), "3 values plain");
        assert_eq!(described(&Values::default()), "");
    }
}
