//! The shim: one process per container, which outlives the agent.
//!
//! In: a directory with a [`ShimSpec`]. Out, in the same directory: a [`StartRecord`] when the container runs, its log, a socket for attach, and an
//! [`ExitRecord`] before the shim exits. Single-threaded, without an async runtime.
//!
//! ```text
//! agent ─▶ waypost shim run DIRECTORY ─▶ order.json ─▶ container ─▶ begun.json … exit.json
//!                                         pipes ─▶ log (lines with timestamp and stream) and attached clients
//! ```

mod attach;
mod log;
mod oci;
mod spec;
mod start_lock;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kernel::process::launch::{self, Detached, Launch};
use kernel::process::{Identity, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};

use self::attach::{Clients, Input};
use self::log::Log;
pub use self::log::{LIMIT as LOG_LIMIT, NUMBER as LOG_NUMBER, Stream, rotated};
pub use self::spec::{ExitRecord, Program, RuntimeSpec, ShimSpec, StartRecord, ViewMount};
pub use self::start_lock::{StartLock, StartOutcome};
use crate::files;

/// The file of the [`ShimSpec`].
pub const SPEC_FILE: &str = "order.json";
/// The file of the [`StartRecord`].
pub const START_FILE: &str = "begun.json";
/// The file of the [`ExitRecord`].
pub const EXIT_FILE: &str = "exit.json";
/// The socket for attach.
pub const SOCKET: &str = "attach";
pub use self::attach::{END_OF_INPUT, INPUT, RESIZE, frame};

/// How long output is read after the exit of a container.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs the container of a directory; returns when the container has exited.
///
/// # Errors
/// When it could not be started; the parent process receives the error, too.
pub fn run(folder: &Path) -> io::Result<()> {
    let mut parent = launch::detach()?;
    let started = claimed(folder).and_then(|found| {
        let Some((lock, spec)) = found else { return Ok(None) };
        let supervisor = Supervisor::begin(folder, &spec)?;
        drop(lock);
        Ok(Some((supervisor, spec)))
    });
    match started {
        Ok(Some((supervisor, spec))) => supervisor.follow(&spec, &mut parent),
        // Another shim started it.
        Ok(None) => {
            parent.say(Ok(()));
            Ok(())
        }
        Err(error) => {
            parent.say(Err(&error.to_string()));
            Err(error)
        }
    }
}

/// The spec of a directory with the start lock; nothing when the container was started already.
fn claimed(folder: &Path) -> io::Result<Option<(StartLock, ShimSpec)>> {
    let lock = StartLock::take(folder.parent().unwrap_or(folder))?;
    match lock.spec(folder) {
        Some(spec) => Ok(Some((lock, spec))),
        None if folder.join(START_FILE).exists() => Ok(None),
        None => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} contains no order.json", folder.display())))
        }
    }
}

/// The shim's ends of the container's streams.
struct Ends {
    input: Option<OwnedFd>,
    outputs: Vec<(Stream, OwnedFd)>,
    terminal: bool,
}

struct Supervisor<'a> {
    folder: &'a Path,
    log: Log,
    input: Input,
    outputs: Vec<(Stream, OwnedFd)>,
    clients: Clients,
    pid: Pid,
    handle: OwnedFd,
}

impl<'a> Supervisor<'a> {
    fn begin(folder: &'a Path, spec: &ShimSpec) -> io::Result<Self> {
        // Leave the agent's control group, so that stopping the agent does not kill the shim.
        for door in &spec.own_groups {
            let _ = std::fs::write(door, "0");
        }
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let log = Log::open(&spec.log)?;
        let clients = Clients::listen(folder)?;
        let (theirs, ours) = if spec.program.terminal { terminal()? } else { pipes(spec.stdin)? };
        let (pid, ours) = match &spec.how {
            RuntimeSpec::Process { .. } => (spec.launch(theirs)?.begin()?, ours),
            RuntimeSpec::Oci { .. } => oci::begin(folder, spec, theirs, ours)?,
        };
        let identity = Identity::of(pid.as_raw_nonzero().get())
            .ok_or_else(|| io::Error::other("the container exited during the start"))?;
        let handle = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        let began = Timestamp::now();
        if let Err(error) = files::put(&folder.join(START_FILE), &StartRecord::new(Identity::own()?, identity, began)) {
            // A container without a start record would be lost.
            let _ = rustix::process::pidfd_send_signal(&handle, Signal::KILL);
            oci::remove(spec);
            return Err(io::Error::new(error.kind(), format!("writing the start record: {error}")));
        }
        let input = Input::new(ours.input, spec.stdin_once, ours.terminal);
        Ok(Self { folder, log, input, outputs: ours.outputs, clients, pid, handle })
    }

    /// Copies streams until the container has exited, and writes the exit record.
    fn follow(mut self, spec: &ShimSpec, parent: &mut Detached) -> io::Result<()> {
        parent.say(Ok(()));
        let mut deadline = None;
        let mut buffer = vec![0; 32 * 1024];
        while deadline.is_none_or(|at| Instant::now() < at && !self.outputs.is_empty()) {
            let ended = self.turn(&mut buffer, deadline)?;
            if ended && deadline.is_none() {
                deadline = Some(Instant::now() + LAST_WORDS);
            }
        }
        self.log.flush();
        let status = waitpid(Some(self.pid), WaitOptions::empty())?.map(|(_, status)| status);
        let ended = ended(spec, status);
        oci::remove(spec);
        files::put(&self.folder.join(EXIT_FILE), &ended)
    }

    /// Waits for events and handles them; true when the container has exited.
    fn turn(&mut self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<bool> {
        let mut fds = vec![PollFd::new(&self.handle, PollFlags::IN)];
        fds.extend(self.outputs.iter().map(|(_, fd)| PollFd::new(fd, PollFlags::IN)));
        let first_client = fds.len();
        self.clients.poll(&mut fds, &self.input);
        let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        let mut closed = Vec::new();
        for (place, (stream, fd)) in self.outputs.iter().enumerate() {
            if ready.get(place + 1).is_some_and(|ready| !ready.is_empty()) {
                match rustix::io::read(fd, &mut *buffer) {
                    // A terminal reports EIO instead of end of file when the last process closed it.
                    Ok(0) | Err(rustix::io::Errno::IO) => closed.push(place),
                    Ok(length) => {
                        let bytes = buffer.get(..length).unwrap_or_default();
                        self.log.write(*stream, bytes);
                        self.clients.send(*stream, bytes);
                    }
                    Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                    Err(_) => closed.push(place),
                }
            }
        }
        for place in closed.into_iter().rev() {
            self.outputs.remove(place);
        }
        self.clients.turn(ready.get(first_client..).unwrap_or_default(), &mut self.input);
        Ok(ready.first().is_some_and(|ready| !ready.is_empty()) && deadline.is_none())
    }
}

fn ended(spec: &ShimSpec, status: Option<WaitStatus>) -> ExitRecord {
    let code = status
        .map_or(255, |status| status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0)));
    let groups = kernel::cgroups::Cgroups::find();
    let starved = code != 0 && groups.out_of_memory(&spec.group) > 0;
    let reason = match code {
        _ if starved => "OOMKilled",
        0 => "Completed",
        _ => "Error",
    };
    ExitRecord { code, reason: reason.to_owned(), message: String::new(), finished: Timestamp::now() }
}

/// A pseudo-terminal: one output stream.
fn terminal() -> io::Result<([OwnedFd; 3], Ends)> {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    let ends = Ends { input: Some(ours.try_clone()?), outputs: vec![(Stream::Out, ours)], terminal: true };
    Ok(([theirs.try_clone()?, theirs.try_clone()?, theirs], ends))
}

fn pipes(with_input: bool) -> io::Result<([OwnedFd; 3], Ends)> {
    let (out_reader, out) = io::pipe()?;
    let (err_reader, err) = io::pipe()?;
    let (theirs, input) = if with_input {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&writer, true)?;
        (OwnedFd::from(reader), Some(OwnedFd::from(writer)))
    } else {
        (OwnedFd::from(File::open("/dev/null")?), None)
    };
    let outputs = vec![(Stream::Out, out_reader.into()), (Stream::Err, err_reader.into())];
    Ok(([theirs, out.into(), err.into()], Ends { input, outputs, terminal: false }))
}

impl ShimSpec {
    fn launch(&self, streams: [OwnedFd; 3]) -> io::Result<Launch> {
        let RuntimeSpec::Process {
            network,
            host_name,
            mounts,
            hidden,
            masked,
            locked,
            read_only,
            staging,
            all_devices,
        } = &self.how
        else {
            return Err(io::Error::other("the spec is for another runtime"));
        };
        let view = kernel::mounts::view::View {
            staging: staging.clone(),
            mounts: mounts.iter().map(ViewMount::to_kernel).collect(),
            hidden: hidden.clone(),
            masked: masked.clone(),
            locked: locked.clone(),
            read_only: *read_only,
            all_devices: *all_devices,
        };
        Ok(Launch {
            program: self.program.to_kernel(),
            network: network.clone(),
            host_name: host_name.clone(),
            view,
            groups: self.procs_files(),
            oom_score: self.oom_score,
            streams,
        })
    }

    /// The `cgroup.procs` files of its control group.
    #[must_use]
    pub fn procs_files(&self) -> Vec<PathBuf> {
        kernel::cgroups::Cgroups::find().procs_files(&self.group)
    }
}

/// Sends a signal to a process of a [`StartRecord`]; true when it still exists.
pub fn signal(identity: Identity, signal: Signal) -> bool {
    identity.open().ok().flatten().is_some_and(|handle| handle.signal(signal))
}

/// A path in a directory that fits into `sun_path` (108 bytes), whatever the length of the directory's path.
pub(crate) fn short_path(folder: &impl AsFd, name: &str) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_fd().as_raw_fd()))
}
