//! Volumes: files from objects, from the Pod, from the machine; and how they change.

use std::time::Duration;

use serde_json::json;
use testbed::net::eventually;

use super::machine::{Machine, PODS, container, script};

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
    // Each change is heard of at once, not when it is looked for.
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
    let mut first = script("first", "mkdir -p /whole/a; echo in > /whole/a/file; ln -s / /whole/out");
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
    let mut bad = script("c", "exec sleep 1000");
    bad["volumeMounts"] = mounts("out/etc");
    machine.pod("bad", json!({"initContainers": [first], "containers": [bad], "volumes": volumes}));
    machine.until_ready("good");
    eventually("it has read", || machine.log("good", "c", 0).ends_with("end\n"));
    assert_eq!(machine.log("good", "c", 0), "in\nnew\nend\n");
    let refused = |pod: &serde_json::Value| {
        container(pod, "c")["state"]["waiting"]["message"]
            .as_str()
            .is_some_and(|why| why.contains("leads out of the volume"))
    };
    machine.until("bad", "refused", refused);
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
