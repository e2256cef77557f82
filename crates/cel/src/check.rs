//! The type checker.
//!
//! In: a tree and an environment. Out: the type of every node, what names and calls refer to, or the messages of cel-go.

pub(crate) mod assign;
mod calls;
mod validate;

use std::collections::HashMap;

use self::assign::{Bindings, most_general};
use crate::declare::Function;
use crate::environment::Environment;
use crate::issues::{Issues, Report};
use crate::source::Source;
use crate::syntax::ast::{Comprehension, Entry, Expr, ExprKind, Field, Literal, op};
use crate::types::Type;

/// Names of types that are values.
pub(crate) const TYPE_NAMES: [&str; 15] = [
    "bool",
    "bytes",
    "double",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "int",
    "list",
    "map",
    "net.CIDR",
    "net.IP",
    "null_type",
    "optional_type",
    "string",
    "type",
    "uint",
];

/// What a name or a call refers to.
#[derive(Clone, Debug)]
pub(crate) enum Reference {
    /// A variable; `global` if a local variable of the same name is not meant.
    Variable { name: String, global: bool },
    /// A type as a value.
    Type(String),
    /// A function with the overloads that fit; `qualified` if the target of the call is part of its name.
    Function { function: &'static Function, overloads: Vec<usize>, qualified: bool },
}

/// A tree with types.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) expr: Expr,
    /// By number of the node.
    pub(crate) types: Vec<Type>,
    pub(crate) references: HashMap<usize, Reference>,
    pub(crate) result: Type,
}

/// Checks a tree.
pub(crate) fn check(environment: &Environment, source: &Source, expr: Expr) -> Result<Checked, Issues> {
    let mut checker = Checker {
        environment,
        source,
        bindings: Bindings::default(),
        types: Vec::new(),
        references: HashMap::new(),
        scopes: Vec::new(),
        report: Report::default(),
    };
    checker.check(&expr);
    if !checker.report.is_empty() {
        return Err(checker.report.finish(source));
    }
    let types: Vec<Type> = checker
        .types
        .iter()
        .map(|kind| kind.as_ref().map_or(Type::Dyn, |kind| checker.bindings.substitute(kind, true)))
        .collect();
    let result = types.get(expr.id).cloned().unwrap_or(Type::Dyn);
    let checked = Checked { expr, types, references: checker.references, result };
    let report = validate::validate(&checked, source);
    if report.is_empty() { Ok(checked) } else { Err(report.finish(source)) }
}

struct Checker<'c> {
    environment: &'c Environment,
    source: &'c Source,
    bindings: Bindings,
    types: Vec<Option<Type>>,
    references: HashMap<usize, Reference>,
    /// Variables of comprehensions, the innermost last.
    scopes: Vec<(String, Type)>,
    report: Report,
}

impl Checker<'_> {
    fn error(&mut self, at: usize, message: impl Into<String>) {
        self.report.at(self.source, at, message);
    }

    fn set_type(&mut self, expr: &Expr, kind: Type) {
        if self.types.len() <= expr.id {
            self.types.resize(expr.id + 1, None);
        }
        if let Some(slot) = self.types.get_mut(expr.id) {
            *slot = Some(kind);
        }
    }

    fn type_of(&self, expr: &Expr) -> Type {
        self.types.get(expr.id).cloned().flatten().unwrap_or(Type::Error)
    }

    fn mismatch(&mut self, at: usize, expected: &Type, found: &Type) {
        let message = format!("expected type '{}' but found '{}'", expected.in_message(), found.in_message());
        self.error(at, message);
    }

    fn undeclared(&mut self, expr: &Expr, name: &str) {
        self.error(expr.at, format!("undeclared reference to '{name}' (in container '')"));
        self.set_type(expr, Type::Error);
    }

    fn check(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Unspecified => self.set_type(expr, Type::Error),
            ExprKind::Literal(literal) => {
                let kind = match literal {
                    Literal::Null => Type::Null,
                    Literal::Bool(_) => Type::Bool,
                    Literal::Int(_) => Type::Int,
                    Literal::Uint(_) => Type::Uint,
                    Literal::Double(_) => Type::Double,
                    Literal::String(_) => Type::String,
                    Literal::Bytes(_) => Type::Bytes,
                };
                self.set_type(expr, kind);
            }
            ExprKind::Ident(name) => self.check_ident(expr, name),
            ExprKind::Select { operand, field, test } => self.check_select(expr, operand, field, *test),
            ExprKind::Call { target, function, args } => self.check_call(expr, target.as_deref(), function, args),
            ExprKind::List { elements, optional } => self.check_list(expr, elements, optional),
            ExprKind::Map(entries) => self.check_map(expr, entries),
            ExprKind::Struct { name, fields } => self.check_struct(expr, name, fields),
            ExprKind::Comprehension(fold) => self.check_comprehension(expr, fold),
        }
    }

    fn local(&self, name: &str) -> Option<Type> {
        let plain = name.strip_prefix('.').unwrap_or(name);
        self.scopes.iter().rev().find(|(known, _)| known == plain).map(|(_, kind)| kind.clone())
    }

    fn global(&self, name: &str) -> Option<(Reference, Type)> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let first = name.split('.').next().unwrap_or(name);
        if let Some(kind) = self.environment.variables.get(name) {
            let global = self.scopes.iter().any(|(known, _)| known == first);
            return Some((Reference::Variable { name: name.to_owned(), global }, kind.clone()));
        }
        let known =
            TYPE_NAMES.contains(&name) || self.environment.types.as_ref().is_some_and(|types| types.contains(name));
        known.then(|| (Reference::Type(name.to_owned()), Type::type_of(type_named(name))))
    }

    fn check_ident(&mut self, expr: &Expr, name: &str) {
        let local = self.local(name).filter(|_| !name.starts_with('.'));
        let found = match local {
            Some(kind) => Some((Reference::Variable { name: name.to_owned(), global: false }, kind)),
            None => self.global(name),
        };
        match found {
            Some((reference, kind)) => {
                self.set_type(expr, kind);
                self.references.insert(expr.id, reference);
            }
            None => self.undeclared(expr, name),
        }
    }

    fn check_select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool) {
        if !test && let Some(found) = self.qualified_ident(expr) {
            let (reference, kind) = found;
            self.set_type(expr, kind);
            self.references.insert(expr.id, reference);
            return;
        }
        let kind = self.field_type(expr, operand, field, false);
        let kind = if test { Type::Bool } else { self.bindings.substitute(&kind, false) };
        self.set_type(expr, kind);
    }

    /// A selection that is the name of a variable, such as `authorizer.requestResource`.
    fn qualified_ident(&self, expr: &Expr) -> Option<(Reference, Type)> {
        let name = qualified_name(expr)?;
        let first = name.split('.').find(|part| !part.is_empty()).unwrap_or_default();
        if !name.starts_with('.') && self.local(first).is_some() {
            return None;
        }
        self.global(&name)
    }

    /// The type of `operand.field`.
    fn field_type(&mut self, expr: &Expr, operand: &Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand = self.bindings.substitute(&self.type_of(operand), false);
        let (target, is_optional) = match &operand {
            Type::Optional(inner) => ((**inner).clone(), true),
            other => (other.clone(), false),
        };
        let result = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(name) => self.object_field(expr.at, name, field).unwrap_or(Type::Error),
            Type::Var(_) => {
                self.bindings.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                let message = format!("type '{}' does not support field selection", other.in_message());
                self.error(expr.at, message);
                Type::Dyn
            }
        };
        if is_optional || optional { Type::optional(result) } else { result }
    }

    fn object_field(&mut self, at: usize, object: &str, field: &str) -> Option<Type> {
        let types = self.environment.types.clone();
        if !types.as_ref().is_some_and(|types| types.contains(object)) {
            self.error(at, format!("unexpected failed resolution of '{object}'"));
            return None;
        }
        let found = types.and_then(|types| types.field(object, field));
        if found.is_none() {
            self.error(at, format!("undefined field '{field}'"));
        }
        found
    }

    fn check_list(&mut self, expr: &Expr, elements: &[Expr], optional: &[usize]) {
        let mut joined = None;
        for (index, element) in elements.iter().enumerate() {
            self.check(element);
            let kind = self.element_type(element, optional.contains(&index));
            joined = Some(self.join(joined, kind));
        }
        let element = joined.unwrap_or_else(|| self.bindings.fresh());
        self.set_type(expr, Type::list(element));
    }

    /// The type of an element, without its option if it is written with `?`.
    fn element_type(&mut self, element: &Expr, optional: bool) -> Type {
        let kind = self.type_of(element);
        match (optional, &kind) {
            (true, Type::Optional(inner)) => (**inner).clone(),
            (true, Type::Dyn) | (false, _) => kind,
            (true, _) => {
                self.mismatch(element.at, &Type::optional(kind.clone()), &kind);
                kind
            }
        }
    }

    /// The common type of elements, `dyn` if they have none.
    fn join(&mut self, before: Option<Type>, kind: Type) -> Type {
        match before {
            None => kind,
            Some(before) if self.bindings.assign(&before, &kind) => most_general(&before, &kind),
            Some(_) => Type::Dyn,
        }
    }

    fn check_map(&mut self, expr: &Expr, entries: &[Entry]) {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.check(&entry.key);
            let key = self.type_of(&entry.key);
            keys = Some(self.join(keys, key));
            self.check(&entry.value);
            let value = self.element_type(&entry.value, entry.optional);
            values = Some(self.join(values, value));
        }
        let key = keys.unwrap_or_else(|| self.bindings.fresh());
        let value = values.unwrap_or_else(|| self.bindings.fresh());
        self.set_type(expr, Type::map(key, value));
    }

    fn check_struct(&mut self, expr: &Expr, name: &str, fields: &[Field]) {
        let plain = name.strip_prefix('.').unwrap_or(name);
        let is_object = self.environment.types.as_ref().is_some_and(|types| types.contains(plain));
        if !is_object {
            if TYPE_NAMES.contains(&plain) {
                let message = format!("'{plain}' is not a message type");
                self.error(expr.at, message);
                self.set_type(expr, Type::Error);
            } else {
                self.undeclared(expr, name);
            }
            return;
        }
        self.set_type(expr, Type::object(plain));
        for field in fields {
            self.check(&field.value);
            let wanted = self.object_field(field.at, plain, &field.name).unwrap_or(Type::Error);
            let found = self.element_type(&field.value, field.optional);
            if !self.bindings.assign(&wanted, &found) {
                let (wanted, found) = (wanted.in_message(), found.in_message());
                let name = &field.name;
                let message = format!("expected type of field '{name}' is '{wanted}' but provided type is '{found}'");
                self.error(field.at, message);
            }
        }
    }

    fn check_comprehension(&mut self, expr: &Expr, fold: &Comprehension) {
        self.check(&fold.range);
        self.check(&fold.init);
        let range = self.bindings.substitute(&self.type_of(&fold.range), false);
        let accumulated = self.type_of(&fold.init);
        let outer = self.scopes.len();
        self.scopes.push((fold.accumulator.clone(), accumulated.clone()));
        let two = fold.second.is_some();
        let (first, second) = match &range {
            Type::List(element) if two => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Var(_) => {
                self.bindings.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let kind = other.in_message();
                let message = format!(
                    "expression of type '{kind}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.error(fold.range.at, message);
                (Type::Error, Type::Error)
            }
        };
        let inner = self.scopes.len();
        self.scopes.push((fold.variable.clone(), first));
        if let Some(name) = &fold.second {
            self.scopes.push((name.clone(), second));
        }
        self.check(&fold.condition);
        self.assert_type(&fold.condition, &Type::Bool);
        self.check(&fold.step);
        self.assert_type(&fold.step, &accumulated);
        self.scopes.truncate(inner);
        self.check(&fold.result);
        self.scopes.truncate(outer);
        let kind = self.bindings.substitute(&self.type_of(&fold.result), false);
        self.set_type(expr, kind);
    }

    fn assert_type(&mut self, expr: &Expr, wanted: &Type) {
        let found = self.type_of(expr);
        if !self.bindings.assign(wanted, &found) {
            self.mismatch(expr.at, wanted, &found);
        }
    }
}

/// `a.b.c` as one name.
fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Ident(name) => Some(name.clone()),
        ExprKind::Select { operand, field, test: false } => Some(format!("{}.{field}", qualified_name(operand)?)),
        _ => None,
    }
}

/// The type that a name stands for.
fn type_named(name: &str) -> Type {
    match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "google.protobuf.Duration" | "duration" => Type::Duration,
        "google.protobuf.Timestamp" | "timestamp" => Type::Timestamp,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "net.CIDR" | "net.IP" => Type::opaque(name),
        "null_type" => Type::Null,
        "optional_type" => Type::optional(Type::Dyn),
        "string" => Type::String,
        "type" => Type::Type(None),
        "uint" => Type::Uint,
        _ => Type::object(name),
    }
}

/// Whether a call is an optional selection, whose second argument is a name and no expression.
fn is_optional_select(function: &str) -> bool {
    function == op::OPTIONAL_SELECT
}
