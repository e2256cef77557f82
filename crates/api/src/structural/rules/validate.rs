//! Rules evaluated on objects.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use cel::{Compatibility, EvalError, Program, Shape, Variables};
use serde_json::Value;

use super::compile::{Scope, Unit};
use super::correlate::{Correlated, OldItems, Ratchet};
use super::messages;
use crate::field::{Errors, FieldError, Path};
use crate::structural::{Additional, Rule, Structural, Type};

/// What all rules of an object may cost.
pub const BUDGET: i64 = 10_000_000;
/// The longest message that an expression may give, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The rules of a schema, compiled.
#[derive(Debug)]
pub struct Compiled {
    root: Option<Node>,
}

impl Compiled {
    /// Compiles the rules of the schema of a custom resource.
    #[must_use]
    pub fn new(root: &Structural) -> Self {
        Self::of(root, true)
    }

    /// Compiles the rules of a part of a schema; `resource_root` if the part is a resource.
    #[must_use]
    pub fn of(schema: &Structural, resource_root: bool) -> Self {
        let build = || Node::new(schema, schema, Scope::new(schema, resource_root).as_ref());
        Self { root: if has_rules(schema) { build() } else { None } }
    }

    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Evaluates the rules on an object, and on what it was before an update. `root` is the schema that was compiled. Rules
    /// that an unchanged value does not keep become warnings.
    pub fn validate(
        &self,
        root: &Structural,
        object: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
        warnings: &mut Vec<String>,
    ) {
        self.run(root, object, old, errors, warnings);
    }

    /// Evaluates the rules and returns what is left of the budget, negative if no further rules may run.
    pub(super) fn run(
        &self,
        root: &Structural,
        object: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
        warnings: &mut Vec<String>,
    ) -> i64 {
        let Some(node) = &self.root else { return BUDGET };
        let correlated = old.map(|old| Correlated::new(object, old, root));
        let mut run = Run { errors, warnings, left: BUDGET };
        let _ = run.visit(node, root, object, old, Ratchet::root(correlated.as_ref()), None);
        run.left
    }

    /// Evaluates the rules on the default of a schema, once as if it had been there before and once as a new value.
    /// `budget` is what all defaults of a definition may cost yet; it becomes negative when no further rules may run.
    pub fn validate_default(
        &self,
        schema: &Structural,
        value: &Value,
        path: &Path<'_>,
        budget: &mut i64,
        errors: &mut Errors,
    ) {
        let Some(node) = &self.root else { return };
        let before = errors.0.len();
        let start = *budget;
        for old in [Some(value), None] {
            let mut run = Run { errors, warnings: &mut Vec::new(), left: start };
            let _ = run.visit(node, schema, value, old, Ratchet::default(), Some(path));
            *budget = run.left.min(*budget);
            if errors.0.len() > before {
                return;
            }
        }
    }
}

/// Whether errors of the schema's other checks are such that rules are not evaluated.
#[must_use]
pub fn blocks(errors: &Errors) -> bool {
    errors.0.iter().any(|error| {
        matches!(
            error.reason,
            "FieldValueNotSupported"
                | "FieldValueRequired"
                | "FieldValueTooLong"
                | "FieldValueTooMany"
                | "FieldValueTypeInvalid"
        )
    })
}

/// What is said about rules that were not evaluated because of [`blocks`].
#[must_use]
pub fn not_checked() -> FieldError {
    let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                  complete validation";
    messages::invalid(messages::field(None), Some("null"), detail)
}

/// Whether a schema has rules on the values it describes. Rules in `allOf` alone do not count.
fn has_rules(schema: &Structural) -> bool {
    !schema.rules.is_empty()
        || schema.items.as_deref().is_some_and(has_rules)
        || matches!(&schema.additional, Additional::Schema(values) if has_rules(values))
        || schema.properties.values().any(has_rules)
}

/// The rules of a schema and of what is below it.
#[derive(Debug)]
struct Node {
    /// None if expressions cannot use the value: then the rules fail.
    scope: Option<Scope>,
    rules: Vec<Unit>,
    uses_old_self: bool,
    all_of: Vec<Self>,
    items: Option<Box<Self>>,
    additional: Option<Box<Self>>,
    properties: BTreeMap<Box<str>, Self>,
}

impl Node {
    /// Compiles the rules in `rules` for values of `schema`; the two differ in `allOf`. None if there are no rules.
    fn new(rules: &Structural, schema: &Structural, scope: Option<&Scope>) -> Option<Self> {
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

/// No further rules are evaluated.
struct Exhausted;

/// One evaluation of all rules on an object.
struct Run<'e> {
    errors: &'e mut Errors,
    warnings: &'e mut Vec<String>,
    /// What the rest may cost.
    left: i64,
}

/// The value that rules are evaluated on.
#[derive(Clone, Copy)]
struct Subject<'a, 'r> {
    ty: Option<Type>,
    value: &'a Value,
    old: Option<&'a Value>,
    ratchet: Ratchet<'r, 'a>,
    path: Option<&'r Path<'r>>,
}

impl Run<'_> {
    fn visit<'a>(
        &mut self,
        node: &'a Node,
        schema: &'a Structural,
        value: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'_, 'a>,
        path: Option<&Path<'_>>,
    ) -> Result<(), Exhausted> {
        if value.is_null() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        if !node.rules.is_empty() {
            let subject = Subject { ty: schema.ty, value, old, ratchet, path };
            self.evaluate(node, subject).inspect_err(|_| self.left = -1)?;
        }
        for nested in &node.all_of {
            self.visit(nested, schema, value, old, ratchet.all_of(), path)?;
        }
        match value {
            Value::Array(items) => self.items(node, schema, items, old, ratchet, path),
            Value::Object(_) => {
                self.entries(node, schema, value, old, ratchet, path)?;
                self.members(node, schema, value, old, ratchet, path)
            }
            _ => Ok(()),
        }
    }

    fn items<'a>(
        &mut self,
        node: &'a Node,
        schema: &'a Structural,
        items: &'a [Value],
        old: Option<&'a Value>,
        ratchet: Ratchet<'_, 'a>,
        path: Option<&Path<'_>>,
    ) -> Result<(), Exhausted> {
        let (Some(node), Some(below)) = (&node.items, &schema.items) else { return Ok(()) };
        let olds = OldItems::new(schema, old);
        let correlated = ratchet.old_items();
        for (index, item) in items.iter().enumerate() {
            let slot = OnceCell::new();
            let ratchet = ratchet.item(item, correlated.as_ref(), &slot);
            let path = path.map_or(Path::Root(""), |path| Path::Index(path, index));
            self.visit(node, below, item, olds.find(item), ratchet, Some(&path))?;
        }
        Ok(())
    }

    fn entries<'a>(
        &mut self,
        node: &'a Node,
        schema: &'a Structural,
        value: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'_, 'a>,
        path: Option<&Path<'_>>,
    ) -> Result<(), Exhausted> {
        let (Some(node), Additional::Schema(below)) = (&node.additional, &schema.additional) else { return Ok(()) };
        for (key, entry) in value.as_object().into_iter().flatten() {
            let slot = OnceCell::new();
            let ratchet = ratchet.member(key, &slot);
            let path = path.map_or(Path::Root(key), |path| Path::Key(path, key));
            self.visit(node, below, entry, old.and_then(|old| old.get(key)), ratchet, Some(&path))?;
        }
        Ok(())
    }

    fn members<'a>(
        &mut self,
        node: &'a Node,
        schema: &'a Structural,
        value: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'_, 'a>,
        path: Option<&Path<'_>>,
    ) -> Result<(), Exhausted> {
        for (name, node) in &node.properties {
            let (Some(member), Some(below)) = (value.get(&**name), schema.properties.get(name)) else { continue };
            let slot = OnceCell::new();
            let ratchet = ratchet.member(name, &slot);
            let path = path.map_or(Path::Root(name), |path| Path::Child(path, name));
            self.visit(node, below, member, old.and_then(|old| old.get(&**name)), ratchet, Some(&path))?;
        }
        Ok(())
    }

    fn fail(&mut self, subject: Subject<'_, '_>, detail: &str) {
        self.errors.0.push(messages::failed(subject.path, subject.ty, detail));
    }

    fn evaluate(&mut self, node: &Node, subject: Subject<'_, '_>) -> Result<(), Exhausted> {
        let Some(scope) = &node.scope else {
            let detail = "rule compiler initialization error: failed to convert to declType for CEL validation rules";
            self.fail(subject, detail);
            return Ok(());
        };
        if self.left <= 0 {
            self.fail(subject, OUT_OF_BUDGET);
            return Err(Exhausted);
        }
        let variables = Variables::new().with("self", cel::Value::declared(subject.value, &scope.declared));
        let old = subject.old.filter(|_| node.uses_old_self).map(|old| cel::Value::declared(old, &scope.declared));
        let optional = if node.uses_old_self && node.rules.iter().any(|unit| unit.rule.optional_old_self == Some(true))
        {
            let old = cel::Value::Optional(old.clone().map(Arc::new));
            Some(variables.clone().with("oldSelf", old))
        } else {
            None
        };
        let variables = match old {
            Some(old) => variables.with("oldSelf", old),
            None => variables,
        };
        for unit in &node.rules {
            let optional = optional.as_ref().filter(|_| unit.rule.optional_old_self == Some(true));
            self.rule(unit, subject, &variables, optional)?;
        }
        Ok(())
    }

    /// Evaluates one rule. With `optional` these variables are used, and it runs without an old value too.
    fn rule(
        &mut self,
        unit: &Unit,
        subject: Subject<'_, '_>,
        variables: &Variables<'_>,
        optional: Option<&Variables<'_>>,
    ) -> Result<(), Exhausted> {
        if let Some(error) = &unit.error {
            self.fail(subject, &format!("rule compile error: {error}"));
            return Ok(());
        }
        let Some(program) = &unit.program else { return Ok(()) };
        if unit.uses_old_self && subject.old.is_none() && optional.is_none() {
            return Ok(());
        }
        let evaluation = program.evaluate(optional.unwrap_or(variables));
        if self.charge(evaluation.cost).is_err() {
            self.fail(subject, OUT_OF_BUDGET);
            return Err(Exhausted);
        }
        let rule = described(&unit.rule);
        match evaluation.result {
            Ok(cel::Value::Bool(true)) => Ok(()),
            Ok(_) => self.refuse(unit, subject, variables),
            Err(EvalError::CostLimitExceeded) => {
                let error = EvalError::CostLimitExceeded;
                let detail = format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {rule}"
                );
                self.fail(subject, &detail);
                Err(Exhausted)
            }
            Err(EvalError::Failed(error)) => {
                let detail = if error.starts_with("no such overload") {
                    format!(
                        "'{error}': call arguments did not match a supported operator, function or macro signature for \
                         rule: {rule}"
                    )
                } else {
                    format!("{error} evaluating rule: {rule}")
                };
                self.fail(subject, &detail);
                Ok(())
            }
        }
    }

    /// Takes a cost from the budget; not if it is larger than the budget.
    fn charge(&mut self, cost: u64) -> Result<(), Exhausted> {
        let cost = i64::try_from(cost).ok().filter(|cost| *cost <= self.left).ok_or(Exhausted)?;
        self.left -= cost;
        Ok(())
    }

    /// Adds the error of a rule that does not hold.
    fn refuse(&mut self, unit: &Unit, subject: Subject<'_, '_>, variables: &Variables<'_>) -> Result<(), Exhausted> {
        let field = match (&unit.field_path, subject.path) {
            (None, path) => messages::field(path),
            (Some(below), None) => below.clone(),
            (Some(below), Some(path)) => format!("{path}.{below}"),
        };
        let message = match &unit.message {
            Some(program) => self.message(program, &unit.rule, variables),
            None => Ok(None),
        };
        let (error, outcome) = match message {
            Ok(message) => {
                let detail = message.unwrap_or_else(|| default_message(&unit.rule));
                let value = messages::shown(subject.value, subject.ty);
                (messages::refused(field, value.as_deref(), &detail, &unit.rule.reason), Ok(()))
            }
            Err(detail) => {
                let ty = crate::field::quote(messages::type_name(subject.ty));
                (messages::invalid(field, Some(&ty), &detail), Err(Exhausted))
            }
        };
        if !unit.uses_old_self && subject.ratchet.holds() {
            self.warnings.push(error.to_string());
        } else {
            self.errors.0.push(error);
        }
        outcome
    }

    /// The message that `messageExpression` gives, or none if it gives none that can be used.
    ///
    /// # Errors
    /// What is said when it costs too much.
    fn message(&mut self, program: &Program, rule: &Rule, variables: &Variables<'_>) -> Result<Option<String>, String> {
        let evaluation = program.evaluate(variables);
        if self.charge(evaluation.cost).is_err() {
            let detail = "messageExpression evaluation failed due to running out of cost budget, no further validation \
                          rules will be run";
            return Err(detail.to_owned());
        }
        match evaluation.result {
            Ok(value) => {
                let text = value.as_str().map(str::trim).unwrap_or_default();
                let usable = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
                Ok(usable.then(|| text.to_owned()))
            }
            Err(EvalError::CostLimitExceeded) => {
                let quoted = crate::field::quote(&rule.message_expression);
                Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {quoted}"
                ))
            }
            Err(EvalError::Failed(_)) => Ok(None),
        }
    }
}

fn default_message(rule: &Rule) -> String {
    if rule.message.is_empty() { format!("failed rule: {}", described(rule)) } else { described(rule).to_owned() }
}

/// The message of a rule, or else the rule.
fn described(rule: &Rule) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() }
}
