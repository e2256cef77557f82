//! Volumes: files from objects, from the Pod, from the machine; and how they change.

use std::time::Duration;

use serde_json::json;
use testbed::net::eventually;

use super::machine::{Machine, PODS, container, script};
use super::oci;

#[test]
fn files_come_from_objects_and_follow_them() {
    let mut machine = Machine::new();
    let maps = "/api/v1/namespaces/default/configmaps";
    machine.post(maps, &json!({"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}}));
    machine.post(
        "/api/v1/namespaces/default/secrets",
        &json!({"metadata": {"name": "s"}, "stringData": {"pw": "hunter"}}),
    );
    let text = "cat /conf/a /conf/deep/b /sec/pw /all/labels /all/name /etc/one; echo; echo end; \
                until [ \"$(cat /conf/a)\" = 9 ]; do sleep 0.2; done; echo changed; cat /etc/one; exec sleep 1000";
    let mut c = script("c", text);
    c["volumeMounts"] = json!([
        {"name": "conf", "mountPath": "/conf"}, {"name": "sec", "mountPath": "/sec", "readOnly": true},
        {"name": "all", "mountPath": "/all"}, {"name": "conf", "mountPath": "/etc/one", "subPath": "a"},
        {"name": "memory", "mountPath": "/memory"},
    ]);
    machine.pod("p", json!({
        "containers": [c],
        "volumes": [
            {"name": "conf", "configMap": {"name": "c", "items": [{"key": "a", "path": "a"}, {"key": "b", "path": "deep/b"}]}},
            {"name": "sec", "secret": {"secretName": "s", "defaultMode": 256}},
            {"name": "all", "projected": {"sources": [
                {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ],
    }));
    machine.until_ready("p");
    eventually("it has read", || machine.log("p", "c", 0).contains("end\n"));
    assert_eq!(machine.log("p", "c", 0), "12hunterapp=\"p\"p1\nend\n");
    let _ = machine.api(|session| session.merge(&format!("{maps}/c"), &json!({"data": {"a": "9"}}))).success();
    eventually("the file has changed", || machine.log("p", "c", 0).contains("changed\n"));
    // Each change is detected at once, not by polling.
    let uid = machine.get("p")["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let file = machine.pod_folder(&uid).join("volumes/conf/a");
    for value in ["10", "11", "12"] {
        let _ = machine.api(|session| session.merge(&format!("{maps}/c"), &json!({"data": {"a": value}}))).success();
        let took =
            eventually("the file has changed", || std::fs::read_to_string(&file).is_ok_and(|text| text == value));
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
}

#[test]
fn parts_of_volumes_are_mounted_and_never_lead_out_of_them() {
    let mut machine = Machine::new();
    let mounts = |part: &str| json!([{"name": "work", "mountPath": "/whole"}, {"name": "work", "mountPath": "/part", "subPath": part}]);
    let mut first =
        script("first", "mkdir -p /whole/a; echo in > /whole/a/file; ln -s / /whole/out; ln -s a /whole/in");
    first["volumeMounts"] = json!([{"name": "work", "mountPath": "/whole"}]);
    let mut good =
        script("c", "cat /part/file; echo new > /part/more; cat /whole/a/more; ls /named; echo end; exec sleep 1000");
    good["env"] = json!([{"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    good["volumeMounts"] = mounts("a");
    good["volumeMounts"]
        .as_array_mut()
        .expect("mounts")
        .push(json!({"name": "work", "mountPath": "/named", "subPathExpr": "for-$(ME)"}));
    let volumes = json!([{"name": "work", "emptyDir": {}}]);
    machine.pod("good", json!({"initContainers": [first], "containers": [good], "volumes": volumes}));
    // A link is refused also when it stays in the volume: it could be another one when it is followed.
    for (name, part) in [("etc", "out/etc"), ("root", "out"), ("new", "out/tmp/waypost-new"), ("inner", "in")] {
        let mut bad = script("c", "exec sleep 1000");
        bad["volumeMounts"] = mounts(part);
        machine.pod(name, json!({"initContainers": [first], "containers": [bad], "volumes": volumes}));
    }
    machine.until_ready("good");
    eventually("it has read", || machine.log("good", "c", 0).ends_with("end\n"));
    assert_eq!(machine.log("good", "c", 0), "in\nnew\nend\n");
    for name in ["etc", "root", "new", "inner"] {
        let pod = machine.until(name, "refused", |pod| container(pod, "c")["state"]["waiting"]["message"].is_string());
        let waiting = &container(&pod, "c")["state"]["waiting"];
        assert_eq!(waiting["reason"], "CreateContainerConfigError", "{waiting}");
        let message = waiting["message"].as_str().expect("a message");
        assert!(message.contains("contains a symbolic link"), "{name}: {message}");
    }
    assert!(!std::path::Path::new("/tmp/waypost-new").exists(), "a directory was made on the machine");
}

#[test]
fn a_container_that_swaps_a_directory_for_a_link_never_gets_the_machine_mounted() {
    let mut machine = Machine::new();
    let folder = testbed::folder();
    std::fs::create_dir_all(folder.path().join("deep")).expect("made");
    std::fs::write(folder.path().join("deep/secret"), "treasure\n").expect("written");
    // The renames of mv are two for each turn; between them the directory is a link to the outside.
    let outside = folder.path().display();
    let swap = format!(
        "mkdir -p /whole/part/deep; ln -s {outside} /whole/link; cd /whole; echo begun; \
         while :; do mv -T part real; mv -T link part; mv -T part link; mv -T real part; done"
    );
    let mut swaps = script("swaps", &swap);
    swaps["volumeMounts"] = json!([{"name": "work", "mountPath": "/whole"}]);
    swaps["restartPolicy"] = json!("Always");
    // Each exit starts another instance, which resolves the path again.
    let mut victim = script("c", "cat /part/secret; exit 0");
    victim["volumeMounts"] = json!([{"name": "work", "mountPath": "/part", "subPath": "part/deep"}]);
    let volumes = json!([{"name": "work", "emptyDir": {}}]);
    for number in 0..4 {
        let name = format!("p{number}");
        let spec =
            json!({"restartPolicy": "Never", "initContainers": [swaps], "containers": [victim], "volumes": volumes});
        machine.pod(&name, spec);
    }
    for number in 0..4 {
        let name = format!("p{number}");
        machine.until(&name, "over or refused", |pod| {
            let state = &container(pod, "c")["state"];
            state["terminated"].is_object() || state["waiting"]["message"].is_string()
        });
        let uid = machine.get(&name)["metadata"]["uid"].as_str().expect("a uid").to_owned();
        let folder = machine.pod_folder(&uid);
        let log = std::fs::read_to_string(folder.join("containers/c/0.log")).unwrap_or_default();
        assert!(!log.contains("treasure"), "{log}");
        let _ = machine.delete(&name, "?gracePeriodSeconds=0").success();
    }
}

#[test]
fn parts_of_volumes_are_mounted_into_images_and_refused_there_too() {
    let mut machine = Machine::new();
    let folder = testbed::folder();
    oci::root(folder.path());
    oci::import(&machine, &folder.path().join("root"), "tool:v1");
    machine.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "c"}, "data": {"a": "one\n"}}));
    let mut first = script("first", "mkdir /whole/a; echo inside > /whole/a/file; ln -s /etc /whole/out");
    first["volumeMounts"] = json!([{"name": "work", "mountPath": "/whole"}]);
    let image = |name: &str, part: &str, file: &str| {
        let mounts = json!([
            {"name": "work", "mountPath": "/part", "subPath": part},
            {"name": "conf", "mountPath": "/one", "subPath": "a"},
        ]);
        json!({"name": name, "image": "tool:v1", "command": ["/bin/tool", "cat", file], "volumeMounts": mounts})
    };
    let volumes = json!([{"name": "work", "emptyDir": {}}, {"name": "conf", "configMap": {"name": "c"}}]);
    let containers = json!([image("c", "a", "/part/file"), image("d", "a", "/one"), image("e", "out", "/part/passwd")]);
    machine.pod("p", json!({"initContainers": [first], "containers": containers, "volumes": volumes}));
    for (name, said) in [("c", "inside\nthat is all\n"), ("d", "one\nthat is all\n")] {
        machine.until("p", "running", |pod| container(pod, name)["state"]["running"].is_object());
        eventually("it has read", || machine.log("p", name, 0) == said);
    }
    let pod = machine.until("p", "refused", |pod| container(pod, "e")["state"]["waiting"]["message"].is_string());
    let message = container(&pod, "e")["state"]["waiting"]["message"].as_str().expect("a message");
    assert!(message.contains("contains a symbolic link"), "{message}");
}

#[test]
fn a_container_that_writes_into_files_of_objects_has_nothing_deleted_on_the_machine() {
    let mut machine = Machine::new();
    let maps = "/api/v1/namespaces/default/configmaps";
    machine.post(maps, &json!({"metadata": {"name": "c"}, "data": {"a": "1"}}));
    let folder = testbed::folder();
    std::fs::write(folder.path().join("precious"), "x").expect("written");
    let trap = format!("rm -f /conf/..data; ln -s {} /conf/..data; echo set", folder.path().display());
    let mut c = script(
        "c",
        &format!("{trap}; until [ \"$(cat /conf/a)\" = 2 ]; do sleep 0.1; done; echo changed; exec sleep 1000"),
    );
    c["volumeMounts"] = json!([{"name": "conf", "mountPath": "/conf"}]);
    machine.pod("p", json!({"containers": [c], "volumes": [{"name": "conf", "configMap": {"name": "c"}}]}));
    eventually("it has tried", || {
        machine.get("p")["status"]["phase"] == "Running" && machine.log("p", "c", 0).contains("set\n")
    });
    let _ = machine.api(|session| session.merge(&format!("{maps}/c"), &json!({"data": {"a": "2"}}))).success();
    eventually("the file has changed", || machine.log("p", "c", 0).contains("changed\n"));
    assert!(folder.path().join("precious").exists(), "a directory of the machine was deleted");
}

#[test]
fn a_container_learns_of_its_pod_by_files_and_variables() {
    let mut machine = Machine::new();
    let text = "cat /pod/labels; echo; cat /pod/note; echo; cat /pod/memory; echo; echo $MEMORY $CPU $NODE $HOST $UID_OF; echo end; \
                until [ \"$(cat /pod/note)\" = changed ]; do sleep 0.1; done; echo heard; exec sleep 1000";
    let mut c = script("c", text);
    c["resources"] = json!({"limits": {"memory": "64Mi", "cpu": "1500m"}});
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let resource = |name: &str, of: &str| json!({"name": name, "valueFrom": {"resourceFieldRef": {"resource": of}}});
    c["env"] = json!([
        resource("MEMORY", "limits.memory"),
        resource("CPU", "limits.cpu"),
        field("NODE", "spec.nodeName"),
        field("HOST", "status.hostIP"),
        field("UID_OF", "metadata.uid"),
    ]);
    c["volumeMounts"] = json!([{"name": "pod", "mountPath": "/pod"}]);
    let items = json!([
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "note", "fieldRef": {"fieldPath": "metadata.annotations['note']"}},
        {"path": "memory", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}},
    ]);
    machine.pod("p", json!({"containers": [c], "volumes": [{"name": "pod", "downwardAPI": {"items": items}}]}));
    let pod = machine.until_ready("p");
    eventually("it has read", || machine.log("p", "c", 0).contains("end\n"));
    let (host, uid) = (pod["status"]["hostIP"].as_str().expect("one"), pod["metadata"]["uid"].as_str().expect("one"));
    assert_eq!(machine.log("p", "c", 0), format!("app=\"p\"\n\n64\n67108864 2 n1 {host} {uid}\nend\n"));
    let note = json!({"metadata": {"annotations": {"note": "changed"}}});
    let _ = machine.api(|session| session.merge(&format!("{PODS}/p"), &note)).success();
    eventually("it hears of changes", || machine.log("p", "c", 0).contains("heard\n"));
}
