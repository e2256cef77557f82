//! Sysctls under `/proc/sys`, changed with a record of their previous values.
//!
//! A [`Ledger`] writes only what differs, records the previous value, and restores it, unless another program has
//! written a new value since.

pub mod ledger_file;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

/// Access to sysctls. Names are paths such as `net/ipv4/ip_forward`.
pub trait Sysctl: Send {
    /// The value of a sysctl, without the newline.
    ///
    /// # Errors
    /// When it does not exist or cannot be read.
    fn read(&mut self, name: &str) -> io::Result<String>;

    /// Sets the value of a sysctl.
    ///
    /// # Errors
    /// When it does not exist or cannot be written.
    fn write(&mut self, name: &str, value: &str) -> io::Result<()>;
}

/// Sysctls of this machine; network ones of the caller's namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

fn path(name: &str) -> io::Result<PathBuf> {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    if name.split('/').all(plain) {
        Ok(PathBuf::from("/proc/sys").join(name))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` is not a sysctl name")))
    }
}

impl Sysctl for Linux {
    fn read(&mut self, name: &str) -> io::Result<String> {
        std::fs::read_to_string(path(name)?).map(|value| value.trim_end().to_owned())
    }

    fn write(&mut self, name: &str, value: &str) -> io::Result<()> {
        // Never creates a file.
        use std::io::Write;
        std::fs::OpenOptions::new().write(true).open(path(name)?)?.write_all(value.as_bytes())
    }
}

/// Sysctls in memory. Clones share them.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<BTreeMap<String, String>>>);

impl Fake {
    /// With only these sysctls.
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

/// Changed sysctls and their previous values.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// By name: previous value, and the last one written.
    pub changed: BTreeMap<String, (String, String)>,
}

impl Ledger {
    /// Sets a sysctl; returns whether it was written.
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

    /// Restores previous values. Sysctls that another program has written since are left alone; those that cannot be
    /// restored stay in the ledger and are returned.
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
    fn changes_are_restored_unless_overwritten() {
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
    fn names_outside_proc_sys_are_refused() {
        for name in ["", "/etc/passwd", "../../etc/passwd", "net//x", "net/./x"] {
            assert!(Linux.read(name).is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput), "{name}");
        }
    }
}
