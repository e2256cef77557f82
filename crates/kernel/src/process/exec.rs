//! Prepares a process and executes a program: credentials, capabilities, working directory.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use rustix::thread::{CapabilitySet, CapabilitySets, capability_is_in_bounding_set};

use crate::seccomp::Filter;

/// A program and its credentials.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// Program and arguments; searched in the `PATH` of its environment.
    pub words: Vec<OsString>,
    /// Its complete environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Working directory; the root when empty.
    pub folder: PathBuf,
    /// User ID.
    pub user: Option<u32>,
    /// Group ID.
    pub group: Option<u32>,
    /// Supplementary groups; unchanged when none is given.
    pub groups: Option<Vec<u32>>,
    /// Whether to set `no_new_privs`.
    pub no_new_privileges: bool,
    /// Capability bounding set as bits; all when none is given.
    pub capabilities: Option<u64>,
    /// Seccomp filter; all calls when none is given.
    pub seccomp: Option<Filter>,
    /// Whether its standard input is a controlling terminal.
    pub terminal: bool,
}

impl Program {
    /// Executes it. Returns only on failure.
    #[expect(clippy::disallowed_methods, reason = "this is the kernel crate")]
    pub(super) fn exec(&self) -> io::Error {
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
        // Needs a capability that is about to be dropped, or no_new_privs below.
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
            // Only capabilities that we have can be kept.
            let keep = CapabilitySet::from_bits_truncate(keep) & rustix::thread::capabilities(None)?.permitted;
            let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
            rustix::thread::set_capabilities(None, sets)?;
        }
        // After the change of user, which resets it.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if self.no_new_privileges {
            rustix::thread::set_no_new_privs(true)?;
            self.filter()?;
        }
        Ok(())
    }

    /// Installs the seccomp filter. A profile must allow at least `execve`.
    fn filter(&self) -> io::Result<()> {
        let Some(filter) = &self.seccomp else { return Ok(()) };
        filter.install().map_err(|error| io::Error::new(error.kind(), format!("seccomp filter: {error}")))
    }
}

/// Drops all other capabilities from the bounding set.
fn bound(keep: u64) -> io::Result<()> {
    for capability in CapabilitySet::all().iter() {
        if capability.bits() & keep == 0 && capability_is_in_bounding_set(capability).unwrap_or(false) {
            rustix::thread::remove_capability_from_bounding_set(capability)?;
        }
    }
    Ok(())
}
