//! Text becomes words with their lines.
//!
//! In: text. Out: tokens. Words are separated by space; quotes hold words together; `#` at the beginning of a word
//! begins a remark; `{$NAME}` is a variable of the environment.

use std::rc::Rc;

use super::{Place, Refused, Surroundings};

/// A word.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) place: Place,
    /// Whether it was quoted, and so is never a brace.
    pub(super) quoted: bool,
}

impl Token {
    pub(super) fn is(&self, text: &str) -> bool {
        !self.quoted && self.text == text
    }

    /// Not understood, because of this word.
    pub(super) fn refuse(&self, what: impl Into<String>, next: impl Into<String>) -> Refused {
        Refused { place: self.place.clone(), what: what.into(), next: next.into() }
    }
}

/// The words of a text.
pub(super) fn tokens(file: &str, text: &str, surroundings: &dyn Surroundings) -> Result<Vec<Token>, Refused> {
    let mut lexer = Lexer { file: Rc::from(file), line: 1, out: Vec::new(), surroundings };
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
    file: Rc<str>,
    line: usize,
    out: Vec<Token>,
    surroundings: &'a dyn Surroundings,
}

impl Lexer<'_> {
    fn bare<'t>(&mut self, text: &'t str) -> Result<&'t str, Refused> {
        let (word, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
        self.push(word, false)?;
        Ok(rest)
    }

    /// A quoted word; `\"` is a quote in it, and it may go on over lines.
    fn quoted<'t>(&mut self, text: &'t str) -> Result<&'t str, Refused> {
        let mut word = String::new();
        let mut rest = text;
        loop {
            let Some(end) = rest.find(['"', '\\']) else {
                let place = Place { file: self.file.clone(), line: self.line };
                return Err(Refused { place, what: "a quote is not closed".into(), next: "close it with \"".into() });
            };
            word.push_str(&rest[..end]);
            let after = &rest[end + 1..];
            if rest.as_bytes()[end] == b'"' {
                self.push(&word, true)?;
                self.line += word.matches('\n').count();
                return Ok(after);
            }
            // A backslash that does not hide a quote is itself, as regular expressions need it.
            rest = if let Some(hidden) = after.strip_prefix('"') {
                word.push('"');
                hidden
            } else {
                word.push('\\');
                after
            };
        }
    }

    fn push(&mut self, word: &str, quoted: bool) -> Result<(), Refused> {
        let place = Place { file: self.file.clone(), line: self.line };
        let token = Token { text: String::new(), place, quoted };
        let text = self.substitute(word, &token)?;
        self.out.push(Token { text, ..token });
        Ok(())
    }

    /// Puts variables in: `{$NAME}` and `{%NAME%}`.
    fn substitute(&self, word: &str, token: &Token) -> Result<String, Refused> {
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
                .surroundings
                .variable(name)
                .ok_or_else(|| token.refuse(format!("the variable {name} is not set"), "set it, or write its value"))?;
            out.push_str(&rest[..start]);
            out.push_str(&value);
            rest = &rest[start + 2 + length + close.len()..];
        }
        out.push_str(rest);
        Ok(out)
    }
}
