//! `openAPIV3Schema` becomes a tree of [`Structural`] nodes.
//!
//! In: the JSON of a schema. Out: the tree. Parsing never fails: what no schema that passed the checks can contain is
//! left out.

use std::collections::HashMap;

use serde_json::Value;

use super::{Additional, Bound, Checks, ListType, Pattern, Rule, Structural, Type};
use crate::value::ValueExt as _;

/// How deep schemas may nest; JSON documents nest less deep.
const MAX_DEPTH: usize = 256;
/// Different patterns of one schema that are compiled only once.
const KEPT_PATTERNS: usize = 256;

impl Structural {
    /// Compiles the JSON of `openAPIV3Schema`. `apiVersion`, `kind` and `metadata` of the root are implied.
    #[must_use]
    pub fn parse(schema: &Value) -> Self {
        Parser::default().node(schema, 0)
    }
}

#[derive(Default)]
struct Parser {
    /// Patterns by their texts: equal ones share what is compiled.
    patterns: HashMap<String, Pattern>,
}

impl Parser {
    fn node(&mut self, schema: &Value, depth: usize) -> Structural {
        if depth > MAX_DEPTH {
            return Structural { preserve_unknown: true, ..Structural::default() };
        }
        let members = schema.map("properties").into_iter().flatten();
        let mut out = Structural {
            ty: Type::named(schema.text("type")),
            nullable: schema.flag("nullable"),
            default: schema.get("default").filter(|value| !value.is_null()).cloned(),
            properties: members.map(|(name, value)| (name.as_str().into(), self.node(value, depth + 1))).collect(),
            additional: self.additional(schema.at("additionalProperties"), depth),
            items: schema
                .get("items")
                .filter(|items| items.is_object())
                .map(|items| self.node(items, depth + 1).into()),
            preserve_unknown: schema.flag("x-kubernetes-preserve-unknown-fields"),
            embedded: schema.flag("x-kubernetes-embedded-resource"),
            int_or_string: schema.flag("x-kubernetes-int-or-string"),
            list: list_type(schema),
            atomic_map: schema.text("x-kubernetes-map-type") == "atomic",
            rules: schema.items("x-kubernetes-validations").iter().map(rule).collect(),
            checks: self.checks(schema, depth),
            ..Structural::default()
        };
        summarise(&mut out);
        out
    }

    fn additional(&mut self, schema: &Value, depth: usize) -> Additional {
        match schema {
            Value::Bool(_) => Additional::Any,
            Value::Object(_) => Additional::Schema(self.node(schema, depth + 1).into()),
            _ => Additional::None,
        }
    }

    fn checks(&mut self, schema: &Value, depth: usize) -> Checks {
        let bound = |limit: &str, exclusive: &str| {
            let value = schema.at(limit).as_f64()?;
            Some(Bound { value, exclusive: schema.flag(exclusive) })
        };
        let size = |name: &str| schema.at(name).as_i64();
        Checks {
            format: super::format::supported(schema).to_owned(),
            required: schema.texts("required").into_iter().map(Into::into).collect(),
            enumeration: schema.items("enum").to_vec(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: schema.at("multipleOf").as_f64(),
            min_length: size("minLength"),
            max_length: size("maxLength"),
            pattern: self.pattern(schema.text("pattern")),
            min_items: size("minItems"),
            max_items: size("maxItems"),
            unique_items: schema.flag("uniqueItems"),
            min_properties: size("minProperties"),
            max_properties: size("maxProperties"),
            all_of: self.nodes(schema, "allOf", depth),
            any_of: self.nodes(schema, "anyOf", depth),
            one_of: self.nodes(schema, "oneOf", depth),
            not: schema.get("not").filter(|not| not.is_object()).map(|not| self.node(not, depth + 1).into()),
            closed: schema.get("additionalProperties") == Some(&Value::Bool(false)),
        }
    }

    fn nodes(&mut self, schema: &Value, name: &str, depth: usize) -> Vec<Structural> {
        schema.items(name).iter().map(|schema| self.node(schema, depth + 1)).collect()
    }

    fn pattern(&mut self, text: &str) -> Pattern {
        if text.is_empty() {
            return Pattern::default();
        }
        if let Some(known) = self.patterns.get(text) {
            return known.clone();
        }
        let pattern = Pattern::new(text, self.patterns.len() < KEPT_PATTERNS);
        self.patterns.insert(text.to_owned(), pattern.clone());
        pattern
    }
}

/// Notes in a node what is somewhere below it.
fn summarise(node: &mut Structural) {
    let (mut defaults, mut embedded) = (node.default.is_some(), node.embedded);
    let mut unique = node.list != ListType::Atomic;
    let further = match &node.additional {
        Additional::Schema(schema) => Some(&**schema),
        Additional::None | Additional::Any => None,
    };
    for below in node.properties.values().chain(node.items.as_deref()).chain(further) {
        defaults |= below.has_defaults;
        embedded |= below.has_embedded;
        unique |= below.has_unique_lists;
    }
    (node.has_defaults, node.has_embedded, node.has_unique_lists) = (defaults, embedded, unique);
}

fn list_type(schema: &Value) -> ListType {
    match schema.text("x-kubernetes-list-type") {
        "set" => ListType::Set,
        "map" => ListType::Map(schema.texts("x-kubernetes-list-map-keys").into_iter().map(Into::into).collect()),
        _ => ListType::Atomic,
    }
}

fn rule(rule: &Value) -> Rule {
    let text = |name: &str| rule.text(name).to_owned();
    Rule {
        rule: text("rule"),
        message: text("message"),
        message_expression: text("messageExpression"),
        reason: text("reason"),
        field_path: text("fieldPath"),
        optional_old_self: rule.at("optionalOldSelf").as_bool(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_compiled_with_all_its_parts() {
        let schema = Structural::parse(&json!({
            "type": "object",
            "properties": {
                "a": {"type": "string", "default": "x", "pattern": "^a", "format": "date-time", "nullable": true},
                "n": {"type": "integer", "minimum": 1, "exclusiveMinimum": true, "format": "int33"},
                "l": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]},
                },
                "m": {"type": "object", "additionalProperties": {"type": "string"}},
                "e": {"type": "object", "additionalProperties": false},
            },
            "anyOf": [{"required": ["a"]}],
            "x-kubernetes-validations": [{"rule": "true", "optionalOldSelf": true}],
        }));
        assert_eq!(schema.ty, Some(Type::Object));
        assert!(schema.has_defaults && schema.has_unique_lists && !schema.has_embedded);
        assert_eq!(schema.rules[0].optional_old_self, Some(true));
        let a = &schema.properties["a"];
        assert!(a.nullable && a.has_defaults && a.checks.format == "date-time");
        let n = &schema.properties["n"].checks;
        assert_eq!((n.minimum, n.format.as_str()), (Some(Bound { value: 1.0, exclusive: true }), ""));
        assert_eq!(schema.properties["l"].list, ListType::Map(vec!["k".into()]));
        assert!(matches!(schema.properties["m"].additional, Additional::Schema(_)));
        assert!(schema.properties["e"].checks.closed && schema.properties["e"].additional == Additional::Any);
        assert_eq!(schema.member("a"), Some(a));
        assert_eq!(&*schema.checks.any_of[0].checks.required[0], "a");
    }

    #[test]
    fn a_schema_that_nests_too_deep_ends_without_failing() {
        let mut schema = json!({"type": "object"});
        for _ in 0..400 {
            schema = json!({"type": "object", "properties": {"a": schema}});
        }
        let mut node = &Structural::parse(&schema);
        let mut depth = 0;
        while let Some(next) = node.properties.get("a") {
            (node, depth) = (next, depth + 1);
        }
        assert_eq!(depth, MAX_DEPTH + 1);
        assert!(node.preserve_unknown);
    }
}
