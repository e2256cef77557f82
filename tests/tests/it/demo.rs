//! The first command of a new user, and errors of commands that cannot run.

mod story;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testbed::{binary, run};

/// The exit code and the complaint of a command.
fn complaint(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(binary()).args(arguments).output().expect("the binary runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn wrong_usage_is_2_and_a_failure_is_1_and_both_say_what_to_do() {
    let (code, words) = complaint(&["frob"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("frob") && words.contains("--help"), "{words}");
    let (code, words) = complaint(&["server", "--service-node-port-range", "40000-30000"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("--service-node-port-range"), "{words}");
    let home = testbed::folder();
    let path = home.path().to_str().expect("a name");
    let (code, words) =
        complaint(&["server", "--data-dir", path, "--service-cluster-ip-range", "10.0.0.0/16,10.1.0.0/16"]);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("one IPv4 and one IPv6"), "{words}");
}

#[test]
fn the_version_and_the_help_are_answers() {
    for arguments in [["--version"], ["--help"]] {
        let (code, words) = complaint(&arguments);
        assert_eq!((code, words.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn the_version_names_release_and_commit() {
    let answer = |arguments: &[&str]| run(Command::new(binary()).args(arguments), "").success();
    let value: Value = serde_json::from_str(&answer(&["version", "-o", "json"])).expect("JSON");
    let commit = value["commit"].as_str().expect("a commit");
    assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
    // A build from an unpacked release knows none unless $WAYPOST_COMMIT names it.
    let is_hash = commit.len() == 40 && commit.chars().all(|digit| digit.is_ascii_hexdigit());
    assert!(is_hash || (commit.is_empty() && !root().join(".git").exists()), "{value}");
    let line = match commit.get(..12) {
        Some(short) => format!("waypost {} (commit {short})\n", env!("CARGO_PKG_VERSION")),
        None => format!("waypost {}\n", env!("CARGO_PKG_VERSION")),
    };
    assert_eq!(answer(&["version"]), line);
    assert_eq!(answer(&["--version"]), line);
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository")
}
