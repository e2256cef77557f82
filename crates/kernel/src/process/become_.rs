//! The last steps of a process before it is another program: who it is, what it may, where it stands.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use rustix::thread::{CapabilitySet, CapabilitySets, capability_is_in_bounding_set};

use crate::seccomp::Filter;

/// A program, and as whom it runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// The program and its arguments; looked for in the `PATH` of its own environment.
    pub words: Vec<OsString>,
    /// Its environment, and nothing else.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it stands; the root when empty.
    pub folder: PathBuf,
    /// As which user.
    pub user: Option<u32>,
    /// As which group.
    pub group: Option<u32>,
    /// In which other groups; those of the machine's root stay when nothing is said at all.
    pub groups: Option<Vec<u32>>,
    /// Whether it may not get more rights than it has.
    pub no_new_privileges: bool,
    /// The rights it may have at most, as bits; all when nothing is said.
    pub capabilities: Option<u64>,
    /// The system calls it may make; all when nothing is said.
    pub seccomp: Option<Filter>,
    /// Whether its standard input is a terminal of its own.
    pub terminal: bool,
}

impl Program {
    /// Becomes it. Comes back only with the reason why not.
    #[expect(clippy::disallowed_methods, reason = "this is the kernel crate")]
    pub(super) fn become_it(&self) -> io::Error {
        match self.prepare() {
            Err(error) => error,
            Ok(()) => {
                let Some((program, arguments)) = self.words.split_first() else {
                    return io::Error::new(io::ErrorKind::InvalidInput, "no command");
                };
                let mut command = std::process::Command::new(program);
                command.args(arguments).env_clear();
                command.envs(self.environment.iter().map(|(name, value)| (name, value)));
                let error = command.exec();
                io::Error::new(error.kind(), format!("exec: {program:?}: {error}"))
            }
        }
    }

    fn prepare(&self) -> io::Result<()> {
        setsid()?;
        if self.terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        let folder = if self.folder.as_os_str().is_empty() { std::path::Path::new("/") } else { &self.folder };
        rustix::process::chdir(folder)
            .map_err(|errno| io::Error::other(format!("chdir to the workingDir {}: {errno}", folder.display())))?;
        if let Some(keep) = self.capabilities {
            bound(keep)?;
        }
        // Needs a right that is about to go, or the promise below.
        if !self.no_new_privileges {
            self.filter()?;
        }
        if let Some(groups) = &self.groups {
            let groups: Vec<_> = groups.iter().map(|group| rustix::fs::Gid::from_raw(*group)).collect();
            rustix::thread::set_thread_groups(&groups)?;
        }
        if let Some(group) = self.group.map(rustix::fs::Gid::from_raw) {
            rustix::thread::set_thread_res_gid(group, group, group)?;
        }
        if let Some(user) = self.user.map(rustix::fs::Uid::from_raw) {
            rustix::thread::set_thread_res_uid(user, user, user)?;
        }
        if let Some(keep) = self.capabilities.filter(|_| self.user.is_none_or(|user| user == 0)) {
            // What we do not have we cannot give.
            let keep = CapabilitySet::from_bits_truncate(keep) & rustix::thread::capabilities(None)?.permitted;
            let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
            rustix::thread::set_capabilities(None, sets)?;
        }
        // After the change of user, which forgets it.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if self.no_new_privileges {
            rustix::thread::set_no_new_privs(true)?;
            self.filter()?;
        }
        Ok(())
    }

    /// Lets the kernel refuse calls from here on. A profile must allow what this process still does to become another: at the least `execve`.
    fn filter(&self) -> io::Result<()> {
        let Some(filter) = &self.seccomp else { return Ok(()) };
        filter.install().map_err(|error| io::Error::new(error.kind(), format!("seccomp filter: {error}")))
    }
}

/// Gives up for ever what is not to be kept.
fn bound(keep: u64) -> io::Result<()> {
    for capability in CapabilitySet::all().iter() {
        if capability.bits() & keep == 0 && capability_is_in_bounding_set(capability).unwrap_or(false) {
            rustix::thread::remove_capability_from_bounding_set(capability)?;
        }
    }
    Ok(())
}
