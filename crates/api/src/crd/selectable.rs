//! Selectable fields: what field selectors may ask of objects of a defined kind.
//!
//! In: a version of a definition, compiled once ([`selectable`]), and an object. Out: labels and values as selectors
//! compare them.

use serde_json::Value;

use super::columns;
use super::jsonpath::JsonPath;
use crate::value::ValueExt as _;

/// The selectable fields of a version.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Selectables(Vec<(String, Option<JsonPath>)>);

/// Compiles the selectable fields of a version.
#[must_use]
pub fn selectable(version: &Value) -> Selectables {
    let one = |field: &Value| {
        let path = field.text("jsonPath");
        (path.strip_prefix('.').unwrap_or(path).to_owned(), JsonPath::parse(path).ok())
    };
    Selectables(version.items("selectableFields").iter().map(one).collect())
}

impl Selectables {
    /// What selectors may name: `spec.color`.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(label, _)| label.as_str())
    }

    /// The values of an object, in the order of the labels; a missing one is empty.
    #[must_use]
    pub fn values(&self, object: &Value) -> Vec<String> {
        let value = |path: &Option<JsonPath>| match path.as_ref().and_then(|path| path.first(object)) {
            Some(value) if !value.is_null() => columns::text(&value),
            _ => String::new(),
        };
        self.0.iter().map(|(_, path)| value(path)).collect()
    }

    /// Labels with the values of an object.
    #[must_use]
    pub fn fields(&self, object: &Value) -> Vec<(String, String)> {
        self.labels().map(str::to_owned).zip(self.values(object)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_texts() {
        let fields: Vec<Value> = [".spec.color", ".spec.size", ".spec.on", ".spec.none"]
            .iter()
            .map(|path| json!({"jsonPath": path}))
            .collect();
        let fields = selectable(&json!({"selectableFields": fields}));
        assert_eq!(fields.labels().collect::<Vec<_>>(), ["spec.color", "spec.size", "spec.on", "spec.none"]);
        let object = json!({"spec": {"color": "red", "size": 3, "on": false, "none": null}});
        assert_eq!(fields.values(&object), ["red", "3", "false", ""]);
        assert_eq!(fields.fields(&json!({}))[1], ("spec.size".to_owned(), String::new()));
        assert_eq!(selectable(&json!({})), Selectables::default());
    }
}
