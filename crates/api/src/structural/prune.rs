//! Unknown fields and meaningless nulls, removed from objects.
//!
//! In: an object as a client sent it or as it is stored. Out: the object with only what its schema knows, and the
//! paths of what was unknown, as strict field validation reports them.

use serde_json::{Map, Value};

use super::{Additional, Structural, metadata};
use crate::field::FieldError;

/// Members that every resource has, in or outside of the schema.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Structural {
    /// Removes unknown fields, nulls that are no values and have no defaults, and what is malformed in the metadata of
    /// embedded resources, as is done with stored objects. The root keeps `apiVersion`, `kind` and `metadata` as they
    /// are. Returns the paths of the unknown fields: first those of the schema, then those inside of metadata.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = self.prune_fields(object);
        // With malformed fields dropped, nothing is refused.
        unknown.extend(metadata::coerce(self, object, true).unwrap_or_default());
        unknown
    }

    /// Like [`Structural::prune`], for objects of requests: malformed `apiVersion`, `kind` or `metadata` of an embedded
    /// resource is an error.
    ///
    /// # Errors
    /// The field, and what is wrong with it.
    pub fn prune_strict(&self, object: &mut Value) -> Result<Vec<String>, FieldError> {
        let mut unknown = self.prune_fields(object);
        unknown.extend(metadata::coerce(self, object, false)?);
        Ok(unknown)
    }

    /// Removes unknown fields and nulls; the paths of the fields, sorted.
    pub(super) fn prune_fields(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        prune(object, Some(self), true, None, &mut unknown);
        unknown.sort_unstable();
        unknown
    }
}

/// Removes unknown fields of a value that is not the root of a resource; whether there were any.
pub(super) fn removes_any(value: &mut Value, schema: &Structural, root: bool) -> bool {
    let mut unknown = Vec::new();
    prune(value, Some(schema), root, None, &mut unknown);
    !unknown.is_empty()
}

/// Where a value is; written out only for unknown fields.
#[derive(Clone, Copy)]
enum Place<'p> {
    Member(Option<&'p Self>, &'p str),
    Element(Option<&'p Self>, usize),
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Member(None, name) => f.write_str(name),
            Self::Member(Some(parent), name) => write!(f, "{parent}.{name}"),
            Self::Element(None, index) => write!(f, "[{index}]"),
            Self::Element(Some(parent), index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Prunes a value; without a schema nothing in it is known.
fn prune(
    value: &mut Value,
    schema: Option<&Structural>,
    resource: bool,
    place: Option<&Place<'_>>,
    unknown: &mut Vec<String>,
) {
    match value {
        Value::Object(members) => match schema {
            Some(schema) => prune_members(members, schema, resource, place, unknown),
            None => {
                unknown.extend(members.keys().map(|name| Place::Member(place, name).to_string()));
                members.clear();
            }
        },
        Value::Array(elements) => {
            let preserved = schema.is_some_and(|schema| schema.preserve_unknown);
            let items = schema.and_then(|schema| schema.items.as_deref());
            for (index, element) in elements.iter_mut().enumerate() {
                let place = Place::Element(place, index);
                match items {
                    Some(items) if preserved => prune_preserved(element, items, Some(&place), unknown),
                    None if preserved => {}
                    items => {
                        prune(element, items, items.is_some_and(|items| items.embedded), Some(&place), unknown);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Prunes an element of a list that preserves unknown fields: its own fields are preserved as well.
fn prune_preserved(value: &mut Value, schema: &Structural, place: Option<&Place<'_>>, unknown: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.retain(|name, value| keep(name, value, schema, schema.embedded, true, place, unknown));
        }
        Value::Array(elements) => {
            let Some(items) = &schema.items else { return };
            for (index, element) in elements.iter_mut().enumerate() {
                prune_preserved(element, items, Some(&Place::Element(place, index)), unknown);
            }
        }
        _ => {}
    }
}

fn prune_members(
    members: &mut Map<String, Value>,
    schema: &Structural,
    resource: bool,
    place: Option<&Place<'_>>,
    unknown: &mut Vec<String>,
) {
    let preserved = schema.preserve_unknown;
    members.retain(|name, value| keep(name, value, schema, resource, preserved, place, unknown));
}

/// Prunes the value of a member and returns whether the member stays.
fn keep(
    name: &str,
    value: &mut Value,
    schema: &Structural,
    resource: bool,
    preserved: bool,
    place: Option<&Place<'_>>,
    unknown: &mut Vec<String>,
) -> bool {
    let known = schema.member(name);
    if value.is_null() && known.is_some_and(|known| !known.nullable && known.default.is_none()) {
        return false;
    }
    if resource && META_FIELDS.contains(&name) {
        return true;
    }
    let here = Place::Member(place, name);
    match (known, &schema.additional) {
        (Some(known), _) => prune(value, Some(known), known.embedded, Some(&here), unknown),
        (None, Additional::Any) => prune(value, None, false, Some(&here), unknown),
        (None, _) if preserved => {}
        (None, _) => {
            unknown.push(here.to_string());
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: &Value, mut object: Value, wanted: &Value, unknown: &[&str]) {
        let paths = Structural::parse(schema).prune(&mut object);
        assert_eq!(&object, wanted);
        assert_eq!(paths, unknown);
    }

    fn with_spec(spec: &Value) -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}})
    }

    #[test]
    fn unknown_fields_go_at_all_levels() {
        let schema = with_spec(&json!({
            "a": {"type": "string"},
            "l": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"c": {"type": "integer"}}}},
            "any": {"type": "object", "additionalProperties": true},
            "o": {"type": "object"},
        }));
        check(
            &schema,
            json!({"kind": "K", "metadata": {"odd": 1}, "extra": {"q": 1}, "spec": {
                "a": "1", "x": 1, "l": [{"b": "1", "x": 1}, {}], "m": {"k": {"c": 1, "d": 2}}, "o": {"a": 1},
                "any": {"n": 1, "o": {"p": 1}, "l": [{"q": 1}]},
            }}),
            &json!({"kind": "K", "metadata": {"odd": 1}, "spec": {
                "a": "1", "l": [{"b": "1"}, {}], "m": {"k": {"c": 1}}, "o": {}, "any": {"n": 1, "o": {}, "l": [{}]},
            }}),
            &["extra", "spec.any.l[0].q", "spec.any.o.p", "spec.l[0].x", "spec.m.k.d", "spec.o.a", "spec.x"],
        );
    }

    #[test]
    fn preserved_fields_stay_and_known_ones_below_are_pruned() {
        let schema = with_spec(&json!({"a": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"child": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        }}));
        check(
            &schema,
            json!({"spec": {"a": {"free": {"x": 1}, "child": {"n": 1, "odd": 2}}}}),
            &json!({"spec": {"a": {"free": {"x": 1}, "child": {"n": 1}}}}),
            &["spec.a.child.odd"],
        );
        let root = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        check(&root, json!({"spec": {"a": null}, "q": [{}]}), &json!({"spec": {"a": null}, "q": [{}]}), &[]);
    }

    #[test]
    fn embedded_resources_keep_their_metadata() {
        let schema = with_spec(&json!({"t": {
            "type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        }}));
        check(
            &schema,
            json!({"spec": {"t": {
                "apiVersion": "v1", "kind": "Thing", "spec": {"n": 1, "o": 2}, "more": 1,
                "metadata": {"name": "x", "odd": 1, "labels": {"a": "b"}, "generation": "one", "creationTimestamp": null},
            }}}),
            &json!({"spec": {"t": {
                "apiVersion": "v1", "kind": "Thing", "spec": {"n": 1}, "metadata": {"name": "x", "labels": {"a": "b"}},
            }}}),
            &["spec.t.more", "spec.t.spec.o", "spec.t.metadata.odd"],
        );
    }

    #[test]
    fn nulls_that_are_no_values_go() {
        let schema = with_spec(&json!({
            "a": {"type": "string"},
            "n": {"type": "string", "nullable": true},
            "d": {"type": "string", "default": "x"},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
            "l": {"type": "array", "items": {"type": "string"}},
        }));
        check(
            &schema,
            json!({"spec": {"a": null, "n": null, "d": null, "m": {"k": null}, "l": [null]}}),
            &json!({"spec": {"n": null, "d": null, "m": {}, "l": [null]}}),
            &[],
        );
    }

    #[test]
    fn strict_pruning_refuses_malformed_metadata() {
        let schema = Structural::parse(&with_spec(&json!({"t": {
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
        }})));
        let mut object = json!({"spec": {"t": {"kind": 5}}});
        let error = schema.prune_strict(&mut object).unwrap_err();
        assert_eq!(error.to_string(), "spec.t.kind: Invalid value: 5: must be a string");
        let mut object = json!({"spec": {"t": {"metadata": {"labels": 5}}}});
        let error = schema.prune_strict(&mut object).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.t.metadata: Invalid value: {\"labels\":5}: json: cannot unmarshal number into Go struct field \
             ObjectMeta.labels of type map[string]string"
        );
    }
}
