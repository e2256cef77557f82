//! Calls: which function and which of its overloads.

use super::{Checker, Reference, is_optional_select, qualified_name};
use crate::declare::{Function, Overload};
use crate::syntax::ast::{Expr, ExprKind, Literal, op};
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn check_call(&mut self, expr: &Expr, target: Option<&Expr>, function: &str, args: &[Expr]) {
        if is_optional_select(function) {
            return self.check_optional_select(expr, args);
        }
        for arg in args {
            self.check(arg);
        }
        let Some(target) = target else {
            match self.environment.functions.get(function) {
                Some(known) => self.resolve(expr, known, None, args, false),
                None => self.undeclared(expr, function),
            }
            return;
        };
        let qualified = qualified_name(target).map(|prefix| format!("{prefix}.{function}"));
        if let Some(known) = qualified.and_then(|name| self.environment.functions.get(&name)) {
            return self.resolve(expr, known, None, args, true);
        }
        self.check(target);
        match self.environment.functions.get(function) {
            Some(known) => self.resolve(expr, known, Some(target), args, false),
            None => self.undeclared(expr, function),
        }
    }

    /// `operand.?field`.
    fn check_optional_select(&mut self, expr: &Expr, args: &[Expr]) {
        let [operand, Expr { kind: ExprKind::Literal(Literal::String(field)), .. }] = args else {
            self.error(expr.at, "unsupported optional field selection");
            return self.set_type(expr, Type::Error);
        };
        let kind = self.field_type(expr, operand, field, true);
        let kind = self.bindings.substitute(&kind, false);
        self.set_type(expr, kind);
        if let Some(function) = self.environment.functions.get(op::OPTIONAL_SELECT) {
            self.references.insert(expr.id, Reference::Function { function, overloads: vec![0], qualified: false });
        }
    }

    fn resolve(
        &mut self,
        expr: &Expr,
        function: &'static Function,
        target: Option<&Expr>,
        args: &[Expr],
        qualified: bool,
    ) {
        let given: Vec<Type> = target.into_iter().chain(args).map(|arg| self.type_of(arg)).collect();
        if matches!(function.name, op::AND | op::OR) {
            return self.resolve_logical(expr, function, args, &given);
        }
        let mut overloads = Vec::new();
        let mut result: Option<Type> = None;
        for (index, overload) in function.overloads.iter().enumerate() {
            if overload.member != target.is_some() {
                continue;
            }
            let (wanted, returned) = self.instantiate(overload);
            let (given, wanted): (Vec<&Type>, Vec<&Type>) = (given.iter().collect(), wanted.iter().collect());
            if !self.bindings.assign_all(&given, &wanted) {
                continue;
            }
            overloads.push(index);
            let returned = self.bindings.substitute(&returned, false);
            result = Some(match result {
                None => returned,
                Some(before) if before == Type::Dyn || before == returned => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let given: Vec<String> =
                given.iter().map(|kind| self.bindings.substitute(kind, true).in_message()).collect();
            let signature = match (target, given.split_first()) {
                (Some(_), Some((target, args))) => format!("{target}.({})", args.join(", ")),
                _ => format!("({})", given.join(", ")),
            };
            let name = function.name;
            self.error(expr.at, format!("found no matching overload for '{name}' applied to '{signature}'"));
            return self.set_type(expr, Type::Error);
        };
        self.set_type(expr, result);
        self.references.insert(expr.id, Reference::Function { function, overloads, qualified });
    }

    /// Operands of `&&` and `||` are checked one by one.
    fn resolve_logical(&mut self, expr: &Expr, function: &'static Function, args: &[Expr], given: &[Type]) {
        let mut refused = false;
        for (arg, kind) in args.iter().zip(given) {
            if !self.bindings.assign(kind, &Type::Bool) {
                self.mismatch(arg.at, &Type::Bool, kind);
                refused = true;
            }
        }
        self.set_type(expr, if refused { Type::Error } else { Type::Bool });
        self.references.insert(expr.id, Reference::Function { function, overloads: vec![0], qualified: false });
    }

    /// The signature with a new variable for each of its parameters.
    fn instantiate(&mut self, overload: &Overload) -> (Vec<Type>, Type) {
        let mut names = Vec::new();
        overload.args.iter().chain([&overload.result]).for_each(|kind| parameters(kind, &mut names));
        names.sort_unstable();
        names.dedup();
        let variables: Vec<(&str, Type)> = names.into_iter().map(|name| (name, self.bindings.fresh())).collect();
        let args = overload.args.iter().map(|kind| replace(kind, &variables)).collect();
        (args, replace(&overload.result, &variables))
    }
}

fn parameters(kind: &Type, names: &mut Vec<&'static str>) {
    match kind {
        Type::Param(name) => names.push(name),
        Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => parameters(inner, names),
        Type::Map(key, value) => {
            parameters(key, names);
            parameters(value, names);
        }
        _ => {}
    }
}

fn replace(kind: &Type, variables: &[(&str, Type)]) -> Type {
    match kind {
        Type::Param(name) => {
            variables.iter().find(|(known, _)| known == name).map_or(Type::Dyn, |(_, variable)| variable.clone())
        }
        Type::List(inner) => Type::list(replace(inner, variables)),
        Type::Optional(inner) => Type::optional(replace(inner, variables)),
        Type::Type(Some(inner)) => Type::type_of(replace(inner, variables)),
        Type::Map(key, value) => Type::map(replace(key, variables), replace(value, variables)),
        other => other.clone(),
    }
}
