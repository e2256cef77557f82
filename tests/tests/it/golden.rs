//! Answers recorded from a real kube-apiserver and its controllers, replayed against ours.

use std::path::{Path, PathBuf};
use std::process::Command;

use testbed::{Home, Server, run};

/// Where the cases are.
pub(crate) fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(path)
}

/// Those cases were recorded where Pods get no ServiceAccount.
const WITHOUT_ACCOUNTS: &[&str] = &["--disable-admission-plugins", "ServiceAccount"];

/// Replays the cases of a directory or a file against a new server.
fn replay(server: &[&str], cases: &Path, arguments: &[&str]) -> String {
    let server = Server::start_with(Home::temporary(), server);
    let mut command = Command::new("python3");
    command.arg(golden("replay")).arg("--kubeconfig").arg(server.kubeconfig());
    run(command.args(arguments).arg(cases), "").success()
}

/// Every case must have been right, and there must have been some.
fn assert_all_passed(out: &str) {
    let last = out.lines().last().expect("a summary");
    assert!(last.ends_with(" 0 failed") && !last.starts_with("0 passed"), "{out}");
}

#[test]
fn s01_every_recorded_answer_is_ours_too() {
    assert_all_passed(&replay(WITHOUT_ACCOUNTS, &golden("api"), &["--skip", "go-text"]));
}

/// Where kube-apiserver repeats a text of Go's libraries, ours may differ: status, reason and field must be right.
#[test]
fn s01_answers_in_the_words_of_go_differ_only_in_words() {
    let words = ["--ignore", "message", "--ignore", "details.causes.*.message"];
    assert_all_passed(&replay(
        WITHOUT_ACCOUNTS,
        &golden("api"),
        &[["--only", "go-text"].as_slice(), words.as_slice()].concat(),
    ));
}

/// Most of a case is waiting to see that nothing more happens, so the files run side by side.
#[test]
fn s02_controllers_make_of_objects_what_the_recorded_ones_made() {
    let files: Vec<PathBuf> = std::fs::read_dir(golden("controllers"))
        .expect("recorded cases")
        .map(|file| file.expect("a file").path())
        .collect();
    assert!(files.len() >= 9, "{files:?}");
    std::thread::scope(|scope| {
        let runs: Vec<_> = files.iter().map(|file| scope.spawn(|| replay(WITHOUT_ACCOUNTS, file, &[]))).collect();
        for run in runs {
            assert_all_passed(&run.join().expect("a replay"));
        }
    });
}

/// Identity, authorisation and admission, each file against a server with the usual plugins.
fn replay_access(name: &str, arguments: &[&str]) -> String {
    replay(&[], &golden("access").join(name), arguments)
}

/// As above, where kube-apiserver repeats a text of Go's libraries.
#[test]
fn b02_refusals_in_the_words_of_go_differ_only_in_words() {
    let words = ["--ignore", "message", "--ignore", "details.causes.*.message"];
    let only = ["--only", "go-text"];
    assert_all_passed(&replay(&[], &golden("access"), &[only.as_slice(), words.as_slice()].concat()));
}

#[test]
fn b01_service_accounts_and_tokens_are_those_of_kubernetes() {
    assert_all_passed(&replay_access("serviceaccounts.json", &["--skip", "go-text"]));
}

#[test]
fn b02_roles_and_bindings_are_those_of_kubernetes() {
    assert_all_passed(&replay_access("rbac-objects.json", &["--skip", "go-text"]));
}

#[test]
fn b02_decisions_are_those_of_kubernetes() {
    assert_all_passed(&replay_access("rbac-decisions.json", &["--skip", "go-text"]));
}

#[test]
fn b02_nobody_grants_what_they_do_not_have() {
    assert_all_passed(&replay_access("rbac-escalation.json", &["--skip", "go-text"]));
}

#[test]
fn b03_a_node_may_do_what_it_may_in_kubernetes() {
    assert_all_passed(&replay_access("node.json", &["--skip", "go-text"]));
}

#[test]
fn b03_certificates_are_signed_as_in_kubernetes() {
    assert_all_passed(&replay_access("certificates.json", &["--skip", "go-text"]));
}

#[test]
fn b04_pod_security_is_that_of_kubernetes() {
    assert_all_passed(&replay_access("podsecurity.json", &["--skip", "go-text"]));
}

#[test]
fn b04_quotas_and_limits_are_those_of_kubernetes() {
    assert_all_passed(&replay_access("quota-limitrange.json", &["--skip", "go-text"]));
}

#[test]
fn b04_admission_policies_are_those_of_kubernetes() {
    assert_all_passed(&replay_access("vap.json", &["--skip", "go-text"]));
}

#[test]
fn b07_every_recorded_answer_about_custom_resources_is_ours_too() {
    assert_all_passed(&replay(&[], &golden("crds"), &[]));
}

/// The kinds of the Gateway API, with the settings of a server.
fn replay_gateway(server: &[&str], arguments: &[&str]) {
    assert_all_passed(&replay(server, &golden("gateway"), arguments));
}

#[test]
fn s52_every_recorded_answer_about_the_gateway_api_is_ours_too() {
    replay_gateway(&[], &["--skip", "experimental"]);
}

#[test]
fn s52_every_recorded_answer_about_the_experimental_channel_is_ours_too() {
    replay_gateway(&["--gateway-api", "experimental"], &["--only", "experimental"]);
}
