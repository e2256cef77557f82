//! Words become blocks with directives.
//!
//! In: tokens. Out: for each server block its keys and directives, for each directive its arguments and the lines of its
//! body. A brace ends the line it opens on; a file with a single block may do without braces.

use super::Refused;
use super::lex::Token;

/// A server block.
#[derive(Debug)]
pub(super) struct RawBlock<'t> {
    pub(super) keys: Vec<&'t Token>,
    pub(super) directives: Vec<Directive<'t>>,
}

/// A directive: its name, its arguments, its body.
#[derive(Debug)]
pub(super) struct Directive<'t> {
    pub(super) name: &'t Token,
    pub(super) args: Vec<&'t Token>,
    /// Each line of the body: at least one word.
    pub(super) body: Vec<Vec<&'t Token>>,
}

pub(super) fn blocks(tokens: &[Token]) -> Result<Vec<RawBlock<'_>>, Refused> {
    let mut out = Vec::new();
    let mut rest = tokens;
    while let Some(first) = rest.first() {
        let (keys, after) = keys(rest);
        if keys.is_empty() {
            return Err(first.refuse("a block without a zone", "write the zone first, as in `.:53 {`"));
        }
        let braced = after.first().is_some_and(|token| token.is("{"));
        if !braced && !out.is_empty() {
            return Err(first.refuse(format!("`{}` is outside of every block", first.text), "put it inside of { }"));
        }
        let (directives, after) = directives(first, &after[usize::from(braced)..], braced)?;
        out.push(RawBlock { keys, directives });
        rest = after;
    }
    Ok(out)
}

/// The keys: the words of the first line, and of the next one after a comma.
fn keys(tokens: &[Token]) -> (Vec<&Token>, &[Token]) {
    let mut out: Vec<&Token> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let goes_on = out.last().is_none_or(|last| last.place == token.place || last.text.ends_with(','));
        if token.is("{") || !goes_on {
            return (out, &tokens[at..]);
        }
        out.push(token);
    }
    (out, &[])
}

/// Directives up to the closing brace, or to the end when there is none to wait for.
fn directives<'t>(
    opened: &'t Token,
    tokens: &'t [Token],
    braced: bool,
) -> Result<(Vec<Directive<'t>>, &'t [Token]), Refused> {
    let mut out = Vec::new();
    let mut rest = tokens;
    while let Some(name) = rest.first() {
        if name.is("}") {
            if braced {
                return Ok((out, &rest[1..]));
            }
            return Err(name.refuse("a } that closes nothing", "remove it"));
        }
        if name.is("{") {
            return Err(name.refuse("a { after nothing", "put it at the end of the line that it belongs to"));
        }
        let (line, after) = line(rest);
        let args = line[1..].to_vec();
        let (body, after) = if after.first().is_some_and(|token| token.is("{") && token.place == name.place) {
            body(name, &after[1..])?
        } else {
            (Vec::new(), after)
        };
        out.push(Directive { name, args, body });
        rest = after;
    }
    if braced { Err(opened.refuse("the block is not closed", "close it with }")) } else { Ok((out, rest)) }
}

/// The lines of a body up to its closing brace.
fn body<'t>(name: &Token, tokens: &'t [Token]) -> Result<(Vec<Vec<&'t Token>>, &'t [Token]), Refused> {
    let mut out = Vec::new();
    let mut rest = tokens;
    while let Some(first) = rest.first() {
        if first.is("}") {
            return Ok((out, &rest[1..]));
        }
        let (words, after) = line(rest);
        if first.is("{") || after.first().is_some_and(|token| token.is("{") && token.place == first.place) {
            let what = format!("a block inside of the block of `{}`", name.text);
            return Err(first.refuse(what, "write its options on lines of their own"));
        }
        out.push(words);
        rest = after;
    }
    Err(name.refuse(format!("the block of `{}` is not closed", name.text), "close it with }"))
}

/// The words of one line, without braces.
fn line(tokens: &[Token]) -> (Vec<&Token>, &[Token]) {
    let place = &tokens[0].place;
    let end = tokens.iter().position(|token| token.place != *place || token.is("{") || token.is("}"));
    let (line, rest) = tokens.split_at(end.unwrap_or(tokens.len()));
    (line.iter().collect(), rest)
}
