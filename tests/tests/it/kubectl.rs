//! The real `kubectl` against the real server, one topic a file: what people type, and what they must see.
//!
//! Every test has its own server, so tests cannot affect each other and none is left behind. The kubectl is the one on
//! `PATH`; whatever its age (Debian's is 1.20), every test checks the same. Where an older one lacks a command, the
//! test sends the request that the command would send.

mod apply;
mod auth;
mod change;
mod conditions;
mod create;
mod delete;
mod describe;
mod diff;
mod discover;
mod endpoints;
mod get;
mod refuse;
mod select;
mod server_apply;
mod services;
mod shapes;
mod watch;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value;
use testbed::{Home, Run, Server, run};

/// The minor version of the kubectl in use.
static MINOR: LazyLock<u32> = LazyLock::new(|| {
    let out = run(Command::new("kubectl").args(["version", "--client", "-o", "json"]), "").success();
    let version: Value = serde_json::from_str(&out).expect("a version");
    let minor = version["clientVersion"]["minor"].as_str().expect("a minor version");
    minor.trim_end_matches('+').parse().expect("a number")
});

/// A server, and a kubectl for it.
struct Bed {
    server: Server,
}

impl Bed {
    /// A server as it comes.
    fn start() -> Self {
        Self { server: Server::start() }
    }

    /// A server with these arguments besides.
    fn start_with(arguments: &[&str]) -> Self {
        let home = testbed::folder();
        Self { server: Server::start_with(Home::Own(home), arguments) }
    }

    /// Runs kubectl; the line is split at spaces, and single quotes group arguments.
    fn run(&self, line: &str, input: &str) -> Run {
        let words = words(line);
        self.server.kubectl_with(&words.iter().map(String::as_str).collect::<Vec<_>>(), input)
    }

    /// What kubectl printed; it must succeed.
    #[track_caller]
    fn ok(&self, line: &str) -> String {
        self.run(line, "").success()
    }

    /// What kubectl printed with this on its standard input; it must succeed.
    #[track_caller]
    fn ok_with(&self, line: &str, input: &str) -> String {
        self.run(line, input).success()
    }

    /// What kubectl complained of; it must fail.
    #[track_caller]
    fn fails(&self, line: &str) -> String {
        self.run(line, "").failure()
    }

    /// What kubectl complained of with this on its standard input; it must fail.
    #[track_caller]
    fn fails_with(&self, line: &str, input: &str) -> String {
        self.run(line, input).failure()
    }

    /// An object, or a list.
    #[track_caller]
    fn json(&self, what: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("get {what} -o json"))).expect("JSON")
    }

    /// One value of an object.
    #[track_caller]
    fn field(&self, object: &str, path: &str) -> String {
        self.ok(&format!("get {object} -o 'jsonpath={{{path}}}'"))
    }

    /// Applies a Service of this name, with this spec in YAML's flow style.
    #[track_caller]
    fn service(&self, name: &str, spec: &str) -> String {
        self.ok_with("apply -f -", &service(name, spec))
    }

    /// Tries to create a Service of this name, with this spec in YAML's flow style; it must fail.
    #[track_caller]
    fn no_service(&self, name: &str, spec: &str) -> String {
        self.fails_with("create -f -", &service(name, spec))
    }

    /// A kubectl that is not started yet. It gives up by itself if what a test waits for never comes.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.server.kubeconfig());
        command.arg("--cache-dir").arg(self.server.home().join("kubectl-cache"));
        command.args(words(line)).arg("--request-timeout=120s");
        command
    }

    /// Starts a kubectl that keeps printing.
    fn stream(&self, line: &str) -> Stream {
        let mut child = self.command(line).stdout(Stdio::piped()).spawn().expect("kubectl is needed for this test");
        let lines = BufReader::new(child.stdout.take().expect("its output"));
        Stream { child, lines }
    }
}

/// A kubectl that keeps printing. Dropping it ends it.
struct Stream {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Stream {
    /// The fields of the next line.
    #[track_caller]
    fn next(&mut self) -> Vec<String> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).expect("its output");
        assert!(read > 0, "kubectl ended, and what was waited for had not come");
        line.split_whitespace().map(str::to_owned).collect()
    }

    /// Whether it succeeded; waits for its end.
    fn ended(&mut self) -> bool {
        self.child.wait().expect("its end").success()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Service in YAML; the spec is in flow style.
fn service(name: &str, spec: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec: {spec}\n")
}

/// The arguments of a line, as a shell with nothing but single quotes would split them.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    assert!(!quoted, "an open quote in {line}");
    words.extend(word);
    words
}

/// The cells of a table, row by row; the first row is the header.
fn cells(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// The value beside a name in what `describe` prints.
#[track_caller]
fn said<'a>(description: &'a str, name: &str) -> &'a str {
    let found = description.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("nothing is said of {name} in\n{description}")).trim()
}
