//! Persistent network namespaces, and running code inside.
//!
//! In: a path. Out: a bind mount of the namespace there (as `ip netns` does), until it is removed.

use std::io;
use std::panic::resume_unwind;
use std::path::Path;

use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// Creates a network namespace at a path. An existing one is kept; returns whether it was created.
///
/// # Errors
/// When privileges are missing or the file cannot be created.
pub fn make(path: &Path) -> io::Result<bool> {
    if is_namespace(path) {
        return Ok(false);
    }
    std::fs::write(path, "")?;
    let work = || -> io::Result<()> {
        unshare(UnshareFlags::NEWNET)?;
        Ok(mount_bind("/proc/thread-self/ns/net", path)?)
    };
    on_a_thread(work)?;
    Ok(true)
}

/// Removes a namespace and its file; processes inside keep it alive. Returns whether it existed.
///
/// # Errors
/// When it exists and cannot be removed.
pub fn remove(path: &Path) -> io::Result<bool> {
    let was = is_namespace(path);
    if was {
        unmount(path, UnmountFlags::DETACH)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(was),
    }
}

/// Whether a path is a namespace.
#[must_use]
pub fn is_namespace(path: &Path) -> bool {
    /// Magic number of nsfs.
    const NSFS: u32 = 0x6e73_6673;
    rustix::fs::statfs(path).is_ok_and(|found| u64::try_from(found.f_type) == Ok(u64::from(NSFS)))
}

/// Runs a closure on a thread inside a network namespace. Sockets opened there stay in it.
///
/// # Errors
/// When it cannot be entered.
pub fn inside<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let file = std::fs::File::open(path)?;
    on_a_thread(move || {
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network))?;
        Ok(work())
    })
}

/// Runs a closure on a thread of its own, so that namespace changes affect no other code.
pub(crate) fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

/// Leaves shared namespaces.
#[expect(deprecated, reason = "it is only unsafe for file tables, which stay shared here")]
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_namespace_stays_until_it_is_removed() {
        let path = std::env::temp_dir().join(format!("waypost-namespace-{}", std::process::id()));
        assert!(make(&path).expect("made; this test needs root") && !make(&path).expect("kept"));
        let of = |path: &str| std::fs::metadata(path).expect("a namespace").ino();
        let here = of("/proc/thread-self/ns/net");
        let there = inside(&path, || of("/proc/thread-self/ns/net")).expect("entered");
        assert!(here != there && there == std::fs::metadata(&path).expect("the file").ino());
        assert_eq!(of("/proc/thread-self/ns/net"), here);
        assert!(remove(&path).expect("removed") && !remove(&path).expect("gone"));
        assert!(!path.exists());
    }
}
