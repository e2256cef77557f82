//! `waypost delete`: by every way to choose, and until they are gone.

use super::{Desk, service};

const PORTS: &str = "{ports: [{port: 80}]}";

#[test]
fn objects_go_by_name_file_label_and_all() {
    let desk = Desk::start();
    for name in ["a", "b", "c", "d", "e"] {
        desk.service(name, PORTS);
    }
    assert_eq!(desk.ok("delete svc a --dry-run"), "service \"a\" deleted (server dry run)\n");
    assert_eq!(desk.ok("delete svc a"), "service \"a\" deleted\n");
    assert_eq!(desk.ok_with("delete -f -", &service("b", PORTS)), "service \"b\" deleted\n");
    assert_eq!(desk.ok("delete services -l app=c"), "service \"c\" deleted\n");
    assert_eq!(desk.ok("delete svc/d -o name"), "service/d\n");
    let said = desk.fails("delete svc");
    assert!(said.contains("--all") && said.contains("service/NAME"), "{said}");
    let left = desk.ok("get svc -o name");
    assert_eq!(left, "service/e\nservice/kubernetes\n");
    let all = desk.ok("delete svc --all -l app");
    assert_eq!(all, "service \"e\" deleted\n");
}

#[test]
fn what_is_not_there_is_told_and_the_others_go() {
    let desk = Desk::start();
    desk.service("web", PORTS);
    let run = desk.run("delete svc nope web", "");
    assert_eq!((run.code, run.out.as_str()), (Some(1), "service \"web\" deleted\n"), "{run:?}");
    assert!(run.err.contains("\"nope\" not found"), "{run:?}");
    assert_eq!(desk.run("delete svc nope --ignore-not-found", "").success(), "");
}

#[test]
fn it_waits_until_they_are_gone_unless_told_not_to() {
    let desk = Desk::start();
    let held = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.com/wait]}\n";
    desk.ok_with("apply -f -", held);
    assert_eq!(desk.ok("delete cm held --wait=false"), "configmap \"held\" deleted\n");
    let said = desk.fails("delete cm held --timeout=300ms");
    assert!(said.contains("finalizers"), "{said}");
    let mut waiting = desk.command("delete cm held").stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    desk.kubectl("patch cm held --type=merge -p {\"metadata\":{\"finalizers\":null}}");
    assert!(waiting.wait().expect("it ends").success());
    assert!(desk.fails("get cm held").contains("not found"));
}

#[test]
fn pods_that_end_in_peace_can_be_forced_away() {
    let desk = Desk::start();
    desk.ok_with("apply -f -", "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n");
    desk.ok_with("apply -f -", &super::pod("web", "{app: web}").replace("spec:\n", "spec:\n  nodeName: n1\n"));
    desk.ok("delete pod web --wait=false");
    assert_eq!(desk.json("pod web")["metadata"]["deletionGracePeriodSeconds"], 30);
    assert!(desk.fails("delete pod web --grace-period=0").contains("--force"));
    let run = desk.run("delete pod web --force", "");
    assert_eq!(run.out, "pod \"web\" force deleted\n", "{run:?}");
    assert!(desk.fails("get pod web").contains("not found"));
}
