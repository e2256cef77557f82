use serde_json::json;

use super::*;
use crate::kinds::testing::summary;

fn filled(mut object: Value) -> Value {
    JobRules.default(&mut object);
    object
}

/// A Job as a client sends it.
fn sent() -> Value {
    json!({
        "metadata": {"name": "pi", "namespace": "n"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}},
    })
}

/// A Job as the server stores it.
fn job() -> Value {
    let mut object = filled(sent());
    object.put("metadata.uid", "u-1");
    JobRules.prepare_create(&mut object);
    object
}

fn with(changes: &[(&str, Value)]) -> Value {
    let mut object = job();
    for (field, value) in changes {
        object.put(field, value.clone());
    }
    object
}

fn wrong(changes: &[(&str, Value)]) -> String {
    summary(|errors| JobRules.validate_create(&with(changes), errors))
}

fn changed(old: &Value, changes: &[(&str, Value)]) -> String {
    let mut new = old.clone();
    for (field, value) in changes {
        new.put(field, value.clone());
    }
    summary(|errors| JobRules.validate_update(&new, old, errors))
}

#[test]
fn defaults_are_those_of_kubernetes() {
    let object = job();
    let spec = object.at("spec");
    for (field, value) in [
        ("completions", json!(1)),
        ("parallelism", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
        ("manualSelector", json!(false)),
    ] {
        assert_eq!(spec.at(field), &value, "{field}");
    }
    assert_eq!(summary(|errors| JobRules.validate_create(&object, errors)), "[]");
    let queue = filled(json!({"spec": {"parallelism": 3, "backoffLimitPerIndex": 1, "podFailurePolicy": {
        "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}],
    }}}));
    assert!(!queue.has("spec.completions"));
    assert_eq!(queue.int("spec.backoffLimit"), i64::from(i32::MAX));
    assert_eq!(queue.text("spec.podReplacementPolicy"), "Failed");
    let pattern = &queue.items("spec.podFailurePolicy.rules")[0].items("onPodConditions")[0];
    assert_eq!(pattern.text("status"), "True");
}

#[test]
fn the_selector_is_generated_from_the_uid() {
    let object = job();
    let labels = json!({
        "batch.kubernetes.io/controller-uid": "u-1", "batch.kubernetes.io/job-name": "pi",
        "controller-uid": "u-1", "job-name": "pi",
    });
    assert_eq!(object.at("spec.template.metadata.labels"), &labels);
    assert_eq!(object.at("metadata.labels"), &labels);
    let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}});
    assert_eq!(object.at("spec.selector"), &selector);
    let mut manual = sent();
    manual.put("spec.manualSelector", true);
    manual.put("spec.selector", json!({"matchLabels": {"app": "pi"}}));
    manual.put("spec.template.metadata.labels", json!({"app": "pi"}));
    let mut manual = filled(manual);
    JobRules.prepare_create(&mut manual);
    assert_eq!(manual.at("spec.template.metadata.labels"), &json!({"app": "pi"}));
    assert_eq!(manual.at("metadata.labels"), &json!({"app": "pi"}));
    assert_eq!(summary(|errors| JobRules.validate_create(&manual, errors)), "[]");
}

#[test]
fn labels_of_another_job_are_refused() {
    let mut object = sent();
    object.put("spec.template.metadata.labels", json!({"job-name": "other"}));
    let mut object = filled(object);
    object.put("metadata.uid", "u-1");
    JobRules.prepare_create(&mut object);
    assert_eq!(
        summary(|errors| JobRules.validate_create(&object, errors)),
        "spec.template.metadata.labels[job-name]: Invalid value: {\"batch.kubernetes.io/controller-uid\":\"u-1\",\
         \"batch.kubernetes.io/job-name\":\"pi\",\"controller-uid\":\"u-1\",\"job-name\":\"other\"}: must be 'pi'"
    );
    assert_eq!(
        wrong(&[("spec.selector", json!({"matchLabels": {"app": "x"}}))]),
        "[spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"x\"}}: `selector` not auto-generated, \
         spec.template.metadata.labels: Invalid value: {\"batch.kubernetes.io/controller-uid\":\"u-1\",\
         \"batch.kubernetes.io/job-name\":\"pi\",\"controller-uid\":\"u-1\",\"job-name\":\"pi\"}: `selector` does not \
         match template `labels`]"
    );
}

#[test]
fn counts_and_words_are_checked() {
    for (changes, text) in [
        (
            vec![("spec.parallelism", json!(-1)), ("spec.backoffLimit", json!(-2))],
            "[spec.parallelism: Invalid value: -1: must be greater than or equal to 0, spec.backoffLimit: Invalid \
             value: -2: must be greater than or equal to 0]",
        ),
        (
            vec![("spec.template.spec.restartPolicy", json!("Always"))],
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ),
        (
            vec![("spec.completionMode", json!("Any"))],
            "spec.completionMode: Unsupported value: \"Any\": supported values: \"NonIndexed\", \"Indexed\"",
        ),
        (
            vec![("spec.maxFailedIndexes", json!(1))],
            "[spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified, spec.maxFailedIndexes: \
             Invalid value: 1: requires indexed completion mode]",
        ),
        (
            vec![("spec.podReplacementPolicy", json!("Never"))],
            "spec.podReplacementPolicy: Unsupported value: \"Never\": supported values: \"Failed\", \
             \"TerminatingOrFailed\"",
        ),
        (
            vec![("spec.managedBy", json!("me"))],
            "spec.managedBy: Invalid value: \"me\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
        (
            vec![("spec.managedBy", json!("acme.io/a b"))],
            "spec.managedBy: Invalid value: \"a b\": Invalid path (regex used for validation is \
             '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
        ),
        (
            vec![
                ("spec.completionMode", json!("Indexed")),
                ("spec.completions", json!(3)),
                ("spec.backoffLimitPerIndex", json!(1)),
                ("spec.maxFailedIndexes", json!(4)),
            ],
            "spec.maxFailedIndexes: Invalid value: 4: must be less than or equal to completions",
        ),
    ] {
        assert_eq!(wrong(&changes), text);
    }
    let name = "a".repeat(62);
    let mut long = with(&[("spec.completionMode", json!("Indexed")), ("metadata.name", json!(name))]);
    for key in ["job-name", "batch.kubernetes.io/job-name"] {
        long["spec"]["template"]["metadata"]["labels"][key] = json!(name);
    }
    assert_eq!(
        summary(|errors| JobRules.validate_create(&long, errors)),
        format!(
            "metadata.name: Invalid value: \"{name}\": will not able to create pod with invalid DNS label: {name}-0"
        )
    );
}

#[test]
fn policies_are_checked() {
    let rules = |rules: Value| {
        wrong(&[("spec.podFailurePolicy", json!({"rules": rules})), ("spec.podReplacementPolicy", json!("Failed"))])
    };
    assert_eq!(rules(json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 42]}}])), "[]");
    assert_eq!(
        rules(json!([{"onExitCodes": {"operator": "In", "containerName": "x", "values": [2, 0, 0]}}])),
        "[spec.podFailurePolicy.rules[0].action: Required value: valid values: [\"Count\" \"FailIndex\" \"FailJob\" \
         \"Ignore\"], spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: \"x\": must be one of \
         the container or initContainer names in the pod template, spec.podFailurePolicy.rules[0].onExitCodes.values[1]: \
         Invalid value: 0: must not be 0 for the In operator, spec.podFailurePolicy.rules[0].onExitCodes.values[2]: \
         Invalid value: 0: must not be 0 for the In operator, spec.podFailurePolicy.rules[0].onExitCodes.values[2]: \
         Duplicate value: 0, spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,0,0]: must be ordered]"
    );
    assert_eq!(
        rules(json!([{"action": "FailIndex"}])),
        "[spec.podFailurePolicy.rules[0].action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be \
         set, spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is \
         required]"
    );
    let successes = |policy: Value| {
        let indexed = [("spec.completionMode", json!("Indexed")), ("spec.completions", json!(5))];
        wrong(&[indexed[0].clone(), indexed[1].clone(), ("spec.successPolicy", policy)])
    };
    assert_eq!(successes(json!({"rules": [{"succeededIndexes": "0,2-4", "succeededCount": 2}]})), "[]");
    assert_eq!(
        successes(json!({"rules": [{"succeededIndexes": "0,5"}, {"succeededIndexes": "1", "succeededCount": 9}, {}]})),
        "[spec.successPolicy.rules[0].succeededIndexes: Invalid value: \"0,5\": error parsing succeededIndexes: too large \
         index: \"5\", spec.successPolicy.rules[1].succeededCount: Invalid value: 9: must be less than or equal to 5 (the \
         number of specified completions), spec.successPolicy.rules[1].succeededCount: Invalid value: 9: must be less \
         than or equal to 1 (the number of indexes in the specified succeededIndexes field), spec.successPolicy.rules[2]: \
         Required value: at least one of succeededCount or succeededIndexes must be specified]"
    );
    assert_eq!(
        wrong(&[("spec.successPolicy", json!({"rules": [{"succeededCount": 1}]}))]),
        "spec.successPolicy: Invalid value: {\"Rules\":[{\"SucceededIndexes\":null,\"SucceededCount\":1}]}: requires \
         indexed completion mode"
    );
}

#[test]
fn most_of_the_spec_is_immutable() {
    let old = with(&[("metadata.resourceVersion", json!("1"))]);
    assert_eq!(changed(&old, &[("spec.parallelism", json!(4)), ("spec.suspend", json!(true))]), "[]");
    assert_eq!(
        changed(&old, &[("spec.completions", json!(2))]),
        "spec.completions: Invalid value: 2: field is immutable"
    );
    let text = changed(&old, &[("spec.template.spec.nodeSelector", json!({"a": "b"}))]);
    assert!(text.starts_with("spec.template: Invalid value: {") && text.ends_with("}: field is immutable"), "{text}");
    let indexed = with(&[
        ("metadata.resourceVersion", json!("1")),
        ("spec.completionMode", json!("Indexed")),
        ("spec.completions", json!(3)),
        ("spec.parallelism", json!(3)),
    ]);
    assert_eq!(changed(&indexed, &[("spec.completions", json!(2)), ("spec.parallelism", json!(2))]), "[]");
    assert_eq!(
        changed(&indexed, &[("spec.completions", json!(2))]),
        "spec.completions: Invalid value: 2: can only be modified in tandem with spec.parallelism"
    );
}

#[test]
fn the_template_of_a_suspended_job_can_be_scheduled_elsewhere() {
    let suspended = with(&[
        ("metadata.resourceVersion", json!("1")),
        ("spec.suspend", json!(true)),
        ("status.conditions", json!([{"type": "Suspended", "status": "True"}])),
    ]);
    let mut containers = suspended.at("spec.template.spec.containers").clone();
    containers[0]["resources"] = json!({"requests": {"cpu": "1"}});
    let changes = [
        ("spec.template.spec.nodeSelector", json!({"a": "b"})),
        ("spec.template.spec.affinity", json!({"nodeAffinity": {}})),
        ("spec.template.spec.containers", containers.clone()),
        ("spec.template.metadata.annotations", json!({"a": "b"})),
    ];
    assert_eq!(changed(&suspended, &changes), "[]");
    containers[0]["image"] = json!("other");
    let text = changed(&suspended, &[("spec.template.spec.containers", containers)]);
    assert!(text.starts_with("spec.template.spec: Invalid value: {") && text.ends_with("field is immutable"), "{text}");
}

#[test]
fn transitions_of_the_status_are_checked() {
    let status = |old: Value, new: Value| {
        let old = with(&[("metadata.resourceVersion", json!("1")), ("status", old)]);
        let mut changed = old.clone();
        changed.put("status", new);
        summary(|errors| JobRules.validate_status(&changed, &old, errors))
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    let start = "2026-01-01T00:00:00Z";
    assert_eq!(
        status(
            json!({"startTime": start}),
            json!({"startTime": start, "completionTime": "2026-01-01T00:00:09Z", "succeeded": 1,
                   "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}),
        ),
        "[]"
    );
    assert_eq!(
        status(json!({}), json!({"conditions": [condition("Complete")]})),
        "[status.completionTime: Required value: completionTime is required for Complete jobs, status.conditions: \
         Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition, \
         status.startTime: Required value: startTime is required for finished job]"
    );
    assert_eq!(
        status(
            json!({"startTime": start, "failed": 2, "succeeded": 1, "conditions": [condition("FailureTarget")]}),
            json!({"startTime": "2026-01-01T00:00:01Z", "failed": 1, "succeeded": 0, "active": 1, "ready": 2}),
        ),
        "[status.ready: Invalid value: 2: cannot set more ready pods than active, status.conditions: Invalid value: \
         cannot disable the terminal FailureTarget=True condition, status.failed: Invalid value: 1: cannot decrease the \
         failed counter, status.succeeded: Invalid value: 0: cannot decrease the succeeded counter, status.startTime: \
         Invalid value: \"2026-01-01T00:00:01Z\": field is immutable for unsuspended job once set]"
    );
    assert_eq!(
        status(json!({}), json!({"completedIndexes": "0"})),
        "status.completedIndexes: Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed \
         completion mode"
    );
    assert_eq!(
        status(json!({}), json!({"uncountedTerminatedPods": {"succeeded": ["a", ""], "failed": ["a"]}})),
        "[status.uncountedTerminatedPods.succeeded[1]: Invalid value: \"\": must not be empty, \
         status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"]"
    );
}

#[test]
fn rows_show_state_completions_and_duration() {
    let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
    let row = |changes: &[(&str, Value)]| -> Vec<String> {
        let object = with(changes);
        let cells = (TABLE.row)(&object, now);
        cells.iter().map(|cell| cell.as_str().unwrap_or_default().to_owned()).collect()
    };
    let start = ("status.startTime", json!("2026-01-01T00:00:30Z"));
    assert_eq!(row(&[])[..4], ["pi", "Running", "0/1", ""]);
    assert_eq!(row(std::slice::from_ref(&start))[3], "30s");
    let done = [
        start,
        ("status.completionTime", json!("2026-01-01T00:00:42Z")),
        ("status.succeeded", json!(1)),
        ("status.conditions", json!([{"type": "Complete", "status": "True"}])),
    ];
    assert_eq!(row(&done)[1..4], ["Complete", "1/1", "12s"]);
    assert_eq!(row(&done)[5..], ["c", "i:1", "batch.kubernetes.io/controller-uid=u-1"]);
    let queue = [("spec.completions", Value::Null), ("spec.parallelism", json!(3))];
    assert_eq!(row(&queue)[2], "0/1 of 3");
    let suspended = [("status.conditions", json!([{"type": "Suspended", "status": "True"}]))];
    assert_eq!(row(&suspended)[1], "Suspended");
}
