//! Kinds that are stored only: kubectl applies, shows, explains and deletes them, and prints that nothing acts on them.

use serde_json::{Value, json};
use testbed::Server;

/// A kind, an object of it, and what is used of it.
struct Case {
    /// `cronjobs.batch`, as kubectl names it.
    resource: &'static str,
    /// Its version and kind, as the warning names it.
    kind: &'static str,
    name: &'static str,
    /// The object without type and metadata.
    content: Value,
    /// A field that `kubectl explain` lists.
    field: &'static str,
    /// A merge patch that is refused, and a part of the message.
    invalid: (Value, &'static str),
}

fn pod() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}})
}

fn namespaced() -> Vec<Case> {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let scaler = || json!({"spec": {"scaleTargetRef": target, "maxReplicas": 3}});
    vec![
        Case {
            resource: "cronjobs.batch",
            kind: "batch/v1 CronJob",
            name: "web",
            content: json!({"spec": {"schedule": "0 4 * * *", "jobTemplate": {"spec": {"template": pod()}}}}),
            field: "spec.jobTemplate.spec.backoffLimit",
            invalid: (json!({"spec": {"schedule": "0 4 * *"}}), "expected exactly 5 fields, found 4"),
        },
        Case {
            resource: "horizontalpodautoscalers.v2.autoscaling",
            kind: "autoscaling/v2 HorizontalPodAutoscaler",
            name: "second",
            content: scaler(),
            field: "spec.behavior.scaleDown.policies",
            invalid: (json!({"spec": {"minReplicas": 4}}), "must be greater than or equal to `minReplicas`"),
        },
        Case {
            resource: "horizontalpodautoscalers.v1.autoscaling",
            kind: "autoscaling/v1 HorizontalPodAutoscaler",
            name: "first",
            content: scaler(),
            field: "spec.maxReplicas",
            invalid: (json!({"spec": {"maxReplicas": 0}}), "must be set and greater than 0"),
        },
        Case {
            resource: "persistentvolumeclaims",
            kind: "v1 PersistentVolumeClaim",
            name: "web",
            content: json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
            field: "spec.storageClassName",
            invalid: (json!({"spec": {"accessModes": ["ReadWriteMany"]}}), "spec is immutable after creation"),
        },
        Case {
            resource: "podtemplates",
            kind: "v1 PodTemplate",
            name: "web",
            content: json!({"template": pod()}),
            field: "template.spec.containers",
            invalid: (json!({"template": {"spec": {"containers": []}}}), "template.spec.containers: Required value"),
        },
        Case {
            resource: "networkpolicies.networking.k8s.io",
            kind: "networking.k8s.io/v1 NetworkPolicy",
            name: "web",
            content: json!({"spec": {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"ports": [{"port": 80, "protocol": "TCP"}]}]}}),
            field: "spec.ingress.from.ipBlock.cidr",
            invalid: (json!({"spec": {"policyTypes": ["Sideways"]}}), "Unsupported value: \"Sideways\""),
        },
        Case {
            resource: "csistoragecapacities.storage.k8s.io",
            kind: "storage.k8s.io/v1 CSIStorageCapacity",
            name: "web",
            content: json!({"storageClassName": "disk", "capacity": "1Gi"}),
            field: "maximumVolumeSize",
            invalid: (json!({"storageClassName": "other"}), "field is immutable"),
        },
    ]
}

fn cluster_wide() -> Vec<Case> {
    let limited = json!({"limitResponse": {"type": "Queue", "queuing": {}}});
    let service = json!({"namespace": "kube-system", "name": "metrics-server"});
    vec![
        Case {
            resource: "persistentvolumes",
            kind: "v1 PersistentVolume",
            name: "disk",
            content: json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}}),
            field: "spec.csi.driver",
            invalid: (json!({"spec": {"hostPath": {"path": "/y"}}}), "is immutable after creation"),
        },
        Case {
            resource: "storageclasses.storage.k8s.io",
            kind: "storage.k8s.io/v1 StorageClass",
            name: "disk",
            content: json!({"provisioner": "example.com/disk"}),
            field: "allowedTopologies.matchLabelExpressions",
            invalid: (json!({"provisioner": "example.com/other"}), "field is immutable"),
        },
        Case {
            resource: "csidrivers.storage.k8s.io",
            kind: "storage.k8s.io/v1 CSIDriver",
            name: "disk.example.com",
            content: json!({"spec": {"podInfoOnMount": true}}),
            field: "spec.tokenRequests.audience",
            invalid: (json!({"spec": {"fsGroupPolicy": "Some"}}), "Unsupported value: \"Some\""),
        },
        Case {
            resource: "csinodes.storage.k8s.io",
            kind: "storage.k8s.io/v1 CSINode",
            name: "n1",
            content: json!({"spec": {"drivers": [{"name": "disk.example.com", "nodeID": "n1", "topologyKeys": ["topology.example.com/zone"]}]}}),
            field: "spec.drivers.nodeID",
            invalid: (
                json!({"spec": {"drivers": [{"name": "disk.example.com"}]}}),
                "spec.drivers[0].nodeID: Required value",
            ),
        },
        Case {
            resource: "volumeattachments.storage.k8s.io",
            kind: "storage.k8s.io/v1 VolumeAttachment",
            name: "disk",
            content: json!({"spec": {"attacher": "disk.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "disk"}}}),
            field: "status.attachError.message",
            invalid: (json!({"spec": {"nodeName": "n2"}}), "field is immutable"),
        },
        Case {
            resource: "runtimeclasses.node.k8s.io",
            kind: "node.k8s.io/v1 RuntimeClass",
            name: "kata",
            content: json!({"handler": "kata"}),
            field: "overhead.podFixed",
            invalid: (json!({"handler": "other"}), "field is immutable"),
        },
        Case {
            resource: "flowschemas.flowcontrol.apiserver.k8s.io",
            kind: "flowcontrol.apiserver.k8s.io/v1 FlowSchema",
            name: "web",
            content: json!({"spec": {"priorityLevelConfiguration": {"name": "web"}}}),
            field: "spec.rules.subjects.kind",
            invalid: (json!({"spec": {"matchingPrecedence": 10001}}), "must not be greater than 10000"),
        },
        Case {
            resource: "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
            kind: "flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration",
            name: "web",
            content: json!({"spec": {"type": "Limited", "limited": limited}}),
            field: "spec.limited.limitResponse.queuing.queues",
            invalid: (json!({"spec": {"type": "Other"}}), "Unsupported value: \"Other\""),
        },
        Case {
            resource: "apiservices.apiregistration.k8s.io",
            kind: "apiregistration.k8s.io/v1 APIService",
            name: "v1beta1.metrics.k8s.io",
            content: json!({"spec": {
                "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": service, "insecureSkipTLSVerify": true,
            }}),
            field: "spec.caBundle",
            invalid: (json!({"spec": {"versionPriority": 0}}), "must be positive and less than 1000"),
        },
    ]
}

impl Case {
    fn manifest(&self, namespace: &str) -> Value {
        let (version, kind) = self.kind.split_once(' ').expect("a version and a kind");
        let mut object = self.content.clone();
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        object["metadata"] = json!({"name": self.name});
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        object
    }

    fn warning(&self) -> String {
        format!("Warning: {} is stored only: no controller acts on it\n", self.kind)
    }

    /// Creates, changes and deletes an object with kubectl.
    fn check(&self, server: &Server, namespace: &str) {
        let (resource, name) = (self.resource, self.name);
        let apply = |object: &Value, more: &[&str]| {
            server.kubectl_with(&[&["apply", "-f", "-"][..], more].concat(), &object.to_string())
        };
        let mut object = self.manifest(namespace);
        let created = apply(&object, &[]);
        assert!(created.ok && created.err.contains(&self.warning()), "{resource}: {created:?}");
        assert!(created.out.trim_end().ends_with(" created"), "{resource}: {created:?}");
        assert!(apply(&object, &[]).success().trim_end().ends_with(" unchanged"), "{resource}");
        // A change by strategic merge patch, as kubectl sends it for kinds that it knows, and one by server-side apply.
        object["metadata"]["labels"] = json!({"app": "web"});
        let changed = apply(&object, &[]);
        assert!(changed.ok && changed.err.contains(&self.warning()), "{resource}: {changed:?}");
        assert!(changed.out.trim_end().ends_with(" configured"), "{resource}: {changed:?}");
        let _ = apply(&object, &["--server-side", "--force-conflicts"]).success();
        let place = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
        assert!(server.kubectl(&format!("get {resource} -l app=web{place}")).success().contains(name), "{resource}");
        let (patch, expected) = &self.invalid;
        let patch = patch.to_string();
        let mut line = vec!["patch", resource, name, "--type=merge", "-p", patch.as_str()];
        line.extend(place.split_whitespace());
        let refused = server.kubectl_with(&line, "").failure();
        assert!(refused.contains(expected), "{resource}: {refused}");
        self.explain(server);
    }

    fn explain(&self, server: &Server) {
        let (version, kind) = self.kind.split_once(' ').expect("a version and a kind");
        let plural = self.resource.split('.').next().expect("a plural");
        let text = server.kubectl(&format!("explain {plural}.{} --api-version={version}", self.field)).success();
        assert!(text.contains(&format!("KIND:       {kind}\n")), "{text}");
        assert!(!text.contains("<empty>"), "{text}");
    }
}

#[test]
fn stored_kinds_of_the_cluster_are_applied_shown_explained_and_deleted() {
    let server = Server::start();
    for case in cluster_wide() {
        case.check(&server, "");
        let _ = server.kubectl(&format!("delete {} {}", case.resource, case.name)).success();
        assert_eq!(server.kubectl(&format!("get {} -o name", case.resource)).success(), "", "{}", case.resource);
    }
}

#[test]
fn stored_kinds_of_a_namespace_go_with_it() {
    let server = Server::start();
    let _ = server.kubectl("create namespace team").success();
    let cases = namespaced();
    for case in &cases {
        case.check(&server, "team");
    }
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "team"},
        "spec": {"hard": {"count/cronjobs.batch": "1", "persistentvolumeclaims": "1"}},
    });
    let _ = server.kubectl_with(&["apply", "-f", "-"], &quota.to_string()).success();
    let _ = server.kubectl("wait quota/few -n team --for=jsonpath={.status.used.persistentvolumeclaims}=1").success();
    let mut second = cases[0].manifest("team");
    second["metadata"]["name"] = "second".into();
    let refused = server.kubectl_with(&["create", "-f", "-"], &second.to_string()).failure();
    assert!(refused.contains("exceeded quota: few, requested: count/cronjobs.batch=1"), "{refused}");
    let _ = server.kubectl("delete namespace team").success();
    let _ = server.kubectl("create namespace team").success();
    for case in &cases {
        assert_eq!(
            server.kubectl(&format!("get {} -n team -o name", case.resource)).success(),
            "",
            "{}",
            case.resource
        );
    }
}

#[test]
fn an_autoscaler_is_one_object_in_both_versions() {
    let server = Server::start();
    let object = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3,
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
                {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
            ],
        },
    });
    let _ = server.kubectl_with(&["create", "-f", "-"], &object.to_string()).success();
    let get = |line: &str| server.kubectl(&format!("get {line}")).success();
    let target = "-o jsonpath={.spec.targetCPUUtilizationPercentage}";
    assert_eq!(get(&format!("horizontalpodautoscalers.v1.autoscaling web {target}")), "60");
    let older = "patch horizontalpodautoscalers.v1.autoscaling web --type=merge -p {\"spec\":{\"targetCPUUtilizationPercentage\":70}}";
    let _ = server.kubectl(older).success();
    assert_eq!(get("hpa web -o jsonpath={.spec.metrics[*].type}"), "Pods Resource");
    let table = get("hpa web --no-headers");
    assert!(table.contains("<unknown>/10, cpu: <unknown>/70%"), "{table}");
}
