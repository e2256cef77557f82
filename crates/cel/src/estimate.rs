//! What an expression costs at least and at most, before there is input.
//!
//! In: a checked expression and the declared type of its variables. Out: a range in Kubernetes' units of cost. The sizes of
//! values come from the limits of the schema: a value is known by its path from a variable, such as `self.ports.@items.name`.
//! Definitions that were accepted must stay so, so the numbers are those of cel-go and of Kubernetes' libraries.

mod calls;
mod library;
mod range;

use std::collections::HashMap;

use self::range::Range;
use crate::check::{Checked, Reference};
use crate::declared::{Declared, Shape};
use crate::syntax::ast::{Comprehension, Entry, Expr, ExprKind, Literal};
use crate::syntax::macros::{ACCUMULATOR, OLD_ACCUMULATOR};
use crate::types::Type;

pub use self::range::Range as Estimate;

/// Elements of a list, values and keys of a map, and positions in a list, in paths.
const ITEMS: &str = "@items";
const VALUES: &str = "@values";
const KEYS: &str = "@keys";
const INDICES: &str = "@indices";

/// Cost of making a list, a map and a message.
const LIST: u64 = 10;
const MAP: u64 = 30;
const STRUCT: u64 = 40;

/// Estimates the cost of an expression.
pub(crate) fn estimate(checked: &Checked, root: &Declared) -> Range {
    let mut estimator = Estimator {
        checked,
        root,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        locals: Vec::new(),
    };
    estimator.cost(&checked.expr)
}

type Path<'e> = Vec<&'e str>;

/// Sizes of the entries of a list or a map.
#[derive(Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Entries {
    fn union(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (one, other) = (one?, other?);
        Some(Self { is_list: one.is_list, key: one.key.union(other.key), value: one.value.union(other.value) })
    }
}

/// A variable of a comprehension.
struct Local<'e> {
    name: &'e str,
    path: Path<'e>,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// An operand of a call.
struct Operand<'e> {
    expr: Option<&'e Expr>,
    path: Path<'e>,
    kind: Type,
    size: Option<Range>,
}

struct Estimator<'e> {
    checked: &'e Checked,
    root: &'e Declared,
    /// What is known of nodes, by their number.
    paths: HashMap<usize, Path<'e>>,
    sizes: HashMap<usize, Range>,
    entries: HashMap<usize, Entries>,
    locals: Vec<Local<'e>>,
}

impl<'e> Estimator<'e> {
    fn cost(&mut self, expr: &'e Expr) -> Range {
        match &expr.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) => Range::fixed(0),
            ExprKind::Ident(name) => {
                let path = self.local(name).map_or_else(|| vec![name.as_str()], |local| local.path.clone());
                self.paths.insert(expr.id, path);
                Range::fixed(1)
            }
            ExprKind::Select { operand, test: true, .. } => self.cost(operand),
            ExprKind::Select { operand, field, .. } => self.select(expr, operand, field),
            ExprKind::Call { target, args, .. } => self.call(expr, target.as_deref(), args),
            ExprKind::List { elements, .. } => self.list(expr, elements),
            ExprKind::Map(entries) => self.map(expr, entries),
            ExprKind::Struct { fields, .. } => {
                let cost = fields.iter().fold(Range::fixed(0), |sum, field| sum.add(self.cost(&field.value)));
                cost.add(Range::fixed(STRUCT))
            }
            ExprKind::Comprehension(fold) if is_bind(fold) => self.bind(expr, fold),
            ExprKind::Comprehension(fold) => self.fold(expr, fold),
        }
    }

    fn select(&mut self, expr: &'e Expr, operand: &'e Expr, field: &'e str) -> Range {
        let mut cost = self.cost(operand);
        if matches!(self.type_of(operand), Type::Map(..) | Type::Object(_) | Type::Param(_)) {
            cost = cost.add(Range::fixed(1));
        }
        let mut path = self.path(operand);
        path.push(field);
        self.paths.insert(expr.id, path);
        cost
    }

    #[inline(never)]
    fn list(&mut self, expr: &'e Expr, elements: &'e [Expr]) -> Range {
        let mut cost = Range::fixed(LIST);
        let mut size = Range { min: if elements.is_empty() { 0 } else { u64::MAX }, max: 0 };
        for element in elements {
            cost = cost.add(self.cost(element));
            size = size.union(self.size_or_unknown(element));
        }
        self.entries.insert(expr.id, Entries { is_list: true, key: Range::fixed(1), value: size });
        cost
    }

    #[inline(never)]
    fn map(&mut self, expr: &'e Expr, entries: &'e [Entry]) -> Range {
        let mut cost = Range::fixed(MAP);
        let start = Range { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
        let (mut keys, mut values) = (start, start);
        for entry in entries {
            cost = cost.add(self.cost(&entry.key)).add(self.cost(&entry.value));
            keys = keys.union(self.size_or_unknown(&entry.key));
            values = values.union(self.size_or_unknown(&entry.value));
        }
        self.entries.insert(expr.id, Entries { is_list: false, key: keys, value: values });
        cost
    }

    #[inline(never)]
    fn fold(&mut self, expr: &'e Expr, fold: &'e Comprehension) -> Range {
        let mut cost = self.cost(&fold.range).add(self.cost(&fold.init));
        self.push_value(&fold.accumulator, &fold.init);
        let entries = self.entries_of(&fold.range);
        let is_list =
            entries.map_or_else(|| matches!(self.type_of(&fold.range), Type::List(_)), |entries| entries.is_list);
        let (keys, values) = (entries.map(|entries| entries.key), entries.map(|entries| entries.value));
        match &fold.second {
            Some(second) => {
                self.push_part(&fold.variable, &fold.range, if is_list { INDICES } else { KEYS }, keys);
                self.push_part(second, &fold.range, if is_list { ITEMS } else { VALUES }, values);
            }
            None if is_list => self.push_part(&fold.variable, &fold.range, ITEMS, values),
            None => self.push_part(&fold.variable, &fold.range, KEYS, keys),
        }
        let condition = self.cost(&fold.condition);
        let step = self.cost(&fold.step);
        self.pop(&fold.variable);
        if let Some(second) = &fold.second {
            self.pop(second);
        }
        cost = cost.add(self.cost(&fold.result));
        self.pop(&fold.accumulator);
        let count = self.size_or_unknown(&fold.range);
        match fold.init.kind {
            ExprKind::Literal(_) => {
                let size = self.size(&fold.init);
                self.set_size(expr, size);
            }
            ExprKind::List { .. } | ExprKind::Map(_) => {
                self.set_size(expr, Some(count));
                let entries = self.entries_of(&fold.step);
                self.set_entries(expr, entries);
            }
            _ => {}
        }
        cost.add(count.multiply(step.add(condition)))
    }

    #[inline(never)]
    fn bind(&mut self, expr: &'e Expr, fold: &'e Comprehension) -> Range {
        let mut cost = self.cost(&fold.range).add(self.cost(&fold.init));
        self.push_value(&fold.accumulator, &fold.init);
        cost = cost.add(self.cost(&fold.result));
        self.pop(&fold.accumulator);
        self.copy_sizes(expr, &fold.result);
        cost
    }

    fn copy_sizes(&mut self, to: &Expr, from: &'e Expr) {
        let (size, entries) = (self.size(from), self.entries_of(from));
        self.set_size(to, size);
        self.set_entries(to, entries);
    }

    fn push_value(&mut self, name: &'e str, value: &'e Expr) {
        let local = Local { name, path: self.path(value), size: self.size(value), entries: self.entries_of(value) };
        self.locals.push(local);
    }

    fn push_part(&mut self, name: &'e str, range: &'e Expr, part: &'static str, size: Option<Range>) {
        let mut path = self.path(range);
        path.push(part);
        self.locals.push(Local { name, path, size, entries: None });
    }

    fn pop(&mut self, name: &str) {
        if let Some(at) = self.locals.iter().rposition(|local| local.name == name) {
            self.locals.remove(at);
        }
    }

    fn local(&self, name: &str) -> Option<&Local<'e>> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn type_of(&self, expr: &Expr) -> &'e Type {
        self.checked.types.get(expr.id).unwrap_or(&Type::Dyn)
    }

    fn path(&self, expr: &Expr) -> Path<'e> {
        let local = expr.as_ident().and_then(|name| self.local(name));
        local.map(|local| &local.path).or_else(|| self.paths.get(&expr.id)).cloned().unwrap_or_default()
    }

    fn operand(&mut self, expr: &'e Expr) -> Operand<'e> {
        let mut path = self.path(expr);
        if path.first().is_some_and(|first| matches!(*first, ACCUMULATOR | OLD_ACCUMULATOR)) {
            path.clear();
        }
        Operand { expr: Some(expr), path, kind: self.type_of(expr).clone(), size: self.size(expr) }
    }

    fn set_size(&mut self, expr: &Expr, size: Option<Range>) {
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
    }

    fn set_entries(&mut self, expr: &Expr, entries: Option<Entries>) {
        if let Some(entries) = entries {
            self.entries.insert(expr.id, entries);
        }
    }

    fn entries_of(&self, expr: &Expr) -> Option<Entries> {
        let local = || self.local(expr.as_ident()?)?.entries;
        self.entries.get(&expr.id).copied().or_else(local)
    }

    /// The size of the value of a node, if anything is known about it.
    fn size(&mut self, expr: &'e Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = written_size(expr) {
            return Some(Range::fixed(size));
        }
        if let Some(size) = self.declared_size(&self.path(expr)) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.type_of(expr)) {
            return Some(Range::fixed(1));
        }
        self.local(expr.as_ident()?)?.size
    }

    fn size_or_unknown(&mut self, expr: &'e Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    /// The size of the value at a path. The first element is a variable, whatever its name is.
    fn declared_size(&self, path: &[&str]) -> Option<Range> {
        let (_, path) = path.split_first()?;
        let mut found = self.root;
        for (at, name) in path.iter().enumerate() {
            found = match (*name, found.shape()) {
                (ITEMS | VALUES, Shape::List(element, _) | Shape::Map(element)) => element,
                // Keys are strings without a limit of their own.
                (KEYS, Shape::Map(_)) => return (at + 1 == path.len()).then_some(Range::fixed(0)),
                (field, Shape::Object(properties)) => properties.escaped(field)?,
                _ => return None,
            };
        }
        Some(Range { min: 0, max: found.max_elements() })
    }
}

/// The function and the overloads that a call refers to.
fn reference(checked: &Checked, expr: &Expr) -> Option<(&'static crate::declare::Function, Vec<usize>, bool)> {
    match checked.references.get(&expr.id) {
        Some(Reference::Function { function, overloads, qualified }) => Some((function, overloads.clone(), *qualified)),
        _ => None,
    }
}

/// A comprehension that gives a value a name, and does not run.
fn is_bind(fold: &Comprehension) -> bool {
    matches!(&fold.range.kind, ExprKind::List { elements, .. } if elements.is_empty())
        && matches!(fold.condition.kind, ExprKind::Literal(Literal::Bool(false)))
        && fold.accumulator != OLD_ACCUMULATOR
}

/// The size of a literal, a list or a map as it is written.
fn written_size(expr: &Expr) -> Option<u64> {
    let size = match &expr.kind {
        ExprKind::Literal(Literal::String(text)) => text.chars().count(),
        ExprKind::Literal(Literal::Bytes(bytes)) => bytes.len(),
        ExprKind::Literal(_) => 1,
        ExprKind::List { elements, .. } => elements.len(),
        ExprKind::Map(entries) => entries.len(),
        _ => return None,
    };
    Some(u64::try_from(size).unwrap_or(u64::MAX))
}

fn is_scalar(kind: &Type) -> bool {
    match kind {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
