//! `waypost apply` and `waypost diff`.

use std::fs;

use super::{Desk, service};

const PORTS: &str = "{ports: [{port: 80}]}";

#[test]
fn objects_are_created_left_alone_and_configured() {
    let desk = Desk::start();
    assert_eq!(desk.ok_with("apply -f -", &service("web", PORTS)), "service/web created\n");
    assert_eq!(desk.ok_with("apply -f -", &service("web", PORTS)), "service/web unchanged\n");
    let more = service("web", "{ports: [{port: 80}], sessionAffinity: ClientIP}");
    assert_eq!(desk.ok_with("apply -f - --dry-run", &more), "service/web configured (server dry run)\n");
    assert_eq!(desk.json("svc web")["spec"]["sessionAffinity"], "None");
    assert_eq!(desk.ok_with("apply -f -", &more), "service/web configured\n");
    assert_eq!(desk.json("svc web")["spec"]["sessionAffinity"], "ClientIP");
    // What is no longer in the file is
    // removed.
    assert_eq!(desk.ok_with("apply -f -", &service("web", PORTS)), "service/web configured\n");
    assert_eq!(desk.json("svc web")["spec"]["sessionAffinity"], "None");
}

#[test]
fn folders_streams_and_lists_are_taken_apart_and_one_bad_document_stops_no_other() {
    let desk = Desk::start();
    let folder = testbed::folder();
    let two = format!("{}---\n{}", service("a", PORTS), super::deployment("b"));
    fs::write(folder.path().join("1.yaml"), two).expect("written");
    let list = "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \
                \"metadata\": {\"name\": \"c\"}}]}";
    fs::write(folder.path().join("2.json"), list).expect("written");
    fs::write(folder.path().join("notes.txt"), "not a manifest").expect("written");
    let line = format!("apply -f {}", folder.path().display());
    assert_eq!(desk.ok(&line), "service/a created\ndeployment.apps/b created\nconfigmap/c created\n");
    let broken = format!("{}---\n{}", service("bad", "{ports: [{port: 80, nonsense: 1}]}"), service("good", PORTS));
    let run = desk.run("apply -f -", &broken);
    assert_eq!((run.code, run.out.as_str()), (Some(1), "service/good created\n"), "{run:?}");
    assert!(run.err.contains("standard input") && run.err.contains("nonsense"), "{run:?}");
    let said = desk.run("apply -f -", "apiVersion: v1\nkind: Deployment\nmetadata: {name: x}\n").failure();
    assert!(said.contains("did you mean kind Deployment of apps/v1?"), "{said}");
    assert!(desk.fails("apply -f /nowhere.yaml").contains("/nowhere.yaml"));
}

#[test]
fn a_conflict_names_the_owner_and_the_flag_that_takes_it() {
    let desk = Desk::start();
    desk.service("web", "{ports: [{port: 80}], sessionAffinity: None}");
    desk.kubectl("patch svc web --type=merge --field-manager=other -p {\"spec\":{\"sessionAffinity\":\"ClientIP\"}}");
    let mine = service("web", "{ports: [{port: 80}], sessionAffinity: None}");
    let said = desk.run("apply -f -", &mine).failure();
    assert!(said.contains("other") && said.contains("--force-conflicts"), "{said}");
    assert_eq!(desk.ok_with("apply -f - --force-conflicts", &mine), "service/web configured\n");
}

#[test]
fn diff_shows_what_apply_would_change_and_its_exit_code_says_so() {
    let desk = Desk::start();
    let new = desk.run("diff -f -", &service("web", PORTS));
    assert_eq!(new.code, Some(1), "{new:?}");
    assert!(new.out.contains("+kind: Service"), "{new:?}");
    desk.service("web", PORTS);
    let same = desk.run("diff -f -", &service("web", PORTS));
    assert_eq!((same.code, same.out.as_str()), (Some(0), ""), "{same:?}");
    let changed = desk.run("diff -f -", &service("web", "{ports: [{port: 81}]}"));
    assert_eq!(changed.code, Some(1), "{changed:?}");
    assert!(changed.out.contains("-  - port: 80\n+  - port: 81\n") || changed.out.contains("port: 81"), "{changed:?}");
    assert_eq!(desk.json("svc web")["spec"]["ports"][0]["port"], 80);
    let broken = desk.run("diff -f -", &service("web", "{ports: [{port: 0}]}"));
    assert_eq!(broken.code, Some(2), "{broken:?}");
}
