//! The testbed: starts the real binary, waits until it reports that it is ready, and stops or kills it.
//!
//! In: arguments. Out: a running server with its kubeconfig, and ways to run the tools of its users against it. A tool that
//! is missing fails the test that needs it; nothing is skipped.
#![expect(clippy::disallowed_methods, reason = "a testbed runs the programs that users run")]

pub mod acme_server;
pub mod agent;
pub mod browser;
pub mod net;
pub mod session;
pub mod snapshot;
pub mod starvation;
pub mod vm;
pub mod webhook;
pub mod wire;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use client::http::Client;
use tempfile::TempDir;

/// The binary under test: `$WAYPOST_BIN`, or the one built beside the tests.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("WAYPOST_BIN") {
        return PathBuf::from(path);
    }
    let own = std::env::current_exe().expect("the path of this test");
    // Tests are one folder further down than measurements.
    let mut beside = own.ancestors().skip(1).take(2).map(|folder| folder.join("waypost"));
    beside.find(|path| path.exists()).unwrap_or_else(|| {
        panic!("there is no waypost beside {}: run `cargo build --workspace` first, or ./scripts/test", own.display())
    })
}

/// The server that Pods of tests run, built beside the tests.
#[must_use]
pub fn backend() -> PathBuf {
    let beside = binary().with_file_name("backend");
    assert!(beside.exists(), "{} is missing: run `cargo build --workspace` first, or ./scripts/test", beside.display());
    beside
}

/// The user of an API server that root has started, where none is called `waypost`.
pub const SERVER_USER: u32 = 60_643;

/// A temporary directory that others can enter: started by root, the API server is another user, who must reach its data and its files.
///
/// # Panics
/// When there is no room for it.
#[must_use]
pub fn folder() -> TempDir {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    tempfile::Builder::new().permissions(mode).tempdir().expect("a temporary directory")
}

/// A server that is ready. Dropping it kills it and removes its directory.
pub struct Server {
    child: Child,
    stderr: Option<BufReader<ChildStderr>>,
    /// What it logged before it was ready.
    begun: String,
    home: Home,
    /// Where it listens.
    pub address: String,
}

/// The directory of a server: its own, or one the test keeps.
pub enum Home {
    /// Removed with the server.
    Own(TempDir),
    /// Kept by the test.
    Kept(PathBuf),
}

impl Home {
    /// Its own directory, removed with the server.
    ///
    /// # Panics
    /// When there is no room for it.
    #[must_use]
    pub fn temporary() -> Self {
        Self::Own(folder())
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Own(dir) => dir.path(),
            Self::Kept(path) => path,
        }
    }
}

impl Server {
    /// Starts a server in its own directory.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(Home::temporary(), &[])
    }

    /// Starts a server in this directory, with these arguments besides.
    #[must_use]
    pub fn start_with(home: Home, arguments: &[&str]) -> Self {
        let mut child = server_command(home.path(), arguments).spawn().expect("the binary starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("its log"));
        let (address, begun) = wait_until_ready(&mut stderr);
        let Some(address) = address else {
            let _ = child.wait();
            panic!("the server ended before it was ready:\n{begun}")
        };
        Self { child, stderr: Some(stderr), begun, home, address }
    }

    /// Starts a server that is expected not to start, and returns its exit status. One that starts nevertheless is killed.
    #[must_use]
    #[track_caller]
    pub fn start_refused(mut command: Command) -> Run {
        let mut child = command.spawn().expect("the binary starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("its log"));
        let (address, err) = wait_until_ready(&mut stderr);
        if address.is_some() {
            let _ = child.kill();
        }
        let status = child.wait().expect("it ends");
        assert_eq!(address, None, "the server should not have started");
        Run { ok: status.success(), code: status.code(), out: String::new(), err }
    }

    /// Its admin kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("kubeconfig")
    }

    /// Its data directory.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A client with its own connection.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::from_kubeconfig(&self.kubeconfig()).expect("a kubeconfig that can be used")
    }

    /// A client that waits for each answer.
    #[must_use]
    pub fn session(&self) -> session::Session {
        session::Session::new(self.client())
    }

    /// kubectl against this server; the arguments are split at spaces.
    #[must_use]
    pub fn kubectl(&self, arguments: &str) -> Run {
        self.kubectl_with(&arguments.split_whitespace().collect::<Vec<_>>(), "")
    }

    /// kubectl against this server, with something on its standard input.
    #[must_use]
    pub fn kubectl_with(&self, arguments: &[&str], input: &str) -> Run {
        let mut command = Command::new("kubectl");
        // Its own cache: discovery of another server must not be mistaken for ours.
        command.arg("--kubeconfig").arg(self.kubeconfig()).arg("--cache-dir").arg(self.home().join("kubectl-cache"));
        run(command.args(arguments), input)
    }

    /// Ends it at once, as a power cut would.
    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Sends SIGTERM, and returns its exit status.
    #[must_use]
    pub fn terminate(&mut self) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signalled");
        self.child.wait().expect("ended")
    }

    /// Its complete log; waits for its end. May be called once.
    #[must_use]
    pub fn whole_log(&mut self) -> String {
        let mut out = std::mem::take(&mut self.begun);
        if let Some(mut stderr) = self.stderr.take() {
            std::io::Read::read_to_string(&mut stderr, &mut out).expect("its log");
        }
        out
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command that starts a server on a directory: at a free port unless the arguments say where, logging JSON to a pipe.
#[must_use]
pub fn server_command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.arg("server").arg("--data-dir").arg(home);
    if !arguments.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.args(arguments).arg("--log-json").stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Reads the log until the server is ready, or to its end. Returns the address it listens on, and what was read.
fn wait_until_ready(stderr: &mut BufReader<ChildStderr>) -> (Option<String>, String) {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        if stderr.read_line(&mut line).expect("its log") == 0 {
            return (None, seen);
        }
        seen.push_str(&line);
        let Ok(entry) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
        if entry["fields"]["message"] == "ready" {
            return (Some(entry["fields"]["address"].as_str().expect("an address").to_owned()), seen);
        }
    }
}

/// What a program printed, and whether it succeeded.
#[derive(Debug)]
pub struct Run {
    /// Whether its exit code was 0.
    pub ok: bool,
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Run {
    /// Its output, when it succeeded.
    #[must_use]
    #[track_caller]
    pub fn success(self) -> String {
        assert!(self.ok, "it failed:\n{}\n{}", self.out, self.err);
        self.out
    }

    /// What it complained of, when it failed.
    #[must_use]
    #[track_caller]
    pub fn failure(self) -> String {
        assert!(!self.ok, "it should have failed:\n{}\n{}", self.out, self.err);
        self.err
    }
}

/// Runs a program to its end.
pub fn run(command: &mut Command, input: &str) -> Run {
    use std::io::Write as _;
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} is needed for this test and cannot be run: {error}"));
    let mut stdin = child.stdin.take().expect("its input");
    // A program that does not read its input closes it.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Run { ok: status.success(), code: status.code(), out: text(stdout), err: text(stderr) }
}
