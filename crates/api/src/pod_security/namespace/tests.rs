//! Decisions on Namespaces.

use serde_json::{Value, json};

use super::*;
use crate::pod_security::admission::Exemptions;
use crate::pod_security::policy::{PREFIX, Version};

const BASELINE: LevelVersion = LevelVersion { level: Level::Baseline, version: Version::Latest };

fn namespace(labels: &[(&str, &str)]) -> Value {
    let labels = labels.iter().map(|(key, value)| (format!("{PREFIX}{key}"), Value::from(*value))).collect();
    json!({"metadata": {"name": "n", "labels": Value::Object(labels)}})
}

fn pod(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

fn owned(mut pod: Value, uid: &str) -> Value {
    pod["metadata"]["ownerReferences"] = json!([{"uid": "other"}, {"uid": uid, "controller": true}]);
    pod
}

fn warnings(pods: &[Value]) -> Vec<String> {
    Configuration::default().existing_pods("n", BASELINE, pods, || false)
}

#[test]
fn labels_of_new_namespaces_are_valid() {
    let configuration = Configuration::default();
    assert_eq!(configuration.admit_new_namespace(&namespace(&[("enforce", "restricted")])), Ok(Vec::new()));
    assert_eq!(configuration.admit_new_namespace(&json!({"metadata": {"name": "n"}})), Ok(Vec::new()));
    let errors = configuration.admit_new_namespace(&namespace(&[("warn-version", "x")])).expect_err("a bad version");
    let error = &errors.0[0];
    assert_eq!(
        (error.reason, error.field.as_str(), error.body.as_str()),
        (
            "FieldValueInvalid",
            "metadata.labels[pod-security.kubernetes.io/warn-version]",
            "Invalid value: \"x\": must be \"latest\" or \"v1.x\""
        )
    );
}

#[test]
fn bad_labels_may_stay_as_they_are() {
    let update = |new: &[(&str, &str)], old: &[(&str, &str)]| {
        Configuration::default()
            .admit_namespace_update(&namespace(new), &namespace(old))
            .map_err(|errors| errors.0.len())
    };
    let unchanged = Ok(NamespaceUpdate::Allowed(Vec::new()));
    assert_eq!(update(&[("enforce", "x")], &[("enforce", "x")]), unchanged);
    assert_eq!(update(&[("enforce", "x")], &[]), Err(1));
    assert_eq!(update(&[("enforce", "x")], &[("enforce", "y")]), Err(1));
    assert_eq!(update(&[("enforce", "x"), ("warn", "y")], &[("enforce", "x")]), Err(2));
    assert_eq!(update(&[], &[("enforce", "x")]), unchanged);
}

#[test]
fn pods_are_checked_when_enforce_becomes_stricter() {
    let update = |new: &[(&str, &str)], old: &[(&str, &str)]| {
        Configuration::default().admit_namespace_update(&namespace(new), &namespace(old))
    };
    let (baseline, restricted) = (("enforce", "baseline"), ("enforce", "restricted"));
    let (old, new) = (("enforce-version", "v1.20"), ("enforce-version", "v1.30"));
    for (after, before, checked) in [
        (&[baseline][..], &[][..], Some("baseline:latest")),
        (&[baseline], &[baseline, ("warn", "restricted")], None),
        (&[restricted], &[baseline], Some("restricted:latest")),
        (&[baseline], &[restricted], None),
        (&[], &[restricted], None),
        // Another version may be stricter at any level.
        (&[baseline, new], &[restricted, old], Some("baseline:v1.30")),
        (&[baseline, old], &[baseline], Some("baseline:v1.20")),
        (&[new], &[restricted], None),
        (&[("warn", "restricted"), ("audit", "restricted")], &[], None),
    ] {
        let found = match update(after, before).expect("valid labels") {
            NamespaceUpdate::CheckPods(enforce) => Some(enforce.to_string()),
            NamespaceUpdate::Allowed(warnings) => {
                assert!(warnings.is_empty());
                None
            }
        };
        assert_eq!(found.as_deref(), checked, "{before:?} to {after:?}");
    }
}

#[test]
fn pods_with_the_same_faults_share_a_warning() {
    let host = json!({"hostNetwork": true});
    let ports = |port: i64| json!({"containers": [{"name": "c", "ports": [{"hostPort": port}]}]});
    assert_eq!(warnings(&[pod("a", &json!({}))]), Vec::<String>::new());
    let pods = [
        pod("z", &host),
        pod("y", &host),
        pod("x", &ports(1)),
        pod("good", &json!({})),
        pod("b", &json!({"hostPID": true, "containers": [{"name": "c", "ports": [{"hostPort": 1}]}]})),
        pod("c", &host),
        pod("d", &ports(2)),
    ];
    let mut expected = vec![
        "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
        "b: host namespaces, hostPort",
        "c (and 2 other pods): host namespaces",
        "d (and 1 other pod): hostPort",
    ];
    assert_eq!(warnings(&pods), expected);
    let mut checked = 0;
    let some = Configuration::default().existing_pods("n", BASELINE, &pods, || {
        checked += 1;
        checked == 3
    });
    expected = vec![
        "new PodSecurity enforce level only checked against the first 3 of 7 existing pods",
        "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
        "x: hostPort",
        "y (and 1 other pod): host namespaces",
    ];
    assert_eq!(some, expected);
}

#[test]
fn one_pod_of_each_controller_comes_first() {
    let host = json!({"hostNetwork": true});
    let mut pods: Vec<Value> = (0..MAX_PODS).map(|i| owned(pod(&format!("a{i:04}"), &json!({})), "one")).collect();
    pods.push(owned(pod("b", &host), "two"));
    pods.push(owned(pod("c", &host), "two"));
    pods.push(pod("d", &host));
    // Of 3003, the last to be checked are those of the first controller.
    assert_eq!(
        warnings(&pods),
        [
            "new PodSecurity enforce level only checked against the first 3000 of 3003 existing pods",
            "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "b (and 1 other pod): host namespaces",
        ]
    );
}

#[test]
fn exempt_namespaces_and_runtime_classes() {
    let exemptions = Exemptions {
        namespaces: vec!["n".to_owned()],
        runtime_classes: vec!["vm".to_owned()],
        ..Exemptions::default()
    };
    let configuration = Configuration { exemptions, ..Configuration::default() };
    let all = namespace(&[("enforce", "baseline"), ("audit-version", "v1.20"), ("audit", "restricted")]);
    let text = "namespace \"n\" is exempt from Pod Security, and the policy (enforce=baseline:latest, \
                audit=restricted:v1.20) will be ignored";
    assert_eq!(configuration.admit_new_namespace(&all), Ok(vec![text.to_owned()]));
    let update = configuration.admit_namespace_update(&all, &namespace(&[]));
    assert_eq!(update, Ok(NamespaceUpdate::Allowed(vec![text.to_owned()])));
    assert_eq!(configuration.admit_new_namespace(&namespace(&[("warn", "privileged")])), Ok(Vec::new()));
    let pods = [pod("p", &json!({"hostNetwork": true, "runtimeClassName": "vm"}))];
    assert_eq!(configuration.existing_pods("m", BASELINE, &pods, || false), Vec::<String>::new());
}
