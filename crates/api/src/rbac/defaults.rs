//! The roles and bindings that every cluster has, and how they are kept.
//!
//! Three tables hold them (`defaults/*.txt`). They are reconciled at each start: what is missing is added, what an administrator added
//! stays, and an object whose annotation [`AUTOUPDATE`] is `false` is left alone.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{GROUP, PolicyRule, cover};
use crate::kind::Kind;
use crate::kinds::{role, rolebinding};
use crate::value::ValueExt as _;

/// Marks objects that are reconciled at start; `false` leaves one alone.
pub const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Labels objects that every cluster has.
const BOOTSTRAPPING: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");
/// The label of roles whose rules become part of another; the name of that one follows.
const AGGREGATE_TO: &str = "rbac.authorization.k8s.io/aggregate-to-";
/// What the tables call the group without a name.
const CORE: &str = "core";
/// The role with the permissions of a kubelet; the Node authorizer limits it to its own objects.
const NODE: &str = "system:node";

const TABLES: &[&str] = &[
    include_str!("defaults/kubernetes.txt"),
    include_str!("defaults/controllers.txt"),
    include_str!("defaults/waypost.txt"),
];

/// A default object.
pub struct Default {
    /// Its kind.
    pub kind: &'static Kind,
    /// The object, without what the server sets.
    pub object: Value,
}

/// All of them, in an order in which they can be created.
pub static DEFAULTS: LazyLock<Vec<Default>> =
    LazyLock::new(|| TABLES.iter().flat_map(|table| table.split("\n\n")).filter_map(parse).collect());

/// The permissions of a kubelet before the Node authorizer checks the object.
pub static NODE_RULES: LazyLock<Vec<PolicyRule>> = LazyLock::new(|| {
    let found = DEFAULTS.iter().find(|default| default.object.text("metadata.name") == NODE);
    found.map_or_else(Vec::new, |default| PolicyRule::read_all(&default.object))
});

/// What must be done so that a default object is there.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// It is missing.
    Create(Value),
    /// Something of it is missing; this is the object with it.
    Update(Value),
    /// It is bound to another role, which cannot change: it is deleted and created.
    Replace(Value),
}

/// What is to be done about a default object, given the one that exists.
#[must_use]
pub fn reconcile(default: &Value, existing: Option<&Value>) -> Option<Step> {
    let Some(existing) = existing else { return Some(Step::Create(default.clone())) };
    if existing.at("metadata.annotations").get(AUTOUPDATE).and_then(Value::as_str) == Some("false") {
        return None;
    }
    if existing.at("roleRef") != default.at("roleRef") {
        return Some(Step::Replace(default.clone()));
    }
    let mut wanted = existing.clone();
    for map in ["labels", "annotations"] {
        for (key, value) in default.at("metadata").map(map).into_iter().flatten() {
            let mut merged = wanted.at("metadata").map(map).cloned().unwrap_or_default();
            merged.insert(key.clone(), value.clone());
            wanted.put(&format!("metadata.{map}"), merged);
        }
    }
    if default.has("aggregationRule") {
        add_missing(&mut wanted, default, "aggregationRule.clusterRoleSelectors");
    } else if default.has("rules") {
        let (own, missing) = (existing.items("rules"), missing_rules(existing, default));
        wanted.put("rules", own.iter().cloned().chain(missing).collect::<Vec<Value>>());
    }
    add_missing(&mut wanted, default, "subjects");
    (wanted != *existing).then_some(Step::Update(wanted))
}

fn missing_rules(existing: &Value, default: &Value) -> Vec<Value> {
    let missing = cover::missing(&PolicyRule::read_all(existing), &PolicyRule::read_all(default));
    cover::compact(&missing).iter().map(PolicyRule::to_value).collect()
}

/// Adds the items of a list that are not in it yet.
fn add_missing(wanted: &mut Value, default: &Value, list: &str) {
    let mut items = wanted.items(list).to_vec();
    let missing: Vec<Value> = default.items(list).iter().filter(|item| !items.contains(item)).cloned().collect();
    if !missing.is_empty() {
        items.extend(missing);
        wanted.put(list, items);
    }
}

/// Reads one paragraph of a table; one with comments alone has no object.
fn parse(paragraph: &str) -> Option<Default> {
    let mut lines = paragraph.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let (kind, whole) = lines.next()?.split_once(' ')?;
    let kind = [&role::ROLE, &role::CLUSTER_ROLE, &rolebinding::ROLE_BINDING, &rolebinding::CLUSTER_ROLE_BINDING]
        .into_iter()
        .find(|own| own.kind == kind)?;
    let mut object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": {
        "labels": {BOOTSTRAPPING.0: BOOTSTRAPPING.1}, "annotations": {AUTOUPDATE: "true"},
    }});
    let (namespace, name) = if kind.namespaced { whole.split_once('/')? } else { ("", whole) };
    object.put("metadata.name", name);
    if kind.namespaced {
        object.put("metadata.namespace", namespace);
    }
    let mut rules = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["into", role] => object["metadata"]["labels"][format!("{AGGREGATE_TO}{role}")] = "true".into(),
            ["from", role] => {
                let selector = json!({"matchLabels": {format!("{AGGREGATE_TO}{role}"): "true"}});
                object.put("aggregationRule.clusterRoleSelectors", json!([selector]));
            }
            [kind @ ("Role" | "ClusterRole"), name] => {
                object.put("roleRef", json!({"apiGroup": GROUP, "kind": kind, "name": name}));
            }
            [kind @ ("User" | "Group" | "ServiceAccount"), name] => push(&mut object, "subjects", subject(kind, name)),
            _ => rules.push(rule(&words)?),
        }
    }
    if !rules.is_empty() {
        object.put("rules", rules);
    }
    Some(Default { kind, object })
}

fn push(object: &mut Value, list: &str, item: Value) {
    let mut items = object.items(list).to_vec();
    items.push(item);
    object.put(list, items);
}

fn subject(kind: &str, name: &str) -> Value {
    match name.split_once('/') {
        Some((namespace, name)) => json!({"kind": kind, "name": name, "namespace": namespace}),
        None => json!({"kind": kind, "apiGroup": GROUP, "name": name}),
    }
}

fn rule(words: &[&str]) -> Option<Value> {
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<String>>();
    let group = |name: &str| if name == CORE { String::new() } else { name.to_owned() };
    let groups = |text: &str| text.split(',').map(group).collect::<Vec<String>>();
    Some(match *words {
        [verbs, paths] => json!({"verbs": list(verbs), "nonResourceURLs": list(paths)}),
        [verbs, api, resources] => {
            json!({"verbs": list(verbs), "apiGroups": groups(api), "resources": list(resources)})
        }
        [verbs, api, resources, names] => json!({
            "verbs": list(verbs), "apiGroups": groups(api), "resources": list(resources), "resourceNames": list(names),
        }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Errors;

    fn named(kind: &str, name: &str) -> &'static Value {
        let is_it = |default: &&Default| default.kind.kind == kind && default.object.text("metadata.name") == name;
        &DEFAULTS.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}")).object
    }

    #[test]
    fn every_paragraph_is_a_valid_object() {
        let paragraphs = TABLES.iter().flat_map(|table| table.split("\n\n"));
        let with_objects =
            paragraphs.filter(|text| text.lines().any(|line| !line.starts_with('#') && !line.is_empty()));
        assert_eq!(DEFAULTS.len(), with_objects.count());
        for default in DEFAULTS.iter() {
            let mut errors = Errors::default();
            default.kind.rules.validate_create(&default.object, &mut errors);
            assert!(errors.is_empty(), "{}: {}", default.object, errors.summary());
            let mut defaulted = default.object.clone();
            default.kind.rules.default(&mut defaulted);
            assert_eq!(defaulted, default.object);
        }
    }

    #[test]
    fn every_bound_role_exists() {
        for default in DEFAULTS.iter().filter(|default| default.object.has("roleRef")) {
            let role = default.object.at("roleRef");
            named(role.text("kind"), role.text("name"));
        }
        assert!(NODE_RULES.len() > 20);
    }

    #[test]
    fn tables_say_what_they_should() {
        assert_eq!(
            named("ClusterRole", "edit"),
            &json!({
                "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
                "metadata": {
                    "name": "edit",
                    "labels": {"kubernetes.io/bootstrapping": "rbac-defaults", "rbac.authorization.k8s.io/aggregate-to-admin": "true"},
                    "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
                },
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}}]},
            })
        );
        assert_eq!(
            named("ClusterRole", "cluster-admin").at("rules"),
            &json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}])
        );
        let events = json!({"verbs": ["create", "patch", "update"], "apiGroups": ["", "events.k8s.io"], "resources": ["events"]});
        assert!(named("ClusterRole", "system:node").items("rules").contains(&events));
    }

    #[test]
    fn what_is_missing_is_added_and_what_was_added_stays() {
        let default = json!({
            "metadata": {"name": "r", "labels": {"a": "b"}},
            "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}],
        });
        assert_eq!(reconcile(&default, None), Some(Step::Create(default.clone())));
        assert_eq!(reconcile(&default, Some(&default)), None);
        let mut changed = default.clone();
        let own = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "secrets"]});
        changed.put("rules", json!([own]));
        let mut wanted = changed.clone();
        wanted.put("rules", json!([own, {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]));
        assert_eq!(reconcile(&default, Some(&changed)), Some(Step::Update(wanted)));
        changed.put("metadata.annotations", json!({AUTOUPDATE: "false"}));
        assert_eq!(reconcile(&default, Some(&changed)), None, "an administrator keeps it");
    }

    #[test]
    fn a_binding_to_another_role_is_replaced() {
        let default = named("ClusterRoleBinding", "cluster-admin");
        let mut other = default.clone();
        other.put("roleRef.name", "view");
        assert_eq!(reconcile(default, Some(&other)), Some(Step::Replace(default.clone())));
        let mut fewer = default.clone();
        fewer.put("subjects", json!([{"kind": "User", "apiGroup": GROUP, "name": "me"}]));
        let Some(Step::Update(both)) = reconcile(default, Some(&fewer)) else { panic!("an update") };
        assert_eq!(both.items("subjects").len(), 2);
    }
}
