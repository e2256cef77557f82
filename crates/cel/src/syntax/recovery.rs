//! Tokens under a cursor, and what to do when the next one does not fit.
//!
//! Users know the messages of cel-go, whose parser is generated: it drops a token if the one behind it fits, pretends a
//! missing one if the rest fits, and otherwise skips to a token with which one of the open rules could continue. This
//! file implements that strategy; `grammar` defines which tokens fit where.

use super::token::{Kind, Set, Token};
use crate::issues::Report;
use crate::source::{Location, Source};

/// Syntax errors that are reported.
const REPORTED: usize = 100;
/// Times that the parser tries to go on after an error.
const ATTEMPTS: usize = 30;
/// Tokens that one such attempt may skip.
const SKIPPED: usize = 256;
/// How often a rule may be open at the same time.
pub(crate) const NESTING: usize = 250;

/// Why a rule stopped in its middle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// The next token is none of these.
    Mismatch(Set),
    /// No alternative fits the tokens from `start` to `end`, both indexes of visible tokens.
    NoAlternative { start: usize, end: usize },
    /// A limit was reached: nothing more is parsed.
    Abort,
}

/// Nothing more is parsed.
#[derive(Debug)]
pub(crate) struct Abort;

impl From<Abort> for Failure {
    fn from(_: Abort) -> Self {
        Self::Abort
    }
}

/// Rules whose nesting is limited one by one.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Rule {
    Expr,
    Or,
    And,
    Relation,
    Calc,
    Unary,
    Member,
    Primary,
    ExprList,
    ListInit,
    FieldInit,
    OptField,
    MapInit,
    EscapedIdent,
    OptExpr,
    Literal,
}

/// Where a check happens: decides what is done about a token that does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    /// Before a choice.
    Choice,
    /// After a repetition.
    Repeat,
}

/// The cursor over the tokens.
pub(crate) struct Cursor<'s> {
    pub(crate) source: &'s Source,
    all: Vec<Token>,
    /// Indexes into `all` of the tokens that the grammar sees.
    visible: Vec<usize>,
    at: usize,
    /// For each open rule, what may follow it.
    follow: Vec<Set>,
    open: [usize; 16],
    /// The place in the grammar; only compared.
    pub(crate) place: u8,
    recovering: bool,
    last_error: Option<usize>,
    last_places: Vec<u8>,
    attempts: usize,
    reported: usize,
    pub(crate) report: Report,
}

impl<'s> Cursor<'s> {
    pub(crate) fn new(source: &'s Source, all: Vec<Token>) -> Self {
        let visible = all.iter().enumerate().filter(|(_, t)| t.kind != Kind::Hidden).map(|(at, _)| at).collect();
        Self {
            source,
            all,
            visible,
            at: 0,
            follow: Vec::new(),
            open: [0; 16],
            place: 0,
            recovering: false,
            last_error: None,
            last_places: Vec::new(),
            attempts: 0,
            reported: 0,
            report: Report::default(),
        }
    }

    /// The token `ahead` of the cursor; the last one is [`Kind::Eof`] for ever.
    pub(crate) fn token(&self, ahead: usize) -> Token {
        self.visible_token(self.at + ahead)
    }

    fn visible_token(&self, index: usize) -> Token {
        let last = self.visible.len().saturating_sub(1);
        let at = self.visible.get(index.min(last)).copied().unwrap_or_default();
        self.all.get(at).copied().unwrap_or(Token { kind: Kind::Eof, start: 0, end: 0 })
    }

    pub(crate) fn kind(&self, ahead: usize) -> Kind {
        self.token(ahead).kind
    }

    /// Index of the visible token `ahead`, for [`Failure::NoAlternative`].
    pub(crate) fn index(&self, ahead: usize) -> usize {
        (self.at + ahead).min(self.visible.len().saturating_sub(1))
    }

    pub(crate) fn text(&self, token: Token) -> String {
        self.source.slice(token.start, token.end)
    }

    fn advance(&mut self) {
        if self.kind(0) != Kind::Eof {
            self.at += 1;
        }
    }

    /// Opens a rule that `follow` may follow.
    pub(crate) fn enter(&mut self, rule: Rule, follow: Set) -> Result<(), Abort> {
        self.follow.push(follow);
        let Some(open) = self.open.get_mut(rule as usize) else { return Err(Abort) };
        *open += 1;
        if *open > NESTING {
            self.report.add(Location::NONE, format!("expression recursion limit exceeded: {NESTING}"));
            return Err(Abort);
        }
        Ok(())
    }

    /// Closes a rule, after reporting and recovering from what stopped it.
    pub(crate) fn leave(&mut self, rule: Rule, result: Result<(), Failure>) -> Result<(), Abort> {
        if let Err(failure) = result {
            self.report_failure(failure)?;
            self.recover()?;
        }
        self.follow.pop();
        if let Some(open) = self.open.get_mut(rule as usize) {
            *open = open.saturating_sub(1);
        }
        Ok(())
    }

    /// Takes the next token whatever it is; the caller has looked at it.
    pub(crate) fn take(&mut self) -> Token {
        let token = self.token(0);
        self.matched();
        self.advance();
        token
    }

    /// Takes a token of this kind. `after` is what may come behind it.
    pub(crate) fn expect(&mut self, place: u8, kind: Kind, after: Set) -> Result<Token, Failure> {
        self.place = place;
        if self.kind(0) == kind {
            return Ok(self.take());
        }
        self.count_attempt()?;
        let wanted = Set::of(&[kind]);
        if self.drop_one(wanted)? {
            return Ok(self.take());
        }
        if self.expected(after).has(self.kind(0)) {
            self.report_missing(wanted)?;
            let here = self.token(0);
            let near = if here.kind == Kind::Eof && self.at > 0 { self.visible_token(self.at - 1) } else { here };
            return Ok(Token { kind, ..near });
        }
        Err(Failure::Mismatch(self.expected(wanted)))
    }

    /// Checks that the next token is one of `next` before a choice is made by looking at it.
    pub(crate) fn sync(&mut self, place: u8, next: Set, check: Check) -> Result<(), Failure> {
        self.place = place;
        if self.recovering || next.may_end() || next.has(self.kind(0)) {
            return Ok(());
        }
        let expected = self.expected(next);
        match check {
            Check::Choice if self.drop_one(next)? => Ok(()),
            Check::Choice => Err(Failure::Mismatch(expected)),
            Check::Repeat => {
                self.report_unwanted(next)?;
                let until = expected.or(self.open_follow());
                while self.kind(0) != Kind::Eof && !until.has(self.kind(0)) {
                    self.advance();
                }
                Ok(())
            }
        }
    }

    /// The tokens that fit, looking through the ends of rules.
    fn expected(&self, next: Set) -> Set {
        let mut out = next.without_end();
        let mut last = next;
        for follow in self.follow.iter().rev() {
            if !last.may_end() {
                break;
            }
            last = *follow;
            out = out.or(last.without_end());
        }
        if last.may_end() { out.or(Set::of(&[Kind::Eof])) } else { out }
    }

    /// Everything that may follow any of the open rules.
    fn open_follow(&self) -> Set {
        self.follow.iter().fold(Set::default(), |all, follow| all.or(*follow)).without_end()
    }

    /// Drops the next token if the one behind it fits.
    fn drop_one(&mut self, next: Set) -> Result<bool, Abort> {
        if !self.expected(next).has(self.kind(1)) {
            return Ok(false);
        }
        self.report_unwanted(next)?;
        self.advance();
        self.matched();
        Ok(true)
    }

    fn matched(&mut self) {
        self.recovering = false;
        self.last_error = None;
        self.last_places.clear();
    }

    fn count_attempt(&mut self) -> Result<(), Abort> {
        if self.attempts == ATTEMPTS {
            self.notify(self.token(0), &format!("error recovery attempt limit exceeded: {ATTEMPTS}"))?;
            return Err(Abort);
        }
        self.attempts += 1;
        Ok(())
    }

    /// Skips to a token with which one of the open rules could go on.
    fn recover(&mut self) -> Result<(), Abort> {
        self.count_attempt()?;
        let mut skipped = 0;
        if self.last_error == Some(self.at) && self.last_places.contains(&self.place) {
            self.skip(&mut skipped)?;
        }
        self.last_error = Some(self.at);
        self.last_places.push(self.place);
        let until = self.open_follow();
        while self.kind(0) != Kind::Eof && !until.has(self.kind(0)) {
            self.skip(&mut skipped)?;
        }
        Ok(())
    }

    fn skip(&mut self, skipped: &mut usize) -> Result<(), Abort> {
        if *skipped >= SKIPPED {
            self.report.add(Location::NONE, format!("error recovery token lookahead limit exceeded: {SKIPPED}"));
            return Err(Abort);
        }
        *skipped += 1;
        self.advance();
        Ok(())
    }

    fn report_failure(&mut self, failure: Failure) -> Result<(), Abort> {
        if matches!(failure, Failure::Abort) {
            return Err(Abort);
        }
        if std::mem::replace(&mut self.recovering, true) {
            return Ok(());
        }
        match failure {
            Failure::Abort => Err(Abort),
            Failure::Mismatch(expected) => {
                let message = format!("mismatched input {} expecting {}", self.shown(0), expected.display());
                self.notify(self.token(0), &message)
            }
            Failure::NoAlternative { start, end } => {
                let message = self.no_alternative(start, end);
                self.notify(self.visible_token(end), &message)
            }
        }
    }

    fn no_alternative(&self, start: usize, end: usize) -> String {
        let index = |visible: usize| self.visible.get(visible).copied().unwrap_or_default();
        let tokens = self.all.get(index(start)..=index(end)).unwrap_or_default();
        let text: String = tokens.iter().map(|token| self.text(*token)).collect();
        let text = if self.visible_token(start).kind == Kind::Eof { "<EOF>".to_owned() } else { text };
        let mut chars = text.chars();
        chars.next();
        match chars.as_str() {
            word @ ("true" | "false" | "null") => format!("mismatched input '{word}' expecting IDENTIFIER"),
            _ => format!("no viable alternative at input {}", quoted(&text)),
        }
    }

    fn report_unwanted(&mut self, next: Set) -> Result<(), Abort> {
        if std::mem::replace(&mut self.recovering, true) {
            return Ok(());
        }
        let message = format!("extraneous input {} expecting {}", self.shown(0), self.expected(next).display());
        self.notify(self.token(0), &message)
    }

    fn report_missing(&mut self, wanted: Set) -> Result<(), Abort> {
        if std::mem::replace(&mut self.recovering, true) {
            return Ok(());
        }
        let message = format!("missing {} at {}", self.expected(wanted).display(), self.shown(0));
        self.notify(self.token(0), &message)
    }

    fn shown(&self, ahead: usize) -> String {
        let token = self.token(ahead);
        if token.kind == Kind::Eof { "'<EOF>'".to_owned() } else { quoted(&self.text(token)) }
    }

    /// Reports a syntax error at a token.
    pub(crate) fn notify(&mut self, token: Token, message: &str) -> Result<(), Abort> {
        if self.reported >= REPORTED {
            let message = format!("Syntax error: More than {REPORTED} syntax errors");
            self.report.at(self.source, token.start, message);
            return Err(Abort);
        }
        self.reported += 1;
        self.report.at(self.source, token.start, format!("Syntax error: {message}"));
        Ok(())
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r"))
}
