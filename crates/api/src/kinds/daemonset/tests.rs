use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::kinds::testing::summary;

fn set_of() -> Value {
    let mut object = json!({
        "metadata": {"name": "agent", "namespace": "n", "resourceVersion": "1"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]},
            },
        },
    });
    DaemonSetRules.default(&mut object);
    decode::prune(schema::named("apps.DaemonSet"), &mut object);
    object
}

fn wrong(field: &str, value: Value) -> String {
    let mut object = set_of();
    object.put(field, value);
    summary(|errors| DaemonSetRules.validate_create(&object, errors))
}

#[test]
fn defaults_are_those_of_kubernetes() {
    let object = set_of();
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
    assert_eq!(object.at("spec.updateStrategy"), &strategy);
    assert_eq!(object.int("spec.revisionHistoryLimit"), 10);
    assert_eq!(object.text("spec.template.spec.restartPolicy"), "Always");
    assert_eq!(summary(|errors| DaemonSetRules.validate_create(&object, errors)), "[]");
    let mut on_delete = json!({"spec": {"updateStrategy": {"type": "OnDelete"}}});
    DaemonSetRules.default(&mut on_delete);
    assert_eq!(on_delete.at("spec.updateStrategy"), &json!({"type": "OnDelete"}));
}

#[test]
fn strategies_are_validated() {
    let rolling = "spec.updateStrategy.rollingUpdate";
    for (value, error) in [
        (
            json!({"maxUnavailable": 0, "maxSurge": 0}),
            "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
        ),
        (
            json!({"maxUnavailable": "0%", "maxSurge": "0%"}),
            "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
        ),
        (
            json!({"maxUnavailable": 1, "maxSurge": "10%"}),
            "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: \"10%\": may not be set when maxUnavailable is \
             non-zero",
        ),
        (json!({"maxUnavailable": 0, "maxSurge": "10%"}), "[]"),
        (
            json!({"maxUnavailable": -1, "maxSurge": 0}),
            "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"maxUnavailable": 0, "maxSurge": "101%"}),
            "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: \"101%\": must not be greater than 100%",
        ),
    ] {
        assert_eq!(wrong(rolling, value.clone()), error, "{value}");
    }
    assert_eq!(
        wrong("spec.updateStrategy", json!({"type": "RollingUpdate"})),
        "spec.updateStrategy.rollingUpdate: Required value"
    );
    assert_eq!(wrong("spec.updateStrategy", json!({"type": "OnDelete"})), "[]");
    assert_eq!(
        wrong("spec.updateStrategy", json!({"type": "Canary", "rollingUpdate": {"maxSurge": "1%"}})),
        "spec.updateStrategy: Unsupported value: \
         {\"Type\":\"Canary\",\"RollingUpdate\":{\"MaxUnavailable\":0,\"MaxSurge\":\"1%\"}}: supported values: \
         \"RollingUpdate\", \"OnDelete\""
    );
}

#[test]
fn selectors_match_the_template() {
    let mismatch = "spec.template.metadata.labels: Invalid value: {\"app\":\"other\"}: `selector` does not match \
                    template `labels`";
    assert_eq!(wrong("spec.template.metadata.labels", json!({"app": "other"})), mismatch);
    assert_eq!(
        wrong("spec.selector", Value::Null),
        "spec.template.metadata.labels: Invalid value: {\"app\":\"agent\"}: `selector` does not match template `labels`"
    );
    assert_eq!(
        wrong("spec.selector", json!({})),
        "spec.selector: Invalid value: {}: empty selector is invalid for daemonset"
    );
    assert_eq!(
        wrong("spec.selector", json!({"matchExpressions": [{"key": "a", "operator": "Like"}]})),
        "spec.selector.matchExpressions[0].operator: Invalid value: \"Like\": not a valid selector operator"
    );
}

#[test]
fn pods_run_for_ever() {
    assert_eq!(
        wrong("spec.template.spec.restartPolicy", json!("OnFailure")),
        "spec.template.spec.restartPolicy: Unsupported value: \"OnFailure\": supported values: \"Always\""
    );
    assert_eq!(
        wrong("spec.template.spec.activeDeadlineSeconds", json!(5)),
        "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported"
    );
    for field in ["minReadySeconds", "revisionHistoryLimit"] {
        assert_eq!(
            wrong(&format!("spec.{field}"), json!(-1)),
            format!("spec.{field}: Invalid value: -1: must be greater than or equal to 0")
        );
    }
}

#[test]
fn selectors_are_immutable() {
    let (old, mut new) = (set_of(), set_of());
    new.put("spec.selector.matchLabels", json!({"app": "b"}));
    new.put("spec.template.metadata.labels", json!({"app": "b"}));
    assert_eq!(
        summary(|errors| DaemonSetRules.validate_update(&new, &old, errors)),
        "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"b\"}}: field is immutable"
    );
}

#[test]
fn templates_are_counted_in_an_annotation() {
    let create = |annotation: Option<&str>| {
        let mut object = set_of();
        if let Some(text) = annotation {
            object.put("metadata.annotations", json!({TEMPLATE_GENERATION: text, "other": "kept"}));
        }
        DaemonSetRules.prepare_create(&mut object);
        template_generation(&object)
    };
    assert_eq!([None, Some("-3"), Some("7")].map(create), [Some(1), Some(1), Some(7)]);

    let mut old = set_of();
    DaemonSetRules.prepare_create(&mut old);
    let update = |change: &dyn Fn(&mut Value)| {
        let mut new = old.clone();
        change(&mut new);
        DaemonSetRules.default(&mut new);
        DaemonSetRules.prepare_update(&mut new, &old);
        template_generation(&new)
    };
    assert_eq!(update(&|_| {}), Some(1));
    assert_eq!(update(&|new| drop(new.drop_path("metadata.annotations"))), Some(1));
    assert_eq!(update(&|new| new.put("metadata.annotations", json!({TEMPLATE_GENERATION: "9"}))), Some(1));
    assert_eq!(update(&|new| new.put("spec.minReadySeconds", 5)), Some(1));
    assert_eq!(update(&|new| new.put("spec.template.metadata.annotations", json!({}))), Some(1), "no difference");
    assert_eq!(update(&|new| new.put("spec.template.metadata.annotations", json!({"a": "b"}))), Some(2));

    let mut status = set_of();
    status.put("metadata.annotations", json!({TEMPLATE_GENERATION: "9"}));
    status.put("spec.minReadySeconds", 5);
    DaemonSetRules.prepare_status(&mut status, &old);
    assert_eq!((template_generation(&status), status.int("spec.minReadySeconds")), (Some(1), 0));
}

#[test]
fn annotations_that_are_no_numbers_are_refused() {
    let refused = |text: &str| {
        let mut object = set_of();
        object.put("metadata.annotations", json!({TEMPLATE_GENERATION: text}));
        check_annotation(&object).expect_err("refused").message
    };
    let text = "DaemonSet in version \"v1\" cannot be handled as a DaemonSet: strconv.ParseInt: parsing";
    assert_eq!(refused("x"), format!("{text} \"x\": invalid syntax"));
    assert_eq!(refused(""), format!("{text} \"\": invalid syntax"));
    assert_eq!(refused("9223372036854775808"), format!("{text} \"9223372036854775808\": value out of range"));
}

#[test]
fn a_generation_that_overflows_is_refused() {
    let mut old = set_of();
    old.put("metadata.annotations", json!({TEMPLATE_GENERATION: i64::MAX.to_string()}));
    let mut new = old.clone();
    new.put("spec.template.metadata.annotations", json!({"a": "b"}));
    DaemonSetRules.prepare_update(&mut new, &old);
    assert_eq!(
        summary(|errors| DaemonSetRules.validate_update(&new, &old, errors)),
        "[spec.templateGeneration: Invalid value: -9223372036854775808: must not be decremented, \
         spec.templateGeneration: Invalid value: -9223372036854775808: must be greater than or equal to 0]"
    );
}

#[test]
fn status_counts_are_validated() {
    let (mut old, mut new) = (set_of(), set_of());
    old.put("status", json!({"collisionCount": 2}));
    new.put("status", json!({"numberReady": -1, "collisionCount": 1}));
    assert_eq!(
        summary(|errors| DaemonSetRules.validate_status(&new, &old, errors)),
        "[status.numberReady: Invalid value: -1: must be greater than or equal to 0, \
         status.collisionCount: Invalid value: 1: cannot be decremented]"
    );
}

#[test]
fn rows_show_counts_and_node_labels() {
    let mut object = set_of();
    object.put(
        "status",
        json!({"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3, "updatedNumberScheduled": 2,
               "numberAvailable": 1}),
    );
    let row = (TABLE.row)(&object, Timestamp::UNIX_EPOCH);
    assert_eq!(row.len(), TABLE.columns.len());
    assert_eq!(row[..7], [json!("agent"), json!(5), json!(4), json!(3), json!(2), json!(1), json!("<none>")]);
    assert_eq!(row[8..], [json!("c"), json!("i:1"), json!("app=agent")]);
    object.put("spec.template.spec.nodeSelector", json!({"kubernetes.io/os": "linux", "disk": "fast"}));
    let row = (TABLE.row)(&object, Timestamp::UNIX_EPOCH);
    assert_eq!(row[6], json!("disk=fast,kubernetes.io/os=linux"));
}
