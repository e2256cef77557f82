//! The PyPI `kubernetes` client against this server; the tests themselves are in `tests/python`.
//!
//! The interpreter is `$WAYPOST_PYTHON`, or the one that `scripts/python-client` makes once in the target directory. When it
//! cannot be made, these tests fail and say why.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testbed::{Server, run};

/// An interpreter that has the client, and what recorded names are replayed with.
pub(crate) fn interpreter() -> &'static Path {
    static INTERPRETER: OnceLock<PathBuf> = OnceLock::new();
    INTERPRETER.get_or_init(|| {
        if let Some(path) = std::env::var_os("WAYPOST_PYTHON") {
            return path.into();
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        // Another process may be making it: one at a time.
        let lock = File::create(root.join("target/python.lock")).expect("a lock file");
        lock.lock().expect("the lock");
        let made = run(&mut Command::new(root.join("scripts/python-client")), "");
        assert!(made.ok, "the Python client cannot be installed:\n{}\n{}", made.out, made.err);
        root.join("target/python/bin/python")
    })
}

/// Runs the tests of a file, each in a namespace of its own on one server.
fn passes(file: &str, at_least: usize) {
    let server = Server::start();
    let mut command = Command::new(interpreter());
    // Nothing of the caller's machine: no user packages, no compiled files, no other cluster, no proxy.
    command.args(["-B", "-s", "-W", "ignore", "-m", "unittest", "--verbose", file]);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("python"));
    command.env("WAYPOST_KUBECONFIG", server.kubeconfig()).env("NO_PROXY", "*").env_remove("KUBECONFIG");
    let out = run(&mut command, "");
    assert!(out.ok, "{}\n{}", out.out, out.err);
    let passed = out.err.lines().filter(|line| line.ends_with(" ... ok")).count();
    assert!(passed >= at_least, "only {passed} tests ran:\n{}", out.err);
}

#[test]
fn s01_the_python_client_creates_reads_lists_and_deletes() {
    passes("crud", 7);
}

#[test]
fn s01_the_python_client_patches_and_applies() {
    passes("patches", 5);
}

#[test]
fn s38_the_python_client_watches() {
    passes("watches", 6);
}

#[test]
fn s01_the_python_client_reads_refusals() {
    passes("refusals", 7);
}
