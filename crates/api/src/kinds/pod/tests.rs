//! Rules of Pod, with the recorded answers and without.

use serde_json::{Value, json};

use super::*;
use crate::kinds::testing::{golden, summary, table_golden};

#[test]
fn golden_answers() {
    for topic in ["pod-node", "delete", "list"] {
        golden(topic, &KIND);
    }
    table_golden("table.pods-init", &KIND);
}

fn pod(spec: &Value) -> Value {
    let mut pod =
        json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1"}, "spec": spec});
    if !pod.has("spec.containers") {
        pod.put("spec.containers", json!([{"name": "c", "image": "i"}]));
    }
    PodRules.default(&mut pod);
    PodRules.prepare_create(&mut pod);
    pod
}

fn on_create(spec: &Value) -> String {
    summary(|errors| PodRules.validate_create(&pod(spec), errors))
}

fn on_update(new: &Value, old: &Value) -> String {
    summary(|errors| PodRules.validate_update(new, old, errors))
}

#[test]
fn names_are_unique() {
    assert_eq!(
        on_create(&json!({
            "containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}],
            "initContainers": [{"name": "a", "image": "i", "livenessProbe": {}}],
        })),
        "[spec.containers[1].name: Duplicate value: \"a\", spec.initContainers[0].name: Duplicate value: \"a\", \
         spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without \
         restartPolicy=Always]"
    );
    assert_eq!(on_create(&json!({"containers": []})), "spec.containers: Required value");
}

#[test]
fn ports_are_unique() {
    let ports = json!([
        {"name": "a", "containerPort": 80, "hostPort": 80}, {"name": "a", "containerPort": 81, "hostPort": 80},
        {"containerPort": 82, "protocol": "X"},
    ]);
    assert_eq!(
        on_create(&json!({"containers": [{"name": "c", "image": "i", "ports": ports}]})),
        "[spec.containers[0].ports[1].name: Duplicate value: \"a\", spec.containers[0].ports[2].protocol: Unsupported \
         value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\", spec.containers[0].ports[1].hostPort: Duplicate \
         value: \"TCP//80\"]"
    );
    let ports = json!([{"containerPort": 80, "hostPort": 81}]);
    assert_eq!(
        on_create(&json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i", "ports": ports}]})),
        "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true"
    );
}

#[test]
fn the_environment_is_checked() {
    let env = json!([
        {"name": ""}, {"name": "a=b"}, {"name": "c", "valueFrom": {}},
        {"name": "d", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "e", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['Bad Key']"}}},
        {"name": "f", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}},
        {"name": "g", "valueFrom": {"secretKeyRef": {"name": "s"}}},
    ]);
    let text = on_create(&json!({"containers": [{"name": "c", "image": "i", "env": env}]}));
    for part in [
        "env[0].name: Required value",
        "env[1].name: Invalid value: \"a=b\": a valid environment variable name",
        "env[2].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`",
        "env[3].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
        "env[4].valueFrom.fieldRef: Invalid value: \"Bad Key\"",
        "env[5].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\": error converting fieldPath",
        "env[6].valueFrom.secretKeyRef.key: Required value",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn mounts_refer_to_volumes() {
    let mounts = json!([
        {"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "/a", "subPath": "../x"},
    ]);
    let volumes = json!([{"name": "v"}, {"name": "v"}, {"name": "x", "secret": {}, "emptyDir": {}}]);
    assert_eq!(
        on_create(&json!({"containers": [{"name": "c", "image": "i", "volumeMounts": mounts}], "volumes": volumes})),
        "[spec.volumes[1].name: Duplicate value: \"v\", spec.volumes[2].secret: Forbidden: may not specify more than 1 \
         volume type, spec.volumes[2].secret.secretName: Required value, spec.containers[0].volumeMounts[1].name: Not \
         found: \"w\", spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/a\": must be unique, \
         spec.containers[0].volumeMounts.subPath: Invalid value: \"../x\": must not contain '..']"
    );
}

#[test]
fn projected_files_stay_in_their_volume() {
    let check = |sources: Value| on_create(&json!({"volumes": [{"name": "v", "projected": {"sources": sources}}]}));
    let token =
        |seconds: i64, path: &str| json!([{"serviceAccountToken": {"expirationSeconds": seconds, "path": path}}]);
    assert_eq!(check(token(600, "a/b")), "[]");
    let path = "spec.volumes[0].projected";
    let seconds = format!("{path}.sources[0].serviceAccountToken.expirationSeconds: Invalid value");
    assert_eq!(check(token(599, "t")), format!("{seconds}: 599: may not specify a duration less than 10 minutes"));
    let more = (1_i64 << 32) + 1;
    assert_eq!(
        check(token(more, "t")),
        format!("{seconds}: {more}: may not specify a duration larger than 2^32 seconds")
    );
    assert_eq!(check(token(600, "")), format!("{path}.path: Required value"));
    assert_eq!(check(token(600, "/t")), format!("{path}.path: Invalid value: \"/t\": must be a relative path"));
    assert_eq!(check(token(600, "..t")), format!("{path}.path: Invalid value: \"..t\": must not start with '..'"));
    let twice = json!([{"secret": {"name": "s", "items": [{"key": "a", "path": "f"}, {"key": "b", "path": "f"}]}}]);
    assert_eq!(check(twice), format!("{path}: Invalid value: \"s\": conflicting duplicate paths"));
    let two = json!([{"secret": {"name": "s"}, "configMap": {"name": "c"}}]);
    assert_eq!(check(two), format!("{path}.sources[0]: Forbidden: may not specify more than 1 volume type per source"));
}

#[test]
fn probes_use_one_means() {
    let container = json!({
        "name": "c", "image": "i",
        "livenessProbe": {"exec": {}, "tcpSocket": {"port": 1}, "successThreshold": 2},
        "readinessProbe": {"httpGet": {"port": "Bad_", "scheme": "ftp"}, "terminationGracePeriodSeconds": 1},
        "startupProbe": {"periodSeconds": -1},
        "lifecycle": {"preStop": {"sleep": {"seconds": 31}}},
    });
    let text = on_create(&json!({"containers": [container]}));
    for part in [
        "preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
        "livenessProbe.exec.command: Required value",
        "livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
        "livenessProbe.successThreshold: Invalid value: 2: must be 1",
        "readinessProbe.httpGet.port: Invalid value: \"Bad_\"",
        "readinessProbe.httpGet.scheme: Unsupported value: \"ftp\": supported values: \"HTTP\", \"HTTPS\"",
        "readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for readinessProbes",
        "startupProbe: Required value: must specify a handler type",
        "startupProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn dns_and_hosts() {
    assert_eq!(
        on_create(&json!({"dnsPolicy": "None"})),
        "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"
    );
    let config = json!({"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3", "x"], "searches": ["a_b.c.", "-"]});
    let text = on_create(&json!({"dnsConfig": config, "hostAliases": [{"ip": "x", "hostnames": ["B_"]}]}));
    assert!(text.contains("must not have more than 3 nameservers"), "{text}");
    assert!(text.contains("spec.dnsConfig.nameservers[3]: Invalid value: \"x\""), "{text}");
    assert!(text.contains("spec.dnsConfig.searches[1]"), "{text}");
    assert!(!text.contains("searches[0]"), "{text}");
    assert!(text.contains("spec.hostAliases[0].ip") && text.contains("spec.hostAliases[0].hostnames[0]"), "{text}");
    let text =
        on_create(&json!({"hostname": "A", "subdomain": "b.c", "hostnameOverride": "x", "setHostnameAsFQDN": true}));
    for part in ["spec.hostname: Invalid", "spec.subdomain: Invalid", "spec.hostnameOverride: Forbidden"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn words_are_known() {
    assert_eq!(
        on_create(&json!({"restartPolicy": "Maybe", "dnsPolicy": "X"})),
        "[spec.restartPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \"OnFailure\", \"Never\", \
         spec.dnsPolicy: Unsupported value: \"X\": supported values: \"ClusterFirstWithHostNet\", \"ClusterFirst\", \
         \"Default\", \"None\"]"
    );
    assert_eq!(
        on_create(&json!({"tolerations": [{"operator": "Equal"}, {"key": "a", "operator": "Near"}]})),
        "[spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which \
         means \"match all values and all keys\", spec.tolerations[1].operator: Unsupported value: \"Near\": supported \
         values: \"Equal\", \"Exists\"]"
    );
}

#[test]
fn tolerations_are_added_where_missing() {
    let all = pod(&json!({"tolerations": [{"operator": "Exists"}]}));
    assert_eq!(all.items("spec.tolerations").len(), 1);
    let one = pod(&json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}));
    assert_eq!(one.items("spec.tolerations").len(), 2);
}

#[test]
fn images_may_change_and_little_else() {
    let old = pod(&json!({"activeDeadlineSeconds": 10}));
    let mut new = old.clone();
    new.items_mut("spec.containers")[0].put("image", "j");
    new.put("spec.activeDeadlineSeconds", 5);
    assert_eq!(on_update(&new, &old), "[]");
    assert!(PodRules.new_generation(&new, &old));

    new.put("spec.activeDeadlineSeconds", 11);
    assert!(on_update(&new, &old).contains("must be less than or equal to previous value"));
    new.drop_path("spec.activeDeadlineSeconds");
    assert!(on_update(&new, &old).contains("must not update from a positive integer to nil value"));

    let mut new = old.clone();
    new.put("spec.containers", json!([]));
    assert!(on_update(&new, &old).contains("pod updates may not add or remove containers"));

    let mut new = old.clone();
    new.put("spec.hostname", "h");
    let text = on_update(&new, &old);
    assert!(text.starts_with("spec: Forbidden: pod updates may not change fields other than"), "{text}");
    assert!(text.ends_with("changed: hostname"), "{text}");

    let mut new = old.clone();
    new.put("spec.tolerations", json!([]));
    assert!(on_update(&new, &old).contains("existing toleration can not be modified"));
}

#[test]
fn gates_are_only_removed() {
    let old = pod(&json!({"schedulingGates": [{"name": "a"}]}));
    assert_eq!(old.items("status.conditions")[0].text("reason"), "SchedulingGated");
    let mut new = old.clone();
    new.put("spec.schedulingGates", json!([{"name": "b"}]));
    new.put("spec.nodeSelector", json!({"x": "y"}));
    assert_eq!(
        on_update(&new, &old),
        "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'b'"
    );
}

#[test]
fn the_status_is_checked() {
    let old = pod(&json!({}));
    let check = |status: Value| {
        let mut new = old.clone();
        new.put("status", status);
        PodRules.default(&mut new);
        PodRules.prepare_status(&mut new, &old);
        summary(|errors| PodRules.validate_status(&new, &old, errors))
    };
    assert_eq!(check(json!({"phase": "Running", "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}]})), "[]");
    assert_eq!(
        check(json!({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]})),
        "status.hostIPs[0].ip: Invalid value: \"10.0.0.2\": must be equal to `hostIP`"
    );
    assert!(check(json!({"podIP": "x"})).starts_with("status.podIPs[0]: Invalid value: \"x\""));
    assert_eq!(
        check(json!({"qosClass": "Guaranteed"})),
        "status.qosClass: Invalid value: \"Guaranteed\": field is immutable"
    );
    assert!(check(json!({"conditions": [{"type": "not ok"}]})).contains("status.conditions[0].Type"));
}

#[test]
fn ended_containers_stay_ended() {
    let mut old = pod(&json!({"restartPolicy": "Never"}));
    old.put("status.containerStatuses", json!([{"name": "c", "state": {"terminated": {"exitCode": 0}}}]));
    let mut new = old.clone();
    new.put("status.containerStatuses", json!([{"name": "c", "state": {"running": {}}}]));
    assert_eq!(
        summary(|errors| PodRules.validate_status(&new, &old, errors)),
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    );
}

#[test]
fn doubtful_pods_warn() {
    let mut object = pod(&json!({
        "containers": [
            {"name": "a", "image": "i", "ports": [{"name": "x", "containerPort": 80}, {"containerPort": 80}],
             "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "A", "value": "3 $(A)"}]},
            {"name": "b", "image": "i", "ports": [{"name": "x", "containerPort": 80, "hostPort": 80}]},
        ],
        "imagePullSecrets": [{"name": ""}, {"name": ""}],
    }));
    object.put("metadata.name", "a.b");
    let mut out = Vec::new();
    PodRules.warnings(&object, None, &mut out);
    let text = out.join("\n");
    for part in [
        "metadata.name: this is used in the Pod's hostname",
        "spec.imagePullSecrets[1].name: duplicate name \"\"",
        "spec.imagePullSecrets[0].name: invalid empty name \"\"",
        "spec.containers[0].env[1]: hides previous definition of \"A\"",
        "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
        "spec.containers[1].ports[0]: overlapping port definition with spec.containers[0].ports[0]",
        "spec.containers[1].ports[0]: duplicate port name \"x\" with spec.containers[0].ports[0], services",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("env[2]"), "{text}");
    out.clear();
    PodRules.warnings(&object, Some(&object), &mut out);
    assert!(out.is_empty());
}

#[test]
fn a_pod_without_a_node_ends_at_once() {
    let mut object = pod(&json!({}));
    assert_eq!(grace_period(&object, Some(7)), 0);
    object.put("spec.nodeName", "n");
    assert_eq!(grace_period(&object, None), 30);
    assert_eq!(grace_period(&object, Some(-3)), 1);
    object.put("status.phase", "Failed");
    assert_eq!(grace_period(&object, None), 0);
}
