//! A pattern in Go's syntax, checked as Go checks it and rewritten for the `regex` crate.
//!
//! The two differ in the meaning of `\d`, `\s`, `\w` and `\b` (Go: ASCII), in a few escapes, and in the error
//! messages. Groups need no names or numbers here, so all of them are written without capturing.

use super::class::{brackets, class, perl};

/// The largest count of a repetition, also of nested ones together.
const REPEAT: u32 = 1_000;
/// Groups that may be open at the same time.
const NESTED: usize = 400;

/// What is wrong with a pattern, and the part of it.
#[derive(Debug)]
pub(super) struct Failure {
    what: &'static str,
    part: String,
}

impl Failure {
    pub(super) fn new(what: &'static str, part: &str) -> Self {
        Self { what, part: part.to_owned() }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: `{}`", self.what, self.part)
    }
}

/// What stands before the reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before<'p> {
    /// Nothing that could be repeated.
    Nothing,
    /// Something that can be repeated; how often it repeats parts of itself.
    Atom(u32),
    /// A repetition, which cannot be repeated; it starts here, and repeats this often.
    Repeat(&'p str, u32),
}

/// An open group: how often the largest repetition in it repeats.
struct Open {
    largest: u32,
}

pub(super) fn translate(pattern: &str) -> Result<String, Failure> {
    let mut reader = Reader { whole: pattern, at: 0 };
    let mut out = String::with_capacity(pattern.len() * 2);
    let mut open = vec![Open { largest: 1 }];
    let mut before = Before::Nothing;
    while let Some(c) = reader.rest().chars().next() {
        let at_repeat = matches!(c, '*' | '+' | '?') || (c == '{' && reader.count().is_some());
        if at_repeat {
            before = repeat(&mut reader, &mut out, before)?;
            continue;
        }
        note(&mut open, before);
        before = match c {
            '(' => {
                group(&mut reader, &mut out, &mut open)?;
                Before::Nothing
            }
            '|' => {
                reader.skip(1);
                out.push('|');
                Before::Nothing
            }
            ')' => {
                if open.len() < 2 {
                    return Err(Failure::new("unexpected )", pattern));
                }
                reader.skip(1);
                out.push(')');
                Before::Atom(open.pop().map_or(1, |group| group.largest))
            }
            '[' => {
                out.push_str(&class(&mut reader)?);
                Before::Atom(1)
            }
            '\\' => {
                out.push_str(&backslash(&mut reader)?);
                Before::Atom(1)
            }
            '^' | '$' | '.' => {
                reader.skip(1);
                out.push(c);
                Before::Atom(1)
            }
            c => {
                reader.skip(c.len_utf8());
                push_literal(&mut out, c);
                Before::Atom(1)
            }
        };
    }
    if open.len() != 1 {
        return Err(Failure::new("missing closing )", pattern));
    }
    Ok(out)
}

/// Remembers in the open group how often what was read repeats.
fn note(open: &mut [Open], before: Before<'_>) {
    let count = match before {
        Before::Nothing => 1,
        Before::Atom(count) | Before::Repeat(_, count) => count,
    };
    if let Some(group) = open.last_mut() {
        group.largest = group.largest.max(count);
    }
}

fn push_literal(out: &mut String, c: char) {
    out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
}

/// `*`, `+`, `?` or a count, possibly lazy.
fn repeat<'p>(reader: &mut Reader<'p>, out: &mut String, before: Before<'p>) -> Result<Before<'p>, Failure> {
    let start = reader.rest();
    let count = reader.count();
    let (mut written, len) = match count {
        Some((_, _, len)) => (start.get(..len).unwrap_or_default().to_owned(), len),
        None => (start.get(..1).unwrap_or_default().to_owned(), 1),
    };
    reader.skip(len);
    let text = reader.since(start);
    if let Some((low, high, _)) = count
        && (low > REPEAT || high.is_some_and(|high| high > REPEAT || high < low))
    {
        return Err(Failure::new("invalid repeat count", text));
    }
    if reader.rest().starts_with('?') {
        reader.skip(1);
        written.push('?');
    }
    let inner = match before {
        Before::Nothing => return Err(Failure::new("missing argument to repetition operator", reader.since(start))),
        Before::Repeat(first, _) => {
            return Err(Failure::new("invalid nested repetition operator", reader.since(first)));
        }
        Before::Atom(inner) => inner,
    };
    let times = count.map_or(1, |(low, high, _)| high.unwrap_or(low).max(1));
    let total = inner.saturating_mul(times);
    if total > REPEAT {
        return Err(Failure::new("invalid repeat count", reader.since(start)));
    }
    out.push_str(&written);
    Ok(Before::Repeat(start, total))
}

/// An opening parenthesis with its flags or name.
fn group(reader: &mut Reader<'_>, out: &mut String, open: &mut Vec<Open>) -> Result<(), Failure> {
    let start = reader.rest();
    if open.len() > NESTED {
        return Err(Failure::new("expression nests too deeply", reader.whole));
    }
    let Some(perl) = start.strip_prefix("(?") else {
        reader.skip(1);
        out.push_str("(?:");
        open.push(Open { largest: 1 });
        return Ok(());
    };
    if perl.starts_with("P<") || perl.starts_with('<') {
        let name_at = start.find('<').map_or(0, |at| at + 1);
        let Some(end) = start.find('>') else { return Err(Failure::new("invalid named capture", start)) };
        let name = start.get(name_at..end).unwrap_or_default();
        if name.is_empty() || !name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) {
            return Err(Failure::new("invalid named capture", start.get(..=end).unwrap_or_default()));
        }
        reader.skip(end + 1);
        out.push_str("(?:");
        open.push(Open { largest: 1 });
        return Ok(());
    }
    flags(reader, out, open)
}

fn flags(reader: &mut Reader<'_>, out: &mut String, open: &mut Vec<Open>) -> Result<(), Failure> {
    let start = reader.rest();
    reader.skip(2);
    let (mut minus, mut seen) = (false, false);
    while let Some(c) = reader.rest().chars().next() {
        reader.skip(c.len_utf8());
        match c {
            'i' | 'm' | 's' | 'U' => seen = true,
            '-' if !minus => (minus, seen) = (true, false),
            ':' | ')' if !minus || seen => {
                let text = reader.since(start);
                // Without flags the group is an ordinary one, or nothing at all.
                out.push_str(if text == "(?)" { "(?:)" } else { text });
                if c == ':' {
                    open.push(Open { largest: 1 });
                }
                return Ok(());
            }
            _ => return Err(Failure::new("invalid or unsupported Perl syntax", reader.since(start))),
        }
    }
    Err(Failure::new("invalid or unsupported Perl syntax", reader.since(start)))
}

fn backslash(reader: &mut Reader<'_>) -> Result<String, Failure> {
    let rest = reader.rest();
    let next = rest.chars().nth(1);
    let taken = |reader: &mut Reader<'_>, text: &str| {
        reader.skip(2);
        Ok(text.to_owned())
    };
    match next {
        Some('A') => return taken(reader, "\\A"),
        Some('z') => return taken(reader, "\\z"),
        Some('b') => return taken(reader, "(?-u:\\b)"),
        Some('B') => return taken(reader, "(?-u:\\B)"),
        Some('C') => return Err(Failure::new("invalid escape sequence", "\\C")),
        Some('Q') => {
            let body = rest.get(2..).unwrap_or_default();
            let end = body.find("\\E");
            let literal = body.get(..end.unwrap_or(body.len())).unwrap_or_default();
            reader.skip(2 + literal.len() + if end.is_some() { 2 } else { 0 });
            return Ok(if literal.is_empty() { "(?:)".to_owned() } else { regex::escape(literal) });
        }
        _ => {}
    }
    if let Some(group) = reader.unicode_group()? {
        return Ok(group);
    }
    if let Some((ranges, negated)) = next.and_then(perl) {
        reader.skip(2);
        return Ok(brackets(ranges, negated));
    }
    let mut out = String::new();
    push_literal(&mut out, reader.escape()?);
    Ok(out)
}

/// A cursor over the pattern.
pub(super) struct Reader<'p> {
    whole: &'p str,
    at: usize,
}

impl<'p> Reader<'p> {
    pub(super) fn rest(&self) -> &'p str {
        self.whole.get(self.at..).unwrap_or_default()
    }

    pub(super) fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// The text from an earlier rest up to here.
    pub(super) fn since(&self, earlier: &'p str) -> &'p str {
        earlier.get(..earlier.len() - self.rest().len()).unwrap_or_default()
    }

    /// A count `{n}`, `{n,}` or `{n,m}` here: its bounds and its length. Anything else in braces is literal.
    fn count(&self) -> Option<(u32, Option<u32>, usize)> {
        let body = self.rest().strip_prefix('{')?;
        let end = body.find('}')?;
        let inner = body.get(..end)?;
        let number = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let canonical = text.len() < 2 || !text.starts_with('0');
            (plain && canonical).then(|| text.parse().unwrap_or(u32::MAX))
        };
        let (low, high) = match inner.split_once(',') {
            None => (number(inner)?, Some(number(inner)?)),
            Some((low, "")) => (number(low)?, None),
            Some((low, high)) => (number(low)?, Some(number(high)?)),
        };
        Some((low, high, end + 2))
    }

    /// `\pL`, `\p{Greek}` or `\P…` here.
    pub(super) fn unicode_group(&mut self) -> Result<Option<String>, Failure> {
        let rest = self.rest();
        let Some(tail) = rest.strip_prefix("\\p").or_else(|| rest.strip_prefix("\\P")) else { return Ok(None) };
        let mut negated = rest.starts_with("\\P");
        let Some(first) = tail.chars().next() else { return Ok(None) };
        let (mut name, len) = if first == '{' {
            let Some(end) = rest.find('}') else {
                return Err(Failure::new("invalid character class range", rest));
            };
            (rest.get(3..end).unwrap_or_default(), end + 1)
        } else {
            (tail.get(..first.len_utf8()).unwrap_or_default(), 2 + first.len_utf8())
        };
        let text = rest.get(..len).unwrap_or_default();
        if let Some(plain) = name.strip_prefix('^') {
            (name, negated) = (plain, !negated);
        }
        let group = format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' });
        let known = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && regex::bytes::Regex::new(&group).is_ok();
        if !known {
            return Err(Failure::new("invalid character class range", text));
        }
        self.skip(len);
        Ok(Some(group))
    }

    /// The character that an escape sequence here stands for.
    pub(super) fn escape(&mut self) -> Result<char, Failure> {
        let start = self.rest();
        self.skip(1);
        let Some(c) = self.rest().chars().next() else {
            return Err(Failure::new("trailing backslash at end of expression", ""));
        };
        self.skip(c.len_utf8());
        let value = match c {
            '0' => self.octal(0),
            '1'..='7' if self.rest().starts_with(|next: char| matches!(next, '0'..='7')) => {
                self.octal(u32::from(c) - u32::from('0'))
            }
            'x' => self.hex(),
            'a' => Some('\u{7}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(c),
            _ => None,
        };
        value.ok_or_else(|| Failure::new("invalid escape sequence", self.since(start)))
    }

    /// Up to two more octal digits.
    fn octal(&mut self, first: u32) -> Option<char> {
        let mut value = first;
        for _ in 0..2 {
            let Some(digit) = self.rest().chars().next().and_then(|c| c.to_digit(8)) else { break };
            self.skip(1);
            value = value * 8 + digit;
        }
        char::from_u32(value)
    }

    fn hex(&mut self) -> Option<char> {
        if self.rest().starts_with('{') {
            self.skip(1);
            let mut value: u32 = 0;
            let mut digits = 0;
            loop {
                let c = self.rest().chars().next()?;
                self.skip(c.len_utf8());
                if c == '}' {
                    return if digits > 0 { char::from_u32(value) } else { None };
                }
                value = value.checked_mul(16)?.checked_add(c.to_digit(16)?)?;
                digits += 1;
            }
        }
        let mut value = 0;
        for _ in 0..2 {
            let c = self.rest().chars().next()?;
            self.skip(c.len_utf8());
            value = value * 16 + c.to_digit(16)?;
        }
        char::from_u32(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn errors_have_gos_words() {
        let cases = [
            ("[", "missing closing ]: `[`"),
            ("[a", "missing closing ]: `[a`"),
            ("(", "missing closing ): `(`"),
            (")", "unexpected ): `)`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("(a{100}){100}", "invalid repeat count: `{100}`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            ("[b-a]", "invalid character class range: `b-a`"),
            ("[[:frob:]]", "invalid character class range: `[:frob:]`"),
            (r"\p{Frob}", r"invalid character class range: `\p{Frob}`"),
            (r"\y", r"invalid escape sequence: `\y`"),
            (r"\1", r"invalid escape sequence: `\1`"),
            ("\\", "trailing backslash at end of expression: ``"),
        ];
        for (pattern, wanted) in cases {
            assert_eq!(translate(pattern).map_err(|error| error.to_string()), Err(wanted.to_owned()), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_compiles(pattern in r"[a-c\\\[\](){}|*+?.^$\-0-9,:pPdDsSwWbBQEzAx<>!=iU]{0,16}") {
            if let Ok(translated) = translate(&pattern) {
                let built = regex::bytes::RegexBuilder::new(&translated).size_limit(1 << 20).build();
                prop_assert!(built.is_ok() || matches!(built, Err(regex::Error::CompiledTooBig(_))), "{pattern:?} -> {translated:?}: {built:?}");
            }
        }

        #[test]
        fn arbitrary_patterns_do_not_panic(pattern in ".{0,40}") {
            let _ = translate(&pattern);
        }
    }
}
