//! One evaluation of rules on an object, within a budget.

use std::cell::OnceCell;
use std::sync::Arc;

use cel::{EvalError, Program, Variables};
use serde_json::Value;

use super::compile::Unit;
use super::correlate::{OldItems, Ratchet};
use super::messages;
use super::node::Node;
use crate::field::{Errors, Path};
use crate::structural::{Additional, Rule, Structural, Type};

/// The longest message that an expression may give, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// No further rules are evaluated.
#[derive(Debug)]
pub(super) struct Exhausted;

/// One evaluation of all rules on an object.
pub(super) struct Run<'e> {
    pub(super) errors: &'e mut Errors,
    pub(super) warnings: &'e mut Vec<String>,
    /// What the rest may cost.
    pub(super) left: i64,
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
    /// Evaluates the rules of a node and of those below it.
    pub(super) fn visit<'a>(
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
    /// The error when it costs too much.
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
