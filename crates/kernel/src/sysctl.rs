//! Settings of the kernel under `/proc/sys`, changed with a record of what they were.
//!
//! Whoever changes a setting of a machine owes it the old value. A [`Ledger`] writes only what differs, keeps what it found,
//! and puts that back, but not over a value that somebody else has written since.

pub mod kept;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

/// Somebody who has settings. Names are paths such as `net/ipv4/ip_forward`.
pub trait Sysctl: Send {
    /// The value of a setting, without the line's end.
    ///
    /// # Errors
    /// When there is no such setting, or it may not be read.
    fn read(&mut self, name: &str) -> io::Result<String>;

    /// Gives it a value.
    ///
    /// # Errors
    /// When there is no such setting, or it may not be written.
    fn write(&mut self, name: &str, value: &str) -> io::Result<()>;
}

/// The settings of this machine; those of the network are of the namespace that asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

fn path(name: &str) -> io::Result<PathBuf> {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    if name.split('/').all(plain) {
        Ok(PathBuf::from("/proc/sys").join(name))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` is not the name of a setting")))
    }
}

impl Sysctl for Linux {
    fn read(&mut self, name: &str) -> io::Result<String> {
        std::fs::read_to_string(path(name)?).map(|value| value.trim_end().to_owned())
    }

    fn write(&mut self, name: &str, value: &str) -> io::Result<()> {
        // Never makes a file: what is not there is not a setting.
        use std::io::Write;
        std::fs::OpenOptions::new().write(true).open(path(name)?)?.write_all(value.as_bytes())
    }
}

/// Settings in memory. Clones share them.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<BTreeMap<String, String>>>);

impl Fake {
    /// With these settings, and no others.
    pub fn new<'a>(settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let settings = settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self(Arc::new(Mutex::new(settings.collect())))
    }
}

impl Sysctl for Fake {
    fn read(&mut self, name: &str) -> io::Result<String> {
        self.0.lock().get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&mut self, name: &str, value: &str) -> io::Result<()> {
        let mut settings = self.0.lock();
        let setting = settings.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        value.clone_into(setting);
        Ok(())
    }
}

/// What was changed, and from what.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// By name: the value that was found, and the one that was written last.
    pub changed: BTreeMap<String, (String, String)>,
}

impl Ledger {
    /// Gives a setting a value. Says whether that took a write.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn set(&mut self, sysctl: &mut dyn Sysctl, name: &str, value: &str) -> io::Result<bool> {
        let found = sysctl.read(name)?;
        if found == value {
            return Ok(false);
        }
        sysctl.write(name, value)?;
        let entry = self.changed.entry(name.to_owned()).or_insert_with(|| (found, String::new()));
        value.clone_into(&mut entry.1);
        Ok(true)
    }

    /// Puts back what was found. Settings that somebody else has written since are left alone; those that cannot be put
    /// back stay in the ledger and are told, but hinder no other.
    pub fn restore(&mut self, sysctl: &mut dyn Sysctl) -> Vec<(String, io::Error)> {
        let mut failures = Vec::new();
        self.changed.retain(|name, (found, written)| {
            let restored = sysctl.read(name).and_then(|now| match now == *written {
                true => sysctl.write(name, found),
                false => Ok(()),
            });
            restored.map_err(|error| failures.push((name.clone(), error))).is_err()
        });
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_put_back_unless_somebody_else_changed_it() {
        let mut fake = Fake::new([("a", "0"), ("b", "1"), ("c", "7")]);
        let mut ledger = Ledger::default();
        assert!(ledger.set(&mut fake, "a", "5").expect("set"));
        assert!(ledger.set(&mut fake, "a", "6").expect("set"));
        assert!(!ledger.set(&mut fake, "b", "1").expect("set"));
        assert!(ledger.set(&mut fake, "c", "8").expect("set"));
        assert!(ledger.set(&mut fake, "d", "1").is_err());
        fake.write("c", "9").expect("written by somebody else");
        assert!(ledger.restore(&mut fake).is_empty());
        let values = ["a", "b", "c"].map(|name| fake.read(name).expect("read"));
        assert_eq!((values, ledger), (["0", "1", "9"].map(str::to_owned), Ledger::default()));
    }

    #[test]
    fn names_do_not_lead_elsewhere() {
        for name in ["", "/etc/passwd", "../../etc/passwd", "net//x", "net/./x"] {
            assert!(Linux.read(name).is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput), "{name}");
        }
    }
}
