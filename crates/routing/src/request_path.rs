//! The path of a request as nginx compares it: decoded, with `//`, `/./` and `/../` resolved.
//!
//! In: a path as it was sent. Out: its bytes, or nothing for a path that nginx answers with 400. Backends resolve paths in one
//! of these ways or another: a rule for `/admin` must also take `/%61dmin`, `//admin`, `/x/../admin` and `/admin%2Fx`.

use std::borrow::Cow;

/// The bytes of a path; none when it has a malformed escape or a NUL, or leaves the root by `..`.
pub(crate) fn decode(path: &str) -> Option<Cow<'_, [u8]>> {
    let is_plain = !path.contains('%') && !path.contains("//") && !path.contains("/.");
    // `*` of OPTIONS, and nothing, are no paths.
    if is_plain || !path.starts_with('/') {
        return Some(Cow::Borrowed(path.as_bytes()));
    }
    resolve(&unescape(path.as_bytes())?).map(Cow::Owned)
}

fn unescape(path: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path.iter().copied();
    while let Some(byte) = rest.next() {
        out.push(match byte {
            b'%' => digit(rest.next()?)? << 4 | digit(rest.next()?)?,
            other => other,
        });
    }
    (!out.contains(&0)).then_some(out)
}

fn resolve(path: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(path.len());
    let mut segments = path.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        match segment {
            b"" | b"." => (),
            b".." => out.truncate(out.iter().rposition(|byte| *byte == b'/')?),
            name => {
                out.push(b'/');
                out.extend_from_slice(name);
                continue;
            }
        }
        if segments.peek().is_none() {
            out.push(b'/');
        }
    }
    Some(out)
}

/// A path without the `/` at its end, as prefixes are compared.
pub(crate) fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// Percent-encodes everything but the unreserved characters of RFC 3986 and those that are kept.
pub(crate) fn encode(bytes: &[u8], kept: &[u8], out: &mut String) {
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || kept.contains(byte) {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_and_resolved() {
        let cases = [
            ("/", Some("/")),
            ("/a/b/", Some("/a/b/")),
            ("/%61dm%69n", Some("/admin")),
            ("//a///b//", Some("/a/b/")),
            ("/x/../a", Some("/a")),
            ("/a/.", Some("/a/")),
            ("/a/b/..", Some("/a/")),
            ("/a/..", Some("/")),
            ("/x/%2e%2E/a", Some("/a")),
            ("/x%2F..%2fa", Some("/a")),
            ("/x/.%2e/a", Some("/a")),
            ("/a%2Fb", Some("/a/b")),
            ("/a%252Fb", Some("/a%2Fb")),
            ("/a%3Fb%23c%20d", Some("/a?b#c d")),
            ("/..a/.b/c..", Some("/..a/.b/c..")),
            ("/.well-known/x", Some("/.well-known/x")),
            ("*", Some("*")),
            ("", Some("")),
            ("/..", None),
            ("/a/../..", None),
            ("/%2e%2e/a", None),
            ("/a/../../a", None),
            ("/a%", None),
            ("/a%4", None),
            ("/a%4g", None),
            ("/a%+1", None),
            ("/a%00", None),
        ];
        for (path, want) in cases {
            assert_eq!(decode(path).as_deref(), want.map(str::as_bytes), "{path}");
        }
        assert_eq!(decode("/%FF").as_deref(), Some(&b"/\xff"[..]));
    }

    #[test]
    fn what_is_encoded_is_decoded_to_the_same() {
        let bytes: Vec<u8> = [b'/'].into_iter().chain(1..=u8::MAX).filter(|byte| *byte != b'.').collect();
        let mut text = String::new();
        encode(&bytes, b"/", &mut text);
        assert!(text.is_ascii() && !text.contains([' ', '?', '#', '"', '\n']), "{text}");
        assert_eq!(unescape(text.as_bytes()).as_deref(), Some(&bytes[..]));
    }
}
