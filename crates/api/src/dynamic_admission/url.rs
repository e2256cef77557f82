//! URLs of webhooks, split as Go's `net/url` does it.
//!
//! In: a text. Out: its parts, or Go's error message. Percent escapes are checked and left as they are: the parts go
//! into a request again.

use crate::field::quote;

/// The parts of a URL.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Url<'u> {
    /// In lower case; empty without one.
    pub scheme: String,
    /// The part before an `@`.
    pub user: Option<&'u str>,
    /// Host and port.
    pub host: &'u str,
    /// From the slash after the host.
    pub path: &'u str,
    /// Without the question mark.
    pub query: &'u str,
    /// Without the hash.
    pub fragment: &'u str,
}

impl Url<'_> {
    /// The name or address, without brackets and port.
    #[must_use]
    pub fn hostname(&self) -> &str {
        let name = match self.host.rfind(']') {
            Some(end) => &self.host[..end],
            None => self.host.rsplit_once(':').map_or(self.host, |(name, _)| name),
        };
        name.trim_start_matches('[')
    }

    /// The port, if one is given.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        let after = self.host.rsplit_once(']').map_or(self.host, |(_, after)| after);
        after.rsplit_once(':')?.1.parse().ok()
    }
}

/// Splits a URL.
///
/// # Errors
/// `parse "TEXT": why`.
pub fn parse(text: &str) -> Result<Url<'_>, String> {
    split(text).map_err(|why| format!("parse {}: {why}", quote(text)))
}

fn split(text: &str) -> Result<Url<'_>, String> {
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    if rest.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let (scheme, rest) = scheme(rest)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url { scheme: scheme.to_ascii_lowercase(), query, fragment, ..Url::default() };
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(url);
        }
        if rest.split('/').next().is_some_and(|first| first.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let authority = rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///"));
    url.path = rest;
    if let Some(authority) = authority {
        let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
        url.path = path;
        (url.user, url.host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        check_host(url.host)?;
        check_user(url.user.unwrap_or_default())?;
    }
    check_escapes(url.path)?;
    check_escapes(fragment)?;
    Ok(url)
}

/// The scheme and what follows its colon.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    let is_part = |at: usize, byte: u8| {
        byte.is_ascii_alphabetic() || (at > 0 && (byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.')))
    };
    let end = text.bytes().enumerate().find(|(at, byte)| !is_part(*at, *byte));
    match end {
        Some((0, b':')) => Err("missing protocol scheme".to_owned()),
        Some((at, b':')) => Ok((&text[..at], &text[at + 1..])),
        _ => Ok(("", text)),
    }
}

fn check_host(host: &str) -> Result<(), String> {
    let after = match host.strip_prefix('[') {
        Some(inner) => inner.rsplit_once(']').ok_or("missing ']' in host")?.1,
        None => host.rfind(':').map_or("", |at| &host[at..]),
    };
    let port = after.strip_prefix(':');
    if !after.is_empty() && !port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(format!("invalid port {} after host", quote(after)));
    }
    check_escapes(host)?;
    let is_allowed = |c: &char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(*c);
    match host.chars().find(|c| !is_allowed(c)) {
        Some(bad) => Err(format!("invalid character {} in host name", quote(&bad.to_string()))),
        None => Ok(()),
    }
}

fn check_user(user: &str) -> Result<(), String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(is_allowed) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    check_escapes(user)
}

fn check_escapes(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let rest = text.as_bytes().get(at..).unwrap_or_default();
        if !matches!(rest, [_, a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit()) {
            let shown = String::from_utf8_lossy(rest.get(..3).unwrap_or(rest)).into_owned();
            return Err(format!("invalid URL escape {}", quote(&shown)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_has_parts() {
        let url = parse("HTTPS://me:x@[::1]:8443/a/b?c=d#e").unwrap();
        assert_eq!((url.scheme.as_str(), url.user, url.host), ("https", Some("me:x"), "[::1]:8443"));
        assert_eq!((url.path, url.query, url.fragment), ("/a/b", "c=d", "e"));
        assert_eq!((url.hostname(), url.port()), ("::1", Some(8443)));
        let plain = parse("https://hooks.example.com").unwrap();
        assert_eq!((plain.hostname(), plain.port(), plain.path), ("hooks.example.com", None, ""));
        assert_eq!(parse("mailto:x").unwrap().host, "");
        assert_eq!(parse("/only/a/path").unwrap().scheme, "");
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_of_go() {
        for (text, why) in [
            (":x", "missing protocol scheme"),
            ("1a:b", "first path segment in URL cannot contain colon"),
            ("https://a:b/", "invalid port \":b\" after host"),
            ("https://[::1", "missing ']' in host"),
            ("https://a b/", "invalid character \" \" in host name"),
            ("https://a/%zz", "invalid URL escape \"%zz\""),
            ("https://a/\u{1}", "net/url: invalid control character in URL"),
            ("https://[@a/", "net/url: invalid userinfo"),
        ] {
            assert_eq!(parse(text), Err(format!("parse {}: {why}", quote(text))), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", noise in "[a-z:/@\\[\\]%?#.0-9]*") {
            for text in [&text, &noise] {
                if let Ok(url) = parse(text) {
                    let _ = (url.hostname().len(), url.port());
                }
            }
        }
    }
}
