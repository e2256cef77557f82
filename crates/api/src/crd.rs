//! What the server does with CustomResourceDefinitions: pure functions over definitions and their objects.
//!
//! In: definitions that passed validation ([`crate::kinds::customresourcedefinition`]) and objects of their kinds. Out:
//! the status of a definition, what its deletion does, tables, scales and selectable fields of its objects. Objects are
//! validated, pruned and defaulted by [`crate::structural`].

pub mod approval;
pub mod columns;
pub mod condition;
pub mod conversion;
pub mod delete;
pub mod jsonpath;
pub mod names;
pub mod scale;
pub mod selectable;

use std::cmp::Ordering;

use serde_json::Value;

use crate::value::ValueExt as _;

/// The version that objects are stored in.
#[must_use]
pub fn storage_version(definition: &Value) -> Option<&Value> {
    definition.items("spec.versions").iter().find(|version| version.flag("storage"))
}

/// The served versions, the preferred one first: stable before beta before alpha before others, newer before older.
#[must_use]
pub fn served_versions(definition: &Value) -> Vec<&Value> {
    let mut versions: Vec<&Value> =
        definition.items("spec.versions").iter().filter(|version| version.flag("served")).collect();
    versions.sort_by(|a, b| compare_versions(a.text("name"), b.text("name")));
    versions
}

/// The version of a name.
#[must_use]
pub fn find_version<'d>(definition: &'d Value, name: &str) -> Option<&'d Value> {
    definition.items("spec.versions").iter().find(|version| version.text("name") == name)
}

/// What clients of a deprecated version are warned of: the text of the definition, or which version to use.
#[must_use]
pub fn deprecation_warning(definition: &Value, version: &Value) -> Option<String> {
    if !version.flag("deprecated") {
        return None;
    }
    if let Value::String(text) = version.at("deprecationWarning") {
        return Some(text.clone());
    }
    let (group, kind) = (definition.text("spec.group"), definition.text("spec.names.kind"));
    let name = version.text("name");
    let is_better =
        |other: &&Value| !other.flag("deprecated") && compare_versions(other.text("name"), name) == Ordering::Less;
    let mut text = format!("{group}/{name} {kind} is deprecated");
    if let Some(better) = served_versions(definition).into_iter().find(is_better) {
        text.push_str(&format!("; use {group}/{} {kind}", better.text("name")));
    }
    Some(text)
}

/// Orders versions as discovery lists them: `v10`, `v2`, `v1`, `v11beta2`, `v3beta1`, `v12alpha1`, then other names by
/// the alphabet.
#[must_use]
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(left), Some(right)) => right.cmp(&left),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stability (2 stable, 1 beta, 0 alpha), major and minor of a version like `v1beta2`.
fn parse_version(name: &str) -> Option<(u8, u64, u64)> {
    let digits = |text: &str| -> Option<u64> {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
    };
    let rest = name.strip_prefix('v')?;
    let (major, suffix) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    let major = digits(major)?;
    if suffix.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, minor) = suffix
        .strip_prefix("beta")
        .map(|minor| (1, minor))
        .or_else(|| suffix.strip_prefix("alpha").map(|minor| (0, minor)))?;
    Some((stability, major, digits(minor)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_ordered_by_stability_then_number() {
        let mut names =
            ["foo1", "v1", "v3beta1", "v12alpha1", "v10", "v11beta2", "v2", "foo10", "v11alpha2", "v0", "v1x"];
        names.sort_by(|a, b| compare_versions(a, b));
        let wanted = ["v10", "v2", "v1", "v0", "v11beta2", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10", "v1x"];
        assert_eq!(names, wanted);
    }

    #[test]
    fn served_and_stored_versions_are_found() {
        let definition = json!({"spec": {"versions": [
            {"name": "v1alpha1", "served": true}, {"name": "v2", "served": false}, {"name": "v1", "served": true, "storage": true},
        ]}});
        let served: Vec<&str> = served_versions(&definition).iter().map(|version| version.text("name")).collect();
        assert_eq!(served, ["v1", "v1alpha1"]);
        assert_eq!(storage_version(&definition).map(|version| version.text("name")), Some("v1"));
        assert!(storage_version(&json!({})).is_none());
        assert_eq!(find_version(&definition, "v2").map(|version| version.flag("served")), Some(false));
    }

    #[test]
    fn deprecated_versions_name_a_better_one() {
        let definition = json!({"spec": {"group": "example.com", "names": {"kind": "Widget"}, "versions": [
            {"name": "v1beta1", "served": true, "deprecated": true}, {"name": "v1", "served": true},
            {"name": "v2", "served": false}, {"name": "v3", "served": true, "deprecated": true, "deprecationWarning": "old"},
            {"name": "v4", "served": true, "deprecated": true},
        ]}});
        let warning =
            |name| find_version(&definition, name).and_then(|version| deprecation_warning(&definition, version));
        let text = "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget";
        assert_eq!(warning("v1beta1").as_deref(), Some(text));
        assert_eq!(warning("v1"), None);
        assert_eq!(warning("v3").as_deref(), Some("old"));
        assert_eq!(warning("v4").as_deref(), Some("example.com/v4 Widget is deprecated"));
    }
}
