//! The rules of a schema, checked when a CustomResourceDefinition is written.
//!
//! Two kinds of errors are found: those of fields, such as a blank rule; and those of expressions, which do not compile or
//! may cost too much. Expressions are not compiled where a field at the same place or below it is wrong.

use std::collections::HashSet;

use cel::{Compatibility, Shape};

use super::compile::{Scope, Unit};
use super::costs::{self, Costs};
use super::{field_path, messages};
use crate::field::{Errors, FieldError, Path};
use crate::structural::{Additional, ListType, Rule, Structural, Type};

const RULES: &str = "x-kubernetes-validations";
/// The values of `reason`.
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Expressions of the definition before an update. They may call functions that new expressions may not call yet.
#[derive(Clone, Debug, Default)]
pub struct Known {
    rules: HashSet<String>,
    messages: HashSet<String>,
}

impl Known {
    /// Adds the expressions of a schema.
    pub fn add(&mut self, schema: &Structural) {
        for rule in &schema.rules {
            self.rules.insert(rule.rule.clone());
            if !rule.message_expression.is_empty() {
                self.messages.insert(rule.message_expression.clone());
            }
        }
        let additional = if let Additional::Schema(values) = &schema.additional { Some(&**values) } else { None };
        let below = schema.properties.values().chain(schema.items.as_deref()).chain(additional);
        below.chain(junctors(schema).map(|(.., nested)| nested)).for_each(|below| self.add(below));
    }

    fn compatibility(&self, rule: &Rule) -> (Compatibility, Compatibility) {
        let of = |known: bool| if known { Compatibility::Stored } else { Compatibility::New };
        (of(self.rules.contains(&rule.rule)), of(self.messages.contains(&rule.message_expression)))
    }
}

/// What depends on the definition as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Options<'o> {
    /// The expressions that were there before; none when the definition is created.
    pub known: Option<&'o Known>,
    /// The schema of this version did not change: a rule that may cost too much stays.
    pub unchanged: bool,
    /// Expressions are compiled. Not if the schema is not structural or has other errors.
    pub compile: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self { known: None, unchanged: false, compile: true }
    }
}

/// Checks every rule of a schema. `path` is that of the schema.
pub fn check_rules(root: &Structural, path: &Path<'_>, options: &Options<'_>, errors: &mut Errors) {
    let empty = Known::default();
    let mut checker = Checker {
        known: options.known.unwrap_or(&empty),
        unchanged: options.unchanged,
        fields: Errors::default(),
        expressions: Errors::default(),
        costs: Costs::default(),
    };
    let within = if !options.compile {
        Within::Nothing
    } else if root.rules.is_empty() {
        Within::Unknown
    } else {
        Scope::new(root, true).map_or(Within::Failed, Within::Scope)
    };
    let place = Place { within, cardinality: Some(1), uncorrelatable: None };
    checker.visit(root, path, &place);
    errors.0.append(&mut checker.fields.0);
    errors.0.append(&mut checker.expressions.0);
    if let Some((named, text)) = checker.costs.excess() {
        for rule in named {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.forbidden(&Path::Root(rule), detail);
        }
        errors.forbidden(path, &text);
    }
}

/// What is known about the types at a place.
#[derive(Clone, Debug)]
enum Within {
    /// Expressions are not compiled here.
    Nothing,
    /// No rule is here or above.
    Unknown,
    /// Expressions cannot use values from here on.
    Failed,
    Scope(Scope),
}

/// Where a schema is.
#[derive(Clone, Debug)]
struct Place {
    within: Within,
    /// How many values of the schema an object has at most, if that is limited.
    cardinality: Option<u64>,
    /// The list above whose items cannot be found again after an update.
    uncorrelatable: Option<String>,
}

impl Place {
    /// The place of a schema below. `part` derives its type from the type of this place.
    fn below(&self, parent: &Structural, child: &Structural, part: impl FnOnce(&Scope) -> Option<Scope>) -> Self {
        let own = || Scope::new(child, child.embedded).map_or(Within::Failed, Within::Scope);
        let within = match &self.within {
            Within::Nothing => Within::Nothing,
            Within::Unknown if child.rules.is_empty() => Within::Unknown,
            Within::Unknown => own(),
            Within::Failed => Within::Failed,
            Within::Scope(scope) => part(scope).map_or_else(own, Within::Scope),
        };
        let cardinality = self.cardinality.zip(max_elements(parent)).map(|(count, each)| count.saturating_mul(each));
        Self { within, cardinality, uncorrelatable: self.uncorrelatable.clone() }
    }

    /// The place of a schema of which nothing is compiled.
    fn aside(&self) -> Self {
        Self { within: Within::Nothing, ..self.clone() }
    }
}

/// How many values a value of this schema has directly below it, if that is limited.
fn max_elements(schema: &Structural) -> Option<u64> {
    let limit = |written: Option<i64>| written.map(|limit| u64::try_from(limit).unwrap_or(0));
    match schema.ty {
        Some(Type::Object) if schema.additional != Additional::None => limit(schema.checks.max_properties),
        Some(Type::Array) => limit(schema.checks.max_items),
        _ => Some(1),
    }
}

/// A schema in `not`, `allOf`, `oneOf` or `anyOf`, with the name of the field and the position in it.
type Junctor<'s> = (&'static str, Option<usize>, &'s Structural);

fn junctors(schema: &Structural) -> impl Iterator<Item = Junctor<'_>> {
    fn list<'s>(name: &'static str, schemas: &'s [Structural]) -> impl Iterator<Item = Junctor<'s>> {
        schemas.iter().enumerate().map(move |(index, nested)| (name, Some(index), nested))
    }
    let not = schema.checks.not.as_deref().map(|nested| ("not", None, nested));
    not.into_iter()
        .chain(list("allOf", &schema.checks.all_of))
        .chain(list("oneOf", &schema.checks.one_of))
        .chain(list("anyOf", &schema.checks.any_of))
}

struct Checker<'o> {
    known: &'o Known,
    unchanged: bool,
    fields: Errors,
    expressions: Errors,
    costs: Costs,
}

impl Checker<'_> {
    fn visit(&mut self, schema: &Structural, path: &Path<'_>, place: &Place) {
        let before = self.fields.0.len();
        if let Additional::Schema(values) = &schema.additional {
            let place = place.below(schema, values, |scope| scope.part(scope.declared.element()));
            self.visit(values, &path.child("additionalProperties"), &place);
        }
        let properties = path.child("properties");
        for (name, property) in &schema.properties {
            let place = place.below(schema, property, |scope| match scope.declared.shape() {
                Shape::Object(known) => scope.part(known.fields.get(name)?.as_ref()),
                _ => None,
            });
            self.visit(property, &properties.key(name), &place);
        }
        for (name, index, nested) in junctors(schema) {
            let field = path.child(name);
            let place = place.aside();
            match index {
                Some(index) => self.visit(nested, &field.index(index), &place),
                None => self.visit(nested, &field, &place),
            }
        }
        if let Some(items) = &schema.items {
            let mut place = place.below(schema, items, |scope| scope.part(scope.declared.element()));
            if !matches!(schema.list, ListType::Map(_)) {
                place.uncorrelatable.get_or_insert_with(|| path.to_string());
            }
            self.visit(items, &path.child("items"), &place);
        }
        let rules = path.child(RULES);
        for (index, rule) in schema.rules.iter().enumerate() {
            self.check_fields(schema, rule, &rules.index(index));
        }
        if !schema.rules.is_empty() && self.fields.0.len() == before {
            self.check_expressions(schema, &rules, place);
        }
    }

    fn check_fields(&mut self, schema: &Structural, rule: &Rule, path: &Path<'_>) {
        let errors = &mut self.fields;
        let broken = |text: &str| text.contains(['\n', '\r']);
        let message = rule.message.trim();
        if rule.rule.trim().is_empty() {
            errors.required(&path.child("rule"), "rule is not specified");
        } else if !rule.message.is_empty() && message.is_empty() {
            errors.invalid(&path.child("message"), rule.message.as_str(), "must be non-empty if specified");
        } else if broken(message) {
            errors.invalid(&path.child("message"), rule.message.as_str(), "must not contain line breaks");
        } else if broken(rule.rule.trim()) && message.is_empty() {
            errors.required(&path.child("message"), "message must be specified if rule contains line breaks");
        }
        if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
            let path = path.child("messageExpression");
            errors.required(&path, "messageExpression must be non-empty if specified");
        }
        if !rule.reason.is_empty() && !REASONS.contains(&rule.reason.as_str()) {
            errors.not_supported(&path.child("reason"), rule.reason.as_str(), &REASONS);
        }
        if rule.field_path.is_empty() {
            return;
        }
        let (path, written) = (path.child("fieldPath"), rule.field_path.as_str());
        if written.trim().is_empty() {
            errors.invalid(&path, written, "must be non-empty if specified");
        }
        if broken(written) {
            errors.invalid(&path, written, "must not contain line breaks");
        }
        if field_path::resolve(written, schema, true).is_err() {
            errors.invalid(&path, written, "must be a valid path");
        }
    }

    fn check_expressions(&mut self, schema: &Structural, path: &Path<'_>, place: &Place) {
        let scope = match &place.within {
            Within::Nothing => return,
            Within::Scope(scope) => scope,
            Within::Unknown | Within::Failed => {
                let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: \
                              unable to convert structural schema to CEL declarations";
                let body = format!("Internal error: {detail}");
                return self.expressions.0.push(FieldError { reason: "InternalError", field: path.to_string(), body });
            }
        };
        let most = super::declare::REQUEST / (scope.declared.min_size() + 1);
        let count = place.cardinality.unwrap_or(most);
        for (index, rule) in schema.rules.iter().enumerate() {
            let unit = Unit::new(schema, rule, scope, self.known.compatibility(rule));
            self.check_unit(&unit, &path.index(index), count, place);
        }
    }

    fn check_unit(&mut self, unit: &Unit, path: &Path<'_>, count: u64, place: &Place) {
        let (rule, message) = (path.child("rule"), path.child("messageExpression"));
        self.check_cost("estimated rule cost", unit.cost.saturating_mul(count), &rule);
        if let Some(error) = &unit.error {
            self.expressions.0.push(messages::rule_error(&rule, &unit.rule, error));
        }
        if let Some(error) = &unit.message_error {
            self.expressions.0.push(messages::rule_error(&message, &unit.rule, error));
        } else if unit.message.is_some() {
            self.check_cost("estimated messageExpression cost", unit.message_cost, &message);
        }
        if let (true, Some(list)) = (unit.uses_old_self, &place.uncorrelatable) {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            self.expressions.invalid(&rule, unit.rule.rule.as_str(), &detail);
        }
        if let (false, Some(optional)) = (unit.uses_old_self, unit.rule.optional_old_self) {
            let path = path.child("optionalOldSelf");
            let value = serde_json::Value::Bool(optional);
            self.expressions.invalid(&path, value, "may not be set if oldSelf is not used in rule");
        }
    }

    fn check_cost(&mut self, name: &str, cost: u64, path: &Path<'_>) {
        if let (false, Some(text)) = (self.unchanged, costs::excess(name, cost)) {
            self.expressions.forbidden(path, &text);
        }
        self.costs.observe(|| path.to_string(), cost);
    }
}
