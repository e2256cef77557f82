//! Primary expressions: identifiers, calls, parentheses, lists, maps, messages and literals.

use super::{ANY_IDENT, END, EXPR, Grammar, Node, OPT_EXPR, PRIMARY};
use crate::escape::is_reserved;
use crate::syntax::ast::{Entry, Expr, ExprKind, Field, Literal};
use crate::syntax::literal;
use crate::syntax::recovery::{Abort, Check, Failure, Rule};
use crate::syntax::token::{Kind, Set, Token};

const COMMA: Set = Set::of(&[Kind::Comma]);

/// A key or field, its colon, and a value.
struct Pair<K> {
    key: K,
    optional: bool,
    colon: usize,
    value: Option<Node>,
}

impl Grammar<'_> {
    pub(super) fn primary(&mut self, follow: Set) -> Result<Node, Abort> {
        self.cursor.enter(Rule::Primary, follow)?;
        let mut node = None;
        let result = self.primary_body(&mut node);
        self.cursor.leave(Rule::Primary, result)?;
        Ok(node.unwrap_or_else(|| self.missing()))
    }

    fn primary_body(&mut self, node: &mut Option<Node>) -> Result<(), Failure> {
        self.cursor.sync(20, PRIMARY, Check::Choice)?;
        match self.cursor.kind(0) {
            Kind::Dot | Kind::Ident => self.named(node),
            Kind::LeftParen => {
                self.cursor.take();
                *node = Some(self.expr(Set::of(&[Kind::RightParen]))?);
                self.cursor.expect(21, Kind::RightParen, END).map(drop)
            }
            Kind::LeftBracket => self.list(node),
            Kind::LeftBrace => self.map(node),
            kind if PRIMARY.has(kind) => {
                *node = Some(self.literal()?);
                Ok(())
            }
            _ => Err(self.no_alternative(0)),
        }
    }

    /// An identifier, a call or a message, all of which start with a name.
    fn named(&mut self, node: &mut Option<Node>) -> Result<(), Failure> {
        let dot = usize::from(self.cursor.kind(0) == Kind::Dot);
        if self.cursor.kind(dot) != Kind::Ident {
            return Err(self.no_alternative(dot));
        }
        let mut end = dot + 1;
        while self.cursor.kind(end) == Kind::Dot && self.cursor.kind(end + 1) == Kind::Ident {
            end += 2;
        }
        if self.cursor.kind(end) == Kind::LeftBrace {
            return self.message(end, node);
        }
        let start = self.cursor.token(0).start;
        let prefix = if dot == 1 { "." } else { "" };
        for _ in 0..dot {
            self.cursor.take();
        }
        let token = self.cursor.take();
        let name = self.cursor.text(token);
        let reserved = is_reserved(&name);
        if self.cursor.kind(0) != Kind::LeftParen {
            let expr = if reserved {
                self.refuse(start, format!("reserved identifier: {name}"))
            } else {
                self.build.ident(token.start, format!("{prefix}{name}"))
            };
            *node = Some(Node::new(expr, 0));
            return Ok(());
        }
        let at = self.cursor.take().start;
        let mark = self.report.mark();
        let mut args = Vec::new();
        let result = self.arguments(22, &mut args, END);
        if matches!(result, Err(Failure::Abort)) {
            return result;
        }
        *node = Some(if reserved {
            self.report.forget_after(mark);
            Node::new(self.refuse(start, format!("reserved identifier: {name}")), 0)
        } else {
            let nesting = args.iter().map(|arg| arg.nesting).max().unwrap_or(0);
            let args = args.into_iter().map(|arg| *arg.expr).collect();
            self.written_call(at, &format!("{prefix}{name}"), None, args, nesting)?
        });
        result
    }

    fn list(&mut self, node: &mut Option<Node>) -> Result<(), Failure> {
        let at = self.cursor.take().start;
        let mut items = Vec::new();
        let result = self.list_body(&mut items);
        if matches!(result, Err(Failure::Abort)) {
            return result;
        }
        let optional = items.iter().enumerate().filter(|(_, (_, optional))| *optional).map(|(at, _)| at).collect();
        let nesting = items.iter().map(|(item, _)| item.nesting).max().unwrap_or(0);
        let elements = items.into_iter().map(|(item, _)| *item.expr).collect();
        let expr = self.build.node(at, ExprKind::List { elements, optional });
        *node = Some(self.limited(expr, nesting)?);
        result
    }

    fn list_body(&mut self, items: &mut Vec<(Node, bool)>) -> Result<(), Failure> {
        let close = Set::of(&[Kind::RightBracket]);
        self.cursor.sync(24, OPT_EXPR.or(COMMA).or(close), Check::Choice)?;
        if OPT_EXPR.has(self.cursor.kind(0)) {
            self.cursor.enter(Rule::ListInit, COMMA.or(close))?;
            items.push(self.optional_expr(COMMA.or(END))?);
            while self.cursor.kind(0) == Kind::Comma && OPT_EXPR.has(self.cursor.kind(1)) {
                self.cursor.take();
                items.push(self.optional_expr(COMMA.or(END))?);
            }
            self.cursor.leave(Rule::ListInit, Ok(()))?;
        }
        self.close(25, Kind::RightBracket)
    }

    /// A trailing comma and the closing bracket.
    fn close(&mut self, place: u8, kind: Kind) -> Result<(), Failure> {
        self.cursor.sync(place, COMMA.or(Set::of(&[kind])), Check::Choice)?;
        if self.cursor.kind(0) == Kind::Comma {
            self.cursor.take();
        }
        self.cursor.expect(place + 1, kind, END).map(drop)
    }

    /// An expression, and whether it is written with `?`.
    fn optional_expr(&mut self, follow: Set) -> Result<(Node, bool), Abort> {
        self.cursor.enter(Rule::OptExpr, follow)?;
        let (mut optional, mut node) = (false, None);
        let result = self.cursor.sync(28, OPT_EXPR, Check::Choice).and_then(|()| {
            if self.cursor.kind(0) == Kind::Question {
                self.cursor.take();
                optional = true;
            }
            node = Some(self.expr(END)?);
            Ok(())
        });
        self.cursor.leave(Rule::OptExpr, result)?;
        Ok((node.unwrap_or_else(|| self.missing()), optional))
    }

    fn map(&mut self, node: &mut Option<Node>) -> Result<(), Failure> {
        let at = self.cursor.take().start;
        let mut pairs = Vec::new();
        let result = self.map_body(&mut pairs);
        if matches!(result, Err(Failure::Abort)) {
            return result;
        }
        let mut nesting = 0;
        let entries = pairs
            .into_iter()
            .map(|Pair { key, optional, value, .. }: Pair<Node>| {
                let value = value?;
                nesting = nesting.max(key.nesting).max(value.nesting);
                Some(Entry { key: *key.expr, value: *value.expr, optional })
            })
            .collect::<Option<Vec<Entry>>>();
        let expr = self.build.node(at, ExprKind::Map(entries.unwrap_or_default()));
        *node = Some(self.limited(expr, nesting)?);
        result
    }

    fn map_body(&mut self, pairs: &mut Vec<Pair<Node>>) -> Result<(), Failure> {
        let close = Set::of(&[Kind::RightBrace]);
        self.cursor.sync(29, OPT_EXPR.or(COMMA).or(close), Check::Choice)?;
        if OPT_EXPR.has(self.cursor.kind(0)) {
            self.cursor.enter(Rule::MapInit, COMMA.or(close))?;
            let result = self.map_entries(pairs);
            self.cursor.leave(Rule::MapInit, result)?;
        }
        self.close(30, Kind::RightBrace)
    }

    fn map_entries(&mut self, pairs: &mut Vec<Pair<Node>>) -> Result<(), Failure> {
        loop {
            let mark = self.report.mark();
            let (key, optional) = self.optional_expr(Set::of(&[Kind::Colon]))?;
            let colon = self.cursor.expect(32, Kind::Colon, EXPR);
            if colon.is_err() {
                // A key without a value is not part of the tree, and neither are messages about it.
                self.report.forget_after(mark);
            }
            let colon = colon?.start;
            pairs.push(Pair { key, optional, colon, value: None });
            let value = self.expr(COMMA.or(END))?;
            if let Some(last) = pairs.last_mut() {
                last.value = Some(value);
            }
            if self.cursor.kind(0) != Kind::Comma || !OPT_EXPR.has(self.cursor.kind(1)) {
                return Ok(());
            }
            self.cursor.take();
        }
    }

    /// `Name{field: value}`; the name ends before the token `end`.
    fn message(&mut self, end: usize, node: &mut Option<Node>) -> Result<(), Failure> {
        let mut name = String::new();
        for _ in 0..end {
            let token = self.cursor.take();
            name.push_str(&self.cursor.text(token));
        }
        let at = self.cursor.take().start;
        let mut pairs = Vec::new();
        let mut first = at;
        let result = self.message_body(&mut pairs, &mut first);
        if matches!(result, Err(Failure::Abort)) {
            return result;
        }
        let mut nesting = 0;
        let mut fields = Vec::new();
        for Pair { key, optional, colon, value } in pairs {
            let Some(value) = value else {
                fields.clear();
                break;
            };
            nesting = nesting.max(value.nesting);
            match key {
                Some(name) => fields.push(Field { name, at: colon, value: *value.expr, optional }),
                None => drop(self.refuse(first, "unsupported ident kind")),
            }
        }
        let expr = self.build.node(at, ExprKind::Struct { name, fields });
        *node = Some(self.limited(expr, nesting)?);
        result
    }

    /// Fields and the closing brace; `first` becomes the position of the first field.
    fn message_body(&mut self, pairs: &mut Vec<Pair<Option<String>>>, first: &mut usize) -> Result<(), Failure> {
        let close = Set::of(&[Kind::RightBrace]);
        let field = ANY_IDENT.or(Set::of(&[Kind::Question]));
        self.cursor.sync(33, field.or(COMMA).or(close), Check::Choice)?;
        if field.has(self.cursor.kind(0)) {
            *first = self.cursor.token(0).start;
            self.cursor.enter(Rule::FieldInit, COMMA.or(close))?;
            let result = self.message_fields(field, pairs);
            self.cursor.leave(Rule::FieldInit, result)?;
        }
        self.close(34, Kind::RightBrace)
    }

    fn message_fields(&mut self, field: Set, pairs: &mut Vec<Pair<Option<String>>>) -> Result<(), Failure> {
        loop {
            let (key, optional) = self.optional_field(field)?;
            let colon = self.cursor.expect(36, Kind::Colon, EXPR)?.start;
            pairs.push(Pair { key, optional, colon, value: None });
            let value = self.expr(COMMA.or(END))?;
            if let Some(last) = pairs.last_mut() {
                last.value = Some(value);
            }
            if self.cursor.kind(0) != Kind::Comma || !field.has(self.cursor.kind(1)) {
                return Ok(());
            }
            self.cursor.take();
        }
    }

    fn optional_field(&mut self, field: Set) -> Result<(Option<String>, bool), Abort> {
        self.cursor.enter(Rule::OptField, Set::of(&[Kind::Colon]))?;
        let (mut optional, mut name) = (false, None);
        let result = self.cursor.sync(37, field, Check::Choice).and_then(|()| {
            if self.cursor.kind(0) == Kind::Question {
                self.cursor.take();
                optional = true;
            }
            name = self.any_ident(END)?.name;
            Ok(())
        });
        self.cursor.leave(Rule::OptField, result)?;
        Ok((name, optional))
    }

    fn literal(&mut self) -> Result<Node, Abort> {
        self.cursor.enter(Rule::Literal, END)?;
        self.cursor.place = 38;
        let start = self.cursor.token(0);
        let negative = start.kind == Kind::Minus;
        let mut token = None;
        let result = match self.cursor.kind(usize::from(negative)) {
            Kind::Int | Kind::Float => {
                if negative {
                    self.cursor.take();
                }
                token = Some(self.cursor.take());
                Ok(())
            }
            _ if negative => Err(self.no_alternative(1)),
            _ => {
                token = Some(self.cursor.take());
                Ok(())
            }
        };
        self.cursor.leave(Rule::Literal, result)?;
        let expr = match token {
            Some(token) => self.literal_value(start.start, token, negative),
            None => return Ok(self.missing()),
        };
        Ok(Node::new(expr, 0))
    }

    fn literal_value(&mut self, at: usize, token: Token, negative: bool) -> Expr {
        let text = self.cursor.text(token);
        let value = match token.kind {
            Kind::Int => literal::int(&text, negative).ok_or("invalid int literal"),
            Kind::Uint => literal::uint(&text).ok_or("invalid uint literal"),
            Kind::Float => literal::double(&text, negative).ok_or("invalid double literal"),
            Kind::String => literal::string(&text),
            Kind::Bytes => literal::bytes(&text),
            Kind::True => Ok(Literal::Bool(true)),
            Kind::False => Ok(Literal::Bool(false)),
            _ => Ok(Literal::Null),
        };
        match value {
            Ok(value) => self.build.literal(at, value),
            Err(message) => self.refuse(at, message),
        }
    }
}
