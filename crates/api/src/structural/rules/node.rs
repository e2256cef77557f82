//! The rules of a schema, compiled into a tree that has a node for each schema with rules at or below it.

use std::collections::BTreeMap;

use cel::{Compatibility, Shape};

use super::compile::{Scope, Unit};
use crate::structural::{Additional, Structural};

/// Whether a schema has rules on the values it describes. Rules in `allOf` alone do not count.
pub(super) fn has_rules(schema: &Structural) -> bool {
    !schema.rules.is_empty()
        || schema.items.as_deref().is_some_and(has_rules)
        || matches!(&schema.additional, Additional::Schema(values) if has_rules(values))
        || schema.properties.values().any(has_rules)
}

/// The rules of a schema and of what is below it.
#[derive(Debug)]
pub(super) struct Node {
    /// None if expressions cannot use the value: then the rules fail.
    pub(super) scope: Option<Scope>,
    pub(super) rules: Vec<Unit>,
    pub(super) uses_old_self: bool,
    pub(super) all_of: Vec<Self>,
    pub(super) items: Option<Box<Self>>,
    pub(super) additional: Option<Box<Self>>,
    pub(super) properties: BTreeMap<Box<str>, Self>,
}

impl Node {
    /// Compiles the rules in `rules` for values of `schema`; the two differ in `allOf`. None if there are no rules.
    pub(super) fn new(rules: &Structural, schema: &Structural, scope: Option<&Scope>) -> Option<Self> {
        let stored = (Compatibility::Stored, Compatibility::Stored);
        let units: Vec<Unit> = match scope {
            Some(scope) => rules.rules.iter().map(|rule| Unit::new(schema, rule, scope, stored)).collect(),
            None => rules.rules.iter().map(|rule| Unit { rule: rule.clone(), ..Unit::default() }).collect(),
        };
        let element = || scope.and_then(|scope| scope.part(scope.declared.element()));
        let items = rules.items.as_deref().zip(schema.items.as_deref());
        let additional = match (&rules.additional, &schema.additional) {
            (Additional::Schema(rules), Additional::Schema(schema)) => Some((rules, schema)),
            _ => None,
        };
        let node = Self {
            items: items.and_then(|(rules, schema)| Self::new(rules, schema, element().as_ref())).map(Box::new),
            additional: additional
                .and_then(|(rules, schema)| Self::new(rules, schema, element().as_ref()))
                .map(Box::new),
            properties: Self::properties(rules, schema, scope),
            all_of: rules.checks.all_of.iter().filter_map(|nested| Self::new(nested, schema, scope)).collect(),
            uses_old_self: units.iter().any(|unit| unit.uses_old_self),
            scope: scope.cloned(),
            rules: units,
        };
        let empty = node.rules.is_empty() && node.items.is_none() && node.additional.is_none();
        (!empty || !node.properties.is_empty() || !node.all_of.is_empty()).then_some(node)
    }

    /// Properties that expressions cannot use are left out with everything below them.
    fn properties(rules: &Structural, schema: &Structural, scope: Option<&Scope>) -> BTreeMap<Box<str>, Self> {
        let property = |name: &str, rules: &Structural| {
            let schema = schema.properties.get(name)?;
            let scope = match scope.map(|scope| (scope, scope.declared.shape())) {
                Some((scope, Shape::Object(known))) => scope.part(known.fields.get(name)?.as_ref())?,
                _ if cel::escape(name).is_some() => return None,
                _ => Scope::new(schema, schema.embedded)?,
            };
            Some((name.into(), Self::new(rules, schema, Some(&scope))?))
        };
        rules.properties.iter().filter_map(|(name, rules)| property(name, rules)).collect()
    }
}
