//! Text to a tree: lexer, grammar, macros.

pub(crate) mod ast;
mod grammar;
mod lexer;
mod literal;
pub(crate) mod macros;
mod recovery;
#[cfg(test)]
mod tests;
mod token;

use self::ast::Expr;
use self::grammar::Grammar;
use self::recovery::Cursor;
use self::token::{Kind, Token};
use crate::issues::{Issues, Report};
use crate::source::{Location, Source};

/// Code points that an expression may have.
const LONGEST: usize = 100_000;

/// Parses an expression. `bind` enables the macro `cel.bind`, which Kubernetes does not have.
///
/// # Errors
/// The syntax errors, with the messages of cel-go.
pub(crate) fn parse(source: &Source, bind: bool) -> Result<Expr, Issues> {
    if source.len() > LONGEST {
        let mut report = Report::default();
        let message = format!("expression code point size exceeds limit: size: {}, limit {LONGEST}", source.len());
        report.add(Location::NONE, message);
        return Err(report.finish(source));
    }
    let (tokens, unreadable) = lexer::read(source);
    let mut cursor = Cursor::new(source, tokens);
    for bad in unreadable {
        let place = Token { kind: Kind::Eof, start: bad.start, end: bad.start };
        if cursor.notify(place, &format!("token recognition error at: '{}'", bad.text)).is_err() {
            return Err(cursor.report.finish(source));
        }
    }
    Grammar::new(cursor, bind).parse().map_err(|report| report.finish(source))
}
