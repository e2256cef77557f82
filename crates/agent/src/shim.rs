//! The supervisor of one container: a process of its own, which lives as long as the container and not as long as the agent.
//!
//! In: a folder with an [`Order`]. Out, in the same folder: [`Begun`] as soon as the container runs, its log, a socket for those who
//! attach, and [`Ended`] as the last thing before this process ends itself. It has one thread, no runtime, and no more state than that.
//!
//! ```text
//! agent ─▶ waypost shim FOLDER ─▶ order.json ─▶ container ─▶ begun.json … exit.json
//!                                    pipes ─▶ log (lines with time and stream) and attached clients
//! ```

mod attach;
mod claim;
mod log;
mod oci;
mod order;
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
pub use self::claim::{Claim, Settled};
use self::log::Log;
pub use self::log::{LIMIT as LOG_LIMIT, NUMBER as LOG_NUMBER, Stream, rotated};
pub use self::order::{Begun, Ended, How, Order, Program, ViewMount};
use crate::files;

/// The file with the order.
pub const ORDER: &str = "order.json";
/// The file that says that it began.
pub const BEGUN: &str = "begun.json";
/// The file that says how it ended.
pub const ENDED: &str = "exit.json";
/// The socket for those who attach.
pub const SOCKET: &str = "attach";
pub use self::attach::{END_OF_INPUT, INPUT, RESIZE, frame};

/// How long after the end of a container its last words are waited for.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs the container of a folder. Comes back when the container has ended.
///
/// # Errors
/// When it could not be begun; whoever began this process is told, too.
pub fn run(folder: &Path) -> io::Result<()> {
    let mut parent = launch::detach()?;
    let begun = claimed(folder).and_then(|found| {
        let Some((claim, order)) = found else { return Ok(None) };
        let supervisor = Supervisor::begin(folder, &order)?;
        drop(claim);
        Ok(Some((supervisor, order)))
    });
    match begun {
        Ok(Some((supervisor, order))) => supervisor.follow(&order, &mut parent),
        // Somebody else was faster, and has it.
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

/// The order of a folder, with the right to carry it out; nothing when somebody has done so.
fn claimed(folder: &Path) -> io::Result<Option<(Claim, Order)>> {
    let claim = Claim::take(folder.parent().unwrap_or(folder))?;
    match claim.order(folder) {
        Some(order) => Ok(Some((claim, order))),
        None if folder.join(BEGUN).exists() => Ok(None),
        None => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} holds no order", folder.display()))),
    }
}

/// The ends of the container's streams that are ours.
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
    fn begin(folder: &'a Path, order: &Order) -> io::Result<Self> {
        // Whoever stops the agent with all that is in its control group means the agent.
        for door in &order.own_groups {
            let _ = std::fs::write(door, "0");
        }
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let log = Log::open(&order.log)?;
        let clients = Clients::listen(folder)?;
        let (theirs, ours) = if order.program.terminal { terminal()? } else { pipes(order.stdin)? };
        let (pid, ours) = match &order.how {
            How::Process { .. } => (order.launch(theirs)?.begin()?, ours),
            How::Oci { .. } => oci::begin(folder, order, theirs, ours)?,
        };
        let identity = Identity::of(pid.as_raw_nonzero().get())
            .ok_or_else(|| io::Error::other("the container ended before it was seen"))?;
        let handle = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        let began = Timestamp::now();
        if let Err(error) = files::put(&folder.join(BEGUN), &Begun::new(Identity::own()?, identity, began)) {
            // What nobody knows of must not run.
            let _ = rustix::process::pidfd_send_signal(&handle, Signal::KILL);
            oci::remove(order);
            return Err(io::Error::new(error.kind(), format!("noting that the container has begun: {error}")));
        }
        let input = Input::new(ours.input, order.stdin_once, ours.terminal);
        Ok(Self { folder, log, input, outputs: ours.outputs, clients, pid, handle })
    }

    /// Carries streams until the container has ended, and says how.
    fn follow(mut self, order: &Order, parent: &mut Detached) -> io::Result<()> {
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
        let ended = ended(order, status);
        oci::remove(order);
        files::put(&self.folder.join(ENDED), &ended)
    }

    /// Waits for the next thing and does it. True when the container has ended.
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
                    // The other end of a terminal that is gone is an error and not an end.
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

fn ended(order: &Order, status: Option<WaitStatus>) -> Ended {
    let code = status
        .map_or(255, |status| status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0)));
    let groups = kernel::cgroups::Cgroups::find();
    let starved = code != 0 && groups.out_of_memory(&order.group) > 0;
    let reason = match code {
        _ if starved => "OOMKilled",
        0 => "Completed",
        _ => "Error",
    };
    Ended { code, reason: reason.to_owned(), message: String::new(), finished: Timestamp::now() }
}

/// A terminal: one stream out.
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

impl Order {
    fn launch(&self, streams: [OwnedFd; 3]) -> io::Result<Launch> {
        let How::Process { network, host_name, mounts, hidden, masked, locked, read_only, staging, all_devices } =
            &self.how
        else {
            return Err(io::Error::other("this order is for another runtime"));
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
            groups: self.doors(),
            oom_score: self.oom_score,
            streams,
        })
    }

    /// Files by which its control group is entered.
    #[must_use]
    pub fn doors(&self) -> Vec<PathBuf> {
        kernel::cgroups::Cgroups::find().doors(&self.group)
    }
}

/// Sends a signal to whoever a [`Begun`] names, if it is still there.
pub fn signal(who: Identity, signal: Signal) -> bool {
    who.open().ok().flatten().is_some_and(|handle| handle.signal(signal))
}

/// Where a name in a folder is, short enough for a socket however long the folder's path is.
pub(crate) fn short_path(folder: &impl AsFd, name: &str) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_fd().as_raw_fd()))
}
