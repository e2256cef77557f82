//! Rules evaluated on objects.

use serde_json::Value;

use super::compile::Scope;
use super::correlate::{Correlated, Ratchet};
use super::messages;
use super::node::{Node, has_rules};
use super::run::Run;
use crate::field::{Errors, FieldError, Path};
use crate::structural::Structural;

/// What all rules of an object may cost.
pub const BUDGET: i64 = 10_000_000;

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

/// The errors for rules that were not evaluated because of [`blocks`].
#[must_use]
pub fn not_checked() -> FieldError {
    let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                  complete validation";
    messages::invalid(messages::field(None), Some("null"), detail)
}
