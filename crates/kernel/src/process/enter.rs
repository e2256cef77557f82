//! Runs a program where another one runs: in its namespaces, below its root, in its control groups.
//!
//! In: who is there, and the program; the caller must have no other thread. Out: how it ended. When the caller dies, so does the program.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::launch::{fork, leave};
use super::{Identity, Program};

/// The namespaces that are entered: their files, and what they are.
const NAMESPACES: [(&str, LinkNameSpaceType); 6] = [
    ("ipc", LinkNameSpaceType::InterProcessCommunication),
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ("net", LinkNameSpaceType::Network),
    ("pid", LinkNameSpaceType::ProcessID),
    ("cgroup", LinkNameSpaceType::ControlGroup),
    ("mnt", LinkNameSpaceType::Mount),
];

/// A place that is entered.
#[derive(Clone, Debug)]
pub struct Place {
    /// Somebody who is there.
    pub who: Identity,
    /// Files of control groups.
    pub groups: Vec<PathBuf>,
}

/// A program could not be begun.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotBegun(pub String);

impl Place {
    /// Runs a program there to its end, with the streams of the caller; answers its exit code.
    ///
    /// # Errors
    /// When the place cannot be entered, or the program not be begun.
    pub fn run(&self, program: &Program) -> Result<i32, NotBegun> {
        let begun = self.begin(program).map_err(|error| NotBegun(error.to_string()))?;
        loop {
            match waitpid(Some(begun), WaitOptions::empty()) {
                Ok(Some((_, status))) => {
                    return Ok(status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0)));
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(NotBegun(errno.to_string())),
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
                // One that is ours already cannot be entered again by everybody, and need not be.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        rustix::process::fchdir(&root)?;
        rustix::process::chroot(".")?;
        drop((files, root));
        let (mut reader, mut writer) = io::pipe()?;
        let Some(pid) = fork()? else {
            let error = program.become_it();
            let _ = write!(writer, "{error}");
            leave(127)
        };
        drop(writer);
        let mut why = String::new();
        reader.read_to_string(&mut why)?;
        if why.is_empty() { Ok(pid) } else { Err(io::Error::other(why)) }
    }
}
