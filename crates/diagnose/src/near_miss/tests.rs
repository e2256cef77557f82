use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Finding, Service, find};
use crate::{Object, Objects, Selector, Snapshot};

/// Labels as people write them: `app=web,tier=front`.
fn labels(text: &str) -> BTreeMap<&str, &str> {
    text.split(',').filter_map(|label| label.split_once('=')).collect()
}

/// The finding for a selector in `default`, where these Pods are; one in another namespace begins with `namespace:`.
fn found(selector: &str, pods: &[&str]) -> Finding {
    let objects: Vec<Value> = pods
        .iter()
        .enumerate()
        .map(|(number, pod)| {
            let (namespace, text) = pod.split_once(':').unwrap_or(("default", pod));
            json!({"metadata": {"name": format!("p{number}"), "namespace": namespace, "labels": labels(text)}})
        })
        .collect();
    let selector: Box<Selector> = labels(selector).into_iter().map(|(key, value)| (key.into(), value.into())).collect();
    let service = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}});
    find(
        &Snapshot::new(Objects { pods: Object::listed(&objects), ..Objects::default() }),
        &Service::of(&service),
        &selector,
    )
}

/// The message of the finding.
fn said(selector: &str, pods: &[&str]) -> String {
    found(selector, pods).message
}

#[track_caller]
fn says(selector: &str, pods: &[&str], wanted: &str) {
    let said = said(selector, pods);
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn the_example_that_people_ask_for() {
    let pods = ["app=web2", "app=web2", "app=web2", "app=db", "app=db", "app=db", "app=cache"];
    assert_eq!(
        said("app=web", &pods),
        "selector app=web matches 0 of 7 pods in default; 3 pods have app=web2. \
         Change the selector or the labels of the pods."
    );
}

#[test]
fn nothing_at_all_is_said_to_be_nothing() {
    assert_eq!(
        said("app=web", &[]),
        "there are no pods in default that selector app=web could match. Create pods with these labels in default."
    );
}

#[test]
fn pods_in_the_wrong_namespace_are_found() {
    let wanted = "pods in namespace shop match, but a Service selects only pods of its own namespace";
    says("app=web", &["shop:app=web"], wanted);
    says("app=web", &["shop:app=web", "x=y"], wanted);
    says("app=web", &["b:app=web", "a:app=web", "c:app=db"], "pods in namespaces a and b match");
    let said = said("app=web", &["shop:app=web", "app=web2"]);
    assert!(!said.contains("shop"), "what is near comes first: {said}");
    assert!(self::said("app=web", &["shop:app=db"]).ends_with("Create pods with these labels in default."));
}

#[test]
fn too_many_namespaces_are_not_searched() {
    let pods: Vec<String> = (0..=super::SEARCHED).map(|number| format!("n{number}:app=web")).collect();
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    assert!(!said("app=web", &pods).contains("namespaces"));
    assert!(said("app=web", &pods[1..]).contains("pods in namespaces n1, n10, n100 and 97 more match"));
}

#[test]
fn one_pod_is_spoken_of_as_one() {
    says("app=web", &["app=web2"], "matches 0 of 1 pod in default; 1 pod has app=web2.");
    says(
        "app=web,tier=front",
        &["app=web,tier=frontend"],
        "pod p0 matches app=web but does not have tier=front; it has tier=frontend.",
    );
}

#[test]
fn case_is_named() {
    says("app=web", &["app=Web", "app=Web"], "2 pods have app=Web (only upper and lower case differ)");
    says("app=web,x=A", &["app=web,x=a"], "it has x=a (only upper and lower case differ)");
    says("app=web", &["App=web"], "no pod has the label app; 1 pod has App=web");
}

#[test]
fn at_most_three_values_are_named_and_the_nearest_first() {
    let pods = ["app=web-1", "app=web-22", "app=web2", "app=web-22", "app=web-333", "app=other"];
    says("app=web", &pods, "; 1 pod has app=web2, 1 pod has app=web-1 and 2 pods have app=web-22.");
    let strangers = ["app=a", "app=b", "app=b", "app=c", "app=d"];
    says("app=web", &strangers, "; 2 pods have app=b, 1 pod has app=a and 1 pod has app=c.");
}

#[test]
fn another_key_may_be_meant() {
    let chart = ["app.kubernetes.io/name=web", "app.kubernetes.io/name=web", "app.kubernetes.io/name=db"];
    says("app=web", &chart, "; no pod has the label app; 2 pods have app.kubernetes.io/name=web.");
    says("app=wob", &chart, "; no pod has the label app; 2 pods have app.kubernetes.io/name=web.");
    says("app.kubernetes.io/name=web", &["app=web"], "no pod has the label app.kubernetes.io/name; 1 pod has app=web");
    says("app=shop", &["program=shop"], "no pod has the label app; 1 pod has program=shop");
    let unlike = said("enabled=true", &["ready-to-go=true"]);
    assert!(unlike.contains("no pod has the label enabled; the only label in use is ready-to-go"), "{unlike}");
}

#[test]
fn without_anything_near_the_labels_in_use_are_named() {
    let pods = ["zone=a,pod-template-hash=123", "color=b,zone=a"];
    says("app=web", &pods, "; no pod has the label app; the labels in use are color and zone.");
    says("app=web", &[""], "matches 0 of 1 pod in default; no pod has the label app.");
}

#[test]
fn the_one_label_that_excludes_all_is_named() {
    let pods = ["app=web,tier=frontend", "app=web,tier=frontend", "app=web,tier=frontend", "app=db,tier=back"];
    says(
        "app=web,tier=front",
        &pods,
        "matches 0 of 4 pods in default; 3 pods match app=web but none of them has tier=front; they have tier=frontend.",
    );
    let mixed = ["app=web,tier=frontend", "app=web,tier=frontend", "app=web,tier=zoo"];
    says("app=web,tier=front", &mixed, "they have tier=frontend (2 pods).");
    says("app=web,tier=front", &["app=web", "app=web"], "none of them has tier=front; they have no label tier.");
    says("app=web,tier=front", &["app=web,Tier=front"], "does not have tier=front; it has Tier=front.");
    let three = ["app=web,tier=front,track=canary", "app=web,tier=back,track=canary"];
    says(
        "app=web,tier=front,track=stable",
        &three,
        "pod p0 matches app=web,tier=front but does not have track=stable; it has track=canary",
    );
    let slip = ["app=db,tier=front", "app=db,tier=front", "app=web,tier=frontend"];
    says("app=web,tier=front", &slip, "pod p2 matches app=web but does not have tier=front; it has tier=frontend");
}

#[test]
fn labels_that_exist_but_not_together_are_counted() {
    says(
        "app=web,tier=front",
        &["app=web,tier=back", "tier=front,app=db"],
        "pod p1 matches tier=front but does not have app=web; it has app=db",
    );
    says(
        "a=1,b=2,c=3",
        &["a=1", "a=1", "b=2", "c=3"],
        "2 pods have a=1, 1 pod has b=2 and 1 pod has c=3, but no pod has all of these labels",
    );
}

#[test]
fn several_labels_that_nobody_has_are_each_explained() {
    says(
        "app=web,tier=front,track=stable",
        &["app=web2", "tier=frontend"],
        "; 1 pod has app=web2; 1 pod has tier=frontend.",
    );
}

#[test]
fn the_longest_labels_make_no_book() {
    let long = |letter: &str| letter.repeat(63);
    let selector: Vec<String> = (0..40).map(|number| format!("{number}{}={}", "k".repeat(60), long("v"))).collect();
    let pod = format!("x{}={}", "k".repeat(60), long("w"));
    let said = said(&selector.join(","), &[&pod, &pod]);
    assert!(said.len() <= crate::words::LONGEST, "{}", said.len());
    assert!(said.contains('…'), "{said}");
}

#[test]
fn equal_pods_give_equal_words() {
    let pods = ["app=web-a", "app=web-b", "app=web-c", "app=web-d", "app=web-e"];
    let mut backwards = pods;
    backwards.reverse();
    assert_eq!(said("app=web", &pods), said("app=web", &backwards));
}

#[test]
fn the_command_selects_what_comes_nearest() {
    for (selector, pods, labels) in [
        ("app=web", &["app=web2", "app=db"][..], "app=web2"),
        ("app=wbe", &["app=web"], "app=web"),
        ("app=web", &["app.kubernetes.io/name=web"], "app.kubernetes.io/name=web"),
        ("ap=web,tier=front", &["app=web,tier=front"], "app=web,tier=front"),
        ("app=web,tier=front", &["app=web,tier=frontend"], "app=web,tier=frontend"),
        ("app=web,tier=front", &["app=web"], "app=web"),
    ] {
        let wanted = format!("kubectl set selector service web -n default {labels}");
        assert_eq!(found(selector, pods).fix, wanted, "{selector}");
    }
    let elsewhere = found("app=web", &["shop:app=web"]).fix;
    let wanted =
        "kubectl expose pod p0 -n shop --name=web --selector=app=web --port=80 --target-port=80 --protocol=TCP";
    assert_eq!(elsewhere, wanted);
    for pods in [&[][..], &["zone=a"], &["app=something-else"]] {
        assert_eq!(found("app=web", pods).fix, "kubectl run web -n default --image=IMAGE --labels=app=web --port=80");
    }
}
