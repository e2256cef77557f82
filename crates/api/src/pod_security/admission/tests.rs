//! Decisions on Pods and objects with templates.

use serde_json::{Value, json};

use super::*;
use crate::pod_security::policy::Version;

const RESTRICTED_FAULTS: &str = "allowPrivilegeEscalation != false (container \"c\" must set \
     securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set \
     securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set \
     securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set \
     securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";

fn namespace(labels: &[(&str, &str)]) -> Value {
    let labels = labels.iter().map(|(key, value)| (format!("{PREFIX}{key}"), Value::from(*value))).collect();
    json!({"metadata": {"name": "n", "labels": Value::Object(labels)}})
}

fn pod(spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (key, value) in spec.as_object().cloned().unwrap_or_default() {
        pod["spec"][key] = value;
    }
    pod
}

fn created(labels: &[(&str, &str)], pod: &Value) -> Outcome {
    let request = Request { namespace: &namespace(labels), user: "u", subresource: "" };
    Configuration::default().admit_pod(&request, pod, None)
}

fn annotations(entries: &[(&str, &str)]) -> Vec<(String, String)> {
    entries.iter().map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), (*value).to_owned())).collect()
}

#[test]
fn enforce_refuses_and_warns_about_nothing() {
    let host = pod(&json!({"hostNetwork": true}));
    let labels = [("enforce", "baseline"), ("audit", "baseline"), ("audit-version", "v1.20"), ("warn", "restricted")];
    assert_eq!(
        created(&labels, &host),
        Outcome {
            refusal: Some("violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)".to_owned()),
            warnings: Vec::new(),
            audit_annotations: annotations(&[
                ("enforce-policy", "baseline:latest"),
                (
                    "audit-violations",
                    "would violate PodSecurity \"baseline:v1.20\": host namespaces (hostNetwork=true)"
                ),
            ]),
        }
    );
    let outcome = created(&labels, &pod(&json!({})));
    assert_eq!(outcome.refusal, None);
    assert_eq!(outcome.warnings, [format!("would violate PodSecurity \"restricted:latest\": {RESTRICTED_FAULTS}")]);
    assert_eq!(outcome.audit_annotations, annotations(&[("enforce-policy", "baseline:latest")]));
}

#[test]
fn audit_alone_is_seen_in_the_audit_log_alone() {
    let violation = format!("would violate PodSecurity \"restricted:latest\": {RESTRICTED_FAULTS}");
    assert_eq!(
        created(&[("audit", "restricted")], &pod(&json!({}))),
        Outcome {
            audit_annotations: annotations(&[
                ("enforce-policy", "privileged:latest"),
                ("audit-violations", &violation),
            ]),
            ..Outcome::default()
        }
    );
}

#[test]
fn without_labels_all_is_allowed() {
    let expected =
        Outcome { audit_annotations: annotations(&[("enforce-policy", "privileged:latest")]), ..Outcome::default() };
    assert_eq!(created(&[], &pod(&json!({"hostNetwork": true}))), expected);
    assert_eq!(created(&[("enforce-version", "v1.20")], &pod(&json!({"hostNetwork": true}))), expected);
}

#[test]
fn bad_labels_are_restricted_and_noted() {
    let outcome = created(&[("enforce", "frob")], &pod(&json!({})));
    assert_eq!(outcome.refusal, Some(format!("violates PodSecurity \"restricted:latest\": {RESTRICTED_FAULTS}")));
    let error = "Failed to parse policy: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"frob\": must \
                 be one of privileged, baseline, restricted";
    let expected = annotations(&[("error", error), ("enforce-policy", "restricted:latest")]);
    assert_eq!(outcome.audit_annotations, expected);
}

#[test]
fn updates_are_checked_when_containers_change() {
    let namespace = namespace(&[("enforce", "baseline")]);
    let old = pod(&json!({
        "hostNetwork": true,
        "initContainers": [{"name": "i", "image": "i"}],
        "ephemeralContainers": [{"name": "e", "image": "i"}],
    }));
    let change = |path: &str, value: Value| {
        let mut new = old.clone();
        *new.pointer_mut(path).expect("a place") = value;
        new
    };
    let refused = |new: &Value, subresource: &str| {
        let request = Request { namespace: &namespace, user: "u", subresource };
        Configuration::default().admit_pod(&request, new, Some(&old)).refusal.is_some()
    };
    for (new, expected) in [
        (old.clone(), false),
        (change("/metadata", json!({"name": "p", "labels": {"a": "b"}})), false),
        (change("/spec/hostNetwork", json!(false)), false),
        (change("/spec/containers/0/image", json!("j")), true),
        (change("/spec/initContainers/0/image", json!("j")), true),
        (change("/spec/initContainers", json!([])), true),
        (change("/spec/ephemeralContainers", json!([])), false),
        (change("/spec/ephemeralContainers/0/image", json!("j")), true),
        (change("/spec/ephemeralContainers/0/name", json!("f")), true),
    ] {
        assert_eq!(refused(&new, ""), expected, "{new}");
        assert_eq!(refused(&new, "ephemeralcontainers"), expected, "{new}");
        assert!(!refused(&new, "status"), "{new}");
    }
}

#[test]
fn exemptions() {
    let exemptions = Exemptions {
        namespaces: vec!["n".to_owned()],
        usernames: vec!["admin".to_owned(), String::new()],
        runtime_classes: vec!["vm".to_owned(), String::new()],
    };
    let configuration = Configuration { exemptions, ..Configuration::default() };
    let (exempt, mut other) = (namespace(&[("enforce", "baseline")]), namespace(&[("enforce", "baseline")]));
    other["metadata"]["name"] = json!("m");
    let host = |class: &str| pod(&json!({"hostNetwork": true, "runtimeClassName": class}));
    for (namespace, user, class, why) in [
        (&exempt, "admin", "vm", Some("namespace")),
        (&other, "admin", "vm", Some("user")),
        (&other, "u", "vm", Some("runtimeClass")),
        (&other, "", "", None),
    ] {
        let request = Request { namespace, user, subresource: "" };
        let outcome = configuration.admit_pod(&request, &host(class), None);
        assert_eq!(outcome.refusal.is_some(), why.is_none(), "{why:?}");
        if let Some(why) = why {
            assert_eq!(outcome.audit_annotations, annotations(&[("exempt", why)]));
        }
    }
    let request = Request { namespace: &exempt, user: "u", subresource: "" };
    let outcome = configuration.admit_controller(&request, "apps", "Deployment", &json!({}));
    assert_eq!(outcome.audit_annotations, annotations(&[("exempt", "namespace")]));
}

#[test]
fn templates_are_found_by_kind() {
    let template = pod(&json!({"hostNetwork": true}));
    let warned = |group: &str, kind: &str, object: &Value| {
        let namespace = namespace(&[("enforce", "baseline")]);
        let request = Request { namespace: &namespace, user: "u", subresource: "" };
        let outcome = Configuration::default().admit_controller(&request, group, kind, object);
        assert_eq!((outcome.refusal, outcome.audit_annotations), (None, Vec::new()));
        outcome.warnings
    };
    let text = ["would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)"];
    let object = json!({"spec": {"template": template}});
    for (group, kind) in [
        ("", "ReplicationController"),
        ("apps", "DaemonSet"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("batch", "Job"),
    ] {
        assert!(is_controller(group, kind));
        assert_eq!(warned(group, kind, &object), text, "{kind}");
    }
    let job = json!({"spec": {"jobTemplate": object}});
    assert_eq!(warned("batch", "CronJob", &job), text);
    assert_eq!(warned("", "PodTemplate", &json!({"template": template})), text);
    assert!(warned("example.com", "Deployment", &object).is_empty() && !is_controller("example.com", "Deployment"));
    assert!(warned("", "ReplicationController", &json!({"spec": {}})).is_empty());
}

#[test]
fn controllers_are_warned_and_audited() {
    let template = json!({"spec": {"template": pod(&json!({"hostPID": true}))}});
    let admit = |labels: &[(&str, &str)], subresource: &str| {
        let namespace = namespace(labels);
        let request = Request { namespace: &namespace, user: "u", subresource };
        Configuration::default().admit_controller(&request, "apps", "ReplicaSet", &template)
    };
    let text = "would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)";
    assert_eq!(
        admit(&[("audit", "baseline"), ("warn", "baseline")], ""),
        Outcome {
            refusal: None,
            warnings: vec![text.to_owned()],
            audit_annotations: annotations(&[("audit-violations", text)]),
        }
    );
    assert_eq!(admit(&[("enforce", "baseline"), ("warn", "privileged")], ""), Outcome::default());
    assert_eq!(admit(&[("warn", "baseline")], "scale"), Outcome::default());
    let noted = admit(&[("enforce", "frob")], "").audit_annotations;
    assert!(matches!(&noted[..], [(key, _)] if key == "pod-security.kubernetes.io/error"), "{noted:?}");
}

#[test]
fn defaults_apply_to_namespaces_without_labels() {
    let baseline = LevelVersion { level: Level::Baseline, version: Version::V1(30) };
    let defaults = Policy { enforce: baseline, ..Policy::default() };
    let configuration = Configuration { defaults, ..Configuration::default() };
    let request = Request { namespace: &namespace(&[]), user: "u", subresource: "" };
    let outcome = configuration.admit_pod(&request, &pod(&json!({"hostIPC": true})), None);
    let expected = "violates PodSecurity \"baseline:v1.30\": host namespaces (hostIPC=true)";
    assert_eq!(outcome.refusal.as_deref(), Some(expected));
}
