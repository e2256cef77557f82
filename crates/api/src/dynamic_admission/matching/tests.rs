use serde_json::json;

use super::*;
use crate::kinds::{deployment, event, events_event, namespace, node, pod};

const NULL: &Value = &Value::Null;

fn request<'a>(operation: Operation, kind: &'static Kind, namespace: &'a str, object: &'a Value) -> Request<'a> {
    Request {
        operation,
        kind,
        subresource: None,
        namespace,
        name: "x",
        object,
        old_object: NULL,
        options: NULL,
        dry_run: false,
        user: NULL,
    }
}

fn namespaces(name: &str) -> Option<Facts> {
    (name != "gone").then(|| labels(&json!({"metadata": {"labels": {"name": name}}})))
}

fn webhook(rule: Value) -> Value {
    let mut whole = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]});
    let Value::Object(rule) = rule else { panic!("no object") };
    for (key, value) in rule {
        whole.put(&key, value);
    }
    json!({"rules": [whole], "matchPolicy": "Exact", "namespaceSelector": {}, "objectSelector": {}})
}

fn found(webhook: &Value, request: &Request<'_>) -> bool {
    Criteria::of_webhook(webhook).matches(request, &namespaces).expect("no error").is_some()
}

#[test]
fn rules_name_operation_group_version_and_resource() {
    let object = json!({});
    let create = request(Operation::Create, &pod::KIND, "n", &object);
    for (rule, wanted) in [
        (json!({}), true),
        (json!({"operations": ["UPDATE", "CREATE"]}), true),
        (json!({"operations": ["UPDATE"]}), false),
        (json!({"apiGroups": [""]}), true),
        (json!({"apiGroups": ["apps"]}), false),
        (json!({"apiVersions": ["v1"]}), true),
        (json!({"apiVersions": ["v2"]}), false),
        (json!({"resources": ["services", "pods"]}), true),
        (json!({"resources": ["pods/status"]}), false),
        (json!({"resources": ["*/*"]}), true),
        (json!({"resources": []}), false),
    ] {
        assert_eq!(found(&webhook(rule.clone()), &create), wanted, "{rule}");
    }
}

#[test]
fn parts_are_named_on_their_own() {
    let object = json!({});
    let status = pod::KIND.subresource("status");
    assert!(status.is_some());
    let update = Request { subresource: status, ..request(Operation::Update, &pod::KIND, "n", &object) };
    for (resources, wanted) in [
        (json!(["pods"]), false),
        (json!(["*"]), false),
        (json!(["pods/status"]), true),
        (json!(["pods/*"]), true),
        (json!(["*/status"]), true),
        (json!(["*/*"]), true),
        (json!(["nodes/status"]), false),
    ] {
        assert_eq!(found(&webhook(json!({"resources": resources})), &update), wanted, "{resources}");
    }
    let scale = Request {
        kind: &deployment::KIND,
        subresource: deployment::KIND.subresource("scale"),
        ..request(Operation::Update, &deployment::KIND, "n", &object)
    };
    let form = Criteria::of_webhook(&webhook(json!({"resources": ["*/scale"]}))).matches(&scale, &namespaces);
    let form = form.expect("no error").expect("a match");
    assert_eq!((form.kind_group, form.kind_version, form.kind), ("autoscaling", "v1", "Scale"));
    assert_eq!((form.group, form.version, form.resource), ("apps", "v1", "deployments"));
}

#[test]
fn namespaces_are_of_the_cluster() {
    let object = json!({});
    let of = |kind, name| request(Operation::Create, kind, name, &object);
    let scope = |scope: &str| webhook(json!({"scope": scope}));
    assert!(found(&scope("Namespaced"), &of(&pod::KIND, "n")) && !found(&scope("Cluster"), &of(&pod::KIND, "n")));
    assert!(found(&scope("Cluster"), &of(&node::KIND, "")) && !found(&scope("Namespaced"), &of(&node::KIND, "")));
    assert!(found(&scope("Cluster"), &of(&namespace::KIND, "n")));
    assert!(!found(&scope("Namespaced"), &of(&namespace::KIND, "n")));
    assert!(!found(&scope("Frob"), &of(&pod::KIND, "n")));
}

#[test]
fn selectors_look_at_namespace_and_objects() {
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let mut hook = webhook(json!({}));
    hook.put("namespaceSelector", json!({"matchLabels": {"name": "n"}}));
    assert!(found(&hook, &request(Operation::Create, &pod::KIND, "n", &labelled)));
    assert!(!found(&hook, &request(Operation::Create, &pod::KIND, "other", &labelled)));
    assert!(
        found(&hook, &request(Operation::Create, &node::KIND, "", &labelled)),
        "nothing exempts cluster-wide objects"
    );
    let namespace = json!({"metadata": {"name": "m", "labels": {"name": "n"}}});
    assert!(found(&hook, &request(Operation::Update, &namespace::KIND, "m", &namespace)), "by its own labels");
    assert!(!found(&hook, &request(Operation::Delete, &namespace::KIND, "m", NULL)), "by its stored labels");

    hook.put("namespaceSelector", json!({}));
    hook.put("objectSelector", json!({"matchLabels": {"a": "b"}}));
    let plain = json!({"metadata": {}});
    assert!(found(&hook, &request(Operation::Create, &pod::KIND, "n", &labelled)));
    assert!(!found(&hook, &request(Operation::Create, &pod::KIND, "n", &plain)));
    let update = Request { old_object: &labelled, ..request(Operation::Update, &pod::KIND, "n", &plain) };
    assert!(found(&hook, &update), "the old object counts too");
}

#[test]
fn a_missing_namespace_fails_only_where_the_rules_match() {
    let object = json!({});
    let mut hook = webhook(json!({"resources": ["pods"]}));
    hook.put("namespaceSelector", json!({"matchLabels": {"name": "n"}}));
    let criteria = Criteria::of_webhook(&hook);
    let missing = criteria.matches(&request(Operation::Create, &pod::KIND, "gone", &object), &namespaces);
    let missing = missing.expect_err("the namespace is gone");
    assert_eq!((missing.code, missing.message.as_str()), (404, "namespaces \"gone\" not found"));
    let other = criteria.matches(&request(Operation::Create, &deployment::KIND, "gone", &object), &namespaces);
    assert_eq!(other, Ok(None));
}

#[test]
fn equivalent_requests_match_unless_the_policy_is_exact() {
    let object = json!({"metadata": {"name": "e"}, "reason": "r", "reportingComponent": "c", "kind": "Event",
        "apiVersion": "v1", "involvedObject": {"kind": "Pod"}, "message": "m"});
    let create = request(Operation::Create, &event::KIND, "n", &object);
    let mut hook = webhook(json!({"apiGroups": ["events.k8s.io"], "resources": ["events"]}));
    assert!(!found(&hook, &create));
    hook.put("matchPolicy", "Equivalent");
    let form = Criteria::of_webhook(&hook).matches(&create, &namespaces).expect("no error").expect("a match");
    assert_eq!(form, Form::of(&events_event::KIND, None));
    let (converted, old) = create.objects(&form);
    assert_eq!(converted.text("apiVersion"), "events.k8s.io/v1");
    assert_eq!((converted.text("note"), converted.text("regarding.kind")), ("m", "Pod"));
    assert_eq!(old, Value::Null);
    let described = create.describe(&form);
    assert_eq!(described.text("kind.group"), "events.k8s.io");
    assert_eq!(described.at("requestKind"), &json!({"group": "", "version": "v1", "kind": "Event"}));
    // The request's own form is preferred.
    let mut both = hook.clone();
    both.put("rules", json!([hook.items("rules")[0], webhook(json!({"apiGroups": [""]})).items("rules")[0]]));
    let form = Criteria::of_webhook(&both).matches(&create, &namespaces).expect("no error");
    assert_eq!(form, Some(Form::of(&event::KIND, None)));
}

#[test]
fn policies_exclude_and_name_objects() {
    let object = json!({});
    let rule = webhook(json!({})).items("rules")[0].clone();
    let named = |names: Value| {
        let mut rule = rule.clone();
        rule.put("resourceNames", names);
        rule
    };
    let resources = |rules: Value, excluded: Value| {
        Criteria::of_resources(&json!({"resourceRules": rules, "excludeResourceRules": excluded,
            "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}))
    };
    let create = request(Operation::Create, &pod::KIND, "n", &object);
    let matches = |criteria: Criteria| criteria.matches(&create, &namespaces).expect("no error").is_some();
    assert!(matches(resources(json!([]), json!([]))), "without rules, everything");
    assert!(matches(resources(json!([named(json!(["x", "y"]))]), json!([]))));
    assert!(!matches(resources(json!([named(json!(["y"]))]), json!([]))));
    assert!(!matches(resources(json!([rule]), json!([named(json!(["x"]))]))));
    assert!(matches(resources(json!([rule]), json!([named(json!(["y"]))]))));
    assert!(
        !Criteria::of_webhook(&json!({"namespaceSelector": {}, "objectSelector": {}}))
            .matches(&create, &namespaces)
            .is_ok_and(|form| form.is_some()),
        "a webhook without rules is never called"
    );
}

#[test]
fn configurations_and_reviews_are_exempt() {
    let object = json!({});
    let of = |plural: &str, group: &str| {
        let kind = kinds::find(group, "v1", plural).expect("a kind");
        request(Operation::Create, kind, "", &object).is_exempt()
    };
    assert!(of("validatingadmissionpolicies", super::super::GROUP));
    assert!(of("mutatingwebhookconfigurations", super::super::GROUP));
    assert!(of("subjectaccessreviews", "authorization.k8s.io") && of("tokenreviews", "authentication.k8s.io"));
    assert!(!of("pods", "") && !of("clusterroles", "rbac.authorization.k8s.io"));
}

#[test]
fn a_refusal_has_the_best_name_there_is() {
    let refused = |name: &'static str, object: Value| {
        let request = Request { name, ..request(Operation::Create, &pod::KIND, "n", &object) };
        request.refuse("why").message
    };
    assert_eq!(refused("a", json!({})), "pods \"a\" is forbidden: why");
    assert_eq!(refused("", json!({"metadata": {"generateName": "g-"}})), "pods \"g-\" is forbidden: why");
    assert_eq!(refused("", json!({})), "pods \"Unknown\" is forbidden: why");
}
