//! Calls: operators and standard functions.

use super::{Entries, Estimator, ITEMS, Operand, Range, VALUES, library, reference};
use crate::syntax::ast::{Expr, ExprKind};

/// Cost per character of looking at a string.
pub(super) const STRING: f64 = 0.1;
/// Cost per character of a pattern, for each character that it is applied to.
pub(super) const PATTERN: f64 = 0.25;

/// The cost of a call with its arguments, and the size of its result if that is known.
pub(super) type Estimated = (Range, Option<Range>);

impl<'e> Estimator<'e> {
    #[inline(never)]
    pub(super) fn call(&mut self, expr: &'e Expr, target: Option<&'e Expr>, args: &'e [Expr]) -> Range {
        let Some((function, overloads, qualified)) = reference(self.checked, expr) else { return Range::fixed(0) };
        if let (true, [arg]) = (function.name == "dyn", args) {
            let cost = self.cost(arg).add(Range::fixed(1));
            self.copy_sizes(expr, arg);
            return cost;
        }
        let mut costs = Vec::with_capacity(args.len());
        let mut operands = Vec::with_capacity(args.len());
        for arg in args {
            costs.push(self.cost(arg));
            operands.push(self.operand(arg));
        }
        let target = target.filter(|_| !qualified);
        let target_cost = target.map_or(Range::fixed(0), |target| self.cost(target));
        let target = target.map(|target| self.operand(target));
        let mut cost = Range { min: u64::MAX, max: 0 };
        let mut size: Option<Range> = None;
        for id in overloads.iter().filter_map(|index| function.overloads.get(*index)).map(|overload| overload.id) {
            let (overload_cost, overload_size) =
                self.overload(expr, function.name, id, target.as_ref(), &operands, &costs);
            cost = cost.union(overload_cost);
            size = match (size, overload_size) {
                (Some(size), Some(other)) => Some(size.union(other)),
                (size, other) => size.or(other),
            };
            if let ("index_list" | "index_map", Some(list)) = (id, args.first()) {
                size = self.entries_of(list).map(|entries| entries.value);
                let mut path = self.path(list);
                path.push(if id == "index_list" { ITEMS } else { VALUES });
                self.paths.insert(expr.id, path);
            }
            size = size.or_else(|| self.size(expr));
        }
        self.set_size(expr, size);
        target_cost.add(cost)
    }

    fn overload(
        &mut self,
        expr: &'e Expr,
        function: &str,
        id: &str,
        target: Option<&Operand<'e>>,
        args: &[Operand<'e>],
        costs: &[Range],
    ) -> Estimated {
        let all = costs.iter().fold(Range::fixed(0), |sum, cost| sum.add(*cost));
        let known = library::extension(self, id, target, args);
        let known = known.or_else(|| library::kubernetes(self, function, id, target, args));
        let known = known.or_else(|| strings(id, target, args));
        if let Some((cost, size)) = known {
            return (cost.add(all), size);
        }
        match (id, args, costs) {
            ("logical_or" | "logical_and", _, [left, right]) => {
                (Range { min: left.min, max: left.max.saturating_add(right.max) }, None)
            }
            ("conditional", [_, truthy, falsy], [condition, truthy_cost, falsy_cost]) => {
                let size = unknown(truthy).union(unknown(falsy));
                let entries = Entries::union(self.entries_at(truthy), self.entries_at(falsy));
                self.set_entries(expr, entries);
                (condition.add(truthy_cost.union(*falsy_cost)), Some(size))
            }
            ("add_string" | "add_bytes" | "add_list", [left, right], _) => {
                let size = unknown(left).add(unknown(right));
                let entries = Entries::union(self.entries_at(left), self.entries_at(right));
                self.set_entries(expr, entries);
                let cost = if id == "add_list" { Range::fixed(1) } else { size.scale(STRING) };
                (cost.add(all), Some(size))
            }
            _ => (all.add(Range::fixed(1)), None),
        }
    }

    fn entries_at(&self, operand: &Operand<'e>) -> Option<Entries> {
        self.entries_of(operand.expr?)
    }

    /// The size of an operand: the computed size, or the limit from the schema.
    pub(super) fn size_of(&self, operand: &Operand<'_>) -> Range {
        operand.size.or_else(|| self.declared_size(&operand.path)).unwrap_or(Range::UNKNOWN)
    }
}

fn unknown(operand: &Operand<'_>) -> Range {
    operand.size.unwrap_or(Range::UNKNOWN)
}

/// Applying a pattern to a text. One more character keeps the product from being nothing.
pub(super) fn pattern_cost(text: Range, pattern: Range) -> Range {
    text.add(Range::fixed(1)).scale(STRING).multiply(pattern.scale(PATTERN))
}

/// Standard functions on strings and lists; without the cost of their arguments.
fn strings(id: &str, target: Option<&Operand<'_>>, args: &[Operand<'_>]) -> Option<Estimated> {
    Some(match (id, target, args) {
        ("string_format", Some(target), _) => (unknown(target).scale(STRING), None),
        ("string_to_bytes", _, [arg]) => {
            let Range { min, max } = unknown(arg);
            (unknown(arg).scale(STRING), Some(Range { min, max: max.wrapping_mul(4) }))
        }
        ("bytes_to_string", _, [arg]) => {
            let Range { min, max } = unknown(arg);
            (unknown(arg).scale(STRING), Some(Range { min: min / 4, max }))
        }
        ("strings_quote", _, [arg]) => {
            let Range { min, max } = unknown(arg);
            let size = Range { min: min.wrapping_add(2), max: max.wrapping_mul(2).wrapping_add(2) };
            (unknown(arg).scale(STRING), Some(size))
        }
        ("starts_with_string" | "ends_with_string", _, [arg]) => (unknown(arg).scale(STRING), None),
        ("in_list", _, [_, list]) => (unknown(list).scale(1.0), None),
        ("matches_string", Some(text), [pattern]) | ("matches", None, [text, pattern]) => {
            (pattern_cost(unknown(text), unknown(pattern)), None)
        }
        ("contains_string", Some(text), [part]) => {
            (unknown(text).scale(STRING).multiply(unknown(part).scale(STRING)), None)
        }
        (
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals",
            _,
            [left, right],
        ) => {
            let max = unknown(left).max.min(unknown(right).max);
            (Range { min: u64::from(max > 0), max }.scale(STRING), None)
        }
        _ => return None,
    })
}

/// The integer that an operand is, if it is written as one.
pub(super) fn literal_int(operand: &Operand<'_>) -> Option<i64> {
    match &operand.expr?.kind {
        ExprKind::Literal(crate::syntax::ast::Literal::Int(value)) => Some(*value),
        _ => None,
    }
}
