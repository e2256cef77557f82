//! Runs a program in its own network, mount and PID namespaces.
//!
//! In: a program and its arguments. Out: the init process of the namespaces; when it ends, the kernel kills all their
//! processes and removes their links, rules, routes and mounts. Only files of the machine and control groups need
//! cleanup.
//!
//! ```text
//! caller ─thread: namespaces─▶ first process: lead ─▶ the program ─▶ its children
//!    ▲_________________________ ends as the program ends _│
//! ```

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open};
use rustix::thread::UnshareFlags;

use super::Handle;
use crate::mounts::{Propagation, propagate};
use crate::namespace::{on_a_thread, unshare};

/// The init process of its own namespaces. Dropping it kills it and all processes inside.
#[derive(Debug)]
pub struct Apart {
    child: Child,
    /// Readable when it has ended.
    pub handle: Handle,
}

impl Apart {
    /// Starts a program as the init process, with this standard input, and our output and errors.
    ///
    /// # Errors
    /// When privileges are missing, or the program cannot be run.
    #[expect(clippy::disallowed_methods, reason = "this is the kernel crate")]
    pub fn begin(program: &Path, arguments: &[&OsStr], input: OwnedFd) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(input);
        // Namespaces apply to one thread and its children; the caller keeps its own.
        let child = on_a_thread(|| {
            unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWPID)?;
            propagate(Path::new("/"), Propagation::PRIVATE)?;
            command.spawn()
        })?;
        let handle = Handle(pidfd_open(Pid::from_child(&child), PidfdFlags::NONBLOCK)?);
        Ok(Self { child, handle })
    }

    /// Waits for its exit code, or 128 plus the signal number.
    ///
    /// # Errors
    /// When another thread has waited for it.
    pub fn wait(&mut self) -> io::Result<i32> {
        use std::os::unix::process::ExitStatusExt as _;
        let status = self.child.wait()?;
        Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Mounts the `/proc` of this PID namespace.
///
/// # Errors
/// When the kernel refuses.
pub fn show_processes() -> io::Result<()> {
    Ok(mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, c"")?)
}

/// Runs as the init process of a namespace: starts the program, reaps children, and returns the exit code of the
/// program. When the caller exits, everything ends.
///
/// # Errors
/// When the program cannot be run.
#[expect(clippy::disallowed_methods, reason = "this is the kernel crate")]
pub fn lead(program: &Path, arguments: &[&OsStr]) -> io::Result<i32> {
    let child = Command::new(program).args(arguments).stdin(Stdio::inherit()).spawn()?;
    let wanted = Pid::from_child(&child);
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == wanted => {
                return Ok(status
                    .exit_status()
                    .unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or_default()));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_separate_and_end_with_their_init_process() {
        let link = |of: &str| std::fs::read_link(format!("/proc/self/ns/{of}")).expect("a namespace");
        let kinds = ["net", "mnt", "pid_for_children"];
        let before = kinds.map(link);
        let (input, writer) = io::pipe().expect("a pipe");
        // As init it starts a long-running process, waits for a line, and exits.
        let script = "sleep 600 & test $$ = 1 && read x && exit 7";
        let words = ["-c", script].map(OsStr::new);
        let mut apart = Apart::begin(Path::new("/bin/sh"), &words, input.into()).expect("begun; this test needs root");
        let pid = apart.child.id();
        let theirs = |of: &str| std::fs::read_link(format!("/proc/{pid}/ns/{of}")).expect("a namespace");
        assert!(["net", "mnt", "pid"].iter().all(|of| theirs(of) != link(of)));
        let inside = theirs("net");
        io::Write::write_all(&mut &writer, b"go\n").expect("read");
        assert_eq!(apart.wait().expect("ended"), 7);
        assert_eq!(kinds.map(link), before);
        let in_there =
            |entry: &std::fs::DirEntry| std::fs::read_link(entry.path().join("ns/net")).is_ok_and(|of| of == inside);
        let left = std::fs::read_dir("/proc").expect("processes").flatten().filter(in_there).count();
        assert_eq!(left, 0, "a process outlived the first one");
    }

    #[test]
    fn dropping_it_ends_it() {
        let (input, _writer) = io::pipe().expect("a pipe");
        let apart = Apart::begin(Path::new("/bin/cat"), &[], input.into()).expect("begun; this test needs root");
        let who = super::super::Identity::of(apart.child.id().cast_signed()).expect("it runs");
        drop(apart);
        assert!(!who.is_there());
    }
}
