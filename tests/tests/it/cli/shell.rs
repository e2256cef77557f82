//! `waypost completion` and `waypost man`.

use std::process::Command;

use testbed::{binary, run};

#[test]
fn shells_read_the_completion() {
    let script = run(Command::new(binary()).args(["completion", "bash"]), "").success();
    let line = format!(
        "{script}\nCOMP_WORDS=(waypost port); COMP_CWORD=1; _waypost waypost port waypost; echo ${{COMPREPLY[*]}}"
    );
    let found = run(&mut Command::new("bash"), &line).success();
    assert_eq!(found, "port-forward\n");
    for shell in ["zsh", "fish"] {
        let text = run(Command::new(binary()).args(["completion", shell]), "").success();
        assert!(text.contains("port-forward") && text.contains("expose"), "{shell}");
    }
}

#[test]
fn manual_pages_are_written() {
    let folder = testbed::folder();
    let place = folder.path().join("man");
    let _ = run(Command::new(binary()).arg("man").arg(&place), "").success();
    let page = |name: &str| std::fs::read_to_string(place.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(page("waypost.1").contains("waypost\\-get") || page("waypost.1").contains("get"), "no word of get");
    assert!(page("waypost-get.1").contains(".TH") && page("waypost-get.1").contains("field\\-selector"));
    assert!(page("waypost-rollout-undo.1").contains("to\\-revision"));
}

#[test]
fn words_behind_two_dashes_are_those_of_another_program() {
    let folder = testbed::folder();
    let mut command = Command::new(binary());
    command
        .args(["run", "web", "--kubeconfig"])
        .arg(folder.path().join("none"))
        .args(["--", "server", "--config", "x.yaml"]);
    let said = run(&mut command, "").failure();
    assert!(said.contains("none") && !said.contains("x.yaml"), "{said}");
}
