//! `kubectl apply` with the three-way merge made by the client: the way most manifests reach a cluster.

use super::{Bed, MINOR, service};

const WEB: &str = "{selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}";

#[test]
fn s01_apply_creates_then_leaves_alone_then_configures() {
    let bed = Bed::start();
    assert_eq!(bed.service("web", WEB), "service/web created\n");
    let before = bed.json("service web");
    assert_eq!(bed.service("web", WEB), "service/web unchanged\n");
    assert_eq!(bed.json("service web"), before, "not even the revision moved");

    assert_eq!(bed.service("web", &WEB.replace("8080", "9090")), "service/web configured\n");
    let after = bed.json("service web");
    assert_eq!(after["spec"]["ports"][0]["targetPort"], 9090);
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_ne!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
}

#[test]
fn s01_apply_takes_out_what_the_manifest_no_longer_says_and_nothing_else() {
    let bed = Bed::start();
    let ports = "ports: [{name: http, port: 80}, {name: metrics, port: 9100}]";
    bed.service("web", &format!("{{selector: {{app: web, tier: front}}, sessionAffinity: ClientIP, {ports}}}"));
    bed.ok("annotate service web example.com/owner=somebody");
    bed.ok("label service web team=blue");

    bed.service("web", "{selector: {app: web}, ports: [{name: http, port: 80}]}");
    let web = bed.json("service web");
    assert_eq!(web["spec"]["selector"], serde_json::json!({"app": "web"}));
    assert_eq!(web["spec"]["ports"].as_array().map(Vec::len), Some(1), "{web}");
    assert_eq!(web["spec"]["ports"][0]["name"], "http");
    assert_eq!(web["spec"]["sessionAffinity"], "None", "back to its default");
    assert_eq!(web["metadata"]["annotations"]["example.com/owner"], "somebody", "it was never in the manifest");
    assert_eq!(web["metadata"]["labels"]["team"], "blue", "it was never in the manifest");
}

#[test]
fn s40_apply_keeps_the_addresses_and_node_ports_that_the_server_chose() {
    let bed = Bed::start();
    let spec = "{type: NodePort, ports: [{name: http, port: 80, targetPort: 8080}]}";
    bed.service("web", spec);
    let before = bed.json("service web")["spec"].clone();
    let changed = "{type: NodePort, ports: [{name: http, port: 80, targetPort: 9090}, {name: tls, port: 443}]}";
    bed.service("web", changed);
    let after = bed.json("service web")["spec"].clone();
    assert_eq!(after["clusterIP"], before["clusterIP"]);
    assert_eq!(after["ports"][0]["nodePort"], before["ports"][0]["nodePort"]);
    let second = after["ports"][1]["nodePort"].as_u64().expect("a node port");
    assert!((30000..=32767).contains(&second), "{after}");
    assert_ne!(after["ports"][1]["nodePort"], before["ports"][0]["nodePort"]);
}

#[test]
fn s01_the_last_applied_manifest_is_kept_and_shown() {
    let bed = Bed::start();
    bed.service("web", WEB);
    let shown = bed.ok("apply view-last-applied service web -o json");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["spec"]["ports"][0]["targetPort"], 8080);
    assert_eq!(shown["spec"].get("clusterIP"), None, "only what the manifest said: {shown}");

    // Created without it, the first apply warns about that, adopts the object, and adds it.
    bed.ok_with("create -f -", &service("plain", WEB));
    let run = bed.run("apply -f -", &service("plain", WEB));
    assert!(run.err.contains("missing the kubectl.kubernetes.io/last-applied-configuration annotation"), "{run:?}");
    assert_eq!(run.success(), "service/plain configured\n");
    bed.ok_with("apply set-last-applied -f -", &service("plain", &WEB.replace("8080", "7070")));
    assert!(bed.ok("apply view-last-applied service plain").contains("targetPort: 7070"));
    assert_eq!(bed.field("service/plain", ".spec.ports[0].targetPort"), "8080", "only the note was changed");
}

#[test]
fn s01_a_stream_of_documents_and_a_folder_of_files_are_applied_in_order() {
    let bed = Bed::start();
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n";
    let settings = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  namespace: shop\ndata:\n  a: '1'\n";
    let web = service("web\n  namespace: shop", WEB);
    let stream = format!("# a comment first\n---\n{namespace}---\n{settings}---\n{web}---\n");
    let out = bed.ok_with("apply -f -", &stream);
    assert_eq!(out, "namespace/shop created\nconfigmap/settings created\nservice/web created\n");

    let folder = testbed::folder();
    std::fs::create_dir(folder.path().join("deeper")).expect("a folder");
    std::fs::write(folder.path().join("a.yaml"), settings.replace("'1'", "'2'")).expect("a file");
    std::fs::write(folder.path().join("b.yml"), web).expect("a file");
    let list = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"}, "spec": {"ports": [{"port": 1}]}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "two"}, "spec": {"ports": [{"port": 2}]}}]}"#;
    std::fs::write(folder.path().join("deeper/list.json"), list).expect("a file");
    let out = bed.ok(&format!("apply -R -f {}", folder.path().display()));
    assert_eq!(out, "configmap/settings configured\nservice/web unchanged\nservice/one created\nservice/two created\n");
}

#[test]
fn s01_one_bad_document_does_not_stop_the_others() {
    let bed = Bed::start();
    let stream = [service("one", WEB), service("bad", "{ports: [{port: 80, protocol: ICMP}]}"), service("two", WEB)]
        .join("---\n");
    let run = bed.run("apply -f -", &stream);
    assert!(!run.ok);
    assert_eq!(run.out, "service/one created\nservice/two created\n");
    let wanted = r#"The Service "bad" is invalid: spec.ports[0].protocol: Unsupported value: "ICMP""#;
    assert!(run.err.contains(wanted), "{run:?}");
}

#[test]
fn s01_apply_with_prune_deletes_what_left_the_manifest() {
    let bed = Bed::start();
    let labelled = |name: &str| service(&format!("{name}\n  labels: {{app: shop}}"), WEB);
    bed.ok_with("apply -f -", &[labelled("one"), labelled("two")].join("---\n"));
    bed.service("other", WEB);
    let allow = if *MINOR >= 26 { "--prune-allowlist" } else { "--prune-whitelist" };
    let out = bed.ok_with(&format!("apply -f - --prune -l app=shop {allow}=core/v1/Service"), &labelled("one"));
    assert_eq!(out, "service/one unchanged\nservice/two pruned\n");
    assert_eq!(bed.ok("get services -o name"), "service/kubernetes\nservice/one\nservice/other\n");
}

#[test]
fn s01_a_dry_run_on_the_server_answers_and_stores_nothing() {
    let bed = Bed::start();
    let out = bed.ok_with("apply --dry-run=server -f -", &service("web", WEB));
    assert_eq!(out, "service/web created (server dry run)\n");
    assert!(bed.fails("get service web").contains(r#"services "web" not found"#));

    bed.service("web", WEB);
    let out = bed.ok_with("apply --dry-run=server -f -", &service("web", &WEB.replace("8080", "9090")));
    assert_eq!(out, "service/web configured (server dry run)\n");
    assert_eq!(bed.field("service/web", ".spec.ports[0].targetPort"), "8080");
    let wrong = bed.fails_with("apply --dry-run=server -f -", &service("web", "{ports: [{port: 80, protocol: ICMP}]}"));
    assert!(wrong.contains(r#"Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP""#), "{wrong}");
}
