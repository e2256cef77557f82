//! Which checks of schemas apply. Some do not apply to updates of definitions that fail them already.

use serde_json::Value;

use super::{lists, non_structural, structure};
use crate::field::{Errors, Path};
use crate::structural::{Structural, Type, prune};
use crate::value::ValueExt as _;

/// Which checks of schemas apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each check is switched by itself")]
pub struct Options {
    /// The version has a status subresource.
    pub status: bool,
    /// Schemas must be structural.
    pub structural: bool,
    /// Types must be known.
    pub known_types: bool,
    /// Defaults must not have unknown fields.
    pub pruned_defaults: bool,
    /// Elements of sets must be atomic.
    pub atomic_sets: bool,
    /// Keys of lists that are maps must always have values.
    pub complete_keys: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            status: false,
            structural: true,
            known_types: true,
            pruned_defaults: true,
            atomic_sets: true,
            complete_keys: true,
        }
    }
}

impl Options {
    /// The checks of an update of a definition that had these schemas. Definitions that preserve no unknown fields,
    /// have defaults or use extensions must be structural anyway: for them set `structural` again.
    #[must_use]
    pub fn for_update(old: &[&Value]) -> Self {
        let any = |fails: fn(&Value) -> bool| old.iter().any(|schema| fails(schema));
        Self {
            status: false,
            structural: !any(|schema| {
                structure::unsupported(schema).is_some() || !non_structural(schema, &Path::Root("")).is_empty()
            }),
            known_types: !any(|schema| {
                contains(schema, &|node| !node.text("type").is_empty() && Type::named(node.text("type")).is_none())
            }),
            pruned_defaults: !any(has_unpruned_defaults),
            atomic_sets: !any(|schema| contains(schema, &lists::has_structured_elements)),
            complete_keys: !any(|schema| {
                contains(schema, &|node| {
                    let mut errors = Errors::default();
                    lists::check_keys(node, &Path::Root(""), &mut errors);
                    !errors.is_empty()
                })
            }),
        }
    }
}

fn has_unpruned_defaults(schema: &Value) -> bool {
    if structure::unsupported(schema).is_some() || !non_structural(schema, &Path::Root("")).is_empty() {
        return false;
    }
    contains(schema, &|node| {
        let compiled = Structural::parse(node);
        compiled
            .default
            .clone()
            .is_some_and(|mut default| prune::removes_any(&mut default, &compiled, compiled.embedded))
    })
}

/// Whether a node of a schema has a property.
fn contains(schema: &Value, found: &dyn Fn(&Value) -> bool) -> bool {
    let Some(fields) = schema.as_object() else { return false };
    found(schema)
        || fields.iter().any(|(name, value)| match name.as_str() {
            "items" | "not" | "additionalProperties" | "additionalItems" | "allOf" | "anyOf" | "oneOf" => match value {
                Value::Array(schemas) => schemas.iter().any(|schema| contains(schema, found)),
                schema => contains(schema, found),
            },
            "properties" | "patternProperties" | "definitions" | "dependencies" => {
                value.as_object().into_iter().flatten().any(|(_, schema)| contains(schema, found))
            }
            _ => false,
        })
}
