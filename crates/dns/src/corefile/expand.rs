//! Expansion of snippets and imports.
//!
//! In: tokens. Out: tokens without `(snippet) { … }` and `import`. Recursion is bounded.

use std::collections::HashMap;

use super::lex::{Token, tokens};
use super::{Environment, ParseError};

/// Maximum depth of imports; deeper is a cycle.
const MAX_DEPTH: usize = 8;
/// Maximum number of tokens; bounds files that import themselves repeatedly.
const MAX_TOKENS: usize = 100_000;

pub(super) fn expand(input: Vec<Token>, environment: &dyn Environment) -> Result<Vec<Token>, ParseError> {
    let mut expander = Expander { snippets: HashMap::new(), environment, count: 0 };
    let rest = expander.take_snippets(input)?;
    expander.expand(rest, 0)
}

struct Expander<'a> {
    snippets: HashMap<String, Vec<Token>>,
    environment: &'a dyn Environment,
    count: usize,
}

impl Expander<'_> {
    /// Removes `(name) { … }` from the top level and stores it.
    fn take_snippets(&mut self, input: Vec<Token>) -> Result<Vec<Token>, ParseError> {
        let (mut out, mut depth) = (Vec::new(), 0_usize);
        let mut rest = input.into_iter().peekable();
        while let Some(token) = rest.next() {
            let name = snippet_name(&token).filter(|_| depth == 0);
            match name {
                Some(name) if rest.peek().is_some_and(|next| next.is("{")) => {
                    rest.next();
                    let body = self.body(&token, &mut rest)?;
                    if self.snippets.insert(name.clone(), body).is_some() {
                        return Err(token.error(format!("duplicate snippet ({name})"), "rename one of them"));
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

    /// Tokens up to the brace that closes a snippet.
    fn body(&self, name: &Token, rest: &mut impl Iterator<Item = Token>) -> Result<Vec<Token>, ParseError> {
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
        Err(name.error("the snippet is not closed", "close it with }"))
    }

    fn expand(&mut self, input: Vec<Token>, depth: usize) -> Result<Vec<Token>, ParseError> {
        let mut out: Vec<Token> = Vec::with_capacity(input.len());
        let mut rest = input.into_iter().peekable();
        while let Some(token) = rest.next() {
            self.count += 1;
            if self.count > MAX_TOKENS {
                return Err(token.error("too many tokens after imports", "import less"));
            }
            let first = out.last().is_none_or(|last| last.position != token.position || last.is("{"));
            if !(first && token.is("import")) {
                out.push(token);
                continue;
            }
            let Some(what) = rest.next_if(|next| next.position == token.position) else {
                return Err(token.error("`import` lacks a file or snippet", "name a file or a snippet"));
            };
            if let Some(more) = rest.next_if(|next| next.position == token.position) {
                let what = format!("`import` with arguments ({})", more.text);
                return Err(more.error(what, "write the snippet out where it is used"));
            }
            if depth == MAX_DEPTH {
                return Err(token.error("import cycle", "remove one of them"));
            }
            let imported = self.imported(&what)?;
            out.extend(self.expand(imported, depth + 1)?);
        }
        Ok(out)
    }

    fn imported(&mut self, what: &Token) -> Result<Vec<Token>, ParseError> {
        if let Some(body) = self.snippets.get(&what.text) {
            return Ok(body.clone());
        }
        let found = self.environment.files(&what.text).map_err(|error| {
            let next = "name a file that can be read, or a snippet `(name) { … }` of this file";
            what.error(format!("cannot import {}: {error}", what.text), next)
        })?;
        let mut out = Vec::new();
        for (path, text) in found {
            let words = tokens(&path, &text, self.environment)?;
            out.extend(self.take_snippets(words)?);
        }
        Ok(out)
    }
}

fn snippet_name(token: &Token) -> Option<String> {
    let inner = token.text.strip_prefix('(')?.strip_suffix(')')?;
    (!token.quoted && !inner.is_empty()).then(|| inner.to_owned())
}
