use serde_json::json;

use super::*;
use crate::dynamic_admission::fake::{Fake, OneVerb};
use crate::dynamic_admission::request::Operation;
use crate::kinds::{namespace, node, service};

/// Two namespaces, and ConfigMaps with a number each.
struct World;

struct ConfigMaps;

impl Cluster for World {
    fn namespace(&self, name: &str) -> Option<Value> {
        (name != "gone").then(|| {
            json!({"kind": "Namespace", "apiVersion": "v1",
                "metadata": {"name": name, "labels": {"env": name}, "managedFields": [{}]}})
        })
    }

    fn params(&self, kind: &ParamKind) -> Option<Box<dyn Params + '_>> {
        (kind.kind == "ConfigMap").then(|| Box::new(ConfigMaps) as Box<dyn Params>)
    }
}

impl Params for ConfigMaps {
    fn namespaced(&self) -> bool {
        true
    }

    fn get(&self, namespace: &str, name: &str) -> Option<Value> {
        self.list(namespace).into_iter().find(|object| object.text("metadata.name") == name)
    }

    fn list(&self, namespace: &str) -> Vec<Value> {
        let make = |name: &str| {
            json!({"kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace, "labels": {"is": "param"}},
                "data": {"max": name}})
        };
        ["one", "two"].into_iter().map(make).collect()
    }
}

fn policy(spec: Value) -> Policy {
    let mut object = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": [
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]}}});
    let Value::Object(spec) = spec else { panic!("no object") };
    for (key, value) in spec {
        object.put(&format!("spec.{key}"), value);
    }
    kinds::admissionregistration::policy::KIND.rules.default(&mut object);
    Policy::read(&object, &Fake)
}

fn binding(spec: Value) -> Binding {
    let mut object = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    let Value::Object(spec) = spec else { panic!("no object") };
    for (key, value) in spec {
        object.put(&format!("spec.{key}"), value);
    }
    kinds::admissionregistration::binding::KIND.rules.default(&mut object);
    Binding::read(&object)
}

fn ask(policy: &Policy, binding: &Binding, change: impl FnOnce(&mut Request<'_>)) -> Verdict {
    let object = json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {"type": "ClusterIP"}});
    let mut request = Request {
        operation: Operation::Create,
        kind: &service::KIND,
        subresource: None,
        namespace: "n",
        name: "web",
        object: &object,
        old_object: &Value::Null,
        options: &Value::Null,
        dry_run: true,
        user: &json!({"username": "zoe"}),
    };
    change(&mut request);
    decide([(policy, vec![binding])], &request, &World, &OneVerb("get")).expect("the namespace exists")
}

fn refusal(verdict: &Verdict) -> String {
    verdict.refusal.as_ref().map(|status| status.message.clone()).unwrap_or_default()
}

const DENIED: &str = "services \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";

/// What refuses a request for which the validations are these.
fn denied(validations: Value) -> String {
    let mut spec = json!({});
    spec.put("validations", validations);
    let verdict = ask(&policy(spec), &binding(json!({})), |_| {});
    refusal(&verdict).replacen(DENIED, "", 1)
}

#[test]
fn an_expression_that_is_false_refuses() {
    let object = policy(json!({"validations": [{"expression": "object.spec.type != 'ClusterIP'", "message": "m"}]}));
    let verdict = ask(&object, &binding(json!({})), |_| {});
    let message = format!("{DENIED}m");
    assert_eq!(
        verdict.refusal.map(|status| status.to_value()),
        Some(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": "Invalid", "code": 422, "details": {"name": "web", "kind": "services", "causes": [
                {"message": message.replace("services \"web\" is forbidden: ", "")}]},
        }))
    );
    assert_eq!(denied(json!([{"expression": "object.spec.type == 'ClusterIP'"}])), "");
}

#[test]
fn the_message_is_that_of_the_expression_then_the_own_then_the_expression() {
    let one = |expression: &str, message: &str| {
        denied(json!([{"expression": " false ", "messageExpression": expression, "message": message}]))
    };
    assert_eq!(one("", ""), "failed expression: false");
    assert_eq!(one("", " m "), "m");
    assert_eq!(one("' said '", "m"), "said");
    assert_eq!(one("' '", "m"), "m");
    assert_eq!(one("'a\nb'", "m"), "m", "of several lines");
    assert_eq!(one(&format!("'{}'", "x".repeat(6000)), "m"), "m", "too long");
    assert_eq!(one("error x", "m"), "m");
    assert_eq!(one("allowed get", "m"), "m", "messages have no authorizer");
    assert_eq!(one("object.metadata.name", "m"), "web");
}

#[test]
fn reasons_have_codes() {
    for (reason, code) in [("Forbidden", 403), ("Invalid", 422), ("RequestEntityTooLarge", 413)] {
        let object = policy(json!({"validations": [{"expression": "false", "reason": reason}]}));
        let status = ask(&object, &binding(json!({})), |_| {}).refusal.expect("a refusal");
        assert_eq!((status.code, status.reason), (code, Some(reason)));
    }
}

#[test]
fn only_the_first_failure_is_told() {
    let all = json!([{"expression": "true"}, {"expression": "false", "message": "one"}, {"expression": "false"}]);
    assert_eq!(denied(all), "one");
}

#[test]
fn errors_refuse_unless_they_are_ignored() {
    let validations = json!([{"expression": "object.spec.none == 'x'"}, {"expression": "false", "message": "second"}]);
    assert_eq!(
        denied(validations.clone()),
        "expression 'object.spec.none == 'x'' resulted in error: no such key: none"
    );
    let ignoring = policy(json!({"validations": validations, "failurePolicy": "Ignore"}));
    assert_eq!(refusal(&ask(&ignoring, &binding(json!({})), |_| {})), format!("{DENIED}second"));
    assert_eq!(
        denied(json!([{"expression": "frob"}])),
        "compilation error: compilation failed: ERROR: <input>:1:1: undeclared reference to 'frob'"
    );
}

#[test]
fn the_budget_is_for_all_validations_together() {
    let spent = json!([{"expression": "cost 6000000"}, {"expression": "cost 4000001"}, {"expression": "false"}]);
    assert_eq!(
        denied(spent),
        "validation failed due to running out of cost budget, no further validation rules will be run"
    );
    assert_eq!(
        denied(json!([{"expression": "cost 6000000", "messageExpression": "cost 4000001"}])),
        "failed messageExpression: validation failed due to running out of cost budget, no further validation rules \
         will be run",
        "even where the validation holds"
    );
}

#[test]
fn variables_are_evaluated_once_and_when_needed() {
    let object = |variable: &str, validations: Value| {
        policy(json!({"variables": [{"name": "v", "expression": variable}], "validations": validations}))
    };
    let unused = object("error x", json!([{"expression": "true"}]));
    assert_eq!(refusal(&ask(&unused, &binding(json!({})), |_| {})), "");
    let used = object("error x", json!([{"expression": "variables.v == 'x'"}]));
    let told = refusal(&ask(&used, &binding(json!({})), |_| {}));
    assert_eq!(told, format!("{DENIED}expression 'variables.v == 'x'' resulted in error: x"));
    let twice = object("cost 9999990", json!([{"expression": "variables.v"}, {"expression": "variables.v"}]));
    assert_eq!(refusal(&ask(&twice, &binding(json!({})), |_| {})), "");
}

#[test]
fn match_conditions_come_first() {
    let object = policy(json!({"validations": [{"expression": "false"}],
        "matchConditions": [{"name": "a", "expression": "object.spec.type == 'NodePort'"}]}));
    assert_eq!(ask(&object, &binding(json!({})), |_| {}), Verdict::default());
    let failing = policy(json!({"validations": [{"expression": "true"}],
        "matchConditions": [{"name": "a", "expression": "error x"}]}));
    let told = refusal(&ask(&failing, &binding(json!({})), |_| {}));
    assert_eq!(told, format!("{DENIED}expression 'error x' resulted in error: x"));
}

#[test]
fn bindings_choose_the_effect() {
    let object = policy(json!({"validations": [{"expression": "true"}, {"expression": "false", "message": "a<b"}]}));
    let warned = ask(&object, &binding(json!({"validationActions": ["Warn", "Audit"]})), |_| {});
    assert_eq!(warned.refusal, None);
    assert_eq!(warned.warnings, ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': a<b"]);
    let key = "validation.policy.admission.k8s.io/validation_failure";
    let value = "[{\"message\":\"a\\u003cb\",\"policy\":\"p\",\"binding\":\"b\",\"expressionIndex\":1,\
                 \"validationActions\":[\"Warn\",\"Audit\"]}]";
    assert_eq!(warned.annotations, [(key.to_owned(), value.to_owned())]);
}

#[test]
fn bindings_match_too() {
    let object = policy(json!({"validations": [{"expression": "false", "message": "m"}]}));
    let elsewhere = json!({"matchResources": {"namespaceSelector": {"matchLabels": {"env": "other"}}}});
    assert_eq!(ask(&object, &binding(elsewhere), |_| {}), Verdict::default());
    let here = json!({"matchResources": {"namespaceSelector": {"matchLabels": {"env": "n"}}}});
    assert_eq!(refusal(&ask(&object, &binding(here.clone()), |_| {})), format!("{DENIED}m"));
    let told = refusal(&ask(&object, &binding(here), |request| request.namespace = "gone"));
    assert_eq!(told, format!("{DENIED}failed to configure binding: namespaces \"gone\" not found"));
}

#[test]
fn parameters_are_looked_up() {
    let kind = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let object = policy(json!({"paramKind": kind, "validations": [
        {"expression": "params.data.max == 'one'", "messageExpression": "params.data.max"}]}));
    let with = |reference: Value| refusal(&ask(&object, &binding(json!({"paramRef": reference})), |_| {}));
    assert_eq!(with(json!({"name": "one", "parameterNotFoundAction": "Deny"})), "");
    assert_eq!(with(json!({"name": "two", "parameterNotFoundAction": "Deny"})), format!("{DENIED}two"));
    assert_eq!(
        with(json!({"name": "none", "parameterNotFoundAction": "Deny"})),
        format!(
            "{DENIED}failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
        )
    );
    assert_eq!(with(json!({"name": "none", "parameterNotFoundAction": "Allow"})), "");
    let selector = json!({"selector": {"matchLabels": {"is": "param"}}, "parameterNotFoundAction": "Deny"});
    assert_eq!(with(selector), format!("{DENIED}two"), "each of them must be content");
    let told = refusal(&ask(&object, &binding(json!({})), |_| {}));
    assert!(told.contains("no such key") || told.contains("resulted in error"), "null without a reference: {told}");
    let told = refusal(&ask(&object, &binding(json!({"paramRef": {"name": "one"}})), |request| {
        (request.kind, request.namespace) = (&node::KIND, "");
    }));
    assert!(told.ends_with("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"));
    let unknown = policy(json!({"paramKind": {"apiVersion": "a.b/v1", "kind": "Frob"},
        "validations": [{"expression": "true"}]}));
    assert_eq!(
        refusal(&ask(&unknown, &binding(json!({})), |_| {})),
        "services \"web\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to \
         find resource referenced by paramKind: 'a.b/v1, Kind=Frob'"
    );
}

#[test]
fn expressions_see_the_request() {
    for (expression, holds) in [
        ("request.operation == 'CREATE'", true),
        ("request.userInfo.username == 'zoe'", true),
        ("request.namespace == 'n'", true),
        ("request.resource.resource == 'services'", true),
        ("request.name == 'web'", true),
        ("oldObject == null", true),
        ("namespaceObject.metadata.labels.env == 'n'", true),
        ("allowed get", true),
        ("allowed list", false),
    ] {
        assert_eq!(denied(json!([{"expression": expression, "message": "no"}])).is_empty(), holds, "{expression}");
    }
    let managed = denied(json!([{"expression": "namespaceObject.metadata.managedFields == ''"}]));
    assert!(managed.ends_with("no such key: managedFields"), "{managed}");
    let object = policy(json!({"validations": [{"expression": "namespaceObject == null", "message": "m"}]}));
    let of_namespace = ask(&object, &binding(json!({})), |request| {
        (request.kind, request.name) = (&namespace::KIND, "n");
    });
    assert_eq!(of_namespace.refusal, None, "a Namespace is in none");
}

#[test]
fn annotations_are_published_under_the_name_of_the_policy() {
    let annotated = |expressions: &[&str], failure: &str| {
        let list: Vec<Value> = expressions.iter().map(|text| json!({"key": "k", "valueExpression": text})).collect();
        let object = policy(json!({"auditAnnotations": list, "failurePolicy": failure}));
        ask(&object, &binding(json!({})), |_| {})
    };
    let published = annotated(&["' a '", "'b'", "'a'", "null", "' '"], "Fail");
    assert_eq!(published.annotations, [("p/k".to_owned(), "a, b".to_owned())]);
    let long = annotated(&[&format!("'{}'", "é".repeat(6000))], "Fail");
    assert_eq!(long.annotations[0].1.len(), 10 * 1024);
    assert_eq!(refusal(&annotated(&["error x"], "Fail")), format!("{DENIED}expression 'error x' resulted in error: x"));
    assert_eq!(annotated(&["error x"], "Ignore"), Verdict::default());
    assert_eq!(
        refusal(&annotated(&["allowed get"], "Fail")),
        format!("{DENIED}expression 'allowed get' resulted in error: no such attribute(s): authorizer")
    );
    assert!(refusal(&annotated(&["object"], "Fail")).ends_with(
        "valueExpression 'object' resulted in unsupported return type: map. Return type must be either string or null."
    ));
}

#[test]
fn a_missing_namespace_is_an_answer_of_its_own() {
    let (object, bound) = (policy(json!({"validations": [{"expression": "true"}]})), binding(json!({})));
    let request = Request {
        operation: Operation::Delete,
        kind: &service::KIND,
        subresource: None,
        namespace: "gone",
        name: "web",
        object: &Value::Null,
        old_object: &Value::Null,
        options: &Value::Null,
        dry_run: false,
        user: &Value::Null,
    };
    let error = decide([(&object, vec![&bound])], &request, &World, &OneVerb("get")).expect_err("no namespace");
    assert_eq!((error.code, error.message.as_str()), (404, "namespaces \"gone\" not found"));
}

#[test]
fn configurations_of_admission_are_not_subject_to_it() {
    let object = policy(json!({"validations": [{"expression": "false"}]}));
    let verdict = ask(&object, &binding(json!({})), |request| {
        (request.kind, request.namespace) = (&kinds::admissionregistration::policy::KIND, "");
    });
    assert_eq!(verdict, Verdict::default());
}
