//! Encodes sets and elements.
//!
//! Besides what the kernel needs, a set has user data for `nft`, without which it could not name the parts of a key.
//! Keys with a random number have no type name, so such a set gives an expression for each part (`typeof`). So does a
//! map to addresses and ports, or DNAT rules could not be listed.

use super::numbers::{LIST_ELEMENT, data, element, set};
use super::rules;
use crate::Family;
use crate::netlink::Writer;
use crate::nft::key::packed_len;
use crate::nft::{Key, Set, SetValue, Type, Value};

/// Maximum size of a dynamic set, as with `nft`.
const DYNAMIC_SIZE: u32 = 65_535;
/// Maximum length of user data in the kernel.
const USER_DATA_MAX: usize = 256;
/// Bits per type in a concatenated type number.
pub(crate) const TYPE_BITS: u32 = 6;

/// The `nft` number of a type.
pub(crate) fn type_number(one: Type, family: Family) -> u32 {
    match (one, family) {
        (Type::Address, Family::Ip) => 7,
        (Type::Address, Family::Ip6) => 8,
        (Type::Protocol, _) => 12,
        (Type::Port, _) => 13,
        (Type::Random, _) => 4,
    }
}

fn types_number(types: &[Type], family: Family) -> u32 {
    types.iter().fold(0, |number, one| number << TYPE_BITS | type_number(*one, family))
}

/// Writes the description of a set, without elements.
pub(crate) fn describe(w: &mut Writer, family: Family, set: &Set) {
    let concatenated = set.interval && set.key.len() > 1;
    let mut flags = 0;
    flags |= if set.interval { set::INTERVAL } else { 0 };
    flags |= if concatenated { set::CONCAT } else { 0 };
    flags |= if set.value == SetValue::Nothing { 0 } else { set::MAP };
    flags |= if set.timeout.is_some() { set::TIMEOUTS | set::DYNAMIC } else { 0 };
    w.be32(set::FLAGS, flags);
    w.be32(set::KEY_TYPE, types_number(&set.key, family));
    w.be32(set::KEY_LENGTH, length(&set.key, family));
    match &set.value {
        SetValue::Nothing => {}
        SetValue::Verdict => w.be32(set::DATA_TYPE, set::VERDICTS),
        SetValue::Data(types) => {
            w.be32(set::DATA_TYPE, types_number(types, family));
            w.be32(set::DATA_LENGTH, length(types, family));
        }
    }
    if let Some(seconds) = set.timeout {
        w.be64(set::TIMEOUT, u64::from(seconds) * 1000);
        w.nest(set::DESCRIPTION, |w| w.be32(set::DESCRIPTION_SIZE, DYNAMIC_SIZE));
    } else if concatenated {
        let field = |w: &mut Writer, one: &Type| {
            w.nest(LIST_ELEMENT, |w| w.be32(set::FIELD_LENGTH, u32::try_from(one.len(family)).unwrap_or_default()));
        };
        let fields = |w: &mut Writer| set.key.iter().for_each(|one| field(w, one));
        w.nest(set::DESCRIPTION, |w| w.nest(set::DESCRIPTION_CONCAT, fields));
    }
    let user_data = user_data(set, family);
    if user_data.len() <= USER_DATA_MAX {
        w.bytes(set::USER_DATA, &user_data);
    }
    if set.counters {
        w.nest(set::EXPRESSION, |w| rules::named(w, "counter", |_| ()));
    }
}

fn length(types: &[Type], family: Family) -> u32 {
    u32::try_from(packed_len(types, family)).unwrap_or(u32::MAX)
}

/// Writes the elements of a key, with its value if added.
///
/// An interval set of one part is a tree of boundaries: the start of a range and the value after its end. With
/// concatenations an element has both ends.
pub(crate) fn element(w: &mut Writer, set: &Shape, key: &Key, value: Option<&Value>) {
    w.nest(LIST_ELEMENT, |w| {
        w.nest(element::KEY, |w| w.bytes(data::VALUE, &key.start));
        if set.interval && set.parts > 1 {
            w.nest(element::KEY_END, |w| w.bytes(data::VALUE, key.last()));
        }
        match value {
            None | Some(Value::Nothing) => {}
            Some(Value::Data(bytes)) => w.nest(element::DATA, |w| w.bytes(data::VALUE, bytes)),
            Some(Value::Verdict(verdict)) => w.nest(element::DATA, |w| rules::verdict(w, verdict)),
        }
    });
    if set.interval && set.parts == 1 {
        // A range up to the maximum value has no end element.
        if let Some(border) = successor(key.last()) {
            w.nest(LIST_ELEMENT, |w| {
                w.be32(element::FLAGS, element::INTERVAL_END);
                w.nest(element::KEY, |w| w.bytes(data::VALUE, &border));
            });
        }
    }
}

/// Properties of a set that are needed to encode its elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Shape {
    /// Whether keys may be ranges.
    pub interval: bool,
    /// Number of key parts.
    pub parts: usize,
}

impl Shape {
    /// The shape of a set.
    pub(crate) fn of(set: &Set) -> Self {
        Self { interval: set.interval, parts: set.key.len() }
    }
}

/// The next value, if there is one.
pub(crate) fn successor(value: &[u8]) -> Option<Box<[u8]>> {
    let mut next: Box<[u8]> = value.into();
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(next);
        }
    }
    None
}

/// The previous value, if there is one.
pub(crate) fn predecessor(value: &[u8]) -> Option<Box<[u8]>> {
    let mut previous: Box<[u8]> = value.into();
    for byte in previous.iter_mut().rev() {
        *byte = byte.wrapping_sub(1);
        if *byte != 255 {
            return Some(previous);
        }
    }
    None
}

/// Expression kinds of `nft` user data.
const VERDICT: u32 = 1;
const PAYLOAD: u32 = 7;
const META: u32 = 9;
const CONCAT: u32 = 13;
const NUMGEN: u32 = 23;

/// User data for `nft`: records of type, length and value.
fn user_data(set: &Set, family: Family) -> Vec<u8> {
    const KEY_ORDER: u8 = 0;
    const DATA_ORDER: u8 = 1;
    const KEY_LIKE: u8 = 3;
    const DATA_LIKE: u8 = 4;
    const DATA_INTERVAL: u8 = 6;
    let is_like = set.key.contains(&Type::Random) || matches!(set.value, SetValue::Data(_));
    let mut out = number(KEY_ORDER, byte_order(&set.key));
    if set.value != SetValue::Nothing {
        let types = if let SetValue::Data(types) = &set.value { &types[..] } else { &[] };
        out.extend(number(DATA_ORDER, byte_order(types)));
        if is_like {
            out.extend(record(KEY_LIKE, &like(&set.key, family)));
            let value = if types.is_empty() { expression(VERDICT, &[]) } else { like(types, family) };
            out.extend(record(DATA_LIKE, &value));
        }
        out.extend(number(DATA_INTERVAL, 0));
    } else if is_like {
        out.extend(record(KEY_LIKE, &like(&set.key, family)));
    }
    out
}

/// 1 is host order, 2 network order, 0 unspecified.
fn byte_order(types: &[Type]) -> u32 {
    match types {
        [Type::Address | Type::Port] => 2,
        [Type::Random] => 1,
        _ => 0,
    }
}

fn record(kind: u8, value: &[u8]) -> Vec<u8> {
    // A record that is too long makes the whole too long; it is then omitted.
    let mut out = vec![kind, u8::try_from(value.len()).unwrap_or(u8::MAX)];
    out.extend_from_slice(value);
    out
}

fn number(kind: u8, value: u32) -> Vec<u8> {
    record(kind, &value.to_ne_bytes())
}

/// Expressions of these types.
fn like(types: &[Type], family: Family) -> Vec<u8> {
    if let [one] = types {
        return like_one(*one, family);
    }
    let fields = types.iter().zip(0u8..).flat_map(|(one, index)| record(index, &like_one(*one, family)));
    expression(CONCAT, &fields.collect::<Vec<_>>())
}

fn like_one(one: Type, family: Family) -> Vec<u8> {
    let numbers = |values: &[u32]| values.iter().zip(0u8..).flat_map(|(value, kind)| number(kind, *value)).collect();
    let (kind, content): (u32, Vec<u8>) = match (one, family) {
        // Destination address, destination port, protocol, random number.
        (Type::Address, Family::Ip) => (PAYLOAD, numbers(&[12, 12])),
        (Type::Address, Family::Ip6) => (PAYLOAD, numbers(&[13, 9])),
        (Type::Port, _) => (PAYLOAD, numbers(&[11, 2])),
        (Type::Protocol, _) => (META, numbers(&[16])),
        (Type::Random, _) => (NUMGEN, numbers(&[1, 65_536, 0])),
    };
    expression(kind, &content)
}

fn expression(kind: u32, content: &[u8]) -> Vec<u8> {
    let mut out = number(0, kind);
    out.extend(record(1, content));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successor_and_predecessor() {
        assert_eq!(successor(&[10, 0, 0, 255]).as_deref(), Some(&[10, 0, 1, 0][..]));
        assert_eq!(predecessor(&[10, 0, 1, 0]).as_deref(), Some(&[10, 0, 0, 255][..]));
        assert_eq!(successor(&[255, 255]), None);
        assert_eq!(predecessor(&[0, 0]), None);
    }

    #[test]
    fn type_numbers_equal_those_of_nft() {
        let types = [Type::Address, Type::Protocol, Type::Port, Type::Random];
        assert_eq!(types_number(&types, Family::Ip), 0x001c_c344);
        assert_eq!(types_number(&types, Family::Ip6), 0x0020_c344);
    }

    #[test]
    fn user_data_fits() {
        let key = vec![Type::Address, Type::Address, Type::Protocol, Type::Port, Type::Random];
        let value = SetValue::Data(vec![Type::Address, Type::Port]);
        let set = Set { key, value, ..Set::default() };
        assert!(user_data(&set, Family::Ip6).len() <= USER_DATA_MAX);
    }
}
