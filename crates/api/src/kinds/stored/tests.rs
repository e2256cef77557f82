//! All stored kinds together: minimal objects are accepted with their defaults and a warning, invalid ones are refused.

use serde_json::{Value, json};

use super::*;
use crate::decode;
use crate::kind::Kind;
use crate::kinds::KINDS;
use crate::kinds::testing::summary;

fn pod() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}], "restartPolicy": "Never"}})
}

/// A minimal object of each kind, without its metadata.
fn minimal() -> Vec<(&'static Kind, Value)> {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    vec![
        (&cronjob::KIND, json!({"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": pod()}}}})),
        (&horizontalpodautoscaler::V2, json!({"spec": {"scaleTargetRef": target, "maxReplicas": 3}})),
        (&horizontalpodautoscaler::V1, json!({"spec": {"scaleTargetRef": target, "maxReplicas": 3}})),
        (
            &persistentvolumeclaim::KIND,
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        (
            &persistentvolume::KIND,
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}}),
        ),
        (&podtemplate::KIND, json!({"template": pod()})),
        (&networkpolicy::KIND, json!({"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]}})),
        (&runtimeclass::KIND, json!({"handler": "runc"})),
        (&flowcontrol::FLOW_SCHEMA, json!({"spec": {"priorityLevelConfiguration": {"name": "global-default"}}})),
        (
            &flowcontrol::PRIORITY_LEVEL,
            json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}}),
        ),
        (&storage::STORAGE_CLASS, json!({"provisioner": "example.com/disk"})),
        (&storage::CSI_DRIVER, json!({"spec": {}})),
        (
            &storage::CSI_NODE,
            json!({"spec": {"drivers": [{"name": "d.example.com", "nodeID": "n", "topologyKeys": null}]}}),
        ),
        (&storage::CSI_STORAGE_CAPACITY, json!({"storageClassName": "disk", "capacity": "1Gi"})),
        (
            &storage::VOLUME_ATTACHMENT,
            json!({"spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}}),
        ),
        (
            &apiservice::KIND,
            json!({"spec": {
                "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"namespace": "kube-system", "name": "metrics-server"}, "insecureSkipTLSVerify": true,
            }}),
        ),
    ]
}

/// The object as it is after a create, and what validation finds.
fn create(kind: &Kind, mut object: Value) -> (Value, String) {
    let name = if kind.kind == "APIService" { "v1beta1.metrics.k8s.io" } else { "web" };
    object.put("metadata.name", name);
    if kind.namespaced {
        object.put("metadata.namespace", "default");
    }
    assert_eq!(decode::check(kind.type_id(), &mut object), Ok(Vec::new()), "{}", kind.kind);
    kind.rules.default(&mut object);
    kind.rules.prepare_create(&mut object);
    let wrong = summary(|errors| kind.rules.validate_create(&object, errors));
    (object, wrong)
}

fn find(plural: &str) -> (&'static Kind, Value) {
    minimal().into_iter().find(|(kind, _)| kind.plural == plural).expect("a kind")
}

/// What is wrong with a minimal object after a change.
fn wrong(plural: &str, field: &str, value: Value) -> String {
    let (kind, mut object) = find(plural);
    object.put(field, value);
    create(kind, object).1
}

/// The minimal object as it is stored.
fn created(plural: &str) -> Value {
    let (kind, object) = find(plural);
    create(kind, object).0
}

#[test]
fn minimal_objects_are_valid_and_warned_of() {
    for (kind, object) in minimal() {
        let (object, wrong) = create(kind, object);
        assert_eq!(wrong, "[]", "{} {}", kind.api_version(), kind.kind);
        let mut warnings = Vec::new();
        kind.rules.warnings(&object, None, &mut warnings);
        let expected = format!("{} {} is stored only: no controller acts on it", kind.api_version(), kind.kind);
        assert_eq!(warnings, [expected]);
        let cells = (kind.table_view.row)(&object, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(cells.len(), kind.table_view.columns.len(), "{}", kind.kind);
    }
}

#[test]
fn defaults_are_idempotent_and_an_unchanged_update_is_valid() {
    for (kind, object) in minimal() {
        let (mut object, _) = create(kind, object);
        let before = object.clone();
        kind.rules.default(&mut object);
        assert_eq!(object, before, "{}", kind.kind);
        object.put("metadata.resourceVersion", "1");
        let wrong = summary(|errors| kind.rules.validate_update(&object, &object, errors));
        assert_eq!(wrong, "[]", "{}", kind.kind);
        assert!(!kind.rules.new_generation(&object, &object), "{}", kind.kind);
    }
}

#[test]
fn every_kind_is_in_the_table() {
    for (kind, _) in minimal() {
        assert!(KINDS.iter().any(|known| std::ptr::eq(*known, kind)), "{}", kind.kind);
    }
}

#[test]
fn defaults_are_those_of_the_original() {
    let job = created("cronjobs");
    assert_eq!(job.text("spec.concurrencyPolicy"), "Allow");
    assert_eq!(job.at("spec.suspend"), &json!(false));
    assert_eq!((job.int("spec.successfulJobsHistoryLimit"), job.int("spec.failedJobsHistoryLimit")), (3, 1));
    assert_eq!(job.text("spec.jobTemplate.spec.template.spec.dnsPolicy"), "ClusterFirst");
    let scaler = created("horizontalpodautoscalers");
    assert_eq!(scaler.int("spec.minReplicas"), 1);
    assert_eq!(scaler.items("spec.metrics")[0].int("resource.target.averageUtilization"), 80);
    let claim = created("persistentvolumeclaims");
    assert_eq!((claim.text("spec.volumeMode"), claim.text("status.phase")), ("Filesystem", "Pending"));
    let class = created("storageclasses");
    assert_eq!((class.text("reclaimPolicy"), class.text("volumeBindingMode")), ("Delete", "Immediate"));
    let policy = created("networkpolicies");
    assert_eq!(policy.texts("spec.policyTypes"), ["Ingress", "Egress"]);
    assert_eq!(policy.items("spec.egress")[0].items("ports")[0].text("protocol"), "TCP");
    assert_eq!(created("persistentvolumes").text("spec.persistentVolumeReclaimPolicy"), "Retain");
    assert_eq!(created("csidrivers").at("spec.attachRequired"), &json!(true));
    let queuing = created("prioritylevelconfigurations").at("spec.limited.limitResponse.queuing").clone();
    assert_eq!(queuing, json!({"handSize": 8, "queues": 64, "queueLengthLimit": 50}));
    assert_eq!(created("flowschemas").int("spec.matchingPrecedence"), 1000);
    assert_eq!(created("apiservices").int("spec.service.port"), 443);
}

#[test]
fn the_first_version_of_autoscalers_has_the_default_metric_too() {
    let (_, object) = find("horizontalpodautoscalers");
    let (object, _) = create(&horizontalpodautoscaler::V1, object);
    assert_eq!(object.int("spec.targetCPUUtilizationPercentage"), 80);
    let stored = horizontalpodautoscaler::V1.rules.shown_to_stored(object.clone());
    assert_eq!(stored.items("spec.metrics"), created("horizontalpodautoscalers").items("spec.metrics"));
    assert_eq!(horizontalpodautoscaler::V1.rules.stored_to_shown(stored.clone()), object);
    let cells = (horizontalpodautoscaler::V2.table_view.row)(&stored, jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(cells[1..4], [json!("Deployment/web"), json!("cpu: <unknown>/80%"), json!("1")]);
}

#[test]
fn invalid_objects_of_a_namespace_are_refused() {
    for (plural, field, value, expected) in [
        ("cronjobs", "spec.schedule", json!(""), "spec.schedule: Required value"),
        (
            "cronjobs",
            "spec.concurrencyPolicy",
            json!("Never"),
            "spec.concurrencyPolicy: Unsupported value: \"Never\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
        ),
        (
            "cronjobs",
            "spec.jobTemplate.spec.template.spec.restartPolicy",
            json!("Always"),
            "spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ),
        (
            "cronjobs",
            "spec.jobTemplate.spec.completionMode",
            json!("Any"),
            "spec.jobTemplate.spec.completionMode: Unsupported value: \"Any\": supported values: \"NonIndexed\", \"Indexed\"",
        ),
        (
            "cronjobs",
            "spec.jobTemplate.spec.maxFailedIndexes",
            json!(1),
            "[spec.jobTemplate.spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified, spec.jobTemplate.spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode]",
        ),
        (
            "cronjobs",
            "spec.jobTemplate.spec.podFailurePolicy",
            json!({"rules": [{"action": "Drop", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}),
            "spec.jobTemplate.spec.podFailurePolicy.rules[0].action: Unsupported value: \"Drop\": supported values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\"",
        ),
        (
            "cronjobs",
            "spec.jobTemplate.spec.selector",
            json!({"matchLabels": {"app": "web"}}),
            "spec.jobTemplate.spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"web\"}}: `selector` will be auto-generated",
        ),
        (
            "horizontalpodautoscalers",
            "spec.maxReplicas",
            json!(-1),
            "[spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1, spec.maxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`]",
        ),
        (
            "horizontalpodautoscalers",
            "spec.metrics",
            json!([{"type": "Resource"}]),
            "spec.metrics[0].resource: Required value: must populate information for the given metric source",
        ),
        (
            "persistentvolumeclaims",
            "spec.accessModes",
            json!([]),
            "spec.accessModes: Required value: at least 1 access mode is required",
        ),
        ("persistentvolumeclaims", "spec.resources", json!({}), "spec.resources[storage]: Required value"),
        ("persistentvolumes", "spec.hostPath", Value::Null, "spec: Required value: must specify a volume type"),
        (
            "persistentvolumes",
            "spec.nfs",
            json!({"server": "s", "path": "/p"}),
            "spec.nfs: Forbidden: may not specify more than 1 volume type",
        ),
        ("podtemplates", "template.spec.containers", json!([]), "template.spec.containers: Required value"),
        (
            "networkpolicies",
            "spec.ingress",
            json!([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}]}]),
            "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
        ),
        (
            "networkpolicies",
            "spec.egress",
            json!([{"to": [{}]}]),
            "spec.egress[0].to[0]: Required value: must specify a peer",
        ),
    ] {
        assert_eq!(wrong(plural, field, value), expected, "{plural} {field}");
    }
}

#[test]
fn invalid_objects_of_the_cluster_are_refused() {
    for (plural, field, value, expected) in [
        ("runtimeclasses", "handler", json!(""), "handler: Required value"),
        (
            "flowschemas",
            "spec.priorityLevelConfiguration.name",
            json!(""),
            "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
        ),
        (
            "prioritylevelconfigurations",
            "spec.limited.limitResponse.queuing.handSize",
            json!(65),
            "spec.limited.limitResponse.queuing.handSize: Invalid value: 65: should not be greater than queues (64)",
        ),
        ("storageclasses", "provisioner", json!(""), "provisioner: Required value"),
        (
            "csidrivers",
            "spec.fsGroupPolicy",
            json!("Some"),
            "spec.fsGroupPolicy: Unsupported value: \"Some\": supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\"",
        ),
        (
            "volumeattachments",
            "spec.source",
            json!({}),
            "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ),
        (
            "apiservices",
            "spec.versionPriority",
            json!(0),
            "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
        ),
    ] {
        assert_eq!(wrong(plural, field, value), expected, "{plural} {field}");
    }
}

#[test]
fn conditions_of_a_failure_policy_are_true_by_default() {
    let rules = json!([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]);
    assert_eq!(wrong("cronjobs", "spec.jobTemplate.spec.podFailurePolicy", json!({"rules": rules})), "[]");
}

#[test]
fn what_may_not_change_stays() {
    for (plural, field, value, expected) in [
        ("storageclasses", "provisioner", json!("other"), "provisioner: Invalid value: \"other\": field is immutable"),
        ("runtimeclasses", "handler", json!("kata"), "handler: Invalid value: \"kata\": field is immutable"),
        (
            "persistentvolumes",
            "spec.hostPath.path",
            json!("/y"),
            "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation",
        ),
        (
            "persistentvolumeclaims",
            "spec.accessModes",
            json!(["ReadWriteMany"]),
            "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for \
             bound claims",
        ),
    ] {
        let (kind, object) = find(plural);
        let (mut old, _) = create(kind, object);
        old.put("metadata.resourceVersion", "1");
        let mut new = old.clone();
        new.put(field, value);
        let found = summary(|errors| kind.rules.validate_update(&new, &old, errors));
        assert_eq!(found, expected, "{plural}");
    }
}

#[test]
fn a_claim_may_be_bound_and_then_grow() {
    let (kind, object) = find("persistentvolumeclaims");
    let (mut old, _) = create(kind, object);
    old.put("metadata.resourceVersion", "1");
    let mut bound = old.clone();
    bound.put("spec.volumeName", "pv");
    bound.put("spec.storageClassName", "disk");
    assert_eq!(summary(|errors| kind.rules.validate_update(&bound, &old, errors)), "[]");
    bound.put("status", json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}));
    let mut larger = bound.clone();
    larger.put("spec.resources.requests.storage", "2Gi");
    assert_eq!(summary(|errors| kind.rules.validate_update(&larger, &bound, errors)), "[]");
    larger.put("spec.resources.requests.storage", "512Mi");
    assert_eq!(
        summary(|errors| kind.rules.validate_update(&larger, &bound, errors)),
        "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
    );
}
