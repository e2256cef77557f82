//! Character classes in brackets, and the named ones.

use super::translate::{Failure, Reader};

const DIGIT: &[(char, char)] = &[('0', '9')];
const SPACE: &[(char, char)] = &[('\t', '\n'), ('\u{c}', '\r'), (' ', ' ')];
const WORD: &[(char, char)] = &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')];

/// The ranges of `\d`, `\s` and `\w`, and whether the upper-case letter negates them.
pub(super) fn perl(letter: char) -> Option<(&'static [(char, char)], bool)> {
    let ranges = match letter.to_ascii_lowercase() {
        'd' => DIGIT,
        's' => SPACE,
        'w' => WORD,
        _ => return None,
    };
    Some((ranges, letter.is_ascii_uppercase()))
}

/// The ranges of `[:name:]`.
fn posix(name: &str) -> Option<&'static [(char, char)]> {
    Some(match name {
        "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        "alpha" => &[('A', 'Z'), ('a', 'z')],
        "ascii" => &[('\0', '\u{7f}')],
        "blank" => &[('\t', '\t'), (' ', ' ')],
        "cntrl" => &[('\0', '\u{1f}'), ('\u{7f}', '\u{7f}')],
        "digit" => DIGIT,
        "graph" => &[('!', '~')],
        "lower" => &[('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "space" => &[('\t', '\r'), (' ', ' ')],
        "upper" => &[('A', 'Z')],
        "word" => WORD,
        "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        _ => return None,
    })
}

fn range(low: char, high: char) -> String {
    format!("\\x{{{:x}}}-\\x{{{:x}}}", u32::from(low), u32::from(high))
}

/// Ranges as a class of their own.
pub(super) fn brackets(ranges: &[(char, char)], negated: bool) -> String {
    let ranges: String = ranges.iter().map(|(low, high)| range(*low, *high)).collect();
    format!("[{}{ranges}]", if negated { "^" } else { "" })
}

/// A class in brackets; the reader is at the opening one.
pub(super) fn class(reader: &mut Reader<'_>) -> Result<String, Failure> {
    let whole = reader.rest();
    reader.skip(1);
    let mut out = String::from("[");
    if reader.rest().starts_with('^') {
        reader.skip(1);
        out.push('^');
    }
    let mut first = true;
    while first || !reader.rest().starts_with(']') {
        first = false;
        if let Some(named) = named(reader)? {
            out.push_str(&named);
        } else if let Some(group) = reader.unicode_group()? {
            out.push_str(&group);
        } else if let Some((ranges, negated)) = perl_at(reader) {
            reader.skip(2);
            out.push_str(&brackets(ranges, negated));
        } else {
            out.push_str(&one_range(reader, whole)?);
        }
    }
    reader.skip(1);
    out.push(']');
    Ok(out)
}

fn perl_at(reader: &Reader<'_>) -> Option<(&'static [(char, char)], bool)> {
    reader.rest().strip_prefix('\\').and_then(|tail| tail.chars().next()).and_then(perl)
}

/// `[:name:]` or `[:^name:]`.
fn named(reader: &mut Reader<'_>) -> Result<Option<String>, Failure> {
    let Some(tail) = reader.rest().strip_prefix("[:") else { return Ok(None) };
    let Some(end) = tail.find(":]") else { return Ok(None) };
    let (name, whole) = (tail.get(..end).unwrap_or_default(), end + 4);
    let negated = name.starts_with('^');
    match posix(name.strip_prefix('^').unwrap_or(name)) {
        Some(ranges) => {
            reader.skip(whole);
            Ok(Some(brackets(ranges, negated)))
        }
        None => {
            let text = reader.rest().get(..whole).unwrap_or_default();
            Err(Failure::new("invalid character class range", text))
        }
    }
}

fn one_range(reader: &mut Reader<'_>, whole: &str) -> Result<String, Failure> {
    let start = reader.rest();
    let low = class_char(reader, whole)?;
    let mut high = low;
    let rest = reader.rest();
    if rest.starts_with('-') && rest.len() >= 2 && !rest.starts_with("-]") {
        reader.skip(1);
        high = class_char(reader, whole)?;
        if high < low {
            return Err(Failure::new("invalid character class range", reader.since(start)));
        }
    }
    Ok(range(low, high))
}

fn class_char(reader: &mut Reader<'_>, whole: &str) -> Result<char, Failure> {
    match reader.rest().chars().next() {
        None => Err(Failure::new("missing closing ]", whole)),
        Some('\\') => reader.escape(),
        Some(c) => {
            reader.skip(c.len_utf8());
            Ok(c)
        }
    }
}
