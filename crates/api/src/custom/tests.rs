use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::field::Errors;

/// An established definition with one or several versions; the first is stored.
fn definition(versions: &[(&str, Value)]) -> Value {
    let version = |(index, (name, schema)): (usize, &(&str, Value))| {
        json!({"name": name, "served": true, "storage": index == 0, "subresources": {"status": {}},
               "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}}})
    };
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "conversion": {"strategy": "None"}, "versions": versions,
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        },
        "status": {
            "acceptedNames": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}],
        },
    })
}

fn spec(field: &str) -> Value {
    json!({"type": "object", "properties": {field: {"type": "string", "default": "x"}}})
}

fn find(catalog: &Catalog, version: &str) -> Option<&'static crate::kind::Kind> {
    catalog.kinds().find("example.com", version, "widgets")
}

#[test]
fn a_definition_is_served_once_it_is_established_and_not_after_it_was_deleted() {
    let mut catalog = Catalog::default();
    let mut pending = definition(&[("v1", spec("a"))]);
    pending["status"]["conditions"] = json!([]);
    catalog.apply("widgets.example.com", Some(&pending), 5);
    assert!(find(&catalog, "v1").is_none());
    catalog.apply("widgets.example.com", Some(&definition(&[("v1", spec("a"))])), 6);
    let kind = find(&catalog, "v1").expect("a kind");
    assert_eq!((kind.kind, kind.table, kind.list_kind()), ("Widget", "example.com/widgets", "WidgetList".to_owned()));
    assert_eq!(catalog.kinds().by_table("example.com/widgets").map(|kind| kind.version), Some("v1"));
    assert!(catalog.kinds().is_custom_group("example.com") && !catalog.kinds().is_custom_group("apps"));
    catalog.apply("widgets.example.com", None, 7);
    assert!(find(&catalog, "v1").is_none() && !catalog.kinds().has_group("example.com"));
    let left = kind.rules.definition().expect("a custom kind");
    assert_eq!(*left.published, Value::Null, "what it compiled to is freed");
}

#[test]
fn a_new_schema_is_used_by_the_kind_that_requests_hold_already() {
    let mut catalog = Catalog::default();
    catalog.apply("widgets.example.com", Some(&definition(&[("v1", spec("a"))])), 5);
    let kind = find(&catalog, "v1").expect("a kind");
    catalog.apply("widgets.example.com", Some(&definition(&[("v1", spec("b"))])), 9);
    assert!(std::ptr::eq(kind, find(&catalog, "v1").expect("a kind")), "names are leaked once");
    let mut object = json!({"spec": {"a": "1"}});
    assert_eq!(kind.check(&mut object).expect("an object"), ["unknown field \"spec.a\""]);
    kind.rules.default(&mut object);
    assert_eq!(object, json!({"spec": {"b": "x"}}));
    assert!(
        kind.rules.converts(9) && !kind.rules.converts(10),
        "only later objects have been written with this schema"
    );
}

#[test]
fn objects_are_stored_as_the_storage_version_has_them() {
    let mut catalog = Catalog::default();
    catalog.apply("widgets.example.com", Some(&definition(&[("v1", spec("a")), ("v2", spec("b"))])), 5);
    let newer = find(&catalog, "v2").expect("a kind");
    assert!(newer.rules.converts(u64::MAX));
    let stored = newer.rules.shown_to_stored(json!({"spec": {"a": "1", "b": "2"}}));
    assert_eq!(stored, json!({"apiVersion": "example.com/v1", "spec": {"a": "1"}}));
    // Defaults are those of the stored version.
    assert_eq!(newer.rules.stored_to_shown(stored.clone()), json!({"apiVersion": "example.com/v1", "spec": {}}));
    let older = find(&catalog, "v1").expect("a kind");
    let (bytes, own) = (older.encode(&stored), older.rules.stored_to_shown(json!({"spec": {"b": "2"}})));
    assert_eq!(own, json!({"spec": {"a": "x"}}));
    assert!(newer.reshapes(&bytes, 9) && !newer.reshapes(&crate::object::encode_converted(stored), 9));
}

#[test]
fn generations_count_changes_of_everything_but_metadata_and_status() {
    let mut catalog = Catalog::default();
    catalog.apply("widgets.example.com", Some(&definition(&[("v1", spec("a"))])), 5);
    let rules = find(&catalog, "v1").expect("a kind").rules;
    let old = json!({"metadata": {"labels": {}}, "spec": {"a": "1"}, "status": {"n": 1}});
    assert!(!rules.new_generation(&json!({"metadata": {}, "spec": {"a": "1"}, "status": {"n": 2}}), &old));
    assert!(rules.new_generation(&json!({"spec": {"a": "2"}}), &old));
    assert!(rules.new_generation(&json!({"spec": {"a": "1"}, "more": 1}), &old));
    assert!(rules.new_generation(&json!({}), &old));
}

#[test]
fn the_type_is_checked_before_anything_else() {
    let mut catalog = Catalog::default();
    catalog.apply("widgets.example.com", Some(&definition(&[("v1", spec("a"))])), 5);
    let rules = find(&catalog, "v1").expect("a kind").rules;
    let mut errors = Errors::default();
    rules.validate_create(&json!({"kind": "Gadget", "spec": {"a": 1}}), &mut errors);
    let errors: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["kind: Invalid value: \"Gadget\": must be Widget"]);
}

#[test]
fn deprecated_versions_name_the_newest_version_that_is_not() {
    let mut crd = definition(&[("v1beta1", spec("a")), ("v1", spec("a")), ("v2", spec("a"))]);
    crd["spec"]["versions"][0]["deprecated"] = true.into();
    crd["spec"]["versions"][2]["served"] = false.into();
    let all = Definition::all(&crd, 1);
    let expected = "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget";
    assert_eq!(all[0].deprecation.as_deref(), Some(expected));
    assert_eq!(all[1].deprecation, None);
    crd["spec"]["versions"][0]["deprecationWarning"] = "use v1".into();
    assert_eq!(Definition::all(&crd, 1)[0].deprecation.as_deref(), Some("use v1"));
}

#[test]
fn tables_of_custom_resources_are_told_from_others() {
    assert_eq!(resource_of_table("example.com/widgets"), Some(("example.com", "widgets")));
    for table in ["services/specs", "pods", "nodeports", ""] {
        assert_eq!(resource_of_table(table), None, "{table}");
    }
    let stored = br#"{"metadata":{"name":"a","labels":{"app":"web"}}}"#;
    assert_eq!(facts_of("example.com/widgets", stored).label("app"), Some("web"));
    assert_eq!(facts_of("nodeports", stored).label("app"), None);
}

#[test]
fn all_versions_of_a_definition_with_a_webhook_are_served() {
    let mut crd = definition(&[("v1", spec("a")), ("v2", spec("b"))]);
    crd["spec"]["conversion"] = json!({"strategy": "Webhook"});
    let mut catalog = Catalog::default();
    catalog.apply("widgets.example.com", Some(&crd), 5);
    for version in ["v1", "v2"] {
        let definition = find(&catalog, version).and_then(|kind| kind.rules.definition()).expect("a custom kind");
        assert_eq!(definition.storage_version, "example.com/v1");
        assert!(definition.webhook.is_some() && definition.object_type.by_webhook);
    }
    let kinds: Arc<Kinds> = catalog.kinds().clone();
    assert_eq!(kinds.served().last().map(|kind| kind.group), Some("example.com"));
}

#[test]
fn versions_with_equal_schemas_share_what_is_compiled() {
    let versions = [("v1", spec("a")), ("v1beta1", spec("a")), ("v1alpha1", spec("b"))];
    let all = Definition::all(&definition(&versions), 5);
    let schemas: Vec<&Arc<_>> = all.iter().map(|version| &version.object_type.schema).collect();
    assert!(Arc::ptr_eq(schemas[0], schemas[1]) && !Arc::ptr_eq(schemas[0], schemas[2]));
    assert!(std::ptr::eq(all[0].rules(), all[1].rules()) && !std::ptr::eq(all[0].rules(), all[2].rules()));
    assert!(Arc::ptr_eq(&all[0].published, &all[1].published));
}
