//! Starts a program in its own namespaces, under an init process that reaps.
//!
//! In: a [`Launch`]; the caller must be single-threaded. Out: the PID of the init process of a new PID namespace. It
//! forwards signals to the program, reaps orphans, exits with the program, and ends the namespace.
//!
//! ```text
//! caller ─fork─▶ first process: control groups, network, names, mounts ─fork─▶ the program
//!    ▲___________________ why it did not start, or EOF _____ ________________________│
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

/// A program and its environment.
#[derive(Debug)]
pub struct Launch {
    /// The program.
    pub program: Program,
    /// Path of its network namespace; that of the caller if none.
    pub network: Option<PathBuf>,
    /// Its host name; that of the caller if none.
    pub host_name: Option<String>,
    /// Its file system view.
    pub view: View,
    /// `cgroup.procs` files to join.
    pub groups: Vec<PathBuf>,
    /// `oom_score_adj`.
    pub oom_score: Option<i32>,
    /// Its standard input, output and errors.
    pub streams: [OwnedFd; 3],
}

/// Signals that the init process forwards.
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

/// PID that signals are forwarded to.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// Forks; returns none in the child and its PID in the parent.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the caller is single-threaded, so no lock is held by a thread that the child lacks.
    let pid = unsafe { libc::fork() };
    match pid {
        ..0 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Exits without running exit handlers, which belong to the parent.
pub(super) fn leave(code: i32) -> ! {
    // SAFETY: takes nothing and does not return.
    unsafe { libc::_exit(code) }
}

/// Starts a command in its own mount namespace without one mount.
pub(super) fn hide_from(command: &mut std::process::Command, mount: &std::path::Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::process::CommandExt as _;
    let mount = std::ffi::CString::new(mount.as_os_str().as_bytes())?;
    let hide = move || {
        unshare(UnshareFlags::NEWNS)?;
        crate::mounts::propagate(std::path::Path::new("/"), crate::mounts::Propagation::PRIVATE)?;
        Ok(rustix::mount::unmount(mount.as_c_str(), rustix::mount::UnmountFlags::DETACH)?)
    };
    // SAFETY: between fork and exec only system calls are made and nothing is allocated: the paths fit on the stack or
    // were made before.
    unsafe { command.pre_exec(hide) };
    Ok(())
}

/// Daemonizes: the intermediate process exits successfully once the caller reports success, and this process is no
/// longer a child. Returns the channel for that report.
///
/// # Errors
/// When no process can be started.
pub fn detach() -> io::Result<Detached> {
    let (mut reader, writer) = io::pipe()?;
    if fork()?.is_some() {
        drop(writer);
        let mut said = String::new();
        let _ = reader.read_to_string(&mut said);
        if said == OK {
            leave(0);
        }
        let _ = io::stderr().write_all(if said.is_empty() { b"the process exited at once" } else { said.as_bytes() });
        leave(1);
    }
    rustix::process::setsid()?;
    // Otherwise a reader of the parent's output would wait for this process.
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok(Detached(Some(writer)))
}

/// Report of success.
const OK: &str = "ok";

/// Reports to the parent of a daemonized process.
#[derive(Debug)]
pub struct Detached(Option<io::PipeWriter>);

impl Detached {
    /// Reports success or an error. Only the first call counts.
    pub fn say(&mut self, how: Result<(), &str>) {
        if let Some(mut writer) = self.0.take() {
            let _ = writer.write_all(how.err().unwrap_or(OK).as_bytes());
        }
    }
}

impl Launch {
    /// Starts it. Returns the PID of the init process as seen by the caller.
    ///
    /// # Errors
    /// Why the program did not start.
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
                let error = self.take_streams().err().unwrap_or_else(|| self.program.exec());
                let _ = write!(writer, "{error}");
                leave(127)
            }
            Ok(Some(program)) => {
                drop((writer, self));
                reap(program)
            }
        }
    }

    /// Sets up namespaces, control groups and mounts.
    fn surround(&self) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        for door in &self.groups {
            std::fs::write(door, "0")
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", door.display())))?;
        }
        if let Some(score) = self.oom_score {
            // Lowering it needs privileges; failure is not fatal.
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

/// Reaps the program and orphans; exits as the program does.
fn reap(program: Pid) -> ! {
    PROGRAM.store(program.as_raw_nonzero().get(), Ordering::Relaxed);
    for signal in PASSED_ON {
        // SAFETY: the handler only makes calls that a handler may make.
        unsafe { libc::signal(signal, pass_on as *const () as libc::sighandler_t) };
    }
    // Do not keep files of the caller open.
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

/// Closes all file descriptors.
fn close_everything() {
    // SAFETY: this process only waits from here on and uses no file again.
    unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
}
