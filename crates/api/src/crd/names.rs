//! The status of a definition: which of its names are accepted, and whether its kind is served.
//!
//! In: a definition and all others. Out: the new status. Names are taken by the first definition of a group that requests
//! them; plural, singular and short names are one set, kinds and list kinds another.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::condition::{self, Condition, ESTABLISHED, NAMES_ACCEPTED, NON_STRUCTURAL};
use super::{approval, storage_version};
use crate::field::{Errors, Path, quote};
use crate::kinds::KINDS;
use crate::kinds::customresourcedefinition::has_readable_ca_bundle;
use crate::structural::check;
use crate::value::ValueExt as _;

/// The names that are taken in a group.
#[derive(Default)]
struct Taken {
    resources: HashSet<String>,
    kinds: HashSet<String>,
}

/// The new status of a definition; `None` when it stays as it is. `others` may hold definitions of any group, and the
/// definition itself.
#[must_use]
pub fn status(definition: &Value, others: &[&Value], now: Timestamp) -> Option<Value> {
    let mut new = definition.clone();
    accept_names(&mut new, others, now);
    establish(&mut new, now);
    if let Some(condition) = approval::condition(definition)
        && !condition::is_set(&new, &condition)
    {
        condition::set(&mut new, &condition, now);
    }
    show_structure(&mut new, now);
    store_version(&mut new);
    (new.at("status") != definition.at("status")).then(|| new.at("status").clone())
}

/// Whether the kind of a definition is served. It stays served, with the accepted names, while the definition requests names
/// that are taken.
#[must_use]
pub fn is_served(definition: &Value) -> bool {
    condition::is_true(definition, ESTABLISHED)
}

/// Accepts the names that are free. Accepted names are kept until the new ones are free.
fn accept_names(definition: &mut Value, others: &[&Value], now: Timestamp) {
    let asked = definition.at("spec.names").clone();
    let before = with_defaults(definition.at("status.acceptedNames"));
    if with_defaults(&asked) == before {
        return;
    }
    let taken = taken(definition, others);
    let mut accepted = before.clone();
    let mut conflict = None;
    for (field, reason, used) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ] {
        match conflicts(asked.at(field), before.at(field), used) {
            None => copy(&mut accepted, &asked, field),
            // The last conflict is the one that is shown.
            Some(message) => conflict = Some((reason, message)),
        }
    }
    copy(&mut accepted, &asked, "categories");
    let names = match conflict {
        None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, message)) => ("False", reason, message),
    };
    let names = Condition { kind: NAMES_ACCEPTED, status: names.0, reason: names.1, message: names.2 };
    if accepted == before && condition::is_set(definition, &names) {
        return;
    }
    definition.put("status.acceptedNames", accepted);
    condition::set(definition, &names, now);
    if condition::find(definition, ESTABLISHED).is_none() {
        condition::set(definition, &not_accepted(), now);
    }
}

/// Serves a kind as soon as its names are accepted. It stays served when later names are not.
fn establish(definition: &mut Value, now: Timestamp) {
    if !condition::is_true(definition, NAMES_ACCEPTED) || condition::is_true(definition, ESTABLISHED) {
        return;
    }
    let (status, reason, message) = if has_readable_ca_bundle(definition) {
        ("True", "InitialNamesAccepted", "the initial names have been accepted")
    } else {
        ("False", "InvalidCABundle", "The conversion webhook CABundle is invalid")
    };
    let wanted = Condition { kind: ESTABLISHED, status, reason, message: message.to_owned() };
    if !condition::is_set(definition, &wanted) {
        condition::set(definition, &wanted, now);
    }
}

fn not_accepted() -> Condition {
    let message = "not all names are accepted".to_owned();
    Condition { kind: ESTABLISHED, status: "False", reason: "NotAccepted", message }
}

/// Shows what keeps schemas from being structural, which only definitions from elsewhere have.
fn show_structure(definition: &mut Value, now: Timestamp) {
    let mut errors = Errors::default();
    let path = Path::Root("spec.versions");
    if definition.flag("spec.preserveUnknownFields") {
        errors.invalid(&Path::Root("spec.preserveUnknownFields"), Value::from(true), "must be false");
    }
    for (index, version) in definition.items("spec.versions").iter().enumerate() {
        let schema = version.at("schema.openAPIV3Schema");
        if schema.is_object() {
            let path = path.index(index);
            let path = path.child("schema");
            errors.0.append(&mut check::non_structural(schema, &path.child("openAPIV3Schema")).0);
        }
    }
    if errors.is_empty() {
        condition::remove(definition, NON_STRUCTURAL);
        return;
    }
    let message = errors.summary();
    let wanted = Condition { kind: NON_STRUCTURAL, status: "True", reason: "Violations", message };
    if !condition::is_set(definition, &wanted) {
        condition::set(definition, &wanted, now);
    }
}

/// Objects may be stored in the storage version from now on.
fn store_version(definition: &mut Value) {
    let Some(name) = storage_version(definition).map(|version| version.text("name").to_owned()) else { return };
    let mut stored = definition.items("status.storedVersions").to_vec();
    if !stored.iter().any(|have| *have == name) {
        stored.push(name.into());
        definition.put("status.storedVersions", stored);
    }
}

/// What definitions of the same group, and kinds that are built in, have taken.
fn taken(definition: &Value, others: &[&Value]) -> Taken {
    let group = definition.text("spec.group");
    let mut taken = Taken::default();
    let mut take = |resources: &[&str], kinds: &[&str]| {
        taken.resources.extend(resources.iter().map(|name| (*name).to_owned()));
        taken.kinds.extend(kinds.iter().map(|name| (*name).to_owned()));
    };
    for kind in KINDS.iter().filter(|kind| kind.group == group) {
        take(&[kind.plural, kind.singular], &[kind.kind, &format!("{}List", kind.kind)]);
        take(kind.short_names, &[]);
    }
    // The names of the definition itself count too: a singular may not become the plural.
    let is_other = |other: &&&Value| other.text("metadata.name") != definition.text("metadata.name");
    for other in others.iter().filter(is_other).copied().chain([definition]) {
        if other.text("spec.group") == group {
            let names = other.at("status.acceptedNames");
            take(&[names.text("plural"), names.text("singular")], &[names.text("kind"), names.text("listKind")]);
            take(&names.texts("shortNames"), &[]);
        }
    }
    taken
}

/// What is wrong with a name, or with the names of a list, if anything.
fn conflicts(asked: &Value, accepted: &Value, taken: &HashSet<String>) -> Option<String> {
    let in_use = |name: &str| format!("{} is already in use", quote(name));
    if let Value::Array(names) = asked {
        let ours = accepted.as_array().map_or(&[][..], Vec::as_slice);
        let mut wrong: Vec<String> = Vec::new();
        for name in names.iter().filter(|name| !ours.contains(name)).filter_map(Value::as_str) {
            if taken.contains(name) && !wrong.contains(&in_use(name)) {
                wrong.push(in_use(name));
            }
        }
        return match wrong.len() {
            0 => None,
            1 => wrong.pop(),
            _ => Some(format!("[{}]", wrong.join(", "))),
        };
    }
    let (asked, accepted) = (asked.as_str().unwrap_or_default(), accepted.as_str().unwrap_or_default());
    (asked != accepted && taken.contains(asked)).then(|| in_use(asked))
}

fn copy(to: &mut Value, from: &Value, field: &str) {
    match from.at(field) {
        Value::Null => drop(to.drop_path(field)),
        value => to.put(field, value.clone()),
    }
}

/// Names as they are printed: without empty lists and strings, but always with plural and kind.
fn with_defaults(names: &Value) -> Value {
    let mut out = json!({"plural": "", "kind": ""});
    for (key, value) in names.as_object().into_iter().flatten() {
        let is_empty = value.as_str().is_some_and(str::is_empty) || value.as_array().is_some_and(Vec::is_empty);
        if !is_empty && !value.is_null() {
            out.put(key, value.clone());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().expect("a time")
    }

    fn definition(plural: &str, singular: &str, kind: &str) -> Value {
        json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {
                "group": "example.com", "versions": [{"name": "v1", "served": true, "storage": true}],
                "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
            },
            "status": {"storedVersions": ["v1"]},
        })
    }

    fn settled(mut definition: Value, others: &[&Value]) -> Value {
        if let Some(status) = status(&definition, others, now()) {
            definition.put("status", status);
        }
        assert_eq!(status(&definition, others, now()), None, "a second look changes nothing");
        definition
    }

    fn conditions(definition: &Value) -> Vec<String> {
        let line =
            |c: &Value| format!("{}={} {}: {}", c.text("type"), c.text("status"), c.text("reason"), c.text("message"));
        definition.items("status.conditions").iter().map(line).collect()
    }

    #[test]
    fn free_names_are_accepted_and_served() {
        let widgets = settled(definition("widgets", "widget", "Widget"), &[]);
        assert_eq!(
            conditions(&widgets),
            [
                "NamesAccepted=True NoConflicts: no conflicts found",
                "Established=True InitialNamesAccepted: the initial names have been accepted",
            ]
        );
        assert_eq!(widgets.at("status.acceptedNames"), widgets.at("spec.names"));
        assert_eq!(widgets.texts("status.storedVersions"), ["v1"]);
        assert!(is_served(&widgets));
    }

    #[test]
    fn taken_names_wait_until_they_are_free() {
        let widgets = settled(definition("widgets", "widget", "Widget"), &[]);
        let gadgets = settled(definition("gadgets", "widget", "Gadget"), &[&widgets]);
        assert_eq!(
            conditions(&gadgets),
            [
                "NamesAccepted=False SingularConflict: \"widget\" is already in use",
                "Established=False NotAccepted: not all names are accepted",
            ]
        );
        assert_eq!(
            gadgets.at("status.acceptedNames"),
            &json!({"plural": "gadgets", "kind": "Gadget", "listKind": "GadgetList"})
        );
        assert!(!is_served(&gadgets));
        let gadgets = settled(gadgets, &[]);
        assert!(is_served(&gadgets));
        assert_eq!(gadgets.text("status.acceptedNames.singular"), "widget");
    }

    #[test]
    fn short_names_are_listed_together() {
        let widgets = settled(definition("widgets", "widget", "Widget"), &[]);
        let mut gadgets = definition("gadgets", "gadget", "Gadget");
        gadgets.put("spec.names.shortNames", json!(["widgets", "g", "widget"]));
        let gadgets = settled(gadgets, &[&widgets]);
        let message = condition::find(&gadgets, NAMES_ACCEPTED).expect("a condition").text("message");
        assert_eq!(message, "[\"widgets\" is already in use, \"widget\" is already in use]");
        let mut elsewhere = definition("gadgets", "widget", "Widget");
        elsewhere.put("spec.group", "example.org");
        assert!(is_served(&settled(elsewhere, &[&widgets])));
    }

    #[test]
    fn a_served_kind_stays_served_when_it_asks_for_a_taken_name() {
        let widgets = settled(definition("widgets", "widget", "Widget"), &[]);
        let mut gadgets = settled(definition("gadgets", "gadget", "Gadget"), &[&widgets]);
        gadgets.put("spec.names.listKind", "WidgetList");
        let gadgets = settled(gadgets, &[&widgets]);
        assert_eq!(conditions(&gadgets)[0], "NamesAccepted=False ListKindConflict: \"WidgetList\" is already in use");
        assert!(condition::is_true(&gadgets, ESTABLISHED));
        assert_eq!(gadgets.text("status.acceptedNames.listKind"), "GadgetList");
        assert!(is_served(&gadgets));
    }

    #[test]
    fn schemas_that_are_not_structural_are_shown() {
        let mut widgets = definition("widgets", "widget", "Widget");
        let schema = json!({"type": "object", "properties": {"a": {}}});
        widgets.put("spec.versions", json!([{"name": "v1", "storage": true, "schema": {"openAPIV3Schema": schema}}]));
        let mut widgets = settled(widgets, &[]);
        assert_eq!(
            conditions(&widgets)[2],
            "NonStructuralSchema=True Violations: spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: \
             must not be empty for specified object fields"
        );
        widgets.put("spec.versions", json!([{"name": "v1", "storage": true}]));
        assert_eq!(conditions(&settled(widgets, &[])).len(), 2);
    }

    #[test]
    fn built_in_kinds_have_their_names() {
        let mut ingresses = definition("ingresses", "ingress", "Ingress");
        ingresses.put("spec.group", "networking.k8s.io");
        let ingresses = settled(ingresses, &[]);
        assert_eq!(
            conditions(&ingresses)[0],
            "NamesAccepted=False ListKindConflict: \"IngressList\" is already in use"
        );
        let approval = "KubernetesAPIApprovalPolicyConformant=False MissingAnnotation: protected groups must have approval \
                        annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
        assert_eq!(conditions(&ingresses)[2], approval);
    }
}
