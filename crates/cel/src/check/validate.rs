//! What is refused although the types fit: literals that are no durations, times or patterns, lists and maps of different
//! types, and formats that do not fit their arguments.

use super::{Checked, Reference};
use crate::issues::Report;
use crate::library::format_string::{Clause, Piece, Pieces};
use crate::library::regex;
use crate::source::Source;
use crate::syntax::ast::{Entry, Expr, ExprKind, Literal};
use crate::types::Type;
use crate::value::Value;
use crate::value::convert::convert;

pub(super) fn validate(checked: &Checked, source: &Source) -> Report {
    let mut validator = Validator { checked, source, report: Report::default() };
    validator.visit(&checked.expr, false);
    validator.report
}

struct Validator<'c> {
    checked: &'c Checked,
    source: &'c Source,
    report: Report,
}

impl Validator<'_> {
    /// Visits a node; `formatted` if it is inside of arguments of `format`, which may mix types.
    fn visit(&mut self, expr: &Expr, formatted: bool) {
        match &expr.kind {
            ExprKind::List { elements, optional } if !formatted => self.check_list(elements, optional),
            ExprKind::Map(entries) if !formatted => self.check_map(entries),
            ExprKind::Call { target, function, args } => {
                self.check_literal(function, args);
                if function == "format" && target.is_some() {
                    self.check_format(expr, target.as_deref(), args);
                }
            }
            _ => {}
        }
        let formatted = formatted || matches!(&expr.kind, ExprKind::Call { function, .. } if function == "format");
        expr.for_each_child(&mut |child| self.visit(child, formatted));
    }

    fn type_of(&self, expr: &Expr) -> Type {
        self.checked.types.get(expr.id).cloned().unwrap_or(Type::Dyn)
    }

    fn error(&mut self, at: usize, message: impl Into<String>) {
        self.report.at(self.source, at, message);
    }

    /// The first argument of a few functions, if it is a literal.
    fn check_literal(&mut self, function: &str, args: &[Expr]) {
        let Some(Expr { kind: ExprKind::Literal(literal), at, .. }) = args.first() else { return };
        let fits = match (function, literal) {
            ("duration", Literal::String(text)) => convert(&Value::string(&**text), &Type::Duration).is_ok(),
            ("timestamp", Literal::String(text)) => convert(&Value::string(&**text), &Type::Timestamp).is_ok(),
            ("timestamp", Literal::Int(seconds)) => convert(&Value::Int(*seconds), &Type::Timestamp).is_ok(),
            ("duration" | "timestamp", Literal::Null) => false,
            ("matches", Literal::String(pattern)) => regex::compile(pattern).is_ok(),
            _ => true,
        };
        if !fits {
            self.error(*at, format!("invalid {function} argument"));
        }
    }

    fn mismatch(&mut self, at: usize, expected: &Type, found: &Type) {
        let message = format!("expected type '{}' but found '{}'", expected.in_message(), found.in_message());
        self.error(at, message);
    }

    fn check_list(&mut self, elements: &[Expr], optional: &[usize]) {
        let mut expected: Option<Type> = None;
        for (index, element) in elements.iter().enumerate() {
            let found = self.unwrapped(element, optional.contains(&index));
            match &expected {
                None => expected = Some(found),
                Some(expected) if *expected == found => {}
                Some(expected) => {
                    let expected = expected.clone();
                    return self.mismatch(element.at, &expected, &found);
                }
            }
        }
    }

    fn unwrapped(&self, element: &Expr, optional: bool) -> Type {
        match self.type_of(element) {
            Type::Optional(inner) if optional => (*inner).clone(),
            other => other,
        }
    }

    fn check_map(&mut self, entries: &[Entry]) {
        let mut expected: Option<(Type, Type)> = None;
        for entry in entries {
            let found = (self.type_of(&entry.key), self.unwrapped(&entry.value, entry.optional));
            let Some((key, value)) = expected.clone() else {
                expected = Some(found);
                continue;
            };
            if key != found.0 {
                self.mismatch(entry.key.at, &key, &found.0);
            }
            if value != found.1 {
                self.mismatch(entry.value.at, &value, &found.1);
            }
        }
    }

    /// A literal format with a literal list of arguments.
    fn check_format(&mut self, expr: &Expr, target: Option<&Expr>, args: &[Expr]) {
        let Some(Expr { kind: ExprKind::Literal(Literal::String(format)), .. }) = target else { return };
        let [Expr { kind: ExprKind::List { elements, .. }, .. }] = args else { return };
        let known = match self.checked.references.get(&expr.id) {
            Some(Reference::Function { function, overloads, .. }) => overloads
                .iter()
                .any(|index| function.overloads.get(*index).is_some_and(|overload| overload.id == "string_format")),
            _ => false,
        };
        if !known {
            return;
        }
        if let Err((at, message)) = self.format_fits(expr.at, format, elements) {
            self.error(at, message);
        }
    }

    fn format_fits(&self, at: usize, format: &str, args: &[Expr]) -> Result<(), (usize, String)> {
        let mut pieces = Pieces::new(format);
        let mut used = 0;
        loop {
            match pieces.next((used >= args.len()).then_some(used), true).map_err(|message| (at, message))? {
                None => break,
                Some(Piece::Text(_)) => {}
                Some(Piece::Clause(clause)) => {
                    let arg = args.get(used).ok_or_else(|| (at, format!("index {used} out of range")))?;
                    if let Some(bad) = self.misfit(clause, arg) {
                        let message = clause.refuse(self.type_of(bad).name());
                        return Err((bad.at, format!("error during formatting: {message}")));
                    }
                    used += 1;
                }
            }
        }
        if args.len() > used {
            let message = format!("too many arguments supplied to string.format (expected {used}, got {})", args.len());
            return Err((at, message));
        }
        Ok(())
    }

    /// The part of an argument that a clause cannot show.
    fn misfit<'e>(&self, clause: Clause, arg: &'e Expr) -> Option<&'e Expr> {
        use Type::{Bool, Bytes, Double, Duration, Dyn, Int, List, Map, Null, String, Timestamp, Uint};
        let kind = self.type_of(arg);
        let fits = match clause {
            Clause::String => matches!(
                kind,
                Dyn | List(_)
                    | Map(..)
                    | Int
                    | Uint
                    | Double
                    | Bool
                    | String
                    | Timestamp
                    | Bytes
                    | Duration
                    | Type::Type(_)
                    | Null
            ),
            Clause::Decimal | Clause::Octal => matches!(kind, Dyn | Int | Uint),
            Clause::Fixed(_) | Clause::Scientific(_) => matches!(kind, Dyn | Double | String),
            Clause::Binary => matches!(kind, Dyn | Int | Uint | Bool),
            Clause::Hex { .. } => matches!(kind, Dyn | Int | Uint | String | Bytes),
        };
        if !fits {
            return Some(arg);
        }
        match (&clause, &arg.kind) {
            (Clause::String, ExprKind::List { elements, .. }) => {
                elements.iter().find_map(|element| self.misfit(clause, element))
            }
            (Clause::String, ExprKind::Map(entries)) => entries
                .iter()
                .find_map(|entry| self.misfit(clause, &entry.key).or_else(|| self.misfit(clause, &entry.value))),
            _ => None,
        }
    }
}
