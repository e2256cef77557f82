//! Custom resources (B07) beyond the recorded answers: what clients, restarts, deletions and permissions make of them.

mod conversion;

use serde_json::{Value, json};
use testbed::session::Session;
use testbed::{Home, Server};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A definition with a status, a scale, a column, a selectable field, a default and a rule.
fn definition() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "color": {"type": "string", "default": "red", "maxLength": 20, "description": "The color of a widget."},
                    "replicas": {"type": "integer", "minimum": 0},
                },
                "x-kubernetes-validations": [
                    {"rule": "self.color != 'green' || self.replicas < 3", "message": "green widgets are rare"},
                ],
            },
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
            }],
        },
    })
}

fn widget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
}

/// Creates a definition and waits until it is established.
fn define(session: &mut Session, definition: &Value) {
    let name = definition["metadata"]["name"].as_str().expect("a name").to_owned();
    let created = session.post(DEFINITIONS, definition).success();
    let from = created["metadata"]["resourceVersion"].as_str().expect("a revision");
    let query = format!("&fieldSelector=metadata.name={name}&resourceVersion={from}");
    let is_established = |_: &str, object: &Value| {
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    };
    if !is_established("", &session.get(&format!("{DEFINITIONS}/{name}")).success()) {
        session.watch(DEFINITIONS, &query).until(is_established);
    }
}

fn established() -> (Server, Session) {
    let server = Server::start();
    let mut session = server.session();
    define(&mut session, &definition());
    (server, session)
}

#[test]
fn b07_kubectl_uses_a_custom_resource_like_any_other() {
    let (server, _session) = established();
    let kubectl = |line: &str| server.kubectl(line).success();
    let input = widget("a", &json!({"replicas": 1})).to_string();
    assert_eq!(server.kubectl_with(&["apply", "-f", "-"], &input).success().trim(), "widget.example.com/a created");
    assert_eq!(server.kubectl_with(&["apply", "-f", "-"], &input).success().trim(), "widget.example.com/a unchanged");
    let changed = widget("a", &json!({"replicas": 4})).to_string();
    assert_eq!(
        server.kubectl_with(&["apply", "-f", "-"], &changed).success().trim(),
        "widget.example.com/a configured"
    );
    let table = kubectl("get wd");
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((words[0][..2].to_vec(), words[1][..2].to_vec()), (vec!["NAME", "COLOR"], vec!["a", "red"]), "{table}");
    assert!(kubectl("get all").contains("widget.example.com/a"));
    assert!(kubectl("explain widgets.spec.color").contains("The color of a widget."));
    assert!(kubectl("api-resources --api-group=example.com").contains("Widget"));
    kubectl("scale widget/a --replicas=2");
    assert_eq!(kubectl("get widget a -o jsonpath={.spec.replicas}"), "2");
    kubectl("label widget a size=big");
    assert_eq!(kubectl("get widgets -l size=big -o name").trim(), "widget.example.com/a");
    kubectl("delete widget a");
    assert_eq!(kubectl("get widgets -o name"), "");
}

#[test]
fn b07_rules_in_cel_see_the_whole_object_on_every_path_of_a_write() {
    let (_server, mut session) = established();
    let refused = session.post(WIDGETS, &widget("a", &json!({"color": "green", "replicas": 3}))).refused(422);
    assert!(refused.contains("green widgets are rare"), "{refused}");
    drop(session.post(WIDGETS, &widget("a", &json!({"color": "green", "replicas": 2}))).success());
    let patch = json!({"spec": {"replicas": 3}});
    assert!(session.merge(&format!("{WIDGETS}/a"), &patch).refused(422).contains("green widgets are rare"));
    let scale = format!("{WIDGETS}/a/scale");
    assert!(session.merge(&scale, &patch).refused(422).contains("green widgets are rare"));
    assert_eq!(session.get(&scale).success()["spec"]["replicas"], 2);
}

#[test]
fn b07_objects_selectors_and_schemas_survive_a_restart() {
    let home = testbed::folder();
    let mut server = Server::start_with(Home::Kept(home.path().to_owned()), &[]);
    let mut session = server.session();
    define(&mut session, &definition());
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "blue")] {
        drop(session.post(WIDGETS, &widget(name, &json!({"color": color, "replicas": 1}))).success());
    }
    server.kill();
    let server = Server::start_with(Home::Kept(home.path().to_owned()), &[]);
    let mut session = server.session();
    assert_eq!(session.names(&format!("{WIDGETS}?fieldSelector=spec.color%3Dblue")), ["b", "c"]);
    assert_eq!(session.names(&format!("{WIDGETS}?labelSelector=app%3Da")), ["a"]);
    let refused = session.post(WIDGETS, &widget("d", &json!({"replicas": -1}))).refused(422);
    assert!(refused.contains("spec.replicas"), "{refused}");
}

#[test]
fn b07_namespaces_and_owners_take_their_custom_resources_with_them() {
    let (_server, mut session) = established();
    drop(session.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).success());
    let team = WIDGETS.replace("default", "team");
    drop(session.post(&team, &widget("a", &json!({}))).success());
    let owner = session.post(WIDGETS, &widget("owner", &json!({}))).success();
    let reference =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "owner", "uid": owner["metadata"]["uid"]});
    let mut dependent = json!({"metadata": {"name": "dependent", "ownerReferences": [reference]}, "data": {}});
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = session.post(maps, &dependent).success();
    dependent["apiVersion"] = "example.com/v1".into();
    dependent["kind"] = "Widget".into();
    dependent.as_object_mut().expect("an object").remove("data");
    let child = session.post(WIDGETS, &dependent).success();
    let revision = |object: &Value| object["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
    drop(session.delete(&format!("{WIDGETS}/owner")).success());
    let gone = |kind: &str, _: &Value| kind == "DELETED";
    session
        .watch(maps, &format!("&fieldSelector=metadata.name=dependent&resourceVersion={}", revision(&map)))
        .until(gone);
    session
        .watch(WIDGETS, &format!("&fieldSelector=metadata.name=dependent&resourceVersion={}", revision(&child)))
        .until(gone);
    drop(session.delete("/api/v1/namespaces/team").success());
    let query = format!("&fieldSelector=metadata.name=team&resourceVersion={}", revision(&child));
    session.watch("/api/v1/namespaces", &query).until(gone);
    assert_eq!(session.names(&team), Vec::<String>::new());
}

#[test]
fn b07_a_role_grants_verbs_on_custom_resources_and_nothing_else() {
    let (server, mut session) = established();
    drop(session.post(WIDGETS, &widget("a", &json!({}))).success());
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = json!([{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get", "list"]}]);
    drop(session.post(&format!("{roles}/roles"), &json!({"metadata": {"name": "reader"}, "rules": rules})).success());
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    drop(session.post(&format!("{roles}/rolebindings"), &binding).success());
    let can = |line: &str| server.kubectl(&format!("auth can-i {line} --as=alice")).out.trim().to_owned();
    assert_eq!(can("list widgets.example.com"), "yes");
    assert_eq!(can("create widgets.example.com"), "no");
    assert_eq!(can("update widgets.example.com --subresource=status"), "no");
    assert!(server.kubectl("get widget a --as=alice").success().contains("red"));
    assert!(server.kubectl("delete widget a --as=alice").failure().contains("forbidden"));
}

/// A request may be allowed because of the name in its URL.
#[test]
fn b07_a_create_at_the_url_of_an_object_creates_that_object_and_no_other() {
    let (_server, mut session) = established();
    let refused = session.post(&format!("{WIDGETS}/a"), &widget("b", &json!({}))).refused(400);
    assert!(refused.contains("does not match the name on the URL"), "{refused}");
    assert_eq!(session.names(WIDGETS), Vec::<String>::new());
    drop(session.post(&format!("{WIDGETS}/a"), &widget("a", &json!({}))).success());
    assert_eq!(session.names(WIDGETS), ["a"]);
}

#[test]
fn b07_a_large_definition_is_applied_on_the_server_twice() {
    let server = Server::start();
    let mut definition = definition();
    let mut properties = json!({});
    for index in 0..1500 {
        properties[format!("field{index}")] =
            json!({"type": "string", "maxLength": 63, "description": format!("Field {index}. {}", "text ".repeat(30))});
    }
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["more"] =
        json!({"type": "object", "properties": properties});
    let input = definition.to_string();
    assert!(input.len() > 300_000, "{}", input.len());
    let apply = ["apply", "--server-side", "-f", "-"];
    for _ in 0..2 {
        let out = server.kubectl_with(&apply, &input).success();
        assert_eq!(out.trim(), "customresourcedefinition.apiextensions.k8s.io/widgets.example.com serverside-applied");
    }
    drop(server.kubectl("wait --for=condition=Established crd/widgets.example.com --timeout=30s").success());
}

#[test]
fn b07_a_definition_that_would_be_expensive_is_refused() {
    let server = Server::start();
    let mut session = server.session();
    let mut with_schema = |schema: Value| {
        let mut definition = definition();
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = schema;
        definition["spec"]["versions"][0].as_object_mut().expect("a version").remove("selectableFields");
        session.post(DEFINITIONS, &definition).refused(422)
    };
    let nested = "self.all(a, self.all(b, self.all(c, a.contains(b) && b.contains(c))))";
    let refused = with_schema(json!({
        "type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [{"rule": nested}],
    }));
    assert!(refused.contains("cost"), "{refused}");
    let refused = with_schema(json!({"type": "string", "pattern": "(a{1000}){1000}"}));
    assert!(refused.contains("pattern"), "{refused}");
    let refused = with_schema(json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.nothing > 1"}]}));
    assert!(refused.contains("undefined field"), "{refused}");
    let refused = with_schema(json!({"properties": {"a": {"type": "string"}}}));
    assert!(refused.contains("spec.type") || refused.contains("Required value"), "{refused}");
}
