//! `matchConditions`: named expressions that must all be true for a policy or webhook to apply.

use serde_json::Value;

use crate::dynamic_admission::expression::{self, Compiler, Environment, Gives};
use crate::field::{Errors, Path};
use crate::kinds::common::report;
use crate::names;
use crate::value::ValueExt as _;

const MAX_CONDITIONS: usize = 64;

/// Checks match conditions. `params` is declared for policies with a kind of parameters; `old` are the conditions that
/// were accepted earlier. Variables are not declared.
pub(super) fn validate(
    path: &Path<'_>,
    conditions: &[Value],
    params: bool,
    old: &[&str],
    compiler: &dyn Compiler,
    errors: &mut Errors,
) {
    if conditions.len() > MAX_CONDITIONS {
        errors.too_many(path, conditions.len(), MAX_CONDITIONS);
    }
    let mut expressions = compiler.expressions(false);
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let (name, text) = (condition.text("name"), condition.text("expression").trim());
        if text.is_empty() {
            errors.required(&path.child("expression"), "");
        } else {
            let environment = Environment { params, authorizer: true, stored: old.contains(&text) };
            if let Err(why) = expression::compile(expressions.as_mut(), text, environment, Gives::Bool) {
                errors.invalid(&path.child("expression"), text, &why);
            }
        }
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else {
            report(&path.child("name"), name, names::qualified_name(name), errors);
            if conditions[..index].iter().any(|earlier| earlier.text("name") == name) {
                errors.duplicate(&path.child("name"), name);
            }
        }
    }
}

/// The expressions of some conditions.
pub(super) fn texts(conditions: &[Value]) -> impl Iterator<Item = &str> {
    conditions.iter().map(|condition| condition.text("expression"))
}
