//! Contexts in the kubeconfig of a user: adds one, and removes it again.
//!
//! In: that kubeconfig and one of ours, as values. Out: the merged kubeconfig, or the first without the second. Entries of other programs
//! are not changed; only entries with our name are ours.

use api::value::ValueExt as _;
use serde_json::{Map, Value, json};

/// The lists of a kubeconfig, and what each entry holds.
const LISTS: [(&str, &str); 3] = [("clusters", "cluster"), ("users", "user"), ("contexts", "context")];

/// Why a context cannot be added or removed.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The file is not a kubeconfig.
    #[error("it is no kubeconfig")]
    NotAKubeconfig,
    /// One of its fields is not a list.
    #[error("`{0}` is no list")]
    NotAList(&'static str),
    /// Our kubeconfig lacks an entry.
    #[error("ours has no {0}")]
    NoEntry(&'static str),
}

/// A kubeconfig with the current context of `ours` in it, under this name. It becomes the current one only where there was none.
///
/// # Errors
/// When the file is not a kubeconfig.
pub fn with_context(theirs: Value, ours: &Value, name: &str) -> Result<Value, ContextError> {
    let mut config = without_context(theirs, name)?;
    let entry = |list: &'static str, what: &str| {
        let first = ours.items(list).first().map(|entry| entry.at(what).clone());
        first.ok_or(ContextError::NoEntry(list))
    };
    for (list, what) in LISTS {
        let value = match what {
            "context" => json!({"cluster": name, "user": name}),
            _ => entry(list, what)?,
        };
        let map = config.as_object_mut().ok_or(ContextError::NotAKubeconfig)?;
        let place = map.entry(list).or_insert(Value::Null);
        if place.is_null() {
            *place = json!([]);
        }
        place.as_array_mut().ok_or(ContextError::NotAList(list))?.push(json!({"name": name, what: value}));
    }
    if config.text("current-context").is_empty() {
        config.put("current-context", name);
    }
    Ok(config)
}

/// A kubeconfig without the context of this name, its cluster and its user.
///
/// # Errors
/// When the file is not a kubeconfig.
pub fn without_context(theirs: Value, name: &str) -> Result<Value, ContextError> {
    let mut config = match theirs {
        Value::Null => json!({"apiVersion": "v1", "kind": "Config"}),
        Value::Object(map) if is_kubeconfig(&map) => Value::Object(map),
        _ => return Err(ContextError::NotAKubeconfig),
    };
    for (list, _) in LISTS {
        if let Some(entries) = config.get_mut(list).and_then(Value::as_array_mut) {
            entries.retain(|entry| entry.text("name") != name);
        }
    }
    if config.text("current-context") == name {
        config.put("current-context", "");
    }
    Ok(config)
}

/// Whether it has no entries.
#[must_use]
pub fn is_empty(config: &Value) -> bool {
    LISTS.iter().all(|(list, _)| config.items(list).is_empty())
}

fn is_kubeconfig(map: &Map<String, Value>) -> bool {
    map.get("kind").is_none_or(|kind| kind == "Config")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Value {
        json!({
            "clusters": [{"name": "waypost", "cluster": {"server": "https://127.0.0.1:6443"}}],
            "users": [{"name": "admin", "user": {"token": "t"}}],
            "contexts": [{"name": "waypost", "context": {"cluster": "waypost", "user": "admin"}}],
        })
    }

    #[test]
    fn what_was_there_stays_and_comes_back() {
        let theirs = json!({
            "kind": "Config", "current-context": "work", "preferences": {"colors": true},
            "clusters": [{"name": "work", "cluster": {"server": "https://work"}}],
            "users": null,
            "contexts": [{"name": "work", "context": {"cluster": "work", "user": "me"}}],
        });
        let both = with_context(theirs.clone(), &ours(), "here").expect("added");
        assert_eq!(both["current-context"], "work");
        assert_eq!(both["clusters"][1], json!({"name": "here", "cluster": {"server": "https://127.0.0.1:6443"}}));
        assert_eq!(both["users"], json!([{"name": "here", "user": {"token": "t"}}]));
        assert_eq!(both["contexts"][1]["context"], json!({"cluster": "here", "user": "here"}));
        assert_eq!(with_context(both.clone(), &ours(), "here").expect("again"), both, "once is enough");
        let after = without_context(both, "here").expect("taken out");
        assert_eq!(after["contexts"], theirs["contexts"]);
        assert_eq!(after["preferences"], theirs["preferences"]);
        assert!(!is_empty(&after));
    }

    #[test]
    fn nothing_becomes_a_kubeconfig_and_other_things_stay_what_they_are() {
        let made = with_context(Value::Null, &ours(), "waypost").expect("made");
        assert_eq!(made["current-context"], "waypost");
        assert!(is_empty(&without_context(made, "waypost").expect("taken out")));
        assert!(with_context(json!({"kind": "Pod"}), &ours(), "waypost").is_err());
        assert!(with_context(json!([1]), &ours(), "waypost").is_err());
        assert!(with_context(json!({"clusters": 7}), &ours(), "waypost").is_err());
    }
}
