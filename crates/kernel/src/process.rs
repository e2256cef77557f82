//! Processes of this machine: identity, signals, and starting them in their own namespaces.
//!
//! PIDs are reused. An [`Identity`] is a PID with the start time of its process.

pub mod apart;
pub mod enter;
mod exec;
mod holder;
pub mod launch;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

pub use exec::Program;
pub use holder::holder;
pub use rustix::process::Signal;

/// Identifies a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// PID.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub began: u64,
}

impl Identity {
    /// The process with this PID now.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Self { pid, began: began(&stat)? })
    }

    /// This process.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn own() -> io::Result<Self> {
        Self::of(std::process::id().cast_signed()).ok_or_else(|| io::Error::other("/proc cannot be read"))
    }

    /// Whether it exists, possibly as a zombie.
    #[must_use]
    pub fn is_there(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }

    /// A pidfd; none when it is gone.
    ///
    /// # Errors
    /// When pidfds are not available.
    pub fn open(&self) -> io::Result<Option<Handle>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let handle = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // Check after opening: the PID cannot have been reused in between.
        Ok(self.is_there().then_some(Handle(handle)))
    }
}

/// A pidfd; readable when the process has ended.
#[derive(Debug)]
pub struct Handle(pub OwnedFd);

impl Handle {
    /// Whether it has ended, including zombies.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    /// Waits for its end up to a timeout; returns whether it has ended.
    #[must_use]
    pub fn ends_within(&self, timeout: Duration) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).ok();
        poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// Sends a signal; returns whether the process existed.
    pub fn signal(&self, signal: Signal) -> bool {
        pidfd_send_signal(&self.0, signal).is_ok()
    }
}

/// The signal with this number.
#[must_use]
pub fn signal_number(number: i32) -> Option<Signal> {
    Signal::from_named_raw(number)
}

/// The 22nd field of `/proc/PID/stat`. The second, a name in brackets, may hold anything.
fn began(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The boot ID of the kernel.
///
/// # Errors
/// When it cannot be read.
pub fn boot_id() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned())
}

/// Runs a program that daemonizes, and waits until its first process has ended; its standard error is returned on
/// failure.
///
/// # Errors
/// When it cannot be run, or fails.
#[expect(clippy::disallowed_methods, reason = "this is the kernel crate")]
pub fn run_to_end(program: &Path, arguments: &[&OsStr]) -> io::Result<String> {
    let mut command = std::process::Command::new(program);
    command.args(arguments).stdin(std::process::Stdio::null());
    let output = command
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{} cannot be run: {error}", program.display())))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(if said.is_empty() { output.status.to_string() } else { said }))
}

/// Runs a program with these streams and without a mount; returns whether it succeeded.
///
/// # Errors
/// When it cannot be run.
#[expect(clippy::disallowed_methods, reason = "this is the kernel crate")]
pub fn run_with_streams(
    program: &Path,
    arguments: &[&OsStr],
    streams: [OwnedFd; 3],
    hidden: Option<&Path>,
) -> io::Result<bool> {
    let [input, output, errors] = streams;
    let mut command = std::process::Command::new(program);
    command.args(arguments).stdin(input).stdout(output).stderr(errors);
    if let Some(hidden) = hidden {
        launch::hide_from(&mut command, hidden)?;
    }
    command.status().map(|status| status.success())
}

/// A child process, killed when dropped.
#[derive(Debug)]
pub struct Spawned {
    child: std::process::Child,
    /// Readable when it has ended.
    pub handle: Handle,
}

impl Spawned {
    /// Starts it with these streams.
    ///
    /// # Errors
    /// When it cannot be run.
    #[expect(clippy::disallowed_methods, reason = "this is the kernel crate")]
    pub fn begin(program: &Path, arguments: &[&OsStr], streams: [OwnedFd; 3]) -> io::Result<Self> {
        let [input, output, errors] = streams;
        let mut command = std::process::Command::new(program);
        let child = command.args(arguments).stdin(input).stdout(output).stderr(errors).spawn()?;
        let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::NONBLOCK)?;
        Ok(Self { child, handle: Handle(handle) })
    }

    /// Starts this executable again in another role: with this name, these arguments, an input, and our output and
    /// errors. It has its own process group, so that terminal signals only reach its parent.
    ///
    /// # Errors
    /// When it cannot be run.
    #[expect(clippy::disallowed_methods, reason = "this is the kernel crate")]
    pub fn begin_role(name: &str, arguments: impl IntoIterator<Item = OsString>, input: OwnedFd) -> io::Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let mut command = std::process::Command::new("/proc/self/exe");
        command.arg0(name).args(arguments).stdin(input).process_group(0);
        // These belong to the process that the service manager started.
        for variable in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"]
        {
            command.env_remove(variable);
        }
        let child = command.spawn()?;
        let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::NONBLOCK)?;
        Ok(Self { child, handle: Handle(handle) })
    }

    /// Its identity.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        Identity::of(self.child.id().cast_signed())
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

impl Drop for Spawned {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_needs_its_start_time() {
        let own = Identity::own().expect("this process");
        assert!(own.is_there() && own.open().expect("handles").is_some());
        let other = Identity { began: own.began + 1, ..own };
        assert!(!other.is_there() && other.open().expect("handles").is_none());
        assert_eq!(began("1 (a) b (c) S 0 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 77 0"), Some(77));
    }
}
