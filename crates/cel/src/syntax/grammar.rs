//! The grammar: tokens to a tree.
//!
//! One function per rule, in the shape of the published grammar. Each opens its rule with what may follow it, fills in
//! parts as they are read, and builds its node from whatever parts there are: after a syntax error the tree is incomplete,
//! but messages about its other parts are still found. The numbers are places in the grammar; they only have to differ.

mod atoms;
mod members;

use super::ast::{Builder, Expr, NOWHERE, op};
use super::macros::{self, Expansion};
use super::recovery::{Abort, Check, Cursor, Failure, NESTING, Rule};
use super::token::{Kind, Set};
use crate::issues::Report;
use crate::source::Location;

/// Nodes that an expression may have after macros are expanded.
const NODES: usize = 200_000;
/// Levels of nodes that an expression may have after macros are expanded.
const HEIGHT: usize = 500;

/// What a literal, an identifier, a call, a list or a map starts with.
const PRIMARY: Set = Set::of(&[
    Kind::LeftBracket,
    Kind::LeftBrace,
    Kind::LeftParen,
    Kind::Dot,
    Kind::Minus,
    Kind::True,
    Kind::False,
    Kind::Null,
    Kind::Float,
    Kind::Int,
    Kind::Uint,
    Kind::String,
    Kind::Bytes,
    Kind::Ident,
]);
/// What an expression starts with.
const EXPR: Set = PRIMARY.or(Set::of(&[Kind::Not]));
const OPT_EXPR: Set = EXPR.or(Set::of(&[Kind::Question]));
const RELATIONS: Set = Set::of(&[
    Kind::Equals,
    Kind::NotEquals,
    Kind::In,
    Kind::Less,
    Kind::LessEquals,
    Kind::GreaterEquals,
    Kind::Greater,
]);
const PRODUCTS: Set = Set::of(&[Kind::Star, Kind::Slash, Kind::Percent]);
const SUMS: Set = Set::of(&[Kind::Plus, Kind::Minus]);
const ANY_IDENT: Set = Set::of(&[Kind::Ident, Kind::EscapedIdent]);
const END: Set = Set::EMPTY;
const OR_NEXT: Set = Set::of(&[Kind::Or]).or(END);
const AND_NEXT: Set = Set::of(&[Kind::And]).or(END);

/// A node, and how deep operators, selections and member calls are nested in what was written. Boxed, because the functions
/// below are nested as deep as the expression is.
pub(crate) struct Node {
    pub(crate) expr: Box<Expr>,
    pub(crate) nesting: usize,
}

impl Node {
    fn new(expr: Expr, nesting: usize) -> Self {
        Self { expr: Box::new(expr), nesting }
    }
}

/// The parser.
pub(crate) struct Grammar<'s> {
    pub(crate) cursor: Cursor<'s>,
    build: Builder,
    /// Messages about the tree, shown behind syntax errors at the same place.
    report: Report,
    /// Whether `cel.bind` is a macro.
    bind: bool,
}

impl<'s> Grammar<'s> {
    pub(crate) fn new(cursor: Cursor<'s>, bind: bool) -> Self {
        Self { cursor, build: Builder::default(), report: Report::default(), bind }
    }

    /// Parses a whole source. Messages are in the two reports.
    pub(crate) fn parse(mut self) -> Result<Expr, Report> {
        let parsed = self.start();
        let mut report = self.cursor.report;
        report.append(self.report);
        match parsed {
            Ok(node) if node.nesting > NESTING => {
                report.add(Location::NONE, "max recursion depth exceeded");
                Err(report)
            }
            Ok(node) if report.is_empty() => Ok(*node.expr),
            _ => Err(report),
        }
    }

    fn start(&mut self) -> Result<Node, Abort> {
        let node = self.expr(Set::of(&[Kind::Eof]))?;
        match self.cursor.expect(1, Kind::Eof, END) {
            Ok(_) => Ok(node),
            Err(failure) => self.cursor.leave(Rule::Expr, Err(failure)).map(|()| node),
        }
    }

    fn expr(&mut self, follow: Set) -> Result<Node, Abort> {
        self.cursor.enter(Rule::Expr, follow)?;
        let first = self.or(Set::of(&[Kind::Question]).or(END))?;
        if self.cursor.kind(0) == Kind::Question {
            return self.conditional(first);
        }
        self.cursor.leave(Rule::Expr, Ok(()))?;
        Ok(first)
    }

    #[inline(never)]
    fn conditional(&mut self, first: Node) -> Result<Node, Abort> {
        let at = self.cursor.take().start;
        let truthy = self.or(Set::of(&[Kind::Colon]))?;
        let mut falsy = None;
        let colon = self.cursor.expect(2, Kind::Colon, EXPR);
        if colon.is_ok() {
            falsy = Some(self.expr(END)?);
        }
        self.cursor.leave(Rule::Expr, colon.map(drop))?;
        let falsy = falsy.unwrap_or_else(|| self.missing());
        let nesting = 1 + first.nesting.max(truthy.nesting).max(falsy.nesting);
        self.call(at, op::CONDITIONAL, vec![*first.expr, *truthy.expr, *falsy.expr], nesting)
    }

    fn or(&mut self, follow: Set) -> Result<Node, Abort> {
        self.cursor.enter(Rule::Or, follow)?;
        let first = self.and(OR_NEXT)?;
        if self.cursor.kind(0) == Kind::Or {
            return self.more_terms(first, Rule::Or);
        }
        self.cursor.leave(Rule::Or, Ok(()))?;
        Ok(first)
    }

    fn and(&mut self, follow: Set) -> Result<Node, Abort> {
        self.cursor.enter(Rule::And, follow)?;
        let first = self.relation(AND_NEXT, 0)?;
        if self.cursor.kind(0) == Kind::And {
            return self.more_terms(first, Rule::And);
        }
        self.cursor.leave(Rule::And, Ok(()))?;
        Ok(first)
    }

    /// The operands behind the first of a chain of `&&` or `||`.
    #[inline(never)]
    fn more_terms(&mut self, first: Node, rule: Rule) -> Result<Node, Abort> {
        let (kind, function) = if matches!(rule, Rule::Or) { (Kind::Or, op::OR) } else { (Kind::And, op::AND) };
        let mut terms = vec![first];
        let mut places = Vec::new();
        while self.cursor.kind(0) == kind {
            places.push(self.cursor.take().start);
            terms.push(if kind == Kind::Or { self.and(OR_NEXT)? } else { self.relation(AND_NEXT, 0)? });
        }
        self.cursor.leave(rule, Ok(()))?;
        self.logical(function, terms, &places)
    }

    /// `terms` joined by an operator: a balanced tree, so that long chains are not deep.
    fn logical(&mut self, function: &str, terms: Vec<Node>, places: &[usize]) -> Result<Node, Abort> {
        let nesting = terms.iter().map(|term| term.nesting).max().unwrap_or(0);
        let mut terms: Vec<Option<Expr>> = terms.into_iter().map(|term| Some(*term.expr)).collect();
        let expr = self.balanced(function, &mut terms, places);
        self.limited(expr, nesting)
    }

    fn balanced(&mut self, function: &str, terms: &mut [Option<Expr>], places: &[usize]) -> Expr {
        let middle = places.len() / 2;
        match (places.get(middle), terms.split_at_mut_checked(middle + 1)) {
            (Some(at), Some((left, right))) => {
                let left = self.balanced(function, left, places.get(..middle).unwrap_or_default());
                let right = self.balanced(function, right, places.get(middle + 1..).unwrap_or_default());
                self.build.call(*at, function, vec![left, right])
            }
            _ => terms.first_mut().and_then(Option::take).unwrap_or_else(|| self.build.unspecified(NOWHERE)),
        }
    }

    fn relation(&mut self, follow: Set, precedence: u8) -> Result<Node, Abort> {
        self.cursor.enter(Rule::Relation, follow)?;
        let next = RELATIONS.or(END);
        let mut left = self.calc(next, 0)?;
        while precedence <= 1 && RELATIONS.has(self.cursor.kind(0)) {
            let token = self.cursor.take();
            let right = self.relation(next, 2)?;
            left = self.operator(token.kind, token.start, left, right)?;
        }
        self.cursor.leave(Rule::Relation, Ok(()))?;
        Ok(left)
    }

    fn calc(&mut self, follow: Set, precedence: u8) -> Result<Node, Abort> {
        self.cursor.enter(Rule::Calc, follow)?;
        let next = PRODUCTS.or(SUMS).or(END);
        let mut left = self.unary(next)?;
        loop {
            let strength = match self.cursor.kind(0) {
                kind if PRODUCTS.has(kind) => 2,
                kind if SUMS.has(kind) => 1,
                _ => break,
            };
            if strength < precedence {
                break;
            }
            let token = self.cursor.take();
            let right = self.calc(next, strength + 1)?;
            left = self.operator(token.kind, token.start, left, right)?;
        }
        self.cursor.leave(Rule::Calc, Ok(()))?;
        Ok(left)
    }

    #[inline(never)]
    fn operator(&mut self, kind: Kind, at: usize, left: Node, right: Node) -> Result<Node, Abort> {
        let function = match kind {
            Kind::Equals => op::EQUALS,
            Kind::NotEquals => op::NOT_EQUALS,
            Kind::In => op::IN,
            Kind::Less => op::LESS,
            Kind::LessEquals => op::LESS_EQUALS,
            Kind::GreaterEquals => op::GREATER_EQUALS,
            Kind::Greater => op::GREATER,
            Kind::Star => op::MULTIPLY,
            Kind::Slash => op::DIVIDE,
            Kind::Percent => op::MODULO,
            Kind::Plus => op::ADD,
            _ => op::SUBTRACT,
        };
        self.call(at, function, vec![*left.expr, *right.expr], 1 + left.nesting.max(right.nesting))
    }

    fn unary(&mut self, follow: Set) -> Result<Node, Abort> {
        self.cursor.enter(Rule::Unary, follow)?;
        let start = self.cursor.token(0).start;
        let mut signs: (usize, &str) = (0, "");
        let mut member = None;
        let result = self.unary_body(&mut signs, &mut member);
        self.cursor.leave(Rule::Unary, result)?;
        let (count, function) = signs;
        if count == 0 && member.is_none() {
            // A marker that the reference implementation leaves for an operand that could not be read.
            let marker = super::ast::Literal::String("<<error>>".into());
            return Ok(Node::new(self.build.literal(start, marker), 0));
        }
        let operand = member.unwrap_or_else(|| self.missing());
        if count % 2 == 0 {
            return Ok(operand);
        }
        self.call(start, function, vec![*operand.expr], operand.nesting)
    }

    fn unary_body(&mut self, signs: &mut (usize, &'static str), member: &mut Option<Node>) -> Result<(), Failure> {
        self.cursor.sync(3, EXPR, Check::Choice)?;
        let number = |kind| matches!(kind, Kind::Int | Kind::Float);
        match self.cursor.kind(0) {
            Kind::Not => {
                signs.1 = op::NOT;
                while self.cursor.kind(0) == Kind::Not {
                    self.cursor.take();
                    signs.0 += 1;
                    self.cursor.sync(4, PRIMARY.or(Set::of(&[Kind::Not])), Check::Repeat)?;
                }
            }
            Kind::Minus if !number(self.cursor.kind(1)) => {
                self.minus_alternatives()?;
                signs.1 = op::NEGATE;
                loop {
                    self.cursor.take();
                    signs.0 += 1;
                    self.cursor.sync(5, PRIMARY, Check::Repeat)?;
                    if self.cursor.kind(0) != Kind::Minus {
                        break;
                    }
                    self.minus_alternatives()?;
                }
            }
            kind if PRIMARY.has(kind) => {}
            _ => return Err(self.no_alternative(0)),
        }
        *member = Some(self.member(END)?);
        Ok(())
    }

    /// Checks that something can come behind a minus.
    fn minus_alternatives(&mut self) -> Result<(), Failure> {
        if PRIMARY.has(self.cursor.kind(1)) { Ok(()) } else { Err(self.no_alternative(1)) }
    }

    /// No alternative fits the tokens from here to the one `ahead`.
    fn no_alternative(&self, ahead: usize) -> Failure {
        Failure::NoAlternative { start: self.cursor.index(0), end: self.cursor.index(ahead) }
    }

    /// Stands for something that could not be read.
    fn missing(&mut self) -> Node {
        Node::new(self.build.unspecified(NOWHERE), 0)
    }

    #[inline(never)]
    fn call(&mut self, at: usize, function: &str, args: Vec<Expr>, nesting: usize) -> Result<Node, Abort> {
        let expr = self.build.call(at, function, args);
        self.limited(expr, nesting)
    }

    /// A call as it is written: expanded if it is a macro.
    #[inline(never)]
    fn written_call(
        &mut self,
        at: usize,
        function: &str,
        target: Option<Expr>,
        args: Vec<Expr>,
        nesting: usize,
    ) -> Result<Node, Abort> {
        let expr = match macros::expand(&mut self.build, at, function, target, args, self.bind) {
            Expansion::Done(expr) => expr,
            Expansion::None(Some(target), args) => self.build.member_call(at, function, target, args),
            Expansion::None(None, args) => self.build.call(at, function, args),
            Expansion::Failed(at, message) => self.refuse(at, message),
        };
        self.limited(expr, nesting)
    }

    /// Reports a message about the tree and leaves a hole in it.
    fn refuse(&mut self, at: usize, message: impl Into<String>) -> Expr {
        self.report.at(self.cursor.source, at, message);
        self.build.unspecified(at)
    }

    fn limited(&mut self, expr: Expr, nesting: usize) -> Result<Node, Abort> {
        if expr.height > HEIGHT || self.build.count() > NODES {
            self.report.add(Location::NONE, "expression is too large after macros are expanded");
            return Err(Abort);
        }
        Ok(Node::new(expr, nesting))
    }
}
