//! A program with all that it begins, apart from this machine: its own network, mounts and processes.
//!
//! In: a program and its arguments. Out: the first process of namespaces of its own; when it ends, however it ends, the kernel ends
//! every process that came of it and takes the links, rules, routes and mounts of these namespaces away. Nothing has to be tidied up but
//! what lies outside of them: files of the machine, and control groups.
//!
//! ```text
//! caller ─thread: namespaces─▶ first process: lead ─▶ the program ─▶ whatever it begins
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

/// The first process of namespaces of its own. Dropping it kills it, and all that is in there.
#[derive(Debug)]
pub struct Apart {
    child: Child,
    /// Can be read from when it has ended.
    pub handle: Handle,
}

impl Apart {
    /// Begins a program as the first process, with this standard input, and the output and errors of the caller.
    ///
    /// # Errors
    /// When we may not, or the program cannot be run.
    #[expect(clippy::disallowed_methods, reason = "this is the kernel crate")]
    pub fn begin(program: &Path, arguments: &[&OsStr], input: OwnedFd) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(input);
        // Namespaces are a matter of one thread, and of what it begins; whoever called us keeps its own.
        let child = on_a_thread(|| {
            unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWPID)?;
            propagate(Path::new("/"), Propagation::PRIVATE)?;
            command.spawn()
        })?;
        let handle = Handle(pidfd_open(Pid::from_child(&child), PidfdFlags::NONBLOCK)?);
        Ok(Self { child, handle })
    }

    /// How it ended: its exit code, or 128 and the number of the signal. Waits for its end.
    ///
    /// # Errors
    /// When somebody else has waited for it.
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

/// Shows the processes of this namespace at `/proc`, instead of those of the machine.
///
/// # Errors
/// When the kernel refuses.
pub fn show_processes() -> io::Result<()> {
    Ok(mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, c"")?)
}

/// What the first process of a namespace is for: it begins the program, waits for whoever is left to it, and comes back with the
/// exit code of the program. The caller ends itself then, and everything with it.
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
    fn what_is_apart_has_its_own_links_and_processes_and_ends_with_its_first() {
        let link = |of: &str| std::fs::read_link(format!("/proc/self/ns/{of}")).expect("a namespace");
        let kinds = ["net", "mnt", "pid_for_children"];
        let before = kinds.map(link);
        let (input, writer) = io::pipe().expect("a pipe");
        // It is the first of its processes, begins one that would stay for long, waits for a line, and goes.
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
