//! Text to tokens.
//!
//! Tokens are separated by white space; quotes group words; `#` at the start of a token starts a comment; `{$NAME}` is
//! an environment variable.

use std::sync::Arc;

use super::{Environment, ParseError, Position};

/// Token.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) position: Position,
    /// Whether it was quoted and so is never a brace.
    pub(super) quoted: bool,
}

impl Token {
    pub(super) fn is(&self, text: &str) -> bool {
        !self.quoted && self.text == text
    }

    /// Parse error at this token.
    pub(super) fn error(&self, problem: impl Into<String>, hint: impl Into<String>) -> ParseError {
        ParseError { position: self.position.clone(), problem: problem.into(), hint: hint.into() }
    }
}

/// Splits a text into tokens.
pub(super) fn tokens(file: &str, text: &str, environment: &dyn Environment) -> Result<Vec<Token>, ParseError> {
    let mut lexer = Lexer { file: Arc::from(file), line: 1, out: Vec::new(), environment };
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '\n' => {
                lexer.line += 1;
                &rest[1..]
            }
            '#' => &rest[rest.find('\n').unwrap_or(rest.len())..],
            '"' => lexer.quoted(&rest[1..])?,
            space if space.is_whitespace() => &rest[space.len_utf8()..],
            _ => lexer.bare(rest)?,
        };
    }
    Ok(lexer.out)
}

struct Lexer<'a> {
    file: Arc<str>,
    line: usize,
    out: Vec<Token>,
    environment: &'a dyn Environment,
}

impl Lexer<'_> {
    fn bare<'t>(&mut self, text: &'t str) -> Result<&'t str, ParseError> {
        let (word, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
        self.push(word, false)?;
        Ok(rest)
    }

    /// Quoted token; `\"` is a quote, and it may span lines.
    fn quoted<'t>(&mut self, text: &'t str) -> Result<&'t str, ParseError> {
        let mut word = String::new();
        let mut rest = text;
        loop {
            let Some(end) = rest.find(['"', '\\']) else {
                let position = Position { file: self.file.clone(), line: self.line };
                return Err(ParseError {
                    position,
                    problem: "a quote is not closed".into(),
                    hint: "close it with \"".into(),
                });
            };
            word.push_str(&rest[..end]);
            let after = &rest[end + 1..];
            if rest.as_bytes()[end] == b'"' {
                self.push(&word, true)?;
                self.line += word.matches('\n').count();
                return Ok(after);
            }
            // A backslash before any other character is literal, as regular expressions need it.
            rest = if let Some(hidden) = after.strip_prefix('"') {
                word.push('"');
                hidden
            } else {
                word.push('\\');
                after
            };
        }
    }

    fn push(&mut self, word: &str, quoted: bool) -> Result<(), ParseError> {
        let position = Position { file: self.file.clone(), line: self.line };
        let token = Token { text: String::new(), position, quoted };
        let text = self.substitute(word, &token)?;
        self.out.push(Token { text, ..token });
        Ok(())
    }

    /// Substitutes `{$NAME}` and `{%NAME%}`.
    fn substitute(&self, word: &str, token: &Token) -> Result<String, ParseError> {
        let mut out = String::new();
        let mut rest = word;
        while let Some((start, close)) = [("{$", "}"), ("{%", "%}")]
            .into_iter()
            .filter_map(|(open, close)| rest.find(open).map(|start| (start, close)))
            .min()
        {
            let Some(length) = rest[start + 2..].find(close) else { break };
            let name = &rest[start + 2..start + 2 + length];
            let value = self
                .environment
                .variable(name)
                .ok_or_else(|| token.error(format!("the variable {name} is not set"), "set it, or write its value"))?;
            out.push_str(&rest[..start]);
            out.push_str(&value);
            rest = &rest[start + 2 + length + close.len()..];
        }
        out.push_str(rest);
        Ok(out)
    }
}
