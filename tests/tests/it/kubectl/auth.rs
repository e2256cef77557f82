//! Who am I, what may I do: `kubectl auth`, accounts and their tokens, and what others are refused.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testbed::{Run, run};

use super::{Bed, MINOR, words};

/// A token of an account. A kubectl without `create token` sends the same request with `--raw`.
fn token(bed: &Bed, account: &str) -> String {
    if *MINOR >= 24 {
        return bed.ok(&format!("create token {account} --duration=30m")).trim().to_owned();
    }
    let request =
        r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 1800}}"#;
    let path = format!("/api/v1/namespaces/default/serviceaccounts/{account}/token");
    let answer: Value =
        serde_json::from_str(&bed.ok_with(&format!("create --raw {path} -f -"), request)).expect("JSON");
    answer["status"]["token"].as_str().expect("a token").to_owned()
}

/// kubectl with another kubeconfig.
fn kubectl(kubeconfig: &Path, line: &str) -> Run {
    let cache = kubeconfig.with_extension("cache");
    let mut command = Command::new("kubectl");
    run(command.arg("--kubeconfig").arg(kubeconfig).arg("--cache-dir").arg(cache).args(words(line)), "")
}

/// A kubeconfig with this token in place of the administrator's certificate.
fn kubeconfig_of(bed: &Bed, token: &str) -> PathBuf {
    let ours = std::fs::read_to_string(bed.server.kubeconfig()).expect("a kubeconfig");
    let theirs: Vec<_> = ours.lines().filter(|line| !line.contains("client-certificate-data:")).collect();
    let key = theirs.iter().position(|line| line.contains("client-key-data:")).expect("a key");
    let token = format!("    token: {token}");
    let theirs = [&theirs[..key], &[token.as_str()], &theirs[key + 1..]].concat().join("\n");
    let path = bed.server.home().join("kubeconfig-of-another");
    std::fs::write(&path, theirs).expect("a file");
    path
}

/// The identity of the caller on the server. A kubectl without `auth whoami` sends the same request with
/// `--raw`.
fn whoami(kubeconfig: &Path) -> Value {
    let line = "auth whoami -o json";
    if *MINOR >= 28 {
        return serde_json::from_str(&kubectl(kubeconfig, line).success()).expect("JSON");
    }
    let review = r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}"#;
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(kubeconfig).args(["create", "-f", "-", "-o", "json"]);
    serde_json::from_str(&run(&mut command, review).success()).expect("JSON")
}

#[test]
fn s01_the_administrator_may_do_everything() {
    let bed = Bed::start();
    for question in ["create services", "delete nodes --all-namespaces", "'*' '*' --all-namespaces", "get /metrics"] {
        assert_eq!(bed.ok(&format!("auth can-i {question}")), "yes\n", "{question}");
    }
    let list = bed.ok("auth can-i --list");
    assert!(list.lines().any(|line| line.starts_with("*.*") && line.contains("[*")), "{list}");
    let me = whoami(&bed.server.kubeconfig());
    let groups = me["status"]["userInfo"]["groups"].as_array().expect("groups");
    assert!(groups.contains(&"system:masters".into()), "{me}");
}

#[test]
fn b02_others_may_do_what_they_are_granted() {
    let bed = Bed::start();
    for (question, answer) in [("list services", false), ("get /version", true), ("get /metrics", false)] {
        let run = bed.run(&format!("auth can-i {question} --as=somebody"), "");
        assert_eq!((run.ok, run.out.as_str()), (answer, if answer { "yes\n" } else { "no\n" }), "{question}");
    }
    bed.ok("create rolebinding viewers --clusterrole=view --user=somebody");
    for (question, answer) in [
        ("list services", true),
        ("list services --namespace=kube-system", false),
        ("watch endpointslices.discovery.k8s.io", true),
        ("create services", false),
        ("patch services --subresource=status", false),
        ("get secrets", false),
        ("get /version", true),
        ("get /metrics", false),
    ] {
        let run = bed.run(&format!("auth can-i {question} --as=somebody"), "");
        assert_eq!((run.ok, run.out.as_str()), (answer, if answer { "yes\n" } else { "no\n" }), "{question}");
    }
    assert!(bed.run("auth can-i create services --as=somebody --quiet", "").out.is_empty());
    let refused = bed.fails("create service clusterip web --tcp=80 --as=somebody");
    let why = "User \"somebody\" cannot create resource \"services\" in API group \"\" in the namespace \"default\"";
    assert!(refused.contains("services is forbidden:") && refused.contains(why), "{refused}");
    let refused = bed.fails("delete service kubernetes --as=somebody");
    let why = "services \"kubernetes\" is forbidden: User \"somebody\" cannot delete resource \"services\"";
    assert!(refused.contains("Error from server (Forbidden)") && refused.contains(why), "{refused}");
    assert_eq!(bed.ok("get services --as=somebody -o name"), "service/kubernetes\n");
}

#[test]
fn b02_roles_are_reconciled_and_listed() {
    let bed = Bed::start();
    let manifest = |resources: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: r, namespace: default}}\n\
             rules: [{{verbs: [get], apiGroups: [''], resources: {resources}}}]\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: b, namespace: default}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}}\n\
             subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: ada}}]\n"
        )
    };
    let out = bed.ok_with("auth reconcile -f -", &manifest("[pods]"));
    assert!(out.contains("role.rbac.authorization.k8s.io/r reconciled"), "{out}");
    assert!(out.contains("rolebinding.rbac.authorization.k8s.io/b reconciled"), "{out}");
    // What is missing is added; what is there stays.
    bed.ok_with("auth reconcile -f -", &manifest("[services]"));
    let list = bed.ok("auth can-i --list --as=ada");
    for resource in ["pods", "services"] {
        let line = list.lines().find(|line| line.starts_with(&format!("{resource} ")));
        assert!(line.is_some_and(|line| line.ends_with("[get]")), "{resource}: {list}");
    }
    let line = list.lines().find(|line| line.starts_with("selfsubjectaccessreviews.authorization.k8s.io "));
    assert!(line.is_some_and(|line| line.ends_with("[create]")), "what everybody may: {list}");
}

#[test]
fn s01_an_account_gets_a_token_and_is_known_by_it() {
    let bed = Bed::start();
    bed.ok("create serviceaccount robot");
    let robot = kubeconfig_of(&bed, &token(&bed, "robot"));
    let me = whoami(&robot)["status"]["userInfo"].clone();
    assert_eq!(me["username"], "system:serviceaccount:default:robot");
    let groups = me["groups"].as_array().expect("groups");
    for group in ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"] {
        assert!(groups.contains(&group.into()), "{group} in {me}");
    }
    assert!(kubectl(&robot, "get services -o name").failure().contains("(Forbidden)"));
    bed.ok("create rolebinding robot --clusterrole=view --serviceaccount=default:robot");
    assert_eq!(kubectl(&robot, "get services -o name").success(), "service/kubernetes\n");
    assert!(kubectl(&robot, "delete service kubernetes").failure().contains("(Forbidden)"));
    // A token is worth nothing once its account is gone.
    bed.ok("delete serviceaccount robot");
    assert!(kubectl(&robot, "get services").failure().contains("You must be logged in to the server"));
}

/// A token bound to an object. A kubectl without the flags sends the same request with `--raw`.
fn bound_token(bed: &Bed, account: &str, kind: &str, name: &str) -> String {
    if *MINOR >= 24 {
        let line = format!("create token {account} --bound-object-kind {kind} --bound-object-name {name}");
        return bed.ok(&line).trim().to_owned();
    }
    let bound = serde_json::json!({"apiVersion": "v1", "kind": kind, "name": name});
    let request = serde_json::json!({"spec": {"boundObjectRef": bound}}).to_string();
    let path = format!("/api/v1/namespaces/default/serviceaccounts/{account}/token");
    let answer: Value =
        serde_json::from_str(&bed.ok_with(&format!("create --raw {path} -f -"), &request)).expect("JSON");
    answer["status"]["token"].as_str().expect("a token").to_owned()
}

#[test]
fn b01_a_token_bound_to_a_pod_ends_with_it() {
    let bed = Bed::start();
    bed.ok("create serviceaccount robot");
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                  "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}}"#;
    bed.ok_with("create -f -", pod);
    let robot = kubeconfig_of(&bed, &bound_token(&bed, "robot", "Pod", "p"));
    let me = whoami(&robot)["status"]["userInfo"].clone();
    assert_eq!(me["extra"]["authentication.kubernetes.io/pod-name"], serde_json::json!(["p"]), "{me}");
    // kubectl returns when the Pod is gone.
    bed.ok("delete pod p");
    assert!(kubectl(&robot, "get services").failure().contains("You must be logged in to the server"));
}

#[test]
fn s01_a_token_that_nobody_gave_is_refused() {
    let bed = Bed::start();
    let nobody = kubeconfig_of(&bed, "made-up");
    let refused = kubectl(&nobody, "get services").failure();
    assert!(refused.contains("You must be logged in to the server"), "{refused}");
    let missing = bed.run("create --raw /api/v1/namespaces/default/serviceaccounts/nobody/token -f -", "{}").failure();
    assert!(missing.contains("not found"), "{missing}");
}
