//! How the server is found, and the errors when it is not.

use std::fs;
use std::process::Command;

use testbed::{binary, run};

use super::Desk;

#[test]
fn a_server_that_is_down_is_told_with_its_kubeconfig_and_how_to_start_it() {
    let mut desk = Desk::start();
    desk.server.kill();
    let said = desk.fails("get svc");
    let config = desk.server.kubeconfig();
    for part in [config.to_str().expect("a path"), &desk.server.address, "`waypost up`", "--kubeconfig"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[test]
fn the_kubeconfig_is_looked_for_in_the_usual_places() {
    let desk = Desk::start();
    let home = testbed::folder();
    let ask = |setup: &dyn Fn(&mut Command)| {
        let mut command = Command::new(binary());
        command.args(["get", "ns", "default", "-o", "name"]).env_remove("KUBECONFIG").env("HOME", home.path());
        command.env("WAYPOST_DATA_DIR", home.path().join("none"));
        setup(&mut command);
        run(&mut command, "")
    };
    let said = ask(&|_| {}).failure();
    assert!(said.contains(".kube/config") && said.contains("`waypost up`"), "{said}");
    let data = desk.server.home().to_owned();
    assert_eq!(
        ask(&|command| {
            command.env("WAYPOST_DATA_DIR", &data);
        })
        .success(),
        "namespace/default\n"
    );
    assert_eq!(
        ask(&|command| {
            command.arg("--kubeconfig").arg(desk.server.kubeconfig());
        })
        .success(),
        "namespace/default\n"
    );
    fs::create_dir(home.path().join(".kube")).expect("made");
    fs::copy(desk.server.kubeconfig(), home.path().join(".kube/config")).expect("copied");
    assert_eq!(ask(&|_| {}).success(), "namespace/default\n");
    // Several files are one; the context has a namespace of its own.
    let more = home.path().join("more");
    let context =
        "contexts: [{name: other, context: {cluster: waypost, user: waypost-admin, namespace: kube-system}}]\n";
    fs::write(&more, context).expect("written");
    let both = format!("{}:{}", desk.server.kubeconfig().display(), more.display());
    let run = ask(&|command| {
        command.args(["--context", "nope"]).env("KUBECONFIG", &both);
    });
    assert!(run.failure().contains("it has: waypost, other"));
}

#[test]
fn commands_that_are_not_kubectls_find_the_same_server() {
    let desk = Desk::start();
    let home = testbed::folder();
    let ask = |setup: &dyn Fn(&mut Command)| {
        let mut command = Command::new(binary());
        command.args(["who", "10.96.0.1"]).env_remove("KUBECONFIG").env_remove("WAYPOST_DATA_DIR");
        command.env("HOME", home.path());
        setup(&mut command);
        run(&mut command, "")
    };
    let named = ask(&|command| {
        command.arg("--data-dir").arg(desk.server.home());
    });
    assert!(named.success().contains("default/kubernetes"));
    fs::create_dir(home.path().join(".kube")).expect("made");
    fs::copy(desk.server.kubeconfig(), home.path().join(".kube/config")).expect("copied");
    assert!(ask(&|_| {}).success().contains("default/kubernetes"));
    let other = ask(&|command| {
        command.args(["--context", "nope"]);
    });
    assert!(other.failure().contains("it has: waypost"));
    // A data directory that is named is meant, whatever the home has.
    fs::write(home.path().join(".kube/config"), "current-context: elsewhere\n").expect("written");
    let named = ask(&|command| {
        command.arg("--data-dir").arg(desk.server.home());
    });
    assert!(named.success().contains("default/kubernetes"));
}

#[test]
fn somebody_else_can_be_asked_as() {
    let desk = Desk::start();
    let said = desk.fails("get secrets --as nobody");
    assert!(said.contains("nobody") && said.contains("--as"), "{said}");
}

#[test]
fn warnings_of_the_server_reach_the_person() {
    let desk = Desk::start();
    let run = desk.run("apply -f -", &super::service("web", "{ports: [{port: 80}], externalIPs: [010.0.0.1]}"));
    let spoken = run.err.contains("Warning:") || run.err.contains("externalIPs");
    assert!(spoken, "{run:?}");
}
