//! Mounts: container roots, volumes, and cleanup.
//!
//! In: paths. Out: mounts in the namespace of the caller. [`view`] gives a process a view of this machine with things of its own in it.

pub mod beneath;
pub mod view;

use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_change, mount_remount, unmount};

pub use rustix::mount::MountPropagationFlags as Propagation;

/// Mounts an overlayfs; the uppermost read-only directory comes first.
///
/// # Errors
/// When the kernel refuses: no overlayfs, or an unsupported character in a path.
pub fn overlay(lower: &[PathBuf], upper: &Path, work: &Path, target: &Path) -> io::Result<()> {
    let paths = lower.iter().map(PathBuf::as_path).chain([upper, work]);
    if paths.into_iter().any(|path| path.to_string_lossy().contains([':', ',', '\\'])) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "overlayfs takes no path with `:`, `,` or `\\`"));
    }
    let lower: Vec<String> = lower.iter().map(|path| path.display().to_string()).collect();
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.join(":"), upper.display(), work.display());
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    Ok(mount("overlay", target, "overlay", MountFlags::empty(), options.as_c_str())?)
}

/// Mounts a tmpfs of at most this many bytes.
///
/// # Errors
/// When the kernel refuses.
pub fn memory(target: &Path, size: Option<u64>, mode: u32) -> io::Result<()> {
    let size = size.map_or_else(String::new, |size| format!(",size={size}"));
    let options = std::ffi::CString::new(format!("mode={mode:o}{size}")).map_err(io::Error::other)?;
    Ok(mount("tmpfs", target, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())?)
}

/// Bind-mounts a file or directory.
///
/// # Errors
/// When the kernel refuses.
pub fn bind(source: &Path, target: &Path, read_only: bool) -> io::Result<()> {
    mount_bind(source, target)?;
    if read_only { remount_read_only(target) } else { Ok(()) }
}

/// Remounts read-only.
pub(crate) fn remount_read_only(target: &Path) -> io::Result<()> {
    // Locked flags (nosuid and others) must be repeated, or the kernel refuses.
    let now = rustix::fs::statvfs(target)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (held, flag) in [
        (rustix::fs::StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (rustix::fs::StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (rustix::fs::StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ] {
        if now.contains(held) {
            flags |= flag;
        }
    }
    Ok(mount_remount(target, flags, c"")?)
}

/// Sets the propagation of a mount and all below it.
///
/// # Errors
/// When the kernel refuses.
pub fn propagate(target: &Path, how: Propagation) -> io::Result<()> {
    Ok(mount_change(target, how | Propagation::REC)?)
}

/// Unmounts lazily; returns whether there was a mount.
///
/// # Errors
/// When the kernel refuses.
pub fn detach(target: &Path) -> io::Result<bool> {
    match unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Mount points in mount order.
///
/// # Errors
/// When it cannot be read.
pub fn list() -> io::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(text.lines().filter_map(|line| line.split(' ').nth(4)).map(|path| PathBuf::from(unescape(path))).collect())
}

/// Unmounts everything at or below a directory, last first; returns the number.
///
/// # Errors
/// The first failure; the others are unmounted.
pub fn detach_below(folder: &Path) -> io::Result<usize> {
    let (mut count, mut failure) = (0, Ok(()));
    for path in list()?.iter().rev().filter(|path| path.starts_with(folder)) {
        match detach(path) {
            Ok(was) => count += usize::from(was),
            Err(error) => failure = Err(error),
        }
    }
    failure.map(|()| count)
}

/// Decodes octal escapes.
fn unescape(path: &str) -> String {
    let mut out = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.first_chunk::<3>().and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_mount_points_are_decoded() {
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
        assert_eq!(unescape("/plain\\09"), "/plain\\09");
    }

    #[test]
    fn mounts_below_a_directory_are_removed() {
        let folder = std::env::temp_dir().join(format!("waypost-mounts-{}", std::process::id()));
        let (inner, other) = (folder.join("a b"), folder.join("c"));
        for path in [&inner, &other] {
            std::fs::create_dir_all(path).expect("made");
            memory(path, Some(1 << 20), 0o755).expect("mounted; this test needs root");
        }
        std::fs::write(inner.join("file"), "x").expect("written");
        bind(&inner, &other, true).expect("bound");
        assert!(std::fs::write(other.join("file"), "y").is_err());
        assert_eq!(detach_below(&folder).expect("gone"), 3);
        assert!(!detach(&inner).expect("nothing there"));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
