//! `waypost wait`.

use std::process::Stdio;

use super::Desk;

#[test]
fn conditions_values_creation_and_deletion_are_waited_for() {
    let desk = Desk::start();
    let begin = |line: &str| desk.command(line).stdout(Stdio::piped()).spawn().expect("it starts");
    let met = |child: std::process::Child| {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let created = begin("wait svc/web --for=create --timeout=60s");
    desk.service("web", "{ports: [{port: 80}]}");
    assert_eq!(met(created), "service/web condition met\n");
    let value = begin("wait svc/web --for=jsonpath={.spec.sessionAffinity}=ClientIP --timeout=60s");
    desk.service("web", "{ports: [{port: 80}], sessionAffinity: ClientIP}");
    assert_eq!(met(value), "service/web condition met\n");
    let deleted = begin("wait svc web --for=delete --timeout=60s");
    desk.ok("delete svc web");
    assert_eq!(met(deleted), "service/web condition met\n");
    desk.ok_with("apply -f -", &super::deployment("api"));
    assert_eq!(
        desk.ok("wait deploy -l app=api --for=condition=Available=False --timeout=60s"),
        "deployment.apps/api condition met\n"
    );
}

#[test]
fn a_wait_that_is_too_long_says_what_to_look_at() {
    let desk = Desk::start();
    desk.pod("web", "{app: web}");
    let said = desk.fails("wait pod/web --for=condition=Ready --timeout=600ms");
    assert!(said.contains("timed out") && said.contains("`waypost describe pod/web`"), "{said}");
    assert!(desk.fails("wait pod/nope --for=condition=Ready").contains("not found"));
    assert!(desk.fails("wait pod/web --for=ready").contains("condition=NAME"));
}
