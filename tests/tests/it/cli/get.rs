//! `waypost get`: the same tables and values as kubectl's, and messages for missing objects.

use super::Desk;

fn desk() -> Desk {
    let desk = Desk::start();
    desk.service("web", "{selector: {app: web}, ports: [{name: http, port: 80}, {name: https, port: 443}]}");
    desk.service("db", "{clusterIP: None, selector: {app: db}, ports: [{port: 5432}]}");
    desk.pod("web-1", "{app: web, tier: front}");
    desk.ok_with("apply -f -", &super::deployment("api"));
    desk.ok_with("apply -f -", "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n");
    desk
}

/// A table without what time changes.
fn without_ages(table: &str) -> Vec<String> {
    let is_age = |word: &str| {
        word.len() > 1 && word.ends_with('s') && word[..word.len() - 1].bytes().all(|byte| byte.is_ascii_digit())
    };
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').map(|word| if is_age(word) { "AGE" } else { word }).collect();
        // An age may be a letter longer when the second table is requested.
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    table.lines().map(line).collect()
}

#[test]
fn tables_are_those_of_kubectl() {
    let desk = desk();
    for line in [
        "get services",
        "get svc -o wide",
        "get svc,pods",
        "get pods --show-labels",
        "get pods -L app,tier",
        "get nodes",
        "get deploy api",
        "get ns default kube-system",
        "get svc -A",
        "get service/web deployment/api",
        "get svc -l app=web --no-headers",
        "get svc --field-selector metadata.name=db",
        "get svc --sort-by=.metadata.name",
        "get endpointslices -o wide",
        "get events",
        "get configmaps -A",
        "get pods --show-kind",
    ] {
        let (ours, theirs) = (desk.ok(line), desk.kubectl(line));
        assert_eq!(without_ages(&ours), without_ages(&theirs), "{line}");
    }
    // With its spaces: one whose ages cannot be of different length is the same to the byte.
    let columns = "get svc -o custom-columns=NAME:.metadata.name,IP:.spec.clusterIP,NONE:.spec.nothing";
    assert_eq!(desk.ok(columns), desk.kubectl(columns));
    let plain = desk.ok("get svc web");
    assert!(plain.starts_with("NAME   TYPE        CLUSTER-IP"), "{plain}");
}

#[test]
fn values_are_those_of_kubectl() {
    let desk = desk();
    for line in [
        "get svc web -o yaml",
        "get svc web -o json",
        "get svc -o name",
        "get svc,deploy -o name",
        "get deployment.apps/api -o name",
        "get svc web -o jsonpath={.spec.clusterIP}",
        "get svc -o 'jsonpath={.items[*].metadata.name}'",
        "get svc -o 'jsonpath={range .items[*]}{.metadata.name}{\"\\t\"}{.spec.ports[0].port}{\"\\n\"}{end}'",
        "get svc -o 'jsonpath={.items[?(@.spec.clusterIP==\"None\")].metadata.name}'",
        "get svc web -o 'jsonpath={.spec.ports[?(@.name==\"https\")].port}'",
        "get svc web -o 'jsonpath={.spec.ports[*]}'",
        "get svc web -o 'jsonpath={..port}'",
        "get pods -o custom-columns=A:.metadata.labels.app,P:.spec.containers[*].ports[*].containerPort --no-headers",
    ] {
        assert_eq!(desk.ok(line), desk.kubectl(line), "{line}");
    }
}

#[test]
fn nothing_found_is_said_as_kubectl_says_it() {
    let desk = Desk::start();
    for (line, said) in [
        ("get pods", "No resources found in default namespace.\n"),
        ("get pods -n kube-system", "No resources found in kube-system namespace.\n"),
        ("get pods -A", "No resources found\n"),
        ("get nodes", "No resources found\n"),
    ] {
        let run = desk.run(line, "");
        assert_eq!((run.ok, run.out.as_str(), run.err.as_str()), (true, "", said), "{line}");
    }
    assert_eq!(desk.run("get pod x --ignore-not-found", "").err, "");
}

#[test]
fn what_is_not_there_is_told_with_what_comes_nearest() {
    let desk = desk();
    let said = desk.fails("get svc wbe");
    assert!(
        said.contains("service \"wbe\" not found in namespace default") && said.contains("did you mean \"web\""),
        "{said}"
    );
    assert!(said.contains("`waypost get services -A`"), "{said}");
    let said = desk.fails("get serivces");
    assert!(
        said.contains("no kind \"serivces\"")
            && said.contains("\"services\"")
            && said.contains("waypost api-resources"),
        "{said}"
    );
    // What exists is shown nevertheless.
    let run = desk.run("get svc web nope", "");
    assert!(!run.ok && run.out.contains("web ") && run.err.contains("\"nope\" not found"), "{run:?}");
    assert!(desk.fails("get svc -o tabel").contains("wide, yaml, json"));
    assert!(desk.fails("get").contains("waypost get services"));
}

#[test]
fn files_name_objects_too() {
    let desk = desk();
    let manifest = super::service("web", "{ports: [{port: 80}]}");
    assert_eq!(desk.ok_with("get -f - -o name", &manifest), "service/web\n");
}

#[test]
fn colour_is_for_terminals_alone() {
    let desk = desk();
    assert!(!desk.ok("get pods").contains('\x1b'));
    let on_a_terminal = |setting: &str| {
        let config = desk.server.kubeconfig();
        let line = format!("{setting} {} get pods --kubeconfig {}", testbed::binary().display(), config.display());
        let mut command = std::process::Command::new("script");
        testbed::run(command.args(["-qefc", &line, "/dev/null"]), "").success()
    };
    assert!(on_a_terminal("TERM=xterm").contains("\x1b[1mNAME"));
    assert!(!on_a_terminal("TERM=xterm NO_COLOR=1").contains('\x1b'));
}

#[test]
fn kinds_are_listed() {
    let desk = Desk::start();
    let ours = desk.ok("api-resources -o name");
    for kind in ["services", "deployments.apps", "endpointslices.discovery.k8s.io"] {
        assert!(ours.lines().any(|line| line == kind), "{ours}");
    }
    assert!(desk.ok("api-resources").contains("services"));
}
