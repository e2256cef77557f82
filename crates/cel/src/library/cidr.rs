//! Ranges of IP addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::format_string::go_quote;
use super::{any, ip, text};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, global, member};
use crate::types::Type;
use crate::value::Value;

pub(crate) const NAME: &str = "net.CIDR";

/// An address and the length of a prefix; the address may have bits behind the prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Cidr {
    /// The address of a prefix with the bits behind it cleared.
    fn mask(address: IpAddr, bits: u8) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Self::mask(address, self.bits) == Self::mask(self.address, self.bits)
    }

    /// Bytes of the prefix, on which the cost of comparing depends.
    pub(crate) fn size(&self) -> u64 {
        u64::from(self.bits).div_ceil(8)
    }

    /// # Errors
    /// Go's error message.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let context = "network address parse error during conversion from string";
        let parsed = Self::parse_go(text)
            .map_err(|error| format!("{context}: netip.ParsePrefix({}): {error}", go_quote(text)))?;
        if ip::is_mapped(&parsed.address) {
            return Err(format!("IPv4-mapped IPv6 address {} is not allowed", go_quote(text)));
        }
        Ok(parsed)
    }

    fn parse_go(text: &str) -> Result<Self, String> {
        let (address, bits) = text.rsplit_once('/').ok_or("no '/'")?;
        let (address, zone) = ip::parse_go(address)?;
        if zone {
            return Err("IPv6 zones cannot be present in a prefix".to_owned());
        }
        let bad = || format!("bad bits after slash: {}", go_quote(bits));
        if bits.len() > 1 && !bits.starts_with(|c: char| matches!(c, '1'..='9')) {
            return Err(bad());
        }
        let number: i64 = bits.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = u8::try_from(number).ok().filter(|bits| *bits <= most);
        bits.map(|bits| Self { address, bits }).ok_or_else(|| "prefix length out of range".to_owned())
    }
}

pub(super) fn add(all: &mut Functions) {
    let (cidr, address) = (|| Type::opaque(NAME), || Type::opaque(ip::NAME));
    all.add("cidr", [global("string_to_cidr", &[Type::String], cidr(), |_, args| parse_arg(args, 0).map(Value::Cidr))]);
    all.add(
        "containsIP",
        [
            member("cidr_contains_ip_string", &[cidr(), Type::String], Type::Bool, contains_ip),
            member("cidr_contains_ip_ip", &[cidr(), address()], Type::Bool, contains_ip),
        ],
    );
    all.add(
        "containsCIDR",
        [
            member("cidr_contains_cidr_string", &[cidr(), Type::String], Type::Bool, contains_cidr),
            member("cidr_contains_cidr", &[cidr(), cidr()], Type::Bool, contains_cidr),
        ],
    );
    all.add("ip", [member("cidr_ip", &[cidr()], address(), |_, args| Ok(Value::Ip(of(args)?.address)))]);
    all.add(
        "prefixLength",
        [member("cidr_prefix_length", &[cidr()], Type::Int, |_, args| Ok(Value::Int(i64::from(of(args)?.bits))))],
    );
    all.add("masked", [member("cidr_masked", &[cidr()], cidr(), masked)]);
    all.add(
        "isCIDR",
        [global("is_cidr", &[Type::String], Type::Bool, |_, args| {
            Ok(Value::Bool(Cidr::parse(text(args, 0)?).is_ok()))
        })],
    );
    all.add(
        "string",
        [global("cidr_to_string", &[cidr()], Type::String, |_, args| Ok(Value::string(of(args)?.to_string())))],
    );
}

fn of(args: &[Value<'_>]) -> Result<Cidr, Stop> {
    match any(args, 0)? {
        Value::Cidr(cidr) => Ok(*cidr),
        _ => Err(Stop::no_such_overload()),
    }
}

fn parse_arg(args: &[Value<'_>], index: usize) -> Result<Cidr, Stop> {
    Cidr::parse(text(args, index)?)
        .map_err(|error| Stop::Error(format!("network address parse error during conversion from string: {error}")))
}

fn contains_ip<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let address = match any(args, 1)? {
        Value::Ip(address) => *address,
        // The reference implementation reports only that the argument is no address.
        other => ip::parse(other.as_str().unwrap_or_default()).map_err(|_| Stop::no_such_overload())?,
    };
    Ok(Value::Bool(of(args)?.contains(address)))
}

fn contains_cidr<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let other = match any(args, 1)? {
        Value::Cidr(other) => *other,
        _ => parse_arg(args, 1)?,
    };
    let cidr = of(args)?;
    Ok(Value::Bool(cidr.bits <= other.bits && cidr.contains(other.address)))
}

fn masked<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let cidr = of(args)?;
    Ok(Value::Cidr(Cidr { address: Cidr::mask(cidr.address, cidr.bits), ..cidr }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_and_contain_addresses() {
        let cidr = |text: &str| Cidr::parse(text).expect("a prefix");
        assert!(cidr("10.0.0.1/8").contains([10, 1, 2, 3].into()));
        assert!(!cidr("10.0.0.0/8").contains([11, 1, 2, 3].into()));
        assert!(cidr("0.0.0.0/0").contains([255, 1, 2, 3].into()));
        assert!(!cidr("::/0").contains([10, 0, 0, 1].into()));
        assert_eq!(cidr("fd00::1/64").to_string(), "fd00::1/64");
        for (text, wanted) in [
            ("1.2.3.4", "no '/'"),
            ("1.2.3.4/33", "out of range"),
            ("1.2.3.4/08", "bad bits"),
            ("::ffff:1.2.3.4/96", "mapped"),
        ] {
            assert!(Cidr::parse(text).is_err_and(|error| error.contains(wanted)), "{text}");
        }
    }
}
