//! Reading and writing URLs.

use std::collections::BTreeMap;

use super::Url;
use crate::library::format_string::go_quote;
use crate::library::ip;

/// Which part of a URL a text is; each leaves other characters unescaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    Zone,
    UserPassword,
    Path,
    Query,
    Fragment,
}

fn should_escape(byte: u8, part: Part) -> bool {
    if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
        return false;
    }
    let host = matches!(part, Part::Host | Part::Zone);
    if host && b"!$&'()*+,;=:[]<>\"".contains(&byte) {
        return false;
    }
    if b"$&+,/:;=?@".contains(&byte) {
        return match part {
            Part::Path => byte == b'?',
            Part::UserPassword => matches!(byte, b'@' | b'/' | b'?' | b':'),
            Part::Query | Part::Host | Part::Zone => true,
            Part::Fragment => false,
        };
    }
    !(part == Part::Fragment && b"!()*".contains(&byte))
}

fn escape(bytes: &[u8], part: Part) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        if should_escape(*byte, part) {
            out.push_str(&format!("%{byte:02X}"));
        } else {
            out.push(char::from(*byte));
        }
    }
    out
}

fn hex_pair(bytes: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = bytes else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

fn unescape(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let rest = bytes.get(at..).unwrap_or_default();
        let triple = || String::from_utf8_lossy(rest.get(..3.min(rest.len())).unwrap_or_default()).into_owned();
        let refuse = || format!("invalid URL escape {}", go_quote(&triple()));
        match byte {
            b'%' => {
                let value = hex_pair(rest).ok_or_else(refuse)?;
                let percent = value == b'%' && rest.starts_with(b"%25");
                let allowed = match part {
                    Part::Host => percent || value >= 0x80,
                    Part::Zone => percent || value == b' ' || !should_escape(value, Part::Host),
                    _ => true,
                };
                if !allowed {
                    return Err(refuse());
                }
                out.push(value);
                at += 3;
            }
            b'+' if part == Part::Query => {
                out.push(b' ');
                at += 1;
            }
            _ => {
                if matches!(part, Part::Host | Part::Zone) && byte.is_ascii() && should_escape(*byte, part) {
                    return Err(format!("invalid character {} in host name", go_quote(&char::from(*byte).to_string())));
                }
                out.push(*byte);
                at += 1;
            }
        }
    }
    Ok(out)
}

fn unescape_text(text: &str, part: Part) -> Result<String, String> {
    unescape(text, part).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Checks that a text is an absolute URL or an absolute path, as of a request.
///
/// # Errors
/// Go's error message.
pub fn check_request(text: &str) -> Result<(), String> {
    parse_parts(text, true).map(drop).map_err(|error| format!("parse {}: {error}", go_quote(text)))
}

/// Parses a URL with its fragment.
///
/// # Errors
/// Go's error message.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let context = |error: String| format!("parse {}: {error}", go_quote(text));
    let mut url = parse_parts(rest, false).map_err(context)?;
    url.fragment = unescape_text(fragment, Part::Fragment).map_err(context)?;
    Ok(url)
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default())),
            _ => break,
        }
    }
    Ok(("", text))
}

fn parse_parts(text: &str, request: bool) -> Result<Url, String> {
    let mut url = Url::default();
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && request {
        return Err("empty url".to_owned());
    }
    if text == "*" {
        url.path = b"*".to_vec();
        return Ok(url);
    }
    let (scheme, mut rest) = scheme(text)?;
    url.scheme = scheme.to_lowercase();
    if let Some(before) = rest.strip_suffix('?').filter(|before| !before.contains('?')) {
        url.force_query = true;
        rest = before;
    } else if let Some((before, query)) = rest.split_once('?') {
        url.query = query.to_owned();
        rest = before;
    }
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            url.opaque = rest.to_owned();
            return Ok(url);
        }
        if request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let has_authority = !url.scheme.is_empty() || (!request && !rest.starts_with("///"));
    if let Some(authority) = rest.strip_prefix("//").filter(|_| has_authority) {
        let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
        parse_authority(&mut url, authority)?;
        rest = path;
    } else if !url.scheme.is_empty() && rest.starts_with('/') {
        url.omit_host = true;
    }
    url.path = unescape(rest, Part::Path)?;
    if escape(&url.path, Part::Path) != rest {
        url.raw_path = rest.to_owned();
    }
    Ok(url)
}

fn parse_authority(url: &mut Url, authority: &str) -> Result<(), String> {
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    url.host = parse_host(&url.scheme, host)?;
    let Some(user) = user else { return Ok(()) };
    let valid = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(valid) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    let (name, password) = user.split_once(':').map_or((user, None), |(name, password)| (name, Some(password)));
    let name = unescape_text(name, Part::UserPassword)?;
    let password = password.map(|password| unescape_text(password, Part::UserPassword)).transpose()?;
    url.user = Some((name, password));
    Ok(())
}

/// Whether a text is empty or a colon and digits.
pub(super) fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn bad_port(port: &str) -> String {
    format!("invalid port {} after host", go_quote(port))
}

fn parse_host(scheme: &str, host: &str) -> Result<String, String> {
    match host.rfind('[') {
        Some(0) => return parse_ip_literal(host),
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    if let (Some(first), Some(last)) = (host.find(':'), host.rfind(':')) {
        let strict = matches!(scheme, "http" | "https");
        let port = host.get(if strict { first } else { last }..).unwrap_or_default();
        if !is_port(port) {
            return Err(bad_port(port));
        }
    }
    unescape_text(host, Part::Host)
}

/// A host in brackets, with an optional port.
fn parse_ip_literal(host: &str) -> Result<String, String> {
    let close = host.rfind(']').ok_or("missing ']' in host")?;
    let port = host.get(close + 1..).unwrap_or_default();
    if !is_port(port) {
        return Err(bad_port(port));
    }
    let port = unescape_text(port, Part::Host)?;
    let name = host.get(1..close).unwrap_or_default();
    let (address, zone) = name.split_at(name.find("%25").unwrap_or(name.len()));
    let name = unescape_text(address, Part::Host)? + &unescape_text(zone, Part::Zone)?;
    let (address, _) = ip::parse_go(&name).map_err(|error| format!("invalid host: {error}"))?;
    if address.is_ipv4() {
        return Err("invalid IP-literal".to_owned());
    }
    Ok(format!("[{name}]{port}"))
}

pub(super) fn escaped_path(url: &Url) -> String {
    let valid = |byte: u8| b"!$&'()*+,;=:@[]%".contains(&byte) || !should_escape(byte, Part::Path);
    let raw = &url.raw_path;
    if !raw.is_empty() && raw.bytes().all(valid) && unescape(raw, Part::Path).is_ok_and(|path| path == url.path) {
        return raw.clone();
    }
    if url.path == b"*" {
        return "*".to_owned();
    }
    escape(&url.path, Part::Path)
}

pub(super) fn write(url: &Url) -> String {
    let mut out = String::new();
    if !url.scheme.is_empty() {
        out.push_str(&url.scheme);
        out.push(':');
    }
    if url.opaque.is_empty() {
        let path = escaped_path(url);
        let some = !url.scheme.is_empty() || !url.host.is_empty() || url.user.is_some();
        let omitted = url.omit_host && url.host.is_empty() && url.user.is_none();
        if some && !omitted {
            if !url.host.is_empty() || !url.path.is_empty() || url.user.is_some() {
                out.push_str("//");
            }
            if let Some((name, password)) = &url.user {
                out.push_str(&escape(name.as_bytes(), Part::UserPassword));
                if let Some(password) = password {
                    out.push(':');
                    out.push_str(&escape(password.as_bytes(), Part::UserPassword));
                }
                out.push('@');
            }
            out.push_str(&escape(url.host.as_bytes(), Part::Host));
        }
        if !path.is_empty() && !path.starts_with('/') && !url.host.is_empty() {
            out.push('/');
        }
        if out.is_empty() && path.split('/').next().is_some_and(|segment| segment.contains(':')) {
            out.push_str("./");
        }
        out.push_str(&path);
    } else {
        out.push_str(&url.opaque);
    }
    if url.force_query || !url.query.is_empty() {
        out.push('?');
        out.push_str(&url.query);
    }
    if !url.fragment.is_empty() {
        out.push('#');
        out.push_str(&escape(url.fragment.as_bytes(), Part::Fragment));
    }
    out
}

/// The parameters of a query; parts that cannot be read are left out.
pub(super) fn query(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in text.split('&').filter(|part| !part.is_empty() && !part.contains(';')) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if let (Ok(key), Ok(value)) = (unescape_text(key, Part::Query), unescape_text(value, Part::Query)) {
            out.entry(key).or_default().push(value);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_are_written_as_they_were_read() {
        for text in [
            "https://user:pass@example.com:80/path?query=val#fragment",
            "/a/b",
            "https://[::1]:80/",
            "mailto:a@b",
            "https://a/b%2fc",
            "https://a?",
        ] {
            assert_eq!(parse(text).map(|url| url.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn errors_have_gos_words() {
        let cases = [
            ("../relative-path", "parse \"../relative-path\": invalid URI for request"),
            ("https://a:b:c/", "parse \"https://a:b:c/\": invalid port \":b:c\" after host"),
            ("", "parse \"\": empty url"),
            (":a", "parse \":a\": missing protocol scheme"),
            ("/%zz", "parse \"/%zz\": invalid URL escape \"%zz\""),
            ("https://a b/", "parse \"https://a b/\": invalid character \" \" in host name"),
            ("https://[::1", "parse \"https://[::1\": missing ']' in host"),
        ];
        for (text, wanted) in cases {
            assert_eq!(check_request(text), Err(wanted.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in ".{0,40}") {
            let _ = check_request(&text);
            if let Ok(url) = parse(&text) {
                let _ = (url.to_string(), query(&url.query), url.host_and_port().0.len());
            }
        }
    }
}
