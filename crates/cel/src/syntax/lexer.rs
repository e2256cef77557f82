//! Text to tokens.
//!
//! The longest token wins, and a keyword wins over an identifier of the same length. Where no token fits, a message names
//! the text that was looked at, and reading continues behind it, as the reference implementation's lexer does.

use super::token::{Kind, Token};
use crate::source::Source;

/// Text that is no token, with the position at which it starts.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) start: usize,
    pub(crate) text: String,
}

/// All tokens of a source, hidden ones included, closed by [`Kind::Eof`]; and what could not be read.
pub(crate) fn read(source: &Source) -> (Vec<Token>, Vec<Unreadable>) {
    let lexer = Lexer { chars: source.chars() };
    let (mut tokens, mut bad) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < source.len() {
        match lexer.next(at) {
            Ok((kind, end)) => {
                tokens.push(Token { kind, start: at, end });
                at = end;
            }
            Err(stopped) => {
                bad.push(Unreadable { start: at, text: source.slice(at, stopped + 1) });
                at = stopped + 1;
            }
        }
    }
    let end = source.len();
    tokens.push(Token { kind: Kind::Eof, start: end, end });
    (tokens, bad)
}

struct Lexer<'s> {
    chars: &'s [char],
}

/// The kind and the end of a token, or the position of the character with which no token continues.
type Scan = Result<(Kind, usize), usize>;

impl Lexer<'_> {
    fn at(&self, position: usize) -> Option<char> {
        self.chars.get(position).copied()
    }

    /// The end of the run of characters that fit, from `start`.
    fn run(&self, start: usize, fits: impl Fn(char) -> bool) -> usize {
        let rest = self.chars.get(start..).unwrap_or_default();
        start + rest.iter().position(|c| !fits(*c)).unwrap_or(rest.len())
    }

    fn next(&self, start: usize) -> Scan {
        let Some(first) = self.at(start) else { return Ok((Kind::Eof, start)) };
        match first {
            '\t' | ' ' | '\r' | '\n' | '\u{c}' => {
                Ok((Kind::Hidden, self.run(start, |c| matches!(c, '\t' | ' ' | '\r' | '\n' | '\u{c}'))))
            }
            '/' if self.at(start + 1) == Some('/') => Ok((Kind::Hidden, self.run(start, |c| c != '\n'))),
            '0'..='9' => Ok(self.number(start)),
            '.' if self.at(start + 1).is_some_and(|c| c.is_ascii_digit()) => {
                let digits = self.run(start + 1, |c| c.is_ascii_digit());
                Ok((Kind::Float, self.exponent(digits).unwrap_or(digits)))
            }
            'a'..='z' | 'A'..='Z' | '_' => Ok(self.word(start)),
            '"' | '\'' => self.string(start, false).map(|end| (Kind::String, end)),
            '`' => self.escaped_ident(start),
            _ => self.operator(start, first),
        }
    }

    fn operator(&self, start: usize, first: char) -> Scan {
        let pair = |second, long, short: Option<Kind>| match (self.at(start + 1) == Some(second), short) {
            (true, _) => Ok((long, start + 2)),
            (false, Some(short)) => Ok((short, start + 1)),
            (false, None) => Err(start + 1),
        };
        let one = |kind| Ok((kind, start + 1));
        match first {
            '=' => pair('=', Kind::Equals, None),
            '!' => pair('=', Kind::NotEquals, Some(Kind::Not)),
            '<' => pair('=', Kind::LessEquals, Some(Kind::Less)),
            '>' => pair('=', Kind::GreaterEquals, Some(Kind::Greater)),
            '&' => pair('&', Kind::And, None),
            '|' => pair('|', Kind::Or, None),
            '[' => one(Kind::LeftBracket),
            ']' => one(Kind::RightBracket),
            '{' => one(Kind::LeftBrace),
            '}' => one(Kind::RightBrace),
            '(' => one(Kind::LeftParen),
            ')' => one(Kind::RightParen),
            '.' => one(Kind::Dot),
            ',' => one(Kind::Comma),
            '-' => one(Kind::Minus),
            '?' => one(Kind::Question),
            ':' => one(Kind::Colon),
            '+' => one(Kind::Plus),
            '*' => one(Kind::Star),
            '/' => one(Kind::Slash),
            '%' => one(Kind::Percent),
            _ => Err(start),
        }
    }

    fn number(&self, start: usize) -> (Kind, usize) {
        let unsigned = |end| match self.at(end) {
            Some('u' | 'U') => (Kind::Uint, end + 1),
            _ => (Kind::Int, end),
        };
        if self.at(start) == Some('0') && self.at(start + 1) == Some('x') {
            let end = self.run(start + 2, |c| c.is_ascii_hexdigit());
            if end > start + 2 {
                return unsigned(end);
            }
        }
        let digits = self.run(start, |c| c.is_ascii_digit());
        if self.at(digits) == Some('.') {
            let fraction = self.run(digits + 1, |c| c.is_ascii_digit());
            if fraction > digits + 1 {
                return (Kind::Float, self.exponent(fraction).unwrap_or(fraction));
            }
        }
        match self.exponent(digits) {
            Some(end) => (Kind::Float, end),
            None => unsigned(digits),
        }
    }

    /// The end of an exponent that starts here.
    fn exponent(&self, start: usize) -> Option<usize> {
        if !matches!(self.at(start), Some('e' | 'E')) {
            return None;
        }
        let digits = start + 1 + usize::from(matches!(self.at(start + 1), Some('+' | '-')));
        let end = self.run(digits, |c| c.is_ascii_digit());
        (end > digits).then_some(end)
    }

    /// An identifier, a keyword, or a string with a prefix.
    fn word(&self, start: usize) -> (Kind, usize) {
        let end = self.run(start, |c| c.is_ascii_alphanumeric() || c == '_');
        let word = self.chars.get(start..end).unwrap_or_default();
        let string = match word {
            ['r' | 'R'] => Some((Kind::String, true)),
            ['b' | 'B'] => Some((Kind::Bytes, false)),
            ['b' | 'B', 'r' | 'R'] => Some((Kind::Bytes, true)),
            _ => None,
        };
        if let Some((kind, raw)) = string
            && matches!(self.at(end), Some('"' | '\''))
            && let Ok(end) = self.string(end, raw)
        {
            return (kind, end);
        }
        let kind = match word {
            ['i', 'n'] => Kind::In,
            ['t', 'r', 'u', 'e'] => Kind::True,
            ['f', 'a', 'l', 's', 'e'] => Kind::False,
            ['n', 'u', 'l', 'l'] => Kind::Null,
            _ => Kind::Ident,
        };
        (kind, end)
    }

    /// The end of a string whose opening quote is at `start`.
    fn string(&self, start: usize, raw: bool) -> Result<usize, usize> {
        let quote = self.at(start);
        if self.at(start + 1) == quote {
            let empty = start + 2;
            let triple = (self.at(empty) == quote).then(|| self.string_body(empty + 1, quote, 3, raw));
            return Ok(triple.and_then(Result::ok).unwrap_or(empty));
        }
        self.string_body(start + 1, quote, 1, raw)
    }

    /// Reads up to `quotes` quotes in a row; only strings with three may have line breaks.
    fn string_body(&self, start: usize, quote: Option<char>, quotes: usize, raw: bool) -> Result<usize, usize> {
        let mut at = start;
        loop {
            if (0..quotes).all(|nth| self.at(at + nth) == quote) {
                return Ok(at + quotes);
            }
            match self.at(at) {
                None => return Err(at),
                Some('\n' | '\r') if quotes == 1 => return Err(at),
                Some('\\') if !raw => at = self.escape(at + 1)?,
                Some(_) => at += 1,
            }
        }
    }

    /// The end of an escape sequence, behind its backslash.
    fn escape(&self, at: usize) -> Result<usize, usize> {
        let digits = |count: usize, fits: fn(char) -> bool| {
            (at + 1..at + 1 + count)
                .find(|position| !self.at(*position).is_some_and(fits))
                .map_or(Ok(at + 1 + count), Err)
        };
        let hex = |c: char| c.is_ascii_hexdigit();
        match self.at(at) {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => Ok(at + 1),
            Some('x' | 'X') => digits(2, hex),
            Some('u') => digits(4, hex),
            Some('U') => digits(8, hex),
            Some('0'..='3') => digits(2, |c| matches!(c, '0'..='7')),
            _ => Err(at),
        }
    }

    fn escaped_ident(&self, start: usize) -> Scan {
        let end = self.run(start + 1, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' '));
        if end > start + 1 && self.at(end) == Some('`') { Ok((Kind::EscapedIdent, end + 1)) } else { Err(end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let source = Source::new(text);
        let (tokens, bad) = read(&source);
        let mut out: Vec<String> = tokens
            .iter()
            .filter(|token| token.kind != Kind::Hidden)
            .map(|token| format!("{:?}:{}", token.kind, source.slice(token.start, token.end)))
            .collect();
        out.extend(bad.iter().map(|bad| format!("!{}:{}", bad.start, bad.text)));
        out.join(" ")
    }

    #[test]
    fn the_longest_token_wins() {
        let cases = [
            ("1.5e3 1e5 1.e5 .5", "Float:1.5e3 Float:1e5 Int:1 Dot:. Ident:e5 Float:.5 Eof:"),
            ("0x1F 0xu 12u 0xFu 00x1", "Int:0x1F Int:0 Ident:xu Uint:12u Uint:0xFu Int:00 Ident:x1 Eof:"),
            ("in inn true nullx", "In:in Ident:inn True:true Ident:nullx Eof:"),
            ("r'a\\' b'x' bR\"y\" rb'z'", "String:r'a\\' Bytes:b'x' Bytes:bR\"y\" Ident:rb String:'z' Eof:"),
            ("'''a'b\n''' \"\"", "String:'''a'b\n''' String:\"\" Eof:"),
            (
                "a<=b>=c&&d||!e!=f",
                "Ident:a LessEquals:<= Ident:b GreaterEquals:>= Ident:c And:&& Ident:d Or:|| Not:! Ident:e NotEquals:!= Ident:f Eof:",
            ),
            ("a // c\n.`x y`", "Ident:a Dot:. EscapedIdent:`x y` Eof:"),
            ("'\\x41\\u00e4\\U0001F600\\101\\?'", "String:'\\x41\\u00e4\\U0001F600\\101\\?' Eof:"),
        ];
        for (text, wanted) in cases {
            assert_eq!(shown(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_token_is_reported_with_the_character_that_failed() {
        let cases = [
            ("1 & 2", "Int:1 Int:2 Eof: !2:& "),
            ("'abc", "Eof: !0:'abc"),
            ("'a\nb", "Ident:b Eof: !0:'a\n"),
            ("'''a", "String:'' Eof: !2:'a"),
            ("'\\q'", "Eof: !0:'\\q !3:'"),
            ("``x", "Ident:x Eof: !0:``"),
            ("@ä", "Eof: !0:@ !1:ä"),
        ];
        for (text, wanted) in cases {
            assert_eq!(shown(text), wanted, "{text}");
        }
    }
}
