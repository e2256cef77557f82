//! `kubectl diff`: what an apply would change, from a dry run on the server, printed by diff(1).

use super::{Bed, service};

const WEB: &str = "{selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}";

#[test]
fn s01_diff_shows_what_apply_would_change_and_changes_nothing() {
    let bed = Bed::start();
    bed.service("web", WEB);
    assert_eq!(bed.ok_with("diff -f -", &service("web", WEB)), "");

    let before = bed.json("service web");
    let run = bed.run("diff -f -", &service("web", &WEB.replace("8080", "9090")));
    assert!(!run.ok, "a difference makes the exit code 1");
    let changed: Vec<_> = run.out.lines().filter(|line| line.contains("targetPort")).collect();
    assert_eq!(changed, ["-    targetPort: 8080", "+    targetPort: 9090"], "{run:?}");
    assert!(!run.out.contains("clusterIP: 10.96.0.0"), "what the server chose stays: {run:?}");
    assert_eq!(bed.json("service web"), before);
}

#[test]
fn s01_diff_of_a_new_object_shows_all_of_it() {
    let bed = Bed::start();
    let run = bed.run("diff -f -", &service("web", WEB));
    assert!(!run.ok && run.out.contains("+kind: Service") && run.out.contains("+    targetPort: 8080"), "{run:?}");
    assert!(bed.fails("get service web").contains("not found"));
}

#[test]
fn s01_diff_of_a_server_side_apply_shows_the_change() {
    let bed = Bed::start();
    bed.ok_with("apply --server-side -f -", &service("web", WEB));
    assert_eq!(bed.ok_with("diff --server-side -f -", &service("web", WEB)), "");
    let run = bed.run("diff --server-side -f -", &service("web", &WEB.replace("8080", "9090")));
    assert!(!run.ok && run.out.contains("+    targetPort: 9090"), "{run:?}");
}
