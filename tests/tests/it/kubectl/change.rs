//! Changing what is there: patch in three kinds, label, annotate, set, edit, replace.

use serde_json::{Value, json};
use testbed::run;

use super::{Bed, MINOR, service};

const WEB: &str = "{selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}";

/// Merges this into the status of an object. A kubectl without `--subresource` replaces the status instead.
#[track_caller]
pub(super) fn patch_status(bed: &Bed, path: &str, patch: &str) {
    let mut object: Value = serde_json::from_str(&bed.ok(&format!("get --raw {path}"))).expect("JSON");
    if *MINOR >= 24 {
        let (kind, name) =
            (object["kind"].as_str().expect("a kind"), object["metadata"]["name"].as_str().expect("a name"));
        bed.ok(&format!("patch {kind} {name} --subresource=status --type=merge -p '{patch}'"));
        return;
    }
    let patch: Value = serde_json::from_str(patch).expect("JSON");
    for (key, value) in patch["status"].as_object().expect("a status") {
        object["status"][key] = value.clone();
    }
    bed.ok_with(&format!("replace --raw {path}/status -f -"), &object.to_string());
}

#[test]
fn s01_a_strategic_patch_merges_ports_by_number() {
    let bed = Bed::start();
    bed.service("web", WEB);
    let patch = r#"{"spec":{"ports":[{"port":443,"name":"tls"},{"port":80,"targetPort":9090}]}}"#;
    assert_eq!(bed.ok(&format!("patch service web -p '{patch}'")), "service/web patched\n");
    let ports = bed.json("service web")["spec"]["ports"].clone();
    let wanted = json!([{"name": "tls", "port": 443, "targetPort": 443, "protocol": "TCP"},
                        {"name": "http", "port": 80, "targetPort": 9090, "protocol": "TCP"}]);
    assert_eq!(ports, wanted);
    assert_eq!(bed.ok(&format!("patch service web -p '{patch}'")), "service/web patched (no change)\n");

    bed.ok(r#"patch service web -p '{"spec":{"ports":[{"$patch":"delete","port":443}]}}'"#);
    assert_eq!(bed.field("service/web", ".spec.ports[*].port"), "80");
    bed.ok(r#"patch service web -p '{"spec":{"selector":{"$patch":"replace","only":"this"}}}'"#);
    assert_eq!(bed.json("service web")["spec"]["selector"], json!({"only": "this"}));
}

#[test]
fn s01_a_merge_patch_replaces_lists_and_null_removes() {
    let bed = Bed::start();
    bed.service("web", WEB);
    bed.ok(r#"patch service web --type=merge -p '{"spec":{"selector":{"app":null,"x":"y"},"ports":[{"port":81}]}}'"#);
    let spec = bed.json("service web")["spec"].clone();
    assert_eq!(spec["selector"], json!({"x": "y"}));
    assert_eq!(spec["ports"], json!([{"port": 81, "targetPort": 81, "protocol": "TCP"}]));
}

#[test]
fn s01_a_json_patch_changes_one_place_or_nothing() {
    let bed = Bed::start();
    bed.service("web", WEB);
    let port = r#"{"op":"replace","path":"/spec/ports/0/targetPort","value":9090}"#;
    let test = r#"{"op":"test","path":"/spec/ports/0/port","value":81}"#;
    let refused = bed.fails(&format!("patch service web --type=json -p '[{port},{test}]'"));
    assert!(refused.contains("The request is invalid"), "{refused}");
    assert_eq!(bed.field("service/web", ".spec.ports[0].targetPort"), "8080");
    bed.ok(&format!("patch service web --type=json -p '[{port}]'"));
    assert_eq!(bed.field("service/web", ".spec.ports[0].targetPort"), "9090");
    bed.ok(r#"patch service web --type=json -p '[{"op":"add","path":"/metadata/labels","value":{"a/b":"c"}}]'"#);
    bed.ok(r#"patch service web --type=json -p '[{"op":"remove","path":"/metadata/labels/a~1b"}]'"#);
    assert_eq!(bed.json("service web")["metadata"].get("labels"), None);
}

#[test]
fn s01_a_patch_may_not_break_the_service() {
    let bed = Bed::start();
    bed.service("web", WEB);
    let before = bed.json("service web");
    for patch in [
        r#"{"spec":{"ports":[{"port":80,"targetPort":"Not A Port"}]}}"#,
        r#"{"spec":{"clusterIP":"10.96.0.77"}}"#,
        r#"{"spec":{"sessionAffinity":"Sometimes"}}"#,
        r#"{"metadata":{"name":"another"}}"#,
        r#"{"metadata":{"resourceVersion":"1"}}"#,
    ] {
        let refused = bed.fails(&format!("patch service web -p '{patch}'"));
        assert!(!refused.is_empty(), "{patch}");
        assert_eq!(bed.json("service web"), before, "{patch}");
    }
    let missing = bed.fails(r#"patch service nothing -p '{"spec":{}}'"#);
    assert_eq!(missing, "Error from server (NotFound): services \"nothing\" not found\n");
}

#[test]
fn s01_labels_and_annotations_are_set_kept_and_removed() {
    let bed = Bed::start();
    bed.service("web", WEB);
    assert_eq!(bed.ok("label service web team=blue"), "service/web labeled\n");
    assert!(bed.fails("label service web team=red").contains("'team' already has a value (blue)"));
    bed.ok("label service web team=red --overwrite");
    assert_eq!(bed.field("service/web", ".metadata.labels.team"), "red");
    bed.ok("label services --all shared=yes");
    assert_eq!(bed.ok("get services -l shared -o name"), "service/kubernetes\nservice/web\n");
    bed.ok("label service web team- shared-");
    assert_eq!(bed.json("service web")["metadata"].get("labels"), None);

    assert_eq!(bed.ok("annotate service web 'note=two words'"), "service/web annotated\n");
    assert_eq!(bed.field("service/web", ".metadata.annotations.note"), "two words");
    bed.ok("annotate service web note-");
    assert_eq!(bed.field("service/web", ".metadata.annotations.note"), "");
}

#[test]
fn s01_set_selector_points_a_service_elsewhere() {
    let bed = Bed::start();
    bed.service("web", WEB);
    assert_eq!(bed.ok("set selector service web app=api,tier=back"), "service/web selector updated\n");
    assert_eq!(bed.json("service web")["spec"]["selector"], json!({"app": "api", "tier": "back"}));
}

/// Edits the Service as a user would, with sed(1) as the editor.
fn edit(bed: &Bed, script: &str) -> testbed::Run {
    let mut command = bed.command("edit service web");
    // What kubectl keeps of a rejected edit is removed with the server's directory.
    command.env("KUBE_EDITOR", format!("sed -i {script}")).env("TMPDIR", bed.server.home());
    run(&mut command, "")
}

#[test]
fn s01_edit_saves_what_the_editor_left() {
    let bed = Bed::start();
    bed.service("web", WEB);
    assert_eq!(edit(&bed, "s/targetPort:.8080/targetPort:\\ 9090/").success(), "service/web edited\n");
    assert_eq!(bed.field("service/web", ".spec.ports[0].targetPort"), "9090");
    let same = edit(&bed, "s/nothing/nothing/");
    assert!(same.ok && same.err.contains("Edit cancelled, no changes made"), "{same:?}");
    let refused = edit(&bed, "s/port:.80$/port:\\ 0/").failure();
    assert!(refused.contains("invalid"), "{refused}");
    assert_eq!(bed.field("service/web", ".spec.ports[0].port"), "80");
}

#[test]
fn s01_replace_puts_the_whole_object_and_notices_a_newer_one() {
    let bed = Bed::start();
    bed.ok_with("create -f -", &service("web", WEB));
    let first = bed.json("service web");
    let changed = first.to_string().replace("8080", "9090");
    assert_eq!(bed.ok_with("replace -f -", &changed), "service/web replaced\n");
    assert_eq!(bed.field("service/web", ".spec.ports[0].targetPort"), "9090");
    let stale = bed.fails_with("replace -f -", &first.to_string());
    let wanted = "Operation cannot be fulfilled on services \"web\": the object has been modified; please apply your \
                  changes to the latest version and try again";
    assert!(stale.contains("(Conflict)") && stale.contains(wanted), "{stale}");

    // Without a revision it is unconditional, and what the server chose stays.
    bed.ok_with("replace -f -", &service("web", "{ports: [{port: 81}]}"));
    let after = bed.json("service web");
    assert_eq!(after["spec"]["ports"][0]["port"], 81);
    assert_eq!(after["spec"]["clusterIP"], first["spec"]["clusterIP"]);
    assert_eq!(after["spec"].get("selector"), None);
    // A Service that is put where none is comes into being; most kinds do not.
    assert_eq!(bed.ok_with("replace -f -", &service("new", WEB)), "service/new replaced\n");
    let settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n";
    let missing = bed.fails_with("replace -f -", settings);
    assert!(missing.contains(r#"configmaps "settings" not found"#), "{missing}");
}

#[test]
fn s31_replace_with_force_makes_a_new_object_that_may_take_the_old_address() {
    let bed = Bed::start();
    bed.service("web", WEB);
    let old = bed.json("service web");
    let address = old["spec"]["clusterIP"].as_str().expect("an address");
    let spec = WEB.replace("{selector", &format!("{{clusterIP: {address}, selector"));
    let out = bed.ok_with("replace --force -f -", &service("web", &spec));
    assert!(out.starts_with("service \"web\" deleted") && out.ends_with("service/web replaced\n"), "{out}");
    let new = bed.json("service web");
    assert_eq!(new["spec"]["clusterIP"], old["spec"]["clusterIP"]);
    assert_ne!(new["metadata"]["uid"], old["metadata"]["uid"]);
}

#[test]
fn s01_a_status_written_through_its_subresource_shows_in_the_table() {
    let bed = Bed::start();
    bed.service("web", "{type: LoadBalancer, ports: [{port: 80}]}");
    let status = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}"#;
    patch_status(&bed, "/api/v1/namespaces/default/services/web", status);
    let out = bed.ok("get service web --no-headers");
    assert_eq!(super::cells(&out)[0][3], "192.0.2.1");
    assert_eq!(bed.field("service/web", ".status.loadBalancer.ingress[0].ipMode"), "VIP");
    // Through the object itself it cannot be written.
    bed.ok(r#"patch service web --type=merge -p '{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.9"}]}}}'"#);
    assert_eq!(bed.field("service/web", ".status.loadBalancer.ingress[*].ip"), "192.0.2.1");
}
