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

/// Every case must have been right, and there must have been some.
fn assert_all_passed(out: &str) {
    let last = out.lines().last().expect("a summary");
    assert!(last.ends_with(" 0 failed") && !last.starts_with("0 passed"), "{out}");
}

#[test]
fn s01_every_recorded_answer_is_ours_too() {
    assert_all_passed(&replay("api", &["--skip", "go-text"]));
}

/// Where the original repeats a text of Go's libraries, ours may use other words: status, reason and field must be right.
#[test]
fn s01_answers_in_the_words_of_go_differ_only_in_words() {
    let words = ["--ignore", "message", "--ignore", "details.causes.*.message"];
    assert_all_passed(&replay("api", &[["--only", "go-text"].as_slice(), words.as_slice()].concat()));
}
