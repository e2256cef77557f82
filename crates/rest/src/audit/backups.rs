//! Rotated log files: their names, which of them to remove, and which to compress.
//!
//! A backup of `audit.log` is `audit-2026-08-01T12-30-45.123.log`, the time in UTC, with `.gz` once it is compressed. Only files with such names
//! are ever touched. What to do is decided by [`Backups::plan`], which is pure.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::file::LogOptions;

const TIME_FORMAT: &str = "%Y-%m-%dT%H-%M-%S.%3f";
const COMPRESSED: &str = ".gz";

/// The backups of one log.
#[derive(Clone, Debug)]
pub(super) struct Backups {
    folder: PathBuf,
    /// `audit-`
    prefix: String,
    /// `.log`
    extension: String,
    max_backups: usize,
    max_age_days: u32,
    compress: bool,
}

/// What to do with backups, by name.
#[derive(PartialEq, Eq, Debug, Default)]
struct Plan {
    remove: Vec<String>,
    compress: Vec<String>,
}

impl Backups {
    pub(super) fn new(log: &Path, options: &LogOptions) -> Self {
        let name = log.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let (stem, extension) = name.split_at(name.rfind('.').unwrap_or(name.len()));
        let folder = log.parent().filter(|folder| !folder.as_os_str().is_empty());
        Self {
            folder: folder.unwrap_or_else(|| Path::new(".")).to_owned(),
            prefix: format!("{stem}-"),
            extension: extension.to_owned(),
            max_backups: options.max_backups,
            max_age_days: options.max_age_days,
            compress: options.compress,
        }
    }

    /// The path of a new backup: a name that no other has.
    pub(super) fn free_name(&self, now: Timestamp) -> PathBuf {
        let mut time = now;
        loop {
            let path = self.folder.join(self.name(time));
            let compressed = path.with_file_name(self.name(time) + COMPRESSED);
            let next = time.checked_add(SignedDuration::from_millis(1));
            match next {
                Ok(next) if path.exists() || compressed.exists() => time = next,
                _ => return path,
            }
        }
    }

    fn name(&self, time: Timestamp) -> String {
        format!("{}{}{}", self.prefix, time.strftime(TIME_FORMAT), self.extension)
    }

    /// When a backup was made; `None` for other files.
    fn time(&self, name: &str) -> Option<Timestamp> {
        let rest = name.strip_prefix(&self.prefix)?;
        let parse = |rest: &str| {
            let time = DateTime::strptime(TIME_FORMAT, rest.strip_suffix(&self.extension)?).ok()?;
            time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
        };
        parse(rest).or_else(|| parse(rest.strip_suffix(COMPRESSED)?))
    }

    /// What to do with the files of the folder.
    fn plan(&self, names: impl IntoIterator<Item = String>, now: Timestamp) -> Plan {
        let mut backups: Vec<(Timestamp, String)> =
            names.into_iter().filter_map(|name| self.time(&name).map(|time| (time, name))).collect();
        // The newest first.
        backups.sort_by(|a, b| b.cmp(a));
        let oldest = now.checked_sub(SignedDuration::from_hours(24 * i64::from(self.max_age_days))).ok();
        let (mut kept, mut plan) = (BTreeSet::new(), Plan::default());
        for (time, name) in backups {
            // A file and what it was compressed to count as one.
            kept.insert(time);
            let is_excess = self.max_backups > 0 && kept.len() > self.max_backups;
            let is_old = self.max_age_days > 0 && oldest.is_some_and(|oldest| time < oldest);
            if is_excess || is_old {
                plan.remove.push(name);
            } else if self.compress && !name.ends_with(COMPRESSED) {
                plan.compress.push(name);
            }
        }
        plan
    }

    /// Removes and compresses.
    pub(super) fn maintain(&self, now: Timestamp) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.extend(entry.file_name().into_string());
            }
        }
        let plan = self.plan(names, now);
        let removed = plan.remove.iter().map(|name| std::fs::remove_file(self.folder.join(name)));
        let compressed = plan.compress.iter().map(|name| compress(&self.folder.join(name)));
        // A failure must not keep the others from being done.
        let results: Vec<io::Result<()>> = removed.chain(compressed).collect();
        results.into_iter().collect()
    }
}

/// Replaces a file by its compressed form.
fn compress(path: &Path) -> io::Result<()> {
    let mut to = path.as_os_str().to_owned();
    to.push(COMPRESSED);
    let to = PathBuf::from(to);
    let write = || {
        // One that is there already is the rest of an attempt that was interrupted.
        let out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&to)?;
        let mut encoder = GzEncoder::new(out, Compression::default());
        io::copy(&mut File::open(path)?, &mut encoder)?;
        encoder.finish().map(drop)
    };
    match write() {
        Ok(()) => std::fs::remove_file(path),
        Err(error) => {
            let _ = std::fs::remove_file(&to);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;

    use super::*;
    use crate::pki::scratch::Scratch;

    fn backups(path: &Path, max_backups: usize, max_age_days: u32, compress: bool) -> Backups {
        let options = LogOptions { path: Some(path.to_owned()), max_size: 1, max_backups, max_age_days, compress };
        Backups::new(path, &options)
    }

    fn now() -> Timestamp {
        "2026-08-10T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn names_hold_the_time_in_utc() {
        let log = backups(Path::new("/var/log/audit.log"), 0, 0, false);
        let time = "2026-08-01T12:30:45.123999Z".parse().unwrap();
        assert_eq!(log.free_name(time), Path::new("/var/log/audit-2026-08-01T12-30-45.123.log"));
        let read = |name: &str| log.time(name).map(|time| time.to_string());
        assert_eq!(read("audit-2026-08-01T12-30-45.123.log").as_deref(), Some("2026-08-01T12:30:45.123Z"));
        assert_eq!(read("audit-2026-08-01T12-30-45.123.log.gz").as_deref(), Some("2026-08-01T12:30:45.123Z"));
        for other in ["audit.log", "audit-x.log", "other-2026-08-01T12-30-45.123.log", "audit-2026-08-01T12-30-45.123"]
        {
            assert_eq!(read(other), None, "{other}");
        }
        let plain = backups(Path::new("audit"), 0, 0, false);
        assert_eq!(plain.free_name(time), Path::new("./audit-2026-08-01T12-30-45.123"));
    }

    #[test]
    fn the_newest_are_kept() {
        let name = |day: u8, suffix: &str| format!("audit-2026-08-0{day}T00-00-00.000.log{suffix}");
        let all = || [name(1, ".gz"), name(3, ""), name(3, ".gz"), name(5, ""), name(9, ""), "audit.log".to_owned()];
        let log = Path::new("audit.log");
        assert_eq!(backups(log, 0, 0, false).plan(all(), now()), Plan::default());
        let by_count = backups(log, 2, 0, false).plan(all(), now());
        assert_eq!(by_count.remove, [name(3, ".gz"), name(3, ""), name(1, ".gz")]);
        let with_both = backups(log, 3, 0, false).plan(all(), now());
        assert_eq!(with_both.remove, [name(1, ".gz")], "a file and its compressed form are one");
        let by_age = backups(log, 0, 6, true).plan(all(), now());
        assert_eq!(by_age.remove, [name(3, ".gz"), name(3, ""), name(1, ".gz")]);
        assert_eq!(by_age.compress, [name(9, ""), name(5, "")]);
    }

    #[test]
    fn files_are_removed_and_compressed() {
        let scratch = Scratch::new();
        let path = |name: &str| scratch.path().join(name);
        for (name, text) in [("audit-2026-08-09T00-00-00.000.log", "new"), ("audit-2020-01-01T00-00-00.000.log", "old")]
        {
            std::fs::write(path(name), text).unwrap();
        }
        std::fs::write(path("other.txt"), "kept").unwrap();
        backups(&path("audit.log"), 0, 30, true).maintain(now()).unwrap();
        let mut names: Vec<_> =
            std::fs::read_dir(scratch.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["audit-2026-08-09T00-00-00.000.log.gz", "other.txt"]);
        let mut text = String::new();
        let file = File::open(path("audit-2026-08-09T00-00-00.000.log.gz")).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "new");
    }

    #[test]
    fn a_name_that_is_taken_is_not_used_again() {
        let scratch = Scratch::new();
        let log = backups(&scratch.path().join("audit.log"), 0, 0, false);
        let first = log.free_name(now());
        std::fs::write(&first, "").unwrap();
        let second = log.free_name(now());
        assert_ne!(first, second);
        assert!(log.time(second.file_name().unwrap().to_str().unwrap()).is_some());
    }

    proptest! {
        #[test]
        fn only_own_names_are_planned(names in prop::collection::vec("[ -~]{0,40}", 0..5)) {
            let log = backups(Path::new("audit.log"), 1, 1, true);
            let plan = log.plan(names, now());
            prop_assert!(plan.remove.iter().chain(&plan.compress).all(|name| log.time(name).is_some()));
        }
    }
}
