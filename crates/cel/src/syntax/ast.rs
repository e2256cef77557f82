//! The abstract syntax tree, and the builder that numbers its nodes.
//!
//! Operators are calls of functions with the names in [`op`]. Macros are expanded while parsing, so the tree has
//! comprehensions and no macros.

use std::sync::Arc;

/// Function names of operators.
pub(crate) mod op {
    pub(crate) const ADD: &str = "_+_";
    pub(crate) const AND: &str = "_&&_";
    pub(crate) const CONDITIONAL: &str = "_?_:_";
    pub(crate) const DIVIDE: &str = "_/_";
    pub(crate) const EQUALS: &str = "_==_";
    pub(crate) const GREATER: &str = "_>_";
    pub(crate) const GREATER_EQUALS: &str = "_>=_";
    pub(crate) const IN: &str = "@in";
    pub(crate) const INDEX: &str = "_[_]";
    pub(crate) const LESS: &str = "_<_";
    pub(crate) const LESS_EQUALS: &str = "_<=_";
    pub(crate) const MODULO: &str = "_%_";
    pub(crate) const MULTIPLY: &str = "_*_";
    pub(crate) const NEGATE: &str = "-_";
    pub(crate) const NOT: &str = "!_";
    pub(crate) const NOT_EQUALS: &str = "_!=_";
    pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
    pub(crate) const OPTIONAL_INDEX: &str = "_[?_]";
    pub(crate) const OPTIONAL_SELECT: &str = "_?._";
    pub(crate) const OR: &str = "_||_";
    pub(crate) const SUBTRACT: &str = "_-_";
}

/// The position of a node that stands for nothing in the text.
pub(crate) const NOWHERE: usize = usize::MAX;

/// A node.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Expr {
    /// Unique in the tree.
    pub(crate) id: usize,
    /// Position in the source that messages about the node point at.
    pub(crate) at: usize,
    /// Levels of nodes from here down, this one included.
    pub(crate) height: usize,
    pub(crate) kind: ExprKind,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ExprKind {
    /// Left by a syntax error.
    Unspecified,
    Literal(Literal),
    Ident(String),
    /// `operand.field`, or with `test` the macro `has(operand.field)`.
    Select {
        operand: Box<Expr>,
        field: String,
        test: bool,
    },
    Call {
        target: Option<Box<Expr>>,
        function: String,
        args: Vec<Expr>,
    },
    /// `optional` has the indexes of elements written with `?`.
    List {
        elements: Vec<Expr>,
        optional: Vec<usize>,
    },
    Map(Vec<Entry>),
    Struct {
        name: String,
        fields: Vec<Field>,
    },
    Comprehension(Box<Comprehension>),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// Position of the colon.
    pub(crate) at: usize,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A fold over a list or the keys of a map: `accumulator` starts with `init`, and while `condition` holds each element
/// replaces it by `step`; the value is `result`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Comprehension {
    pub(crate) range: Expr,
    pub(crate) variable: String,
    /// With a second variable, the first is the index or key and the second the element or value.
    pub(crate) second: Option<String>,
    pub(crate) accumulator: String,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

impl Expr {
    pub(crate) fn as_ident(&self) -> Option<&str> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name),
            _ => None,
        }
    }

    /// Calls `visit` with each direct child, in the order of evaluation.
    pub(crate) fn for_each_child<'e>(&'e self, visit: &mut dyn FnMut(&'e Self)) {
        match &self.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => visit(operand),
            ExprKind::Call { target, args, .. } => {
                target.iter().for_each(|target| visit(target));
                args.iter().for_each(visit);
            }
            ExprKind::List { elements, .. } => elements.iter().for_each(visit),
            ExprKind::Map(entries) => entries.iter().for_each(|entry| {
                visit(&entry.key);
                visit(&entry.value);
            }),
            ExprKind::Struct { fields, .. } => fields.iter().for_each(|field| visit(&field.value)),
            ExprKind::Comprehension(fold) => {
                [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result].into_iter().for_each(visit);
            }
        }
    }
}

/// Makes nodes and counts them.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    next: usize,
}

impl Builder {
    /// How many nodes were made.
    pub(crate) fn count(&self) -> usize {
        self.next
    }

    pub(crate) fn node(&mut self, at: usize, kind: ExprKind) -> Expr {
        let id = self.next;
        self.next += 1;
        let mut expr = Expr { id, at, height: 0, kind };
        let mut below = 0;
        expr.for_each_child(&mut |child| below = below.max(child.height));
        expr.height = below + 1;
        expr
    }

    pub(crate) fn unspecified(&mut self, at: usize) -> Expr {
        self.node(at, ExprKind::Unspecified)
    }

    pub(crate) fn literal(&mut self, at: usize, literal: Literal) -> Expr {
        self.node(at, ExprKind::Literal(literal))
    }

    pub(crate) fn ident(&mut self, at: usize, name: impl Into<String>) -> Expr {
        self.node(at, ExprKind::Ident(name.into()))
    }

    pub(crate) fn call(&mut self, at: usize, function: impl Into<String>, args: Vec<Expr>) -> Expr {
        self.node(at, ExprKind::Call { target: None, function: function.into(), args })
    }

    pub(crate) fn member_call(
        &mut self,
        at: usize,
        function: impl Into<String>,
        target: Expr,
        args: Vec<Expr>,
    ) -> Expr {
        self.node(at, ExprKind::Call { target: Some(Box::new(target)), function: function.into(), args })
    }

    pub(crate) fn list(&mut self, at: usize, elements: Vec<Expr>) -> Expr {
        self.node(at, ExprKind::List { elements, optional: Vec::new() })
    }

    pub(crate) fn comprehension(&mut self, at: usize, fold: Comprehension) -> Expr {
        self.node(at, ExprKind::Comprehension(Box::new(fold)))
    }

    /// The same tree with new numbers.
    pub(crate) fn copy(&mut self, expr: &Expr) -> Expr {
        let kind = match &expr.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => expr.kind.clone(),
            ExprKind::Select { operand, field, test } => {
                ExprKind::Select { operand: Box::new(self.copy(operand)), field: field.clone(), test: *test }
            }
            ExprKind::Call { target, function, args } => ExprKind::Call {
                target: target.as_ref().map(|target| Box::new(self.copy(target))),
                function: function.clone(),
                args: args.iter().map(|arg| self.copy(arg)).collect(),
            },
            ExprKind::List { elements, optional } => ExprKind::List {
                elements: elements.iter().map(|element| self.copy(element)).collect(),
                optional: optional.clone(),
            },
            ExprKind::Map(entries) => ExprKind::Map(
                entries
                    .iter()
                    .map(|entry| Entry {
                        key: self.copy(&entry.key),
                        value: self.copy(&entry.value),
                        optional: entry.optional,
                    })
                    .collect(),
            ),
            ExprKind::Struct { name, fields } => ExprKind::Struct {
                name: name.clone(),
                fields: fields.iter().map(|field| Field { value: self.copy(&field.value), ..field.clone() }).collect(),
            },
            ExprKind::Comprehension(fold) => ExprKind::Comprehension(Box::new(Comprehension {
                range: self.copy(&fold.range),
                variable: fold.variable.clone(),
                second: fold.second.clone(),
                accumulator: fold.accumulator.clone(),
                init: self.copy(&fold.init),
                condition: self.copy(&fold.condition),
                step: self.copy(&fold.step),
                result: self.copy(&fold.result),
            })),
        };
        self.node(expr.at, kind)
    }
}
