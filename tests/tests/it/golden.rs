//! Answers recorded from a real kube-apiserver, replayed against ours.

use std::path::Path;
use std::process::Command;

use testbed::{Server, run};

/// Replays the cases of a folder.
fn replay(folder: &str, arguments: &[&str]) -> String {
    let server = Server::start();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut command = Command::new("python3");
    command.arg(golden.join("replay")).arg("--kubeconfig").arg(server.kubeconfig());
    run(command.args(arguments).arg(golden.join(folder)), "").success()
}

#[test]
fn s01_every_recorded_answer_is_ours_too() {
    let out = replay("api", &["--skip", "history"]);
    let last = out.lines().last().expect("a summary");
    assert!(last.ends_with(" 0 failed") && !last.starts_with("0 passed"), "{out}");
}
