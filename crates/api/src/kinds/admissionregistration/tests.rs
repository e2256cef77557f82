use serde_json::{Value, json};

use super::*;
use crate::dynamic_admission::fake::Fake;
use crate::dynamic_admission::language::Cel;
use crate::kinds::testing::{golden_where, summary};

fn policy(spec: Value) -> Value {
    let mut object = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]}]},
        "validations": [{"expression": "true"}],
    }});
    let Value::Object(spec) = spec else { panic!("no object") };
    for (key, value) in spec {
        object.put(&format!("spec.{key}"), value);
    }
    policy::KIND.rules.default(&mut object);
    object
}

fn check_policy(spec: Value) -> String {
    summary(|errors| policy::validate(&policy(spec), None, &Fake, errors)).replace("spec.", "")
}

fn webhook(change: Value) -> Value {
    let mut hook = json!({
        "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"name": "s", "namespace": "n"}},
    });
    let Value::Object(change) = change else { panic!("no object") };
    for (key, value) in change {
        hook.put(&key, value);
    }
    let mut object = json!({"metadata": {"name": "w"}, "webhooks": [hook]});
    webhooks::MUTATING.rules.default(&mut object);
    object
}

fn check_webhook(change: Value) -> String {
    summary(|errors| webhooks::validate(&webhook(change), None, true, &Fake, errors)).replace("webhooks[0].", "")
}

#[test]
fn recorded_answers_about_the_kinds() {
    // Texts of compilation come from the language, and rights are decided elsewhere.
    let wanted = |case: &Value| {
        !case.texts("tags").contains(&"go-text") && !case.items("steps").iter().any(|step| step.has("as"))
    };
    for kind in [&policy::KIND, &binding::KIND, &webhooks::VALIDATING, &webhooks::MUTATING] {
        golden_where("../access/vap", kind, wanted);
    }
}

#[test]
fn defaults_are_those_of_the_original() {
    let object = policy(json!({}));
    assert_eq!(object.text("spec.failurePolicy"), "Fail");
    assert_eq!(
        object.at("spec.matchConstraints"),
        &json!({"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"], "scope": "*"}]})
    );
    let hook = webhook(json!({})).items("webhooks")[0].clone();
    assert_eq!((hook.text("failurePolicy"), hook.int("timeoutSeconds")), ("Fail", 10));
    assert_eq!((hook.text("reinvocationPolicy"), hook.int("clientConfig.service.port")), ("Never", 443));
    let mut bare = json!({"spec": {"policyName": "p"}});
    binding::KIND.rules.default(&mut bare);
    assert_eq!(bare, json!({"spec": {"policyName": "p"}}), "a binding without matchResources has none");
}

#[test]
fn expressions_are_compiled_where_they_stand() {
    let wrong = "compilation failed: ERROR: <input>:1:1: undeclared reference to";
    assert_eq!(
        check_policy(json!({"validations": [{"expression": "frob", "messageExpression": "true"}]})),
        format!(
            "[validations[0].expression: Invalid value: \"frob\": {wrong} 'frob', validations[0].messageExpression: \
             Invalid value: \"true\": must evaluate to string but got bool]"
        )
    );
    assert_eq!(
        check_policy(json!({"validations": [{"expression": "'a'"}]})),
        "validations[0].expression: Invalid value: \"'a'\": must evaluate to bool but got string"
    );
    assert_eq!(
        check_policy(json!({"auditAnnotations": [{"key": "k", "valueExpression": " true "}]})),
        "auditAnnotations[0].valueExpression: Invalid value: \" true \": must evaluate to one of [string null_type] but \
         got bool"
    );
    assert_eq!(check_policy(json!({"auditAnnotations": [{"key": "k", "valueExpression": "null"}]})), "[]");
    assert_eq!(
        check_policy(json!({"matchConditions": [{"name": "a", "expression": " frob "}]})),
        format!("matchConditions[0].expression: Invalid value: \"frob\": {wrong} 'frob'"),
        "shown as it is compiled"
    );
}

#[test]
fn each_place_has_its_names() {
    let params = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let everywhere = |text: &str| {
        json!({"validations": [{"expression": text, "messageExpression": text}],
            "matchConditions": [{"name": "a", "expression": text}],
            "auditAnnotations": [{"key": "k", "valueExpression": text}],
            "variables": [{"name": "v", "expression": text}]})
    };
    let fields = |found: &str| -> Vec<String> {
        found.split(": Invalid value").filter_map(|part| Some(part.rsplit_once(['[', ' '])?.1.to_owned())).collect()
    };
    let without = check_policy(everywhere("params"));
    assert_eq!(without.matches("undeclared reference to 'params'").count(), 5, "{without}");
    let mut with = everywhere("params");
    with.put("paramKind", params);
    assert_eq!(check_policy(with), "[]");
    let found = check_policy(everywhere("allowed get"));
    assert_eq!(found.matches("undeclared reference to 'authorizer'").count(), 1, "{found} {:?}", fields(&found));
    assert!(found.starts_with("validations[0].messageExpression: "), "{found}");
    let found = check_policy(json!({
        "variables": [{"name": "v", "expression": "true"}],
        "validations": [{"expression": "variables.v"}, {"expression": "variables.w"}],
        "matchConditions": [{"name": "a", "expression": "variables.v"}],
    }));
    assert!(found.contains("matchConditions[0].expression: Invalid value: \"variables.v\""), "{found}");
    assert!(found.contains("validations[1].expression: Invalid value: \"variables.w\""), "{found}");
    assert_eq!(found.matches("Invalid value").count(), 2, "{found}");
    assert!(check_webhook(json!({"matchConditions": [{"name": "a", "expression": "params"}]})).contains("undeclared"));
}

#[test]
fn a_policy_says_what_it_is_about() {
    assert_eq!(
        check_policy(json!({"matchConstraints": {"resourceRules": []}})),
        "matchConstraints.resourceRules: Required value"
    );
    assert_eq!(
        check_policy(json!({"validations": []})),
        "[validations: Required value: validations or auditAnnotations must contain at least one item, \
         auditAnnotations: Required value: validations or auditAnnotations must contain at least one item]"
    );
    let kind = |kind: Value| check_policy(json!({"paramKind": kind})).replace("paramKind.", "");
    assert_eq!(kind(json!({})), "[apiVersion: Required value, kind: Required value]");
    assert_eq!(
        kind(json!({"apiVersion": "a/b/c", "kind": "K"})),
        "apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"
    );
    assert_eq!(
        kind(json!({"apiVersion": "a/", "kind": "K"})),
        "apiVersion: Invalid value: \"a/\": version must be specified"
    );
    assert!(
        kind(json!({"apiVersion": "v1", "kind": "K_"})).starts_with(
            "kind: Invalid value: \"K_\": may have mixed case, but should otherwise match: a DNS-1035 label"
        )
    );
}

#[test]
fn wildcards_stand_alone() {
    let with = |change: (&str, Value)| {
        let mut rule =
            json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
        rule.put(change.0, change.1);
        check_webhook(json!({"rules": [rule]})).replace("rules[0].", "")
    };
    for (field, what) in [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let why = format!(": Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other {what}");
        assert_eq!(with((field, json!(["*", "CREATE"]))), format!("{field}{why}"));
    }
    assert_eq!(with(("resources", json!(["services", "*"]))), "[]", "a quirk of the original");
    assert_eq!(
        with(("resources", json!(["pods/*", "pods/log", "*/status", "a/status", "*/*"]))),
        "[resources[1]: Invalid value: \"pods/log\": if 'pods/*' is present, must not specify pods/log, resources[3]: \
         Invalid value: \"a/status\": if '*/status' is present, must not specify a/status, resources: Invalid value: \
         [\"pods/*\",\"pods/log\",\"*/status\",\"a/status\",\"*/*\"]: if '*/*' is present, must not specify other resources]"
    );
    assert_eq!(
        with(("scope", json!("All"))),
        "scope: Unsupported value: \"All\": supported values: \"*\", \"Cluster\", \"Namespaced\""
    );
}

#[test]
fn webhooks_are_somewhere() {
    let at = |config: Value| check_webhook(json!({"clientConfig": config})).replace("clientConfig", "C");
    assert_eq!(at(json!({"url": "https://a.example.com:1/x"})), "[]");
    assert_eq!(
        at(json!({"url": "https://me@/x?y#z"})),
        "[C.url: Invalid value: \"\": host must be specified; desired format: https://host[/path], C.url: Invalid value: \
         \"me\": user information is not permitted in the URL, C.url: Invalid value: \"z\": fragments are not permitted in \
         the URL, C.url: Invalid value: \"y\": query parameters are not permitted in the URL]"
    );
    assert_eq!(
        at(json!({"url": ":x"})),
        "C.url: Required value: url must be a valid URL: parse \":x\": missing protocol scheme; desired format: \
         https://host[/path]"
    );
    assert_eq!(
        at(json!({"service": {"name": "s", "port": 0, "path": "a//"}})),
        "[C.service.name: Required value, C.service.port: Invalid value: 0: port is not valid: must be between 1 and \
         65535, inclusive, C.service.path: Invalid value: \"a//\": must start with a '/', C.service.path: Invalid value: \
         \"a//\": segment[0] may not be empty, C.service.path: Invalid value: \"a//\": segment[1] may not be empty]",
        "a missing namespace is reported as a missing name, as by kube-apiserver"
    );
    assert_eq!(
        at(json!({"url": "https://a", "service": {}})),
        "C: Required value: exactly one of url or service is required"
    );
}

#[test]
fn versions_of_reviews_are_known() {
    let with = |versions: Value| check_webhook(json!({"admissionReviewVersions": versions}));
    assert_eq!(with(json!(["v2", "v1beta1"])), "[]");
    assert_eq!(
        with(json!(["v2", "v2"])),
        "[admissionReviewVersions[1]: Invalid value: \"v2\": duplicate version, admissionReviewVersions: Invalid value: \
         [\"v2\",\"v2\"]: must include at least one of v1, v1beta1]"
    );
}

#[test]
fn conditions_that_stay_are_not_compiled_again() {
    let old = webhook(json!({"matchConditions": [{"name": "a", "expression": "frob"}]}));
    let mut new = old.clone();
    let check = |new: &Value| summary(|errors| webhooks::validate(new, Some(&old), true, &Fake, errors));
    assert_eq!(check(&new), "[]");
    new.items_mut("webhooks")[0].put("matchConditions", json!([{"name": "b", "expression": "frob"}]));
    assert!(check(&new).contains("matchConditions[0].expression: Invalid value: \"frob\""));
}

#[test]
fn some_names_are_reserved() {
    let named = |name: &str| {
        let mut object = webhook(json!({}));
        object.put("metadata.name", name);
        object
    };
    let reserved = "names ending with \".static.k8s.io\" are reserved for static manifest-based configurations and cannot \
                    be managed via the API";
    let object = named("a.static.k8s.io");
    assert_eq!(
        summary(|errors| webhooks::MUTATING.rules.validate_create(&object, errors)),
        format!("metadata.name: Invalid value: \"a.static.k8s.io\": {reserved}")
    );
    let mut warnings = Vec::new();
    webhooks::MUTATING.rules.warnings(&object, Some(&object), &mut warnings);
    assert_eq!(warnings, [format!("metadata.name: {reserved}")]);
}

#[test]
fn rules_without_effect_are_warned_of() {
    let rule = |groups: Value, resources: Value| {
        let object = webhook(json!({"rules": [{"apiGroups": groups, "resources": resources}]}));
        let mut warnings = Vec::new();
        webhooks::VALIDATING.rules.warnings(&object, None, &mut warnings);
        warnings
    };
    assert_eq!(
        rule(json!(["", "authentication.k8s.io"]), json!(["pods", "tokenreviews", "tokenreviews"])),
        [
            "webhooks[0].rules[0]: tokenreviews.authentication.k8s.io is excluded from admission webhooks; this rule will have \
          no effect"
        ]
    );
    assert_eq!(rule(json!(["*"]), json!(["tokenreviews"])), Vec::<String>::new());
}

#[test]
fn rows_name_parameters() {
    let cell = |reference: Value| {
        let object = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "paramRef": reference}});
        (binding::KIND.table_view.row)(&object, jiff::Timestamp::UNIX_EPOCH)[2].clone()
    };
    assert_eq!(cell(json!({"name": "x"})), "*/x");
    assert_eq!(cell(json!({"name": "x", "namespace": "n"})), "n/x");
    assert_eq!(cell(Value::Null), "<unset>");
    assert_eq!(
        cell(json!({"selector": {"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "k", "operator": "In", "values": ["v", "w"]}]}})),
        "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{\
         LabelSelectorRequirement{Key:k,Operator:In,Values:[v w],},},}"
    );
    let object = policy(json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}));
    let cells = (policy::KIND.table_view.row)(&object, jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(cells[1..3], [json!(1), json!("v1/ConfigMap")]);
    let cells = (policy::KIND.table_view.row)(&policy(json!({})), jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(cells[2], "<unset>");
}

#[test]
fn bindings_point_at_parameters() {
    let check = |spec: Value| {
        let object = json!({"metadata": {"name": "b"}, "spec": spec});
        summary(|errors| binding::KIND.rules.validate_create(&object, errors)).replace("spec.", "")
    };
    assert_eq!(check(json!({})), "[policyName: Required value, validationActions: Required value]");
    assert_eq!(
        check(json!({"policyName": "p", "validationActions": ["Deny"], "paramRef":
            {"name": "a", "selector": {}, "parameterNotFoundAction": "Frob"}})),
        "[paramRef.name: Forbidden: name and selector are mutually exclusive, paramRef.selector: Forbidden: name and \
         selector are mutually exclusive, paramRef.parameterNotFoundAction: Unsupported value: \"Frob\": supported \
         values: \"Deny\", \"Allow\"]"
    );
}

#[test]
fn a_status_keeps_metadata_and_spec() {
    let mut old = policy(json!({}));
    old.put("metadata.resourceVersion", "1");
    old.put("metadata.labels", json!({"a": "b"}));
    let mut new = old.clone();
    new.put("metadata.labels", json!({"a": "c"}));
    new.put("spec.failurePolicy", "Ignore");
    new.put("status.observedGeneration", 1);
    policy::KIND.rules.prepare_status(&mut new, &old);
    assert_eq!((new.text("metadata.labels.a"), new.text("spec.failurePolicy")), ("b", "Fail"));
    assert_eq!(new.int("status.observedGeneration"), 1);
    new.put("status.typeChecking", json!({"expressionWarnings": [{"fieldRef": " "}]}));
    new.put("status.conditions", json!([{"type": "A", "status": "Maybe", "reason": "no-no"}]));
    let found = summary(|errors| policy::KIND.rules.validate_status(&new, &old, errors));
    let warnings = "status.typeChecking.expressionWarnings[0]";
    assert!(found.starts_with(&format!("[{warnings}.warning: Required value, {warnings}.fieldRef: Required value")));
    assert!(found.contains("status.conditions[0].status: Unsupported value: \"Maybe\": supported values: \"False\""));
    assert!(found.contains("status.conditions[0].lastTransitionTime: Required value"), "{found}");
    assert!(found.contains("status.conditions[0].reason: Invalid value: \"no-no\": a condition reason must start"));
}

#[test]
fn expressions_of_policies_are_checked_by_the_language() {
    let found = |expression: &str| {
        let object = policy(json!({"validations": [{"expression": expression}]}));
        summary(|errors| policy::validate(&object, None, &Cel, errors))
    };
    assert_eq!(found("object.spec.replicas < 5 && request.userInfo.username != ''"), "[]");
    assert!(found("request.user == ''").contains("compilation failed: ERROR: <input>:1:8: undefined field 'user'"));
    assert!(found("1 + 1").contains("must evaluate to bool but got int"));
}
