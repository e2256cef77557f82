//! E-mail addresses with the grammar of RFC 5322 that Go's `net/mail` accepts: a bare address, one with a display name
//! or a comment, or a group with one member.

/// Whether a text is exactly one address.
pub(super) fn is_email(text: &str) -> bool {
    let mut reader = Reader { rest: text };
    matches!(address(&mut reader, true), Some(1)) && reader.skip_comments() && reader.rest.is_empty()
}

#[derive(Clone, Copy)]
struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn consume(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !fits(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Skips space and comments; false when a comment does not end.
    fn skip_comments(&mut self) -> bool {
        self.skip_space();
        while self.consume('(') {
            if !self.comment() {
                return false;
            }
            self.skip_space();
        }
        true
    }

    /// Skips to the end of a comment that has been opened.
    fn comment(&mut self) -> bool {
        let mut depth = 1;
        let mut escaped = false;
        for (at, c) in self.rest.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.rest = self.rest.get(at + 1..).unwrap_or_default();
                return true;
            }
        }
        false
    }

    /// A quoted string; its length in characters.
    fn quoted(&mut self) -> Option<usize> {
        if !self.consume('"') {
            return None;
        }
        let (mut escaped, mut length) = (false, 0);
        for (at, c) in self.rest.char_indices() {
            let space = matches!(c, ' ' | '\t');
            match c {
                _ if escaped && (is_visible(c) || space) => (escaped, length) = (false, length + 1),
                _ if escaped => return None,
                '\\' => escaped = true,
                '"' => {
                    self.rest = self.rest.get(at + 1..).unwrap_or_default();
                    return Some(length);
                }
                _ if is_visible(c) || space => length += 1,
                _ => return None,
            }
        }
        None
    }

    /// Letters with dots between them.
    fn atom(&mut self) -> Option<()> {
        let atom = self.take_while(is_atom);
        (!atom.is_empty() && !atom.starts_with('.') && !atom.ends_with('.') && !atom.contains("..")).then_some(())
    }
}

fn is_visible(c: char) -> bool {
    c.is_ascii_graphic() || !c.is_ascii()
}

fn is_atom(c: char) -> bool {
    is_visible(c) && !matches!(c, '(' | ')' | '<' | '>' | '[' | ']' | ':' | ';' | '@' | '\\' | ',' | '"')
}

/// An address; how many mailboxes it names (a group may name several).
fn address(reader: &mut Reader<'_>, groups: bool) -> Option<usize> {
    reader.skip_space();
    if reader.rest.is_empty() {
        return None;
    }
    let mut bare = *reader;
    if bare_address(&mut bare).is_some() {
        *reader = bare;
        reader.skip_space();
        return (!reader.consume('(') || reader.comment()).then_some(1);
    }
    if reader.peek() != Some('<') {
        phrase(reader)?;
    }
    reader.skip_space();
    if groups && reader.consume(':') {
        return group(reader);
    }
    (reader.consume('<') && bare_address(reader).is_some() && reader.consume('>')).then_some(1)
}

/// `local@domain`.
fn bare_address(reader: &mut Reader<'_>) -> Option<()> {
    reader.skip_space();
    if reader.peek() == Some('"') {
        reader.quoted().filter(|length| *length > 0)?;
    } else {
        reader.atom()?;
    }
    if !reader.consume('@') {
        return None;
    }
    reader.skip_space();
    if !reader.consume('[') {
        return reader.atom();
    }
    let literal = reader.take_while(|c| is_visible(c) && !matches!(c, '[' | ']' | '\\'));
    (reader.consume(']') && literal.parse::<std::net::IpAddr>().is_ok()).then_some(())
}

/// A display name: at least one word.
fn phrase(reader: &mut Reader<'_>) -> Option<()> {
    let mut words = 0;
    loop {
        if words > 0 && !reader.skip_comments() {
            return None;
        }
        reader.skip_space();
        let mut next = *reader;
        let word = match next.peek() {
            Some('"') => next.quoted().is_some(),
            _ => !next.take_while(is_atom).is_empty(),
        };
        if !word {
            return (words > 0).then_some(());
        }
        (*reader, words) = (next, words + 1);
    }
}

/// The members of a group whose name and colon have been read.
fn group(reader: &mut Reader<'_>) -> Option<usize> {
    reader.skip_space();
    let mut members = 0;
    if !reader.consume(';') {
        loop {
            members += address(reader, false)?;
            if !reader.skip_comments() {
                return None;
            }
            if reader.consume(';') {
                break;
            }
            if !reader.consume(',') {
                return None;
            }
        }
    }
    reader.skip_comments().then_some(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_all_forms_are_accepted() {
        for text in [
            "a@b",
            " a.b+c@example.com ",
            "A B <a@b>",
            "\"A, B\" <a@b>",
            "<a@b>",
            "a@b (comment (nested))",
            "\"x y\"@b",
            "a@[192.0.2.1]",
            "group: a@b;",
            "ü@ö",
        ] {
            assert!(is_email(text), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not() {
        for text in [
            "",
            "a",
            "a@",
            "@b",
            "a@b c",
            "a..b@c",
            ".a@b",
            "a@b, c@d",
            "<a@b",
            "\"\"@b",
            "a@[x]",
            "g: a@b, c@d;",
            "g:;",
        ] {
            assert!(!is_email(text), "{text}");
        }
    }
}
