//! One rule: compiled, with what is wrong with it.

use std::sync::Arc;

use cel::{Compatibility, Declared, DeclaredTypes, Environment, Program, Type};

use super::field_path;
use crate::structural::{Rule, Structural};

/// The name that the names of types begin with.
pub(super) const SELF_TYPE: &str = "selfType";

/// Where rules are compiled: the type of their `self`, and the object types below it.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) declared: Arc<Declared>,
    pub(super) types: Arc<DeclaredTypes>,
}

impl Scope {
    /// The scope of the rules of a schema, or none if expressions cannot use its values.
    pub(super) fn new(schema: &Structural, resource_root: bool) -> Option<Self> {
        let declared = super::declare::declared(schema, resource_root, SELF_TYPE)?;
        let types = Arc::new(DeclaredTypes::new(&declared));
        Some(Self { declared, types })
    }

    /// The scope of a part of the value.
    pub(super) fn part(&self, declared: Option<&Arc<Declared>>) -> Option<Self> {
        Some(Self { declared: declared?.clone(), types: self.types.clone() })
    }

    fn environment(&self, optional: bool, compatibility: Compatibility) -> Environment {
        let kind = self.declared.kind().clone();
        let old = if optional { Type::optional(kind.clone()) } else { kind.clone() };
        Environment::new(compatibility).variable("self", kind).variable("oldSelf", old).types(self.types.clone())
    }
}

/// A rule that was compiled. Blank rules have neither a program nor an error.
#[derive(Debug, Default)]
pub(super) struct Unit {
    pub(super) rule: Rule,
    pub(super) program: Option<Program>,
    pub(super) error: Option<String>,
    pub(super) uses_old_self: bool,
    pub(super) cost: u64,
    pub(super) message: Option<Program>,
    pub(super) message_error: Option<String>,
    pub(super) message_cost: u64,
    /// `fieldPath` in the form of field errors.
    pub(super) field_path: Option<String>,
}

impl Unit {
    /// Compiles a rule of a schema. `compatibility` selects the functions that it and its `messageExpression` may call.
    pub(super) fn new(
        schema: &Structural,
        rule: &Rule,
        scope: &Scope,
        compatibility: (Compatibility, Compatibility),
    ) -> Self {
        let mut unit = Self { rule: rule.clone(), ..Self::default() };
        if rule.rule.trim().is_empty() {
            return unit;
        }
        let optional = rule.optional_old_self == Some(true);
        if let Err(error) = unit.compile(&scope.environment(optional, compatibility.0), scope) {
            unit.error = Some(error);
            return unit;
        }
        if !rule.message_expression.is_empty()
            && let Err(error) = unit.compile_message(&scope.environment(optional, compatibility.1), scope)
        {
            unit.message_error = Some(error);
            return unit;
        }
        if !rule.field_path.is_empty() {
            unit.field_path = field_path::resolve(&rule.field_path, schema, true).ok().map(|(path, _)| path);
        }
        unit
    }

    fn compile(&mut self, environment: &Environment, scope: &Scope) -> Result<(), String> {
        let compiled = environment.compile(&self.rule.rule);
        let expression = compiled.map_err(|issues| format!("compilation failed: {issues}"))?;
        if expression.result_type() != &Type::Bool {
            return Err("cel expression must evaluate to a bool".to_owned());
        }
        self.uses_old_self = expression.uses("oldSelf");
        let program = expression.program().map_err(|error| format!("program instantiation failed: {error}"))?;
        self.cost = expression.estimate(&scope.declared).max;
        self.program = Some(program);
        Ok(())
    }

    fn compile_message(&mut self, environment: &Environment, scope: &Scope) -> Result<(), String> {
        let compiled = environment.compile(&self.rule.message_expression);
        let expression = compiled.map_err(|issues| format!("messageExpression compilation failed: {issues}"))?;
        if expression.result_type() != &Type::String {
            return Err("messageExpression must evaluate to a string".to_owned());
        }
        let program =
            expression.program().map_err(|error| format!("messageExpression instantiation failed: {error}"))?;
        self.message_cost = expression.estimate(&scope.declared).max;
        self.message = Some(program);
        Ok(())
    }
}
