//! Schemas of custom resources: `openAPIV3Schema` of a definition in, a schema of an OpenAPI document out.

use serde_json::{Map, Value};

use super::exchange::{Dialect, Gvk};

/// Keywords that OpenAPI v2 does not have, or with another meaning.
const ONLY_V3: [&str; 6] = ["allOf", "anyOf", "not", "nullable", "oneOf", "default"];

/// The schema of an object: `published`, with the properties that all objects have.
pub(super) fn schema(dialect: Dialect, published: &Value, common: Map<String, Value>, gvk: Gvk) -> Value {
    let mut schema = published.as_object().cloned().unwrap_or_default();
    let mut properties = match schema.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    if dialect == Dialect::V2 {
        schema = restrict_map(schema);
        properties = properties.into_iter().map(|(name, schema)| (name, restrict(schema))).collect();
    }
    properties.extend(common);
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties.into());
    schema.insert("x-kubernetes-group-version-kind".to_owned(), vec![gvk.to_value()].into());
    schema.into()
}

/// A schema as OpenAPI v2 can express it.
fn restrict(schema: Value) -> Value {
    match schema {
        Value::Object(schema) => restrict_map(schema).into(),
        other => other,
    }
}

fn restrict_map(mut schema: Map<String, Value>) -> Map<String, Value> {
    if schema.get("nullable") == Some(&Value::Bool(true)) || schema.contains_key("x-kubernetes-int-or-string") {
        // No type of v2 includes null, or both numbers and text.
        schema.remove("type");
        schema.remove("properties");
        schema.remove("items");
    }
    schema.retain(|keyword, _| !ONLY_V3.contains(&keyword.as_str()));
    for (keyword, value) in &mut schema {
        match (keyword.as_str(), value) {
            ("items" | "additionalProperties", value) => *value = restrict(value.take()),
            ("properties", Value::Object(properties)) => {
                properties.values_mut().for_each(|value| *value = restrict(value.take()));
            }
            _ => {}
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_of_v2_has_only_its_keywords() {
        let published = json!({"type": "object", "description": "A widget.", "properties": {
            "spec": {"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}},
            "list": {"type": "array", "items": {"type": "string", "default": "x", "anyOf": [{"minLength": 1}]}},
        }});
        let gvk = Gvk { group: "example.com", version: "v1", kind: "Widget" };
        let mut common = Map::new();
        common.insert("kind".to_owned(), json!({"type": "string"}));
        let v3 = schema(Dialect::V3, &published, common.clone(), gvk);
        assert_eq!(v3["properties"]["spec"], published["properties"]["spec"]);
        assert_eq!(v3["properties"]["kind"], json!({"type": "string"}));
        let v2 = schema(Dialect::V2, &published, common, gvk);
        assert_eq!(v2["properties"]["spec"], json!({}));
        assert_eq!(v2["properties"]["list"], json!({"type": "array", "items": {"type": "string"}}));
        assert_eq!(v2["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    }
}
