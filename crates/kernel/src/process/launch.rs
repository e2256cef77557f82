//! Begins a program in namespaces of its own, under a first process that reaps.
//!
//! In: a [`Launch`]; the caller must have no other thread. Out: the number of the first process of a new process namespace. It
//! passes signals on to the program, reaps whatever is left to it, ends as the program ends, and takes the whole namespace with it.
//!
//! ```text
//! caller ─fork─▶ first process: control groups, network, names, mounts ─fork─▶ the program
//!    ▲___________________ why it did not begin, or silence ________________________│
//! ```

#![allow(unsafe_code, reason = "no safe call forks or handles signals")]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, waitpid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::Program;
use crate::mounts::view::View;
use crate::namespace::unshare;

/// What to begin, and where.
#[derive(Debug)]
pub struct Launch {
    /// The program.
    pub program: Program,
    /// The file of its network namespace; that of the caller when there is none.
    pub network: Option<PathBuf>,
    /// What it takes for the name of its machine; that of the caller's when there is none.
    pub host_name: Option<String>,
    /// What it sees.
    pub view: View,
    /// Files of control groups, into which it writes its number.
    pub groups: Vec<PathBuf>,
    /// How likely it is killed when the machine has no more memory.
    pub oom_score: Option<i32>,
    /// Its standard input, output and errors.
    pub streams: [OwnedFd; 3],
}

/// Signals that a first process passes on.
const PASSED_ON: [i32; 12] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGCONT,
    libc::SIGALRM,
    libc::SIGPIPE,
    libc::SIGTSTP,
    libc::SIGURG,
];

/// To whom signals are passed on.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// One process becomes two; nothing in the new one, its number in the old one.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the caller has no other thread, as it promised, so no lock of the new process is held by somebody who is not there.
    let pid = unsafe { libc::fork() };
    match pid {
        ..0 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Ends this process without a word to anybody: what the parent has to say at its end is not said twice.
pub(super) fn leave(code: i32) -> ! {
    // SAFETY: takes nothing and does not return.
    unsafe { libc::_exit(code) }
}

/// Has a command begin in a mount namespace of its own, in which one mount is missing.
pub(super) fn hide_from(command: &mut std::process::Command, mount: &std::path::Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::process::CommandExt as _;
    let mount = std::ffi::CString::new(mount.as_os_str().as_bytes())?;
    let hide = move || {
        unshare(UnshareFlags::NEWNS)?;
        crate::mounts::propagate(std::path::Path::new("/"), crate::mounts::Propagation::PRIVATE)?;
        Ok(rustix::mount::unmount(mount.as_c_str(), rustix::mount::UnmountFlags::DETACH)?)
    };
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated that others may be locking: the paths are short
    // enough for the stack, or were made before.
    unsafe { command.pre_exec(hide) };
    Ok(())
}

/// Makes this process its own grandchild: its parent is told of success by the exit of the process between, and nobody waits for
/// this one any more. The answer is a channel to say that all is well, or what is not.
///
/// # Errors
/// When there are no processes to be had.
pub fn detach() -> io::Result<Detached> {
    let (mut reader, writer) = io::pipe()?;
    if fork()?.is_some() {
        drop(writer);
        let mut said = String::new();
        let _ = reader.read_to_string(&mut said);
        if said == OK {
            leave(0);
        }
        let _ = io::stderr().write_all(if said.is_empty() { b"it ended at once" } else { said.as_bytes() });
        leave(1);
    }
    rustix::process::setsid()?;
    // Whoever reads what the first process says would else wait for this one.
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok(Detached(Some(writer)))
}

/// What is said when all is well.
const OK: &str = "ok";

/// The word to whoever began a process that has detached itself.
#[derive(Debug)]
pub struct Detached(Option<io::PipeWriter>);

impl Detached {
    /// Says that all is well, or what is not. Only the first word counts.
    pub fn say(&mut self, how: Result<(), &str>) {
        if let Some(mut writer) = self.0.take() {
            let _ = writer.write_all(how.err().unwrap_or(OK).as_bytes());
        }
    }
}

impl Launch {
    /// Begins it. The number is that of the first process of its namespace, as the caller sees it.
    ///
    /// # Errors
    /// Why the program did not begin.
    pub fn begin(self) -> io::Result<Pid> {
        let (mut reader, writer) = io::pipe()?;
        unshare(UnshareFlags::NEWPID)?;
        let Some(pid) = fork()? else {
            drop(reader);
            self.first_process(writer);
        };
        drop((writer, self));
        let mut why = String::new();
        reader.read_to_string(&mut why)?;
        if why.is_empty() {
            return Ok(pid);
        }
        let _ = waitpid(Some(pid), WaitOptions::empty());
        Err(io::Error::other(why))
    }

    fn first_process(self, mut writer: io::PipeWriter) -> ! {
        match self.surround().and_then(|()| fork()) {
            Err(error) => {
                let _ = write!(writer, "{error}");
                leave(127)
            }
            Ok(None) => {
                let error = self.take_streams().err().unwrap_or_else(|| self.program.become_it());
                let _ = write!(writer, "{error}");
                leave(127)
            }
            Ok(Some(program)) => {
                drop((writer, self));
                reap(program)
            }
        }
    }

    /// Enters and makes what surrounds the program.
    fn surround(&self) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        for door in &self.groups {
            std::fs::write(door, "0")
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", door.display())))?;
        }
        if let Some(score) = self.oom_score {
            // Only root of the machine may make itself less likely; it is no reason not to begin.
            let _ = std::fs::write("/proc/self/oom_score_adj", score.to_string());
        }
        if let Some(path) = &self.network {
            let file = File::open(path)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        unshare(UnshareFlags::NEWNS | UnshareFlags::NEWIPC)?;
        if let Some(name) = &self.host_name {
            unshare(UnshareFlags::NEWUTS)?;
            rustix::system::sethostname(name.as_bytes())?;
        }
        self.view.take()
    }

    fn take_streams(&self) -> io::Result<()> {
        let [input, output, errors] = &self.streams;
        rustix::stdio::dup2_stdin(input)?;
        rustix::stdio::dup2_stdout(output)?;
        rustix::stdio::dup2_stderr(errors)?;
        Ok(())
    }
}

extern "C" fn pass_on(signal: libc::c_int) {
    // SAFETY: `kill` may be called in a handler, and takes only numbers.
    unsafe { libc::kill(PROGRAM.load(Ordering::Relaxed), signal) };
}

/// Waits for the program and for orphans; ends as the program ends.
fn reap(program: Pid) -> ! {
    PROGRAM.store(program.as_raw_nonzero().get(), Ordering::Relaxed);
    for signal in PASSED_ON {
        // SAFETY: the handler only makes calls that a handler may make.
        unsafe { libc::signal(signal, pass_on as *const () as libc::sighandler_t) };
    }
    // Nothing of the caller is to stay open because of us.
    close_everything();
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program => {
                leave(status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0)))
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => leave(127),
        }
    }
}

/// Closes every file of this process.
fn close_everything() {
    // SAFETY: nobody in this process, which only waits from here on, uses any of its files again.
    unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
}
