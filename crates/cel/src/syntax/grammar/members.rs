//! Selections, member calls and indexes: what follows a primary expression.

use super::{ANY_IDENT, END, EXPR, Grammar, Node, OPT_EXPR};
use crate::syntax::ast::{ExprKind, Literal, NOWHERE, op};
use crate::syntax::recovery::{Abort, Check, Failure, Rule};
use crate::syntax::token::{Kind, Set};

/// What may follow a member: another selection or index, or the end.
const SUFFIX: Set = Set::of(&[Kind::Dot, Kind::LeftBracket]).or(END);

/// An identifier behind a dot: its name, or nothing after a syntax error, and its position.
pub(super) struct Name {
    pub(super) name: Option<String>,
    pub(super) at: usize,
}

/// The parts of a selection.
#[derive(Default)]
struct Selection {
    at: usize,
    optional: bool,
    name: Option<Name>,
}

impl Grammar<'_> {
    pub(super) fn member(&mut self, follow: Set) -> Result<Node, Abort> {
        self.cursor.enter(Rule::Member, follow)?;
        let mut node = self.primary(SUFFIX)?;
        let mut result = Ok(());
        while result.is_ok() && matches!(self.cursor.kind(0), Kind::Dot | Kind::LeftBracket) {
            (node, result) = self.suffix(node)?;
        }
        self.cursor.leave(Rule::Member, result)?;
        Ok(node)
    }

    fn suffix(&mut self, node: Node) -> Result<(Node, Result<(), Failure>), Abort> {
        if self.cursor.kind(0) == Kind::LeftBracket {
            return self.index(node);
        }
        match (self.cursor.kind(1), self.cursor.kind(2)) {
            (Kind::Ident, Kind::LeftParen) => self.member_call(node),
            (Kind::Ident | Kind::EscapedIdent | Kind::Question, _) => self.select(node),
            _ => {
                self.cursor.place = 10;
                let failure = self.no_alternative(1);
                Ok((node, Err(failure)))
            }
        }
    }

    fn select(&mut self, node: Node) -> Result<(Node, Result<(), Failure>), Abort> {
        let mut parts = Selection::default();
        let result = self.select_body(&mut parts);
        if matches!(result, Err(Failure::Abort)) {
            return Err(Abort);
        }
        let nesting = node.nesting + 1;
        let Some(name) = parts.name else {
            return Ok((Node::new(self.build.unspecified(NOWHERE), nesting), result));
        };
        let field = name.name.unwrap_or_else(|| {
            self.report.at(self.cursor.source, name.at, "unsupported ident kind");
            String::new()
        });
        let expr = if parts.optional {
            let field = self.build.literal(name.at, Literal::String(field.into()));
            self.build.call(parts.at, op::OPTIONAL_SELECT, vec![*node.expr, field])
        } else {
            self.build.node(parts.at, ExprKind::Select { operand: node.expr, field, test: false })
        };
        Ok((self.limited(expr, nesting)?, result))
    }

    fn select_body(&mut self, parts: &mut Selection) -> Result<(), Failure> {
        parts.at = self.cursor.take().start;
        self.cursor.sync(11, ANY_IDENT.or(Set::of(&[Kind::Question])), Check::Choice)?;
        if self.cursor.kind(0) == Kind::Question {
            self.cursor.take();
            parts.optional = true;
        }
        parts.name = Some(self.any_ident(SUFFIX)?);
        Ok(())
    }

    fn member_call(&mut self, node: Node) -> Result<(Node, Result<(), Failure>), Abort> {
        self.cursor.take();
        let name = self.cursor.take();
        let name = self.cursor.text(name);
        let at = self.cursor.take().start;
        let mut args = Vec::new();
        let result = self.arguments(12, &mut args, SUFFIX);
        if matches!(result, Err(Failure::Abort)) {
            return Err(Abort);
        }
        let nesting = 1 + args.iter().map(|arg| arg.nesting).fold(node.nesting, usize::max);
        let args = args.into_iter().map(|arg| *arg.expr).collect();
        Ok((self.written_call(at, &name, Some(*node.expr), args, nesting)?, result))
    }

    fn index(&mut self, node: Node) -> Result<(Node, Result<(), Failure>), Abort> {
        let at = self.cursor.take().start;
        let (mut optional, mut index) = (false, None);
        let result = self.index_body(&mut optional, &mut index);
        if matches!(result, Err(Failure::Abort)) {
            return Err(Abort);
        }
        let index = index.unwrap_or_else(|| self.missing());
        let function = if optional { op::OPTIONAL_INDEX } else { op::INDEX };
        let nesting = 1 + node.nesting.max(index.nesting);
        Ok((self.call(at, function, vec![*node.expr, *index.expr], nesting)?, result))
    }

    fn index_body(&mut self, optional: &mut bool, index: &mut Option<Node>) -> Result<(), Failure> {
        self.cursor.sync(14, OPT_EXPR, Check::Choice)?;
        if self.cursor.kind(0) == Kind::Question {
            self.cursor.take();
            *optional = true;
        }
        *index = Some(self.expr(Set::of(&[Kind::RightBracket]))?);
        self.cursor.expect(15, Kind::RightBracket, SUFFIX).map(drop)
    }

    /// Arguments of a call and the closing parenthesis, which `after` may follow.
    pub(super) fn arguments(&mut self, place: u8, args: &mut Vec<Node>, after: Set) -> Result<(), Failure> {
        let close = Set::of(&[Kind::RightParen]);
        self.cursor.sync(place, EXPR.or(close), Check::Choice)?;
        if EXPR.has(self.cursor.kind(0)) {
            self.expr_list(close, args)?;
        }
        self.cursor.expect(place + 1, Kind::RightParen, after).map(drop)
    }

    fn expr_list(&mut self, follow: Set, args: &mut Vec<Node>) -> Result<(), Abort> {
        self.cursor.enter(Rule::ExprList, follow)?;
        let next = Set::of(&[Kind::Comma]).or(END);
        args.push(self.expr(next)?);
        while self.cursor.kind(0) == Kind::Comma {
            self.cursor.take();
            args.push(self.expr(next)?);
        }
        self.cursor.leave(Rule::ExprList, Ok(()))
    }

    /// An identifier, or one in back quotes.
    pub(super) fn any_ident(&mut self, follow: Set) -> Result<Name, Abort> {
        self.cursor.enter(Rule::EscapedIdent, follow)?;
        let at = self.cursor.token(0).start;
        let mut name = None;
        let result = self.cursor.sync(16, ANY_IDENT, Check::Choice).and_then(|()| {
            let token = self.cursor.token(0);
            let text = self.cursor.text(token);
            name = match token.kind {
                Kind::Ident => Some(text),
                Kind::EscapedIdent => Some(text.trim_matches('`').to_owned()),
                _ => return Err(self.no_alternative(0)),
            };
            self.cursor.take();
            Ok(())
        });
        self.cursor.leave(Rule::EscapedIdent, result)?;
        Ok(Name { name, at })
    }
}
