use serde_json::json;

use super::*;

fn range(limit: &Value) -> Value {
    json!({"spec": {"limits": [limit]}})
}

fn pod(resources: &Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": resources}]}})
}

fn refusal(limit: &Value, resources: &Value) -> String {
    check(&[range(limit)], "pods", &pod(resources)).expect_err("a refusal")
}

#[test]
fn writes_that_are_checked() {
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert!(concerns("", "pods", "", None) && !concerns("", "pods", "", Some(&json!({}))));
    assert!(concerns("", "pods", "resize", Some(&json!({}))) && !concerns("", "pods", "resize", Some(&going)));
    assert!(concerns("", "persistentvolumeclaims", "", Some(&json!({}))) && !concerns("", "pods", "status", None));
    assert!(!concerns("example.com", "pods", "", None));
}

#[test]
fn given_resources_are_kept() {
    let ranges = [range(&json!({
        "type": "Container",
        "default": {"cpu": "500m", "memory": "64Mi"}, "defaultRequest": {"cpu": "250m", "memory": "64Mi"},
    }))];
    let mut object = pod(&json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}));
    object.put("spec.initContainers", json!([{"name": "i"}]));
    fill_pod(&ranges, &mut object);
    assert_eq!(
        object.at("spec.containers")[0].at("resources"),
        &json!({"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "1", "memory": "64Mi"}})
    );
    assert_eq!(
        object.at("metadata.annotations")[ANNOTATION],
        "LimitRanger plugin set: memory request for container c; memory limit for container c; cpu, memory request for \
         init container i; cpu, memory limit for init container i"
    );
    let before = object.clone();
    fill_pod(&[ranges[0].clone(), range(&json!({"type": "Pod", "default": {"x": "1"}}))], &mut object);
    assert_eq!(object, before);
}

#[test]
fn the_annotation_is_that_of_the_last_range_that_set_something() {
    let with = |name: &str| range(&json!({"type": "Container", "defaultRequest": {name: "1"}}));
    let mut object = pod(&json!({}));
    fill_pod(&[with("cpu"), with("memory"), with("cpu")], &mut object);
    assert_eq!(object.at("metadata.annotations")[ANNOTATION], "LimitRanger plugin set: memory request for container c");
    assert_eq!(object.at("spec.containers")[0].at("resources.requests"), &json!({"cpu": "1", "memory": "1"}));
}

#[test]
fn minimum_and_maximum() {
    let (min, max) =
        (json!({"type": "Container", "min": {"cpu": "1"}}), json!({"type": "Pod", "max": {"memory": "1Gi"}}));
    assert_eq!(
        refusal(&min, &json!({"requests": {"cpu": "500m"}})),
        "minimum cpu usage per Container is 1, but request is 500m"
    );
    assert_eq!(
        refusal(&min, &json!({"requests": {"cpu": "1"}, "limits": {"cpu": "0.9"}})),
        "minimum cpu usage per Container is 1, but limit is 900m"
    );
    assert_eq!(refusal(&min, &json!({})), "minimum cpu usage per Container is 1.  No request is specified");
    assert_eq!(refusal(&max, &json!({})), "maximum memory usage per Pod is 1Gi.  No limit is specified");
    assert_eq!(
        refusal(&max, &json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "2Gi"}})),
        "maximum memory usage per Pod is 1Gi, but request is 2Gi"
    );
}

#[test]
fn ratios() {
    let max = json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "1500m"}});
    let ratio = |request: &str, limit: &str| json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
    assert_eq!(check(&[range(&max)], "pods", &pod(&ratio("2", "3"))), Ok(()));
    let start = "cpu max limit to request ratio per Container is 1500m, but";
    assert_eq!(refusal(&max, &ratio("3", "5")), format!("{start} provided ratio is 1.666667"));
    assert_eq!(refusal(&max, &ratio("0", "5")), format!("{start} no request is specified or request is 0"));
    assert_eq!(
        refusal(&max, &json!({"requests": {"cpu": "1"}})),
        format!("{start} no limit is specified or limit is 0")
    );
}

#[test]
fn repeated_violations_are_listed_once() {
    let max = json!({"type": "Container", "max": {"cpu": "1", "memory": "1"}});
    let mut object = pod(&json!({}));
    object.put("spec.initContainers", json!([{"name": "i"}]));
    assert_eq!(
        check(&[range(&max)], "pods", &object).expect_err("a refusal"),
        "[maximum cpu usage per Container is 1.  No limit is specified, maximum memory usage per Container is 1.  No \
         limit is specified]"
    );
}

#[test]
fn claims_are_checked_by_their_requests() {
    let ranges =
        [range(&json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}))];
    let claim = |storage: &str| json!({"spec": {"resources": {"requests": {"storage": storage}}}});
    let check = |claim: &Value| check(&ranges, "persistentvolumeclaims", claim);
    assert_eq!(check(&claim("2Gi")), Ok(()));
    let most = "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi";
    assert_eq!(check(&claim("3Gi")).expect_err("a refusal"), most);
    let least = "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi";
    assert_eq!(check(&claim("1Mi")).expect_err("a refusal"), least);
}
