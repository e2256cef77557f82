//! Snippets and imports are put where they are named.
//!
//! In: tokens. Out: tokens without `(snippet) { … }` and without `import`. An import that leads to itself ends at a limit.

use std::collections::HashMap;

use super::lex::{Token, tokens};
use super::{Refused, Surroundings};

/// Imports inside imports; deeper is a circle.
const MAX_DEPTH: usize = 8;
/// Words in all; a file that doubles itself a few times stays bounded.
const MAX_TOKENS: usize = 100_000;

pub(super) fn expand(input: Vec<Token>, surroundings: &dyn Surroundings) -> Result<Vec<Token>, Refused> {
    let mut expander = Expander { snippets: HashMap::new(), surroundings, count: 0 };
    let rest = expander.take_snippets(input)?;
    expander.expand(rest, 0)
}

struct Expander<'a> {
    snippets: HashMap<String, Vec<Token>>,
    surroundings: &'a dyn Surroundings,
    count: usize,
}

impl Expander<'_> {
    /// Takes `(name) { … }` out of the outermost level and remembers it.
    fn take_snippets(&mut self, input: Vec<Token>) -> Result<Vec<Token>, Refused> {
        let (mut out, mut depth) = (Vec::new(), 0_usize);
        let mut rest = input.into_iter().peekable();
        while let Some(token) = rest.next() {
            let name = snippet_name(&token).filter(|_| depth == 0);
            match name {
                Some(name) if rest.peek().is_some_and(|next| next.is("{")) => {
                    rest.next();
                    let body = self.body(&token, &mut rest)?;
                    if self.snippets.insert(name.clone(), body).is_some() {
                        return Err(token.refuse(format!("the snippet ({name}) is there twice"), "rename one of them"));
                    }
                }
                _ => {
                    depth = if token.is("{") { depth + 1 } else { depth.saturating_sub(usize::from(token.is("}"))) };
                    out.push(token);
                }
            }
        }
        Ok(out)
    }

    /// The words up to the brace that closes a snippet.
    fn body(&self, name: &Token, rest: &mut impl Iterator<Item = Token>) -> Result<Vec<Token>, Refused> {
        let (mut body, mut depth) = (Vec::new(), 0_usize);
        for token in rest {
            match (token.is("{"), token.is("}"), depth) {
                (_, true, 0) => return Ok(body),
                (true, ..) => depth += 1,
                (_, true, _) => depth -= 1,
                _ => {}
            }
            body.push(token);
        }
        Err(name.refuse("the snippet is not closed", "close it with }"))
    }

    fn expand(&mut self, input: Vec<Token>, depth: usize) -> Result<Vec<Token>, Refused> {
        let mut out: Vec<Token> = Vec::with_capacity(input.len());
        let mut rest = input.into_iter().peekable();
        while let Some(token) = rest.next() {
            self.count += 1;
            if self.count > MAX_TOKENS {
                return Err(token.refuse("the imports make this file too large", "import less"));
            }
            let first = out.last().is_none_or(|last| last.place != token.place || last.is("{"));
            if !(first && token.is("import")) {
                out.push(token);
                continue;
            }
            let Some(what) = rest.next_if(|next| next.place == token.place) else {
                return Err(token.refuse("`import` names nothing", "name a file or a snippet"));
            };
            if let Some(more) = rest.next_if(|next| next.place == token.place) {
                let what = format!("`import` with arguments ({})", more.text);
                return Err(more.refuse(what, "write the snippet out where it is used"));
            }
            if depth == MAX_DEPTH {
                return Err(token.refuse("imports lead to each other in a circle", "remove one of them"));
            }
            let imported = self.imported(&what)?;
            out.extend(self.expand(imported, depth + 1)?);
        }
        Ok(out)
    }

    fn imported(&mut self, what: &Token) -> Result<Vec<Token>, Refused> {
        if let Some(body) = self.snippets.get(&what.text) {
            return Ok(body.clone());
        }
        let found = self.surroundings.files(&what.text).map_err(|error| {
            let next = "name a file that can be read, or a snippet `(name) { … }` of this file";
            what.refuse(format!("cannot import {}: {error}", what.text), next)
        })?;
        let mut out = Vec::new();
        for (path, text) in found {
            let words = tokens(&path, &text, self.surroundings)?;
            out.extend(self.take_snippets(words)?);
        }
        Ok(out)
    }
}

fn snippet_name(token: &Token) -> Option<String> {
    let inner = token.text.strip_prefix('(')?.strip_suffix(')')?;
    (!token.quoted && !inner.is_empty()).then(|| inner.to_owned())
}
