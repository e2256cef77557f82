//! IP addresses, parsed with the error messages of Go's `netip`.

use std::net::{IpAddr, Ipv6Addr};

use super::format_string::go_quote;
use super::{any, text};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, Native, global, member};
use crate::types::Type;
use crate::value::Value;

pub(crate) const NAME: &str = "net.IP";

pub(super) fn add(all: &mut Functions) {
    let ip = || Type::opaque(NAME);
    all.add(
        "ip",
        [global("string_to_ip", &[Type::String], ip(), |_, args| {
            parse(text(args, 0)?).map(Value::Ip).map_err(Stop::Error)
        })],
    );
    all.add("family", [member("ip_family", &[ip()], Type::Int, family)]);
    all.add("ip.isCanonical", [global("ip_is_canonical", &[Type::String], Type::Bool, is_canonical)]);
    let tests: [(&str, &str, Native); 5] = [
        ("isUnspecified", "ip_is_unspecified", |_, args| test(args, |ip| ip.is_unspecified())),
        ("isLoopback", "ip_is_loopback", |_, args| test(args, |ip| ip.is_loopback())),
        ("isLinkLocalMulticast", "ip_is_link_local_multicast", |_, args| test(args, is_link_local_multicast)),
        ("isLinkLocalUnicast", "ip_is_link_local_unicast", |_, args| test(args, is_link_local_unicast)),
        ("isGlobalUnicast", "ip_is_global_unicast", |_, args| test(args, is_global_unicast)),
    ];
    for (name, id, code) in tests {
        all.add(name, [member(id, &[ip()], Type::Bool, code)]);
    }
    all.add(
        "isIP",
        [global("is_ip", &[Type::String], Type::Bool, |_, args| Ok(Value::Bool(parse(text(args, 0)?).is_ok())))],
    );
    all.add(
        "string",
        [global("ip_to_string", &[ip()], Type::String, |_, args| Ok(Value::string(of(args)?.to_string())))],
    );
}

fn of(args: &[Value<'_>]) -> Result<IpAddr, Stop> {
    match any(args, 0)? {
        Value::Ip(ip) => Ok(*ip),
        _ => Err(Stop::no_such_overload()),
    }
}

fn test<'a>(args: &[Value<'a>], holds: fn(&IpAddr) -> bool) -> Result<Value<'a>, Stop> {
    Ok(Value::Bool(holds(&of(args)?)))
}

fn family<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    Ok(Value::Int(if of(args)?.is_ipv4() { 4 } else { 6 }))
}

fn is_canonical<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let written = text(args, 0)?;
    Ok(Value::Bool(parse(written)?.to_string() == written))
}

fn is_link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(ip) => ip.segments().first().is_some_and(|first| first & 0xff0f == 0xff02),
    }
}

fn is_link_local_unicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn is_global_unicast(ip: &IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(broadcast || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_link_local_unicast(ip))
}

/// An address without a zone that is not an IPv4 address mapped into IPv6.
pub(crate) fn parse(text: &str) -> Result<IpAddr, String> {
    let shown = go_quote(text);
    let (ip, zone) = parse_go(text)
        .map_err(|error| format!("IP Address {shown} parse error during conversion from string: {error}"))?;
    if zone {
        return Err(format!("IP address {shown} with zone value is not allowed"));
    }
    if is_mapped(&ip) {
        return Err(format!("IPv4-mapped IPv6 address {shown} is not allowed"));
    }
    Ok(ip)
}

/// Whether an IPv4 address is mapped into IPv6.
pub(super) fn is_mapped(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

/// An address, and whether it has a zone.
///
/// # Errors
/// Go's error message.
pub(super) fn parse_go(text: &str) -> Result<(IpAddr, bool), String> {
    let fail = |what: &str, at: &str| {
        let at = if at.is_empty() { String::new() } else { format!(" (at {})", go_quote(at)) };
        format!("ParseAddr({}): {what}{at}", go_quote(text))
    };
    match text.bytes().find(|byte| matches!(byte, b'.' | b':' | b'%')) {
        Some(b'.') => {
            let fields = parse_v4(text).map_err(|(what, at)| fail(what, at))?;
            Ok((IpAddr::from(fields), false))
        }
        Some(b':') => {
            let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
            if zone == Some("") {
                return Err(fail("zone must be a non-empty string", ""));
            }
            let fields = parse_v6(address).map_err(|(what, at)| fail(what, at))?;
            Ok((IpAddr::V6(Ipv6Addr::from(fields)), zone.is_some()))
        }
        Some(_) => Err(fail("missing IPv6 address", "")),
        None => Err(fail("unable to parse IP", "")),
    }
}

/// What is wrong, and where it starts.
type Wrong<'t> = (&'static str, &'t str);

fn parse_v4(text: &str) -> Result<[u8; 4], Wrong<'_>> {
    let bytes = text.as_bytes();
    let mut fields = Vec::with_capacity(4);
    let (mut value, mut digits): (u16, usize) = (0, 0);
    for (at, byte) in bytes.iter().enumerate() {
        let rest = text.get(at..).unwrap_or_default();
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err(("IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + u16::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Err(("IPv4 field has value >255", ""));
                }
            }
            b'.' => {
                if digits == 0 || at + 1 == bytes.len() {
                    return Err(("IPv4 field must have at least one digit", rest));
                }
                if fields.len() == 3 {
                    return Err(("IPv4 address too long", ""));
                }
                fields.push(u8::try_from(value).unwrap_or(u8::MAX));
                (value, digits) = (0, 0);
            }
            _ => return Err(("unexpected character", rest)),
        }
    }
    fields.push(u8::try_from(value).unwrap_or(u8::MAX));
    fields.try_into().map_err(|_| ("IPv4 address too short", ""))
}

fn parse_v6(text: &str) -> Result<[u8; 16], Wrong<'_>> {
    let mut bytes: Vec<u8> = Vec::with_capacity(16);
    let mut gap = None;
    let mut rest = text;
    if let Some(tail) = rest.strip_prefix("::") {
        gap = Some(0);
        rest = tail;
        if rest.is_empty() {
            return Ok([0; 16]);
        }
    }
    while bytes.len() < 16 {
        let len = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if len > 4 {
            return Err(("each group must have 4 or less digits", rest));
        }
        if len == 0 {
            return Err(("each colon-separated field must have at least one digit", rest));
        }
        let (digits, tail) = rest.split_at(len);
        if tail.starts_with('.') {
            if gap.is_none() && bytes.len() != 12 {
                return Err(("embedded IPv4 address must replace the final 2 fields of the address", rest));
            }
            if bytes.len() > 12 {
                return Err(("too many hex fields to fit an embedded IPv4 at the end of the address", rest));
            }
            bytes.extend(parse_v4(rest)?);
            rest = "";
            break;
        }
        bytes.extend(u16::from_str_radix(digits, 16).unwrap_or(0).to_be_bytes());
        rest = tail;
        if rest.is_empty() {
            break;
        }
        let Some(tail) = rest.strip_prefix(':') else { return Err(("unexpected character, want colon", rest)) };
        if tail.is_empty() {
            return Err(("colon must be followed by more characters", rest));
        }
        rest = tail;
        if let Some(tail) = rest.strip_prefix(':') {
            if gap.is_some() {
                return Err(("multiple :: in address", rest));
            }
            gap = Some(bytes.len());
            rest = tail;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", rest));
    }
    match gap {
        None if bytes.len() < 16 => return Err(("address string too short", "")),
        Some(_) if bytes.len() == 16 => return Err(("the :: must expand to at least one field of zeros", "")),
        Some(at) => {
            let missing = 16 - bytes.len();
            bytes.splice(at..at, std::iter::repeat_n(0, missing));
        }
        None => {}
    }
    bytes.try_into().map_err(|_| ("address string too short", ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn errors_have_gos_words() {
        let cases = [
            ("x", "ParseAddr(\"x\"): unable to parse IP"),
            ("1.2.3", "ParseAddr(\"1.2.3\"): IPv4 address too short"),
            ("1.2.3.256", "ParseAddr(\"1.2.3.256\"): IPv4 field has value >255"),
            ("01.2.3.4", "ParseAddr(\"01.2.3.4\"): IPv4 field has octet with leading zero"),
            ("1..2.3", "ParseAddr(\"1..2.3\"): IPv4 field must have at least one digit (at \".2.3\")"),
            (":::1", "ParseAddr(\":::1\"): each colon-separated field must have at least one digit (at \":1\")"),
            ("1::2::3", "ParseAddr(\"1::2::3\"): multiple :: in address (at \":3\")"),
            ("12345::", "ParseAddr(\"12345::\"): each group must have 4 or less digits (at \"12345::\")"),
            ("1:2", "ParseAddr(\"1:2\"): address string too short"),
            ("%eth0", "ParseAddr(\"%eth0\"): missing IPv6 address"),
        ];
        for (text, wanted) in cases {
            assert_eq!(parse_go(text), Err(wanted.to_owned()), "{text}");
        }
        assert!(parse("::ffff:1.2.3.4").is_err_and(|error| error.contains("IPv4-mapped")));
        assert!(parse("fe80::1%eth0").is_err_and(|error| error.contains("zone")));
    }

    proptest! {
        #[test]
        fn accepts_what_the_standard_library_accepts(text in "[0-9a-f:.]{0,20}") {
            prop_assert_eq!(parse_go(&text).ok().map(|(ip, _)| ip), text.parse::<IpAddr>().ok());
        }
    }
}
