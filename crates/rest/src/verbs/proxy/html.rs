//! Finds the URLs in a page of HTML that arrives in pieces, and changes them.
//!
//! Only the values of attributes that hold URLs are changed; all other bytes pass unchanged. What is kept between two pieces is one
//! unfinished tag of at most [`LONGEST_TAG`]: a longer one passes unchanged.

use super::links::Links;

/// The longest tag that is parsed, in bytes.
const LONGEST_TAG: usize = 8 << 10;

/// The attributes that hold URLs, by element.
const URL_ATTRIBUTES: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["formaction", "src", "usemap"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// The end tags of elements whose content is text.
const RAW_TEXT_ENDS: [&str; 8] =
    ["</iframe", "</noembed", "</noframes", "</script", "</style", "</textarea", "</title", "</xmp"];

/// A page of which a part has been read.
pub(super) struct Page {
    links: Links,
    /// Read, and not decided yet.
    pending: Vec<u8>,
    inside: Inside,
}

/// What the next byte belongs to.
#[derive(Clone, Copy)]
enum Inside {
    Markup,
    /// Everything up to this is text, ASCII letters in any case.
    Until(&'static str),
}

impl Page {
    pub(super) fn new(links: Links) -> Self {
        Self { links, pending: Vec::new(), inside: Inside::Markup }
    }

    /// Reads a piece; returns what can be sent.
    pub(super) fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(piece);
        let input = std::mem::take(&mut self.pending);
        let mut out = Vec::with_capacity(input.len());
        let mut at = 0;
        while let Some(taken) = self.step(&input[at..], &mut out) {
            at += taken;
        }
        self.pending = input[at..].to_vec();
        out
    }

    /// The rest, at the end of the page.
    pub(super) fn finish(self) -> Vec<u8> {
        self.pending
    }

    /// Moves some of the input to the output; returns how much, or `None` if more input is needed.
    fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let taken = match self.inside {
            Inside::Until(end) => match find(input, end.as_bytes()) {
                Some(at) => {
                    self.inside = Inside::Markup;
                    at + end.len()
                }
                // All but what may be the beginning of it.
                None => (input.len() + 1).checked_sub(end.len()).filter(|&taken| taken > 0)?,
            },
            Inside::Markup => match input.iter().position(|&byte| byte == b'<') {
                Some(0) => return self.markup(input, out),
                Some(at) => at,
                None => Some(input.len()).filter(|&length| length > 0)?,
            },
        };
        out.extend_from_slice(&input[..taken]);
        Some(taken)
    }

    /// A comment, a tag, or text: the input begins with `<`.
    fn markup(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        const COMMENT: &[u8] = b"<!--";
        if input.len() < COMMENT.len() && COMMENT.starts_with(input) {
            return None;
        }
        if input.get(1).is_some_and(u8::is_ascii_alphabetic) {
            return self.tag(input, out);
        }
        let mut taken = 1;
        if input.starts_with(COMMENT) {
            // Its hyphens may also be those of its end: `<!-->` is a whole comment.
            taken = 2;
            self.inside = Inside::Until("-->");
        }
        out.extend_from_slice(&input[..taken]);
        Some(taken)
    }

    fn tag(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let seen = &input[..input.len().min(LONGEST_TAG)];
        let Some(end) = tag_end(seen) else {
            // An overlong tag is not read twice, so the work stays proportional to the size of the page.
            return (seen.len() == LONGEST_TAG).then(|| {
                out.extend_from_slice(seen);
                seen.len()
            });
        };
        let tag = &input[..end];
        let name = lower(tag[1..].split(|byte| is_space(*byte) || b"/>".contains(byte)).next().unwrap_or_default());
        self.attributes(tag, 1 + name.len(), &name, out);
        if let Some(end) = RAW_TEXT_ENDS.iter().find(|end| end[2..] == name) {
            self.inside = Inside::Until(end);
        }
        Some(end)
    }

    /// Copies a tag from behind its name, with changed URLs.
    fn attributes(&self, tag: &[u8], start: usize, element: &str, out: &mut Vec<u8>) {
        let urls = URL_ATTRIBUTES.iter().find(|(name, _)| *name == element).map_or(&[][..], |(_, urls)| urls);
        let (mut copied, mut at) = (0, start);
        while let Some((name, value)) = next_attribute(tag, &mut at) {
            let wanted = urls.contains(&lower(&tag[name]).as_str());
            let Some(url) = std::str::from_utf8(&tag[value.clone()]).ok().filter(|_| wanted) else { continue };
            if let Some(changed) = self.links.through_proxy(url) {
                out.extend_from_slice(&tag[copied..value.start]);
                out.extend_from_slice(changed.as_bytes());
                copied = value.end;
            }
        }
        out.extend_from_slice(&tag[copied..]);
    }
}

type Span = std::ops::Range<usize>;

/// The name and the value of the next attribute; an attribute without a value has an empty one.
fn next_attribute(tag: &[u8], at: &mut usize) -> Option<(Span, Span)> {
    let skip =
        |from: usize, over: &dyn Fn(u8) -> bool| from + tag[from..].iter().take_while(|byte| over(**byte)).count();
    let start = skip(*at, &|byte| is_space(byte) || byte == b'/');
    if tag.get(start).is_none_or(|byte| *byte == b'>') {
        return None;
    }
    // A name may begin with `=`.
    let name = start..skip(start + 1, &|byte| !is_space(byte) && !b"/>=".contains(&byte));
    let equals = skip(name.end, &is_space);
    if tag.get(equals) != Some(&b'=') {
        *at = name.end;
        return Some((name.clone(), name.end..name.end));
    }
    let first = skip(equals + 1, &is_space);
    let value = match tag.get(first) {
        Some(quote @ (b'"' | b'\'')) => first + 1..skip(first + 1, &|byte| byte != *quote),
        _ => first..skip(first, &|byte| !is_space(byte) && byte != b'>'),
    };
    *at = value.end + usize::from(value.start > first);
    Some((name, value))
}

/// Where a tag ends, behind its `>`. A `>` in a quoted value does not end it.
fn tag_end(tag: &[u8]) -> Option<usize> {
    let mut at = 1 + tag[1..].iter().position(|byte| is_space(*byte) || b"/>".contains(byte))?;
    while next_attribute(tag, &mut at).is_some() {
        if at >= tag.len() {
            return None;
        }
    }
    tag[at.min(tag.len())..].iter().position(|byte| *byte == b'>').map(|found| at + found + 1)
}

fn lower(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_ascii_lowercase()
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace()
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page, in pieces of this size, behind a proxy at `/p`.
    fn changed(page: &str, size: usize) -> String {
        let links = Links { prefix: "/p".to_owned(), backend: "b".to_owned(), server: "s".to_owned() };
        let mut reader = Page::new(links);
        let mut out: Vec<u8> = page.as_bytes().chunks(size).flat_map(|piece| reader.push(piece)).collect();
        out.extend(reader.finish());
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn urls_of_attributes_are_changed_in_pieces_of_any_size() {
        let cases = [
            (r#"<a href="/x">test</a>"#, r#"<a href="/p/x">test</a>"#),
            ("<A\n HREF = '/x' title=\"/t\">", "<A\n HREF = '/p/x' title=\"/t\">"),
            ("<a href=/x/>", "<a href=/p/x/>"),
            ("<img src=/i usemap='/m' alt=\"a>b\"/>", "<img src=/p/i usemap='/p/m' alt=\"a>b\"/>"),
            ("<input disabled src='/i'>", "<input disabled src='/p/i'>"),
            ("<form action='http://b/f'><form action='http://c/f'>", "<form action='/p/f'><form action='http://c/f'>"),
            ("<a title='<a href=\"/x\">' href=/y>", "<a title='<a href=\"/x\">' href=/p/y>"),
            (
                "<script src=/s>\"<a href='/x'>\"</Script><a href=/y>",
                "<script src=/p/s>\"<a href='/x'>\"</Script><a href=/p/y>",
            ),
            ("<!-- <a href=/x> --><a href=/y><!--><a href=/z>", "<!-- <a href=/x> --><a href=/p/y><!--><a href=/p/z>"),
            ("1 < 2 <3 <!doctype html><p href=/x><a>", "1 < 2 <3 <!doctype html><p href=/x><a>"),
            ("<a href", "<a href"),
            ("<a href=\"/x", "<a href=\"/x"),
            ("<", "<"),
            ("", ""),
        ];
        for (page, expected) in cases {
            for size in 1..=page.len().max(1) {
                assert_eq!(changed(page, size), expected, "in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_tag_without_an_end_is_not_kept() {
        let links = Links { prefix: "/p".to_owned(), backend: String::new(), server: String::new() };
        let mut reader = Page::new(links);
        let page = "<a title=\"".to_owned() + &"<a ".repeat(100_000);
        let sent: usize = page.as_bytes().chunks(1000).map(|piece| reader.push(piece).len()).sum();
        assert!(reader.pending.len() < LONGEST_TAG, "{}", reader.pending.len());
        assert_eq!(sent + reader.finish().len(), page.len());
    }
}
