//! A ledger that outlives its program: a file that goes when the machine is started anew, as settings do.
//!
//! In: a folder. Out: the [`Ledger`] of this network namespace, one line for each setting: name, what was found, what was written.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::Ledger;

/// Where ledgers are kept.
pub const FOLDER: &str = "/run/waypost";

/// A ledger and its file.
#[derive(Debug)]
pub struct Kept {
    /// What it says.
    pub ledger: Ledger,
    path: PathBuf,
}

impl Kept {
    /// Reads the ledger of this network namespace, if there is one.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let namespace = std::fs::metadata("/proc/self/ns/net")?.ino();
        let path = folder.join(format!("settings-{namespace}"));
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let mut ledger = Ledger::default();
        for line in text.lines() {
            // A line that was cut short by a full disk tells nothing.
            if let [name, found, written] = line.split('=').collect::<Vec<_>>()[..] {
                ledger.changed.insert(name.to_owned(), (found.to_owned(), written.to_owned()));
            }
        }
        Ok(Self { ledger, path })
    }

    /// Writes it down; an empty one needs no file, and the folder goes with the last of them.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn save(&self) -> io::Result<()> {
        if self.ledger.changed.is_empty() {
            let removed = std::fs::remove_file(&self.path);
            if removed.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
                return removed;
            }
            // Others of this machine may have theirs in there.
            let _ = self.path.parent().map(std::fs::remove_dir);
            return Ok(());
        }
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
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
    fn the_next_program_puts_back_what_the_first_has_changed() {
        let folder = std::env::temp_dir().join(format!("waypost-kept-{}", std::process::id()));
        let mut machine = Fake::new([("a", "0"), ("b", "1 2")]);
        let mut first = Kept::open(&folder).expect("nothing yet");
        first.ledger.set(&mut machine, "a", "1").expect("set");
        first.ledger.set(&mut machine, "b", "3 4").expect("set");
        first.save().expect("written");
        // A second one changes nothing, and keeps what the first one found.
        let mut second = Kept::open(&folder).expect("read");
        second.ledger.set(&mut machine, "a", "1").expect("set");
        second.save().expect("written");
        let mut last = Kept::open(&folder).expect("read");
        assert!(last.ledger.restore(&mut machine).is_empty());
        last.save().expect("removed");
        assert_eq!(["a", "b"].map(|name| machine.read(name).expect("read")), ["0", "1 2"]);
        assert!(!folder.exists(), "nothing else was in it");
    }
}
