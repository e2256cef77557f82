//! Programs that run inside a namespace for a while.
//!
//! In: a command. Out: its lines as they come, and its end. The thread that starts it is its reaper and, by the kernel's
//! parent-death signal, its fate: the program cannot outlive the tests, even if those are killed.

use std::io::{BufRead as _, BufReader, Read};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::namespace::Namespace;

/// Whatever a test may write for a command.
pub trait Words {
    /// The command.
    fn command(self) -> Command;
}

impl Words for Command {
    fn command(self) -> Command {
        self
    }
}

impl Words for &str {
    /// Split at spaces; there is no quoting.
    fn command(self) -> Command {
        let mut words = self.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words);
        command
    }
}

/// A running program. Dropping it kills it.
pub struct Process {
    name: String,
    pid: u32,
    handle: OwnedFd,
    log: Arc<Log>,
    reaper: Option<JoinHandle<ExitStatus>>,
    ended: Option<ExitStatus>,
}

/// What it printed, line by line, and whether more can come.
#[derive(Default)]
struct Log {
    state: Mutex<LogState>,
    grown: Condvar,
}

#[derive(Default)]
struct LogState {
    lines: Vec<String>,
    finished: usize,
}

/// A program prints on two streams.
const STREAMS: usize = 2;

/// How long to wait for its remaining output when a child of it keeps the streams open.
const LAST_WORDS: Duration = Duration::from_millis(500);

impl Process {
    pub(super) fn start(namespace: Arc<Namespace>, command: &Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut bound = bound_to_parent(command);
        let log = Arc::new(Log::default());
        let (started, begun) = mpsc::channel();
        let reaper = std::thread::spawn({
            let log = Arc::clone(&log);
            move || {
                namespace.enter();
                let mut child = bound.spawn().unwrap_or_else(|error| panic!("setpriv cannot be run: {error}"));
                let out = child.stdout.take().expect("its output");
                let err = child.stderr.take().expect("its errors");
                // Not waited for: a child of the program may hold the streams open after its end.
                std::thread::spawn({
                    let log = Arc::clone(&log);
                    move || log.follow(out)
                });
                std::thread::spawn(move || log.follow(err));
                let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("its handle");
                let _ = started.send((child.id(), handle));
                child.wait().expect("it ends")
            }
        });
        let (pid, handle) = begun.recv().expect("the program starts");
        Self { name, pid, handle, log, reaper: Some(reaper), ended: None }
    }

    /// Its number.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until it prints a line that contains this, and answers the line.
    #[track_caller]
    pub fn wait_for_line(&self, part: &str, timeout: Duration) -> String {
        let deadline = Instant::now() + timeout;
        let mut state = self.log.state.lock();
        loop {
            if let Some(line) = state.lines.iter().find(|line| line.contains(part)) {
                return line.clone();
            }
            let over = state.finished == STREAMS || self.log.grown.wait_until(&mut state, deadline).timed_out();
            assert!(!over, "{} did not say {part:?} but:\n{}", self.name, state.lines.join("\n"));
        }
    }

    /// All that it printed so far, on both streams.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.state.lock().lines.join("\n")
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.reaper.as_ref().is_some_and(|reaper| !reaper.is_finished())
    }

    /// Ends it at once, as a power cut would.
    pub fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::KILL);
        self.wait()
    }

    /// Sends SIGTERM, and returns its exit status.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Sends SIGTERM, and does not wait.
    pub fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    /// Has it read its settings again.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Waits for its end, and for its remaining output.
    pub fn wait(&mut self) -> ExitStatus {
        if let Some(reaper) = self.reaper.take() {
            self.ended = Some(reaper.join().expect("it was waited for"));
            let mut state = self.log.state.lock();
            let deadline = Instant::now() + LAST_WORDS;
            while state.finished < STREAMS && !self.log.grown.wait_until(&mut state, deadline).timed_out() {}
        }
        self.ended.expect("it has ended")
    }

    fn signal(&self, signal: Signal) {
        // It may have ended already.
        let _ = pidfd_send_signal(&self.handle, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.reaper.is_some() {
            self.signal(Signal::KILL);
            // A panic of the reaper has been printed; a second one here would end all tests.
            let _ = self.reaper.take().map(JoinHandle::join);
        }
    }
}

impl Log {
    fn follow(&self, stream: impl Read) {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            self.state.lock().lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
            self.grown.notify_all();
            line.clear();
        }
        self.state.lock().finished += 1;
        self.grown.notify_all();
    }
}

/// Starts the program of `$@` unless the parent `$0`, whose death is to end it, is dead already.
const UNLESS_ORPHANED: &str = r#"test "$PPID" = "$0" && exec "$@""#;

/// The same command, but the kernel kills it when the thread that started it is gone.
fn bound_to_parent(command: &Command) -> Command {
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL", "--", "sh", "-c", UNLESS_ORPHANED]).arg(std::process::id().to_string());
    bound.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    bound.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    bound
}
