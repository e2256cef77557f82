//! Network namespaces that outlive whoever made them, and work done inside.
//!
//! In: a path. Out: a file there that is the namespace (a bind mount, as `ip netns` does it), until it is removed.

use std::io;
use std::panic::resume_unwind;
use std::path::Path;

use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// Makes a network namespace, held by a file. One that is there already is kept; says whether it was made.
///
/// # Errors
/// When we may not, or the file cannot be made.
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

/// Removes a namespace and its file; what is still inside keeps it alive. Says whether there was one.
///
/// # Errors
/// When it is there and cannot be removed.
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

/// Whether a file holds a namespace.
#[must_use]
pub fn is_namespace(path: &Path) -> bool {
    /// What the filesystem of namespaces is called by number.
    const NSFS: u32 = 0x6e73_6673;
    rustix::fs::statfs(path).is_ok_and(|found| u64::try_from(found.f_type) == Ok(u64::from(NSFS)))
}

/// Does work on a thread that is inside a network namespace. Sockets made there stay there, also when they are taken out.
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

/// Runs this on a thread that ends with it: what it does to its namespaces concerns nobody else.
pub(crate) fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

/// Leaves namespaces that are shared with others.
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
