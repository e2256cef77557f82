//! Runs a program in the namespaces, root and control groups of another process.
//!
//! In: a target process and a program; the caller must be single-threaded. Out: its exit code. When the caller dies, so
//! does the program.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::launch::{fork, leave};
use super::{Identity, Program};

/// Namespaces to enter: their files and types.
const NAMESPACES: [(&str, LinkNameSpaceType); 6] = [
    ("ipc", LinkNameSpaceType::InterProcessCommunication),
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ("net", LinkNameSpaceType::Network),
    ("pid", LinkNameSpaceType::ProcessID),
    ("cgroup", LinkNameSpaceType::ControlGroup),
    ("mnt", LinkNameSpaceType::Mount),
];

/// Where to run.
#[derive(Clone, Debug)]
pub struct Place {
    /// A process there.
    pub who: Identity,
    /// `cgroup.procs` files.
    pub groups: Vec<PathBuf>,
}

/// The program could not be started.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

impl Place {
    /// Runs a program to its end with our streams; returns its exit code.
    ///
    /// # Errors
    /// When the namespaces cannot be entered, or the program cannot be started.
    pub fn run(&self, program: &Program) -> Result<i32, StartError> {
        let begun = self.begin(program).map_err(|error| StartError(error.to_string()))?;
        loop {
            match waitpid(Some(begun), WaitOptions::empty()) {
                Ok(Some((_, status))) => {
                    return Ok(status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0)));
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(StartError(errno.to_string())),
            }
        }
    }

    fn begin(&self, program: &Program) -> io::Result<Pid> {
        let folder = format!("/proc/{}", self.who.pid);
        let files = NAMESPACES
            .iter()
            .filter_map(|(name, kind)| Some((File::open(format!("{folder}/ns/{name}")).ok()?, *kind)))
            .collect::<Vec<_>>();
        let root = File::open(format!("{folder}/root"))?;
        if files.len() < 5 || !self.who.is_there() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the container is gone"));
        }
        for door in &self.groups {
            std::fs::write(door, "0")
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", door.display())))?;
        }
        for (file, kind) in &files {
            match move_into_link_name_space(file.as_fd(), Some(*kind)) {
                // Entering a namespace that we are in already may be refused.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        rustix::process::fchdir(&root)?;
        rustix::process::chroot(".")?;
        drop((files, root));
        let (mut reader, mut writer) = io::pipe()?;
        let Some(pid) = fork()? else {
            let error = program.exec();
            let _ = write!(writer, "{error}");
            leave(127)
        };
        drop(writer);
        let mut why = String::new();
        reader.read_to_string(&mut why)?;
        if why.is_empty() { Ok(pid) } else { Err(io::Error::other(why)) }
    }
}
