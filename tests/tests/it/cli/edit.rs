//! `waypost edit`: an editor that is a line of `sed`.

use super::Desk;

/// Runs `edit` with an editor.
fn edit(desk: &Desk, what: &str, editor: &str) -> testbed::Run {
    let mut command = desk.command(&format!("edit {what}"));
    testbed::run(command.env("EDITOR", editor), "")
}

#[test]
fn what_the_editor_left_is_saved() {
    let desk = Desk::start();
    desk.service("web", "{ports: [{port: 80}]}");
    let run = edit(&desk, "svc web", "sed -i 's/sessionAffinity: None/sessionAffinity: ClientIP/'");
    assert_eq!(run.success(), "service/web edited\n");
    assert_eq!(desk.json("svc web")["spec"]["sessionAffinity"], "ClientIP");
    let run = edit(&desk, "svc/web", "true");
    assert_eq!((run.ok, run.err.as_str()), (true, "Edit cancelled, no changes made.\n"));
    assert!(edit(&desk, "svc/web", "false").failure().contains("$EDITOR"));
}

#[test]
fn what_the_server_refuses_is_opened_again_with_the_reason_on_top_and_is_not_lost() {
    let desk = Desk::start();
    desk.service("web", "{ports: [{port: 80}]}");
    let folder = testbed::folder();
    let seen = folder.path().join("seen");
    // The second time it keeps what it was shown, and changes nothing.
    let editor = format!("sh -c 'cp \"$0\" {0}; sed -i \"s/port: 80$/port: 99999/\" \"$0\"'", seen.display());
    let said = edit(&desk, "svc web", &editor).failure();
    let shown = std::fs::read_to_string(&seen).expect("what was shown");
    assert!(shown.lines().any(|line| line.starts_with("# ") && line.contains("99999")), "{shown}");
    assert!(said.contains("99999") && said.contains("waypost apply -f"), "{said}");
    let kept = said.split("waypost apply -f ").nth(1).and_then(|rest| rest.split('`').next()).expect("a file");
    assert!(std::fs::read_to_string(kept).expect("it is there").contains("port: 99999"));
    std::fs::remove_file(kept).expect("removed");
    assert_eq!(desk.json("svc web")["spec"]["ports"][0]["port"], 80);
}
