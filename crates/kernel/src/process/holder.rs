//! Finds the holder of a file lock.
//!
//! In: an open file. Out: the process that holds its `flock`, from `/proc/locks`. It is reported only if it still has
//! the file open, because device numbers there are not always those of `stat`.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;

use super::Identity;

/// The process that holds the lock on this file; none if unlocked or unknown.
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

/// All locks. The kernel resumes each read at a lock index, so a lock released between two reads hides another. It
/// returns as much as fits, usually everything.
fn locks() -> io::Result<String> {
    let mut text = String::with_capacity(1 << 16);
    File::open("/proc/locks")?.read_to_string(&mut text)?;
    Ok(text)
}

/// The PID in a line of `/proc/locks`, if it is about a held lock on this file.
fn locked_by(line: &str, inode: u64) -> Option<i32> {
    // Waiting locks have an arrow instead of the type.
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
    fn lock_lines_are_parsed() {
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
    fn the_holder_of_a_lock_is_found_while_it_is_held() {
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
