//! Tokens to server blocks and directives.
//!
//! In: tokens. Out: keys and directives of each server block; arguments and body lines of each directive. An opening
//! brace ends its line; a file with a single block may omit the braces.

use super::ParseError;
use super::lex::Token;

/// Server block.
#[derive(Debug)]
pub(super) struct RawBlock<'t> {
    pub(super) keys: Vec<&'t Token>,
    pub(super) directives: Vec<Directive<'t>>,
}

/// Directive with arguments and body.
#[derive(Debug)]
pub(super) struct Directive<'t> {
    pub(super) name: &'t Token,
    pub(super) args: Vec<&'t Token>,
    /// Lines of the body, each with at least one token.
    pub(super) body: Vec<Vec<&'t Token>>,
}

pub(super) fn blocks(tokens: &[Token]) -> Result<Vec<RawBlock<'_>>, ParseError> {
    let mut out = Vec::new();
    let mut rest = tokens;
    while let Some(first) = rest.first() {
        let (keys, after) = keys(rest);
        if keys.is_empty() {
            return Err(first.error("server block without a zone", "write the zone first, as in `.:53 {`"));
        }
        let braced = after.first().is_some_and(|token| token.is("{"));
        if !braced && !out.is_empty() {
            return Err(
                first.error(format!("`{}` is outside of all server blocks", first.text), "put it inside of { }")
            );
        }
        let (directives, after) = directives(first, &after[usize::from(braced)..], braced)?;
        out.push(RawBlock { keys, directives });
        rest = after;
    }
    Ok(out)
}

/// Keys: the tokens of the first line, continued after a trailing comma.
fn keys(tokens: &[Token]) -> (Vec<&Token>, &[Token]) {
    let mut out: Vec<&Token> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let goes_on = out.last().is_none_or(|last| last.position == token.position || last.text.ends_with(','));
        if token.is("{") || !goes_on {
            return (out, &tokens[at..]);
        }
        out.push(token);
    }
    (out, &[])
}

/// Directives up to the closing brace, or to the end if there are no braces.
fn directives<'t>(
    opened: &'t Token,
    tokens: &'t [Token],
    braced: bool,
) -> Result<(Vec<Directive<'t>>, &'t [Token]), ParseError> {
    let mut out = Vec::new();
    let mut rest = tokens;
    while let Some(name) = rest.first() {
        if name.is("}") {
            if braced {
                return Ok((out, &rest[1..]));
            }
            return Err(name.error("unexpected }", "remove it"));
        }
        if name.is("{") {
            return Err(name.error("unexpected {", "put it at the end of the line that it belongs to"));
        }
        let (line, after) = line(rest);
        let args = line[1..].to_vec();
        let (body, after) = if after.first().is_some_and(|token| token.is("{") && token.position == name.position) {
            body(name, &after[1..])?
        } else {
            (Vec::new(), after)
        };
        out.push(Directive { name, args, body });
        rest = after;
    }
    if braced { Err(opened.error("the block is not closed", "close it with }")) } else { Ok((out, rest)) }
}

/// Lines of a body up to its closing brace.
fn body<'t>(name: &Token, tokens: &'t [Token]) -> Result<(Vec<Vec<&'t Token>>, &'t [Token]), ParseError> {
    let mut out = Vec::new();
    let mut rest = tokens;
    while let Some(first) = rest.first() {
        if first.is("}") {
            return Ok((out, &rest[1..]));
        }
        let (words, after) = line(rest);
        if first.is("{") || after.first().is_some_and(|token| token.is("{") && token.position == first.position) {
            let what = format!("a block inside of the block of `{}`", name.text);
            return Err(first.error(what, "write its options on lines of their own"));
        }
        out.push(words);
        rest = after;
    }
    Err(name.error(format!("the block of `{}` is not closed", name.text), "close it with }"))
}

/// Tokens of one line, without braces.
fn line(tokens: &[Token]) -> (Vec<&Token>, &[Token]) {
    let position = &tokens[0].position;
    let end = tokens.iter().position(|token| token.position != *position || token.is("{") || token.is("}"));
    let (line, rest) = tokens.split_at(end.unwrap_or(tokens.len()));
    (line.iter().collect(), rest)
}
