//! A ledger in a file that does not survive a reboot, as sysctls do not.
//!
//! In: a directory. Out: the [`Ledger`] of this network namespace, one line per sysctl: name, previous value, written
//! value.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::Ledger;

/// Directory of the ledgers.
pub const DIRECTORY: &str = "/run/waypost";

/// A ledger and its file.
#[derive(Debug)]
pub struct LedgerFile {
    /// The ledger.
    pub ledger: Ledger,
    path: PathBuf,
}

impl LedgerFile {
    /// Reads the ledger of this network namespace, if there is one.
    ///
    /// # Errors
    /// When it exists and cannot be read.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let namespace = std::fs::metadata("/proc/self/ns/net")?.ino();
        let path = directory.join(format!("settings-{namespace}"));
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let mut ledger = Ledger::default();
        for line in text.lines() {
            // Ignore lines truncated by a full disk.
            if let [name, found, written] = line.split('=').collect::<Vec<_>>()[..] {
                ledger.changed.insert(name.to_owned(), (found.to_owned(), written.to_owned()));
            }
        }
        Ok(Self { ledger, path })
    }

    /// Writes the ledger. An empty one needs no file; the directory is removed with the last one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self) -> io::Result<()> {
        if self.ledger.changed.is_empty() {
            let removed = std::fs::remove_file(&self.path);
            if removed.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
                return removed;
            }
            // Fails while other ledgers are in it.
            let _ = self.path.parent().map(std::fs::remove_dir);
            return Ok(());
        }
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let line = |(name, (found, written)): (&String, &(String, String))| format!("{name}={found}={written}\n");
        std::fs::write(&self.path, self.ledger.changed.iter().map(line).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysctl::{Fake, Sysctl as _};

    #[test]
    fn a_later_process_restores_the_changes() {
        let directory = std::env::temp_dir().join(format!("waypost-kept-{}", std::process::id()));
        let mut machine = Fake::new([("a", "0"), ("b", "1 2")]);
        let mut first = LedgerFile::open(&directory).expect("nothing yet");
        first.ledger.set(&mut machine, "a", "1").expect("set");
        first.ledger.set(&mut machine, "b", "3 4").expect("set");
        first.save().expect("written");
        // A second ledger keeps the values recorded by the first.
        let mut second = LedgerFile::open(&directory).expect("read");
        second.ledger.set(&mut machine, "a", "1").expect("set");
        second.save().expect("written");
        let mut last = LedgerFile::open(&directory).expect("read");
        assert!(last.ledger.restore(&mut machine).is_empty());
        last.save().expect("removed");
        assert_eq!(["a", "b"].map(|name| machine.read(name).expect("read")), ["0", "1 2"]);
        assert!(!directory.exists(), "nothing else was in it");
    }
}
