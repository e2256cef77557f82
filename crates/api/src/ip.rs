//! Addresses and prefixes as Kubernetes reads them: the lenient old way, the strict new one, and the canonical form.
//!
//! In: text of a field. Out: a parsed address, field errors, or warnings. Old fields took leading zeros and
//! IPv4-mapped addresses, which different software reads differently; now they are refused unless the object had
//! them before. The standard library parses strictly, so the lenient reading is: take the needless zeros away, then
//! parse strictly.

use std::net::{IpAddr, Ipv6Addr};

use crate::field::{Errors, Path, quote};

/// An IP family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Family {
    /// IPv4
    V4,
    /// IPv6
    V6,
}

impl Family {
    /// `IPv4` or `IPv6`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The family of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "IPv4" => Some(Self::V4),
            "IPv6" => Some(Self::V6),
            _ => None,
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

const BAD_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const BAD_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// The old, lenient reading (leading zeros pass; IPv4-mapped IPv6 is IPv4).
#[must_use]
pub fn parse_lenient(text: &str) -> Option<IpAddr> {
    parse_any(text).map(|address| address.to_canonical())
}

/// The lenient reading, IPv4-mapped addresses left as they are.
fn parse_any(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| without_leading_zeros(text)?.parse().ok())
}

/// The text with needless zeros taken out of each group, or `None` when it cannot be an address at all.
fn without_leading_zeros(text: &str) -> Option<String> {
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':')) {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    for group in text.split_inclusive([':', '.']) {
        let digits = group.trim_end_matches([':', '.']);
        let short = digits.trim_start_matches('0');
        out.push_str(if short.is_empty() && !digits.is_empty() { "0" } else { short });
        out.push_str(&group[digits.len()..]);
    }
    Some(out)
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// Checks an address of a legacy field; values in `old` pass.
pub fn check_address(path: &Path<'_>, text: &str, old: &[&str], errors: &mut Errors) {
    if !old.contains(&text) {
        check_strict_address(path, text, errors);
    }
}

fn check_strict_address(path: &Path<'_>, text: &str, errors: &mut Errors) -> Option<IpAddr> {
    match text.parse::<IpAddr>() {
        Ok(address) if is_mapped(address) => {
            errors.invalid(path, text, "must not be an IPv4-mapped IPv6 address");
            None
        }
        Ok(address) => Some(address),
        Err(_) => {
            let why = if parse_any(text).is_some() { "must not have leading 0s" } else { BAD_ADDRESS };
            errors.invalid(path, text, why);
            None
        }
    }
}

/// Checks an address that must be in canonical form.
pub fn check_canonical_address(path: &Path<'_>, text: &str, errors: &mut Errors) {
    if let Some(address) = check_strict_address(path, text, errors) {
        check_canonical(path, text, &address.to_string(), errors);
    }
}

fn check_canonical(path: &Path<'_>, text: &str, canonical: &str, errors: &mut Errors) {
    if text != canonical {
        errors.invalid(path, text, &format!("must be in canonical form ({})", quote(canonical)));
    }
}

/// Checks a CIDR of a legacy field; values in `old` pass.
pub fn check_cidr(path: &Path<'_>, text: &str, old: &[&str], errors: &mut Errors) {
    if !old.contains(&text) {
        check_strict_cidr(path, text, errors);
    }
}

fn check_strict_cidr(path: &Path<'_>, text: &str, errors: &mut Errors) -> Option<Prefix> {
    let Some(prefix) = Prefix::parse_lenient(text) else {
        errors.invalid(path, text, BAD_CIDR);
        return None;
    };
    let why = if !Prefix::is_strict(text) {
        "must not have leading 0s in IP or prefix length"
    } else if is_mapped(prefix.address) {
        "must not have an IPv4-mapped IPv6 address"
    } else if prefix.address != prefix.network() {
        "must not have bits set beyond the prefix length"
    } else {
        return Some(prefix);
    };
    errors.invalid(path, text, why);
    None
}

/// Checks a CIDR that must be in canonical form.
pub fn check_canonical_cidr(path: &Path<'_>, text: &str, errors: &mut Errors) {
    if let Some(prefix) = check_strict_cidr(path, text, errors) {
        check_canonical(path, text, &prefix.to_string(), errors);
    }
}

/// Refuses unspecified, loopback, link-local and link-local multicast addresses.
pub fn check_not_special(path: &Path<'_>, text: &str, errors: &mut Errors) {
    let Some(address) = parse_lenient(text) else {
        errors.invalid(path, text, "must be a valid IP address");
        return;
    };
    if address.is_unspecified() {
        errors.invalid(path, text, &format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        errors.invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (link_local, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    if link_local {
        errors.invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        errors.invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

/// Warns of an address that is not in canonical form.
pub fn warn_address(path: &Path<'_>, text: &str, out: &mut Vec<String>) {
    let Some(lenient) = parse_lenient(text) else { return };
    match text.parse::<IpAddr>() {
        Ok(strict) if !is_mapped(strict) => {
            if strict.is_ipv6() && strict.to_string() != text {
                out.push(format!(
                    "{path}: IPv6 address {} should be in RFC 5952 canonical format (\"{strict}\")",
                    quote(text)
                ));
            }
        }
        _ => out.push(format!("{path}: non-standard IP address {} is invalid: use \"{lenient}\"", quote(text))),
    }
}

/// Warns of a CIDR that is ambiguous or not in canonical form.
pub fn warn_cidr(path: &Path<'_>, text: &str, out: &mut Vec<String>) {
    let Some(prefix) = Prefix::parse_lenient(text) else { return };
    let before = out.len();
    let shown = quote(text);
    if prefix.address != prefix.network() {
        let single = format!("{}/{}", prefix.address.to_canonical(), prefix.width());
        out.push(format!(
            "{path}: CIDR value {shown} is ambiguous in this context (should be \"{prefix}\" or \"{single}\"?)"
        ));
    }
    if !Prefix::is_strict(text) || is_mapped(prefix.address) {
        out.push(format!("{path}: non-standard CIDR value {shown} is invalid: use \"{prefix}\""));
    }
    if out.len() == before && prefix.address.is_ipv6() && prefix.to_string() != text {
        out.push(format!("{path}: IPv6 CIDR value {shown} should be in RFC 5952 canonical format (\"{prefix}\")"));
    }
}

/// An address and a prefix length, as written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    fn parse_lenient(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let prefix = Self { address: parse_any(address)?, bits: 0 };
        if bits.is_empty() || !bits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = bits.trim_start_matches('0');
        let bits = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        (bits <= prefix.width()).then_some(Self { bits, ..prefix })
    }

    /// Whether nothing in the text needs the lenient reading.
    fn is_strict(text: &str) -> bool {
        text.split_once('/')
            .is_some_and(|(address, bits)| address.parse::<IpAddr>().is_ok() && (bits == "0" || !bits.starts_with('0')))
    }

    fn width(self) -> u8 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// The address with the bits beyond the prefix cleared.
    fn network(self) -> IpAddr {
        match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(u32::from(32 - self.bits)).unwrap_or(0);
                IpAddr::V4((v4.to_bits() & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(u32::from(128 - self.bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
        }
    }
}

impl std::fmt::Display for Prefix {
    /// The network in canonical form; an IPv4-mapped one as IPv4.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let network = self.network();
        if is_mapped(network) && self.bits >= 96 {
            return write!(f, "{}/{}", network.to_canonical(), self.bits - 96);
        }
        write!(f, "{network}/{}", self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(check: impl Fn(&Path<'_>, &mut Errors)) -> String {
        let mut errors = Errors::default();
        check(&Path::Root("ip"), &mut errors);
        errors.0.iter().map(|error| error.body.rsplit("\": ").next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn the_lenient_reading_drops_zeros_and_mapping() {
        for (text, want) in [
            ("010.002.003.004", Some("10.2.3.4")),
            ("::ffff:1.2.3.4", Some("1.2.3.4")),
            ("2001:00db8::01", Some("2001:db8::1")),
            ("::ffff:01.2.3.4", Some("1.2.3.4")),
            ("0::0", Some("::")),
            ("1.2.3", None),
            ("1.2.3.256", None),
            ("fe80::1%eth0", None),
            ("", None),
            ("1:2:3:4:5:6:7:8:9", None),
        ] {
            assert_eq!(parse_lenient(text).map(|ip| ip.to_string()).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn new_addresses_are_read_strictly_and_old_ones_pass() {
        for (text, want) in [
            ("10.0.0.1", ""),
            ("FE80:0:0:0::0abc", ""),
            ("x", BAD_ADDRESS),
            ("010.0.0.1", "must not have leading 0s"),
            ("::ffff:10.0.0.1", "must not be an IPv4-mapped IPv6 address"),
        ] {
            assert_eq!(complaint(|path, errors| check_address(path, text, &[], errors)), want, "{text}");
            assert_eq!(complaint(|path, errors| check_address(path, text, &[text], errors)), "");
        }
        assert!(
            complaint(|path, errors| check_canonical_address(path, "2001:DB8::1", errors)).contains("canonical form")
        );
    }

    #[test]
    fn prefixes_have_no_host_bits() {
        for (text, want) in [
            ("10.0.0.0/8", ""),
            ("FD00::/0064", "must not have leading 0s in IP or prefix length"),
            ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
            ("::ffff:10.0.0.0/104", "must not have an IPv4-mapped IPv6 address"),
            ("10.0.0.0/33", BAD_CIDR),
            ("10.0.0.0/+8", BAD_CIDR),
            ("10.0.0.0", BAD_CIDR),
            ("0.0.0.0/0", ""),
            ("::/128", ""),
        ] {
            assert_eq!(complaint(|path, errors| check_cidr(path, text, &[], errors)), want, "{text}");
        }
        assert_eq!(complaint(|path, errors| check_canonical_cidr(path, "fd00::/64", errors)), "");
        assert!(complaint(|path, errors| check_canonical_cidr(path, "FD00::/64", errors)).contains("(\"fd00::/64\")"));
    }

    #[test]
    fn special_addresses_are_refused() {
        for (text, want) in [
            ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
            ("::", "may not be unspecified (::)"),
            ("127.1.2.3", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
            ("::ffff:127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
            ("fe80::1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
            ("ff12::1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
            ("224.0.1.1", ""),
            ("10.0.0.1", ""),
        ] {
            assert_eq!(complaint(|path, errors| check_not_special(path, text, errors)), want, "{text}");
        }
    }

    #[test]
    fn warnings_name_the_better_form() {
        let mut out = Vec::new();
        let path = Path::Root("f");
        warn_address(&path, "10.0.0.1", &mut out);
        warn_address(&path, "FD00::0001", &mut out);
        warn_address(&path, "010.0.0.1", &mut out);
        warn_cidr(&path, "10.0.0.1/8", &mut out);
        warn_cidr(&path, "FD00::/64", &mut out);
        warn_cidr(&path, "::ffff:1.2.3.0/120", &mut out);
        assert_eq!(
            out,
            [
                "f: IPv6 address \"FD00::0001\" should be in RFC 5952 canonical format (\"fd00::1\")",
                "f: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"",
                "f: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)",
                "f: IPv6 CIDR value \"FD00::/64\" should be in RFC 5952 canonical format (\"fd00::/64\")",
                "f: non-standard CIDR value \"::ffff:1.2.3.0/120\" is invalid: use \"1.2.3.0/24\"",
            ]
        );
    }
}
