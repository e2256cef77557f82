//! Who holds a lock on a file.
//!
//! In: an open file. Out: the process that locked it whole (`flock`), as `/proc/locks` tells it. The kernel names the process that took
//! the lock; it is believed only when it still has the file open, because devices there are not always those that files are said to be on.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;

use super::Identity;

/// The process that holds the lock on this file; nothing when nobody does, or when it cannot be told: ask again.
#[must_use]
pub fn holder(file: &File) -> Option<Identity> {
    let wanted = file.metadata().ok()?;
    let has_it_open = |who: &Identity| {
        let files = fs::read_dir(format!("/proc/{}/fd", who.pid)).into_iter().flatten().flatten();
        files
            .filter_map(|entry| fs::metadata(entry.path()).ok())
            .any(|open| (open.dev(), open.ino()) == (wanted.dev(), wanted.ino()))
    };
    let locks = locks().ok()?;
    let mut pids = locks.lines().filter_map(|line| locked_by(line, wanted.ino()));
    pids.find_map(|pid| Identity::of(pid).filter(has_it_open))
}

/// All locks there are. With each read the kernel goes on at the number of the lock where it was, so a lock that was given back between two
/// hides another. It gives a page at a time to whoever has room for it: nearly always all of them.
fn locks() -> io::Result<String> {
    let mut text = String::with_capacity(1 << 16);
    File::open("/proc/locks")?.read_to_string(&mut text)?;
    Ok(text)
}

/// The process that a line of `/proc/locks` names, if it is about a lock of this file that is held.
fn locked_by(line: &str, inode: u64) -> Option<i32> {
    // Those that wait have an arrow in place of the kind.
    let [_, "FLOCK", _, "WRITE", pid, place, ..] = line.split_ascii_whitespace().collect::<Vec<_>>()[..] else {
        return None;
    };
    let its: u64 = place.rsplit(':').next()?.parse().ok()?;
    pid.parse().ok().filter(|_| its == inode)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FlockOperation, flock};

    use super::*;

    #[test]
    fn lines_of_locks_are_read() {
        assert_eq!(locked_by("1: FLOCK  ADVISORY  WRITE 77 fe:00:1234 0 EOF", 1234), Some(77));
        for other in [
            "1: FLOCK  ADVISORY  WRITE 77 fe:00:1235 0 EOF",
            "1: -> FLOCK  ADVISORY  WRITE 77 fe:00:1234 0 EOF",
            "2: POSIX  ADVISORY  WRITE 77 fe:00:1234 0 EOF",
            "",
        ] {
            assert_eq!(locked_by(other, 1234), None, "{other}");
        }
    }

    #[test]
    fn whoever_locked_a_file_is_found_and_nobody_when_it_is_free() {
        let path = std::env::temp_dir().join(format!("waypost-holder-{}", std::process::id()));
        let file = File::create(&path).expect("a file");
        assert_eq!(holder(&file), None);
        flock(&file, FlockOperation::LockExclusive).expect("locked");
        assert_eq!(holder(&File::open(&path).expect("opened")), Identity::own().ok());
        flock(&file, FlockOperation::Unlock).expect("given back");
        assert_eq!(holder(&file), None);
        fs::remove_file(&path).expect("removed");
    }
}
