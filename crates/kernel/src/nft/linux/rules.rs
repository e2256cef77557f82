//! Encodes statements as kernel expressions.
//!
//! Only forms that `nft` itself writes are used, register by register: it aborts on bytecode that it cannot translate
//! back, which would break `nft list ruleset` for everyone on the machine.

use super::numbers::{LIST_ELEMENT, data, rule, verdict};
use crate::Family;
use crate::netlink::Writer;
use crate::nft::{Field, Statement, Verdict};

/// Verdict register.
const VERDICT: u32 = 0;
/// First of the 4-byte registers.
pub(crate) const FIRST: u32 = 8;

/// Payload bases.
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;

/// Keys of `meta`.
const MARK: u32 = 3;
const INPUT_INTERFACE: u32 = 6;
const PROTOCOL: u32 = 16;

/// Keys of `ct`.
const CT_STATE: u32 = 0;
const CT_STATUS: u32 = 2;
/// `ct state new`.
const STATE_NEW: u32 = 8;
/// `ct status dnat`.
const STATUS_DNAT: u32 = 0x20;

/// `fib`: address, and result type.
const FIB_SOURCE: u32 = 1;
const FIB_DESTINATION: u32 = 2;
const FIB_TYPE: u32 = 3;
/// Address type `local`.
const LOCAL: u32 = 2;

/// Comparisons.
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;

/// Kinds of `numgen`.
const INCREMENTAL: u32 = 0;
const RANDOM: u32 = 1;
/// Kind of `hash`.
const JENKINS: u32 = 0;

/// IP protocol number of TCP.
const TCP: u8 = 6;

/// `fully-random`.
const FULLY_RANDOM: u32 = 0x10;

/// A port is given.
const PORT_GIVEN: u32 = 0x2;

/// Maximum length of an interface name, including the final zero.
pub(crate) const INTERFACE_NAME: usize = 16;

/// Writes the expressions of a statement.
pub(crate) fn statement(w: &mut Writer, family: Family, statement: &Statement) {
    match statement {
        Statement::NewConnection => ct_bits(w, CT_STATE, STATE_NEW),
        Statement::Translated => ct_bits(w, CT_STATUS, STATUS_DNAT),
        Statement::Marked(bits) => {
            meta(w, MARK);
            any_bit(w, *bits);
        }
        Statement::In { key, set, negate } => {
            load(w, family, key);
            lookup(w, set, None, *negate);
        }
        Statement::LocalSource => fib_local(w, FIB_SOURCE),
        Statement::LocalDestination => fib_local(w, FIB_DESTINATION),
        Statement::Interface { name, prefix, negate } => {
            let mut bytes = name.as_bytes().to_vec();
            if !prefix {
                bytes.resize(INTERFACE_NAME, 0);
            }
            meta(w, INPUT_INTERFACE);
            compare(w, if *negate { NOT_EQUAL } else { EQUAL }, &bytes);
        }
        Statement::Mark(bits) => mark(w, !*bits, *bits),
        Statement::Unmark(bits) => mark(w, !*bits, 0),
        Statement::Dispatch { key, map } => {
            load(w, family, key);
            lookup(w, map, Some(VERDICT), false);
        }
        Statement::Translate { key, map } => {
            load(w, family, key);
            lookup(w, map, Some(FIRST), false);
            translate(w, family);
        }
        Statement::Redirect { protocol, key, map } => {
            meta(w, PROTOCOL);
            compare(w, EQUAL, &[*protocol]);
            load(w, family, key);
            lookup(w, map, Some(FIRST), false);
            expression(w, "redir", |w| {
                w.be32(1, FIRST);
                w.be32(3, PORT_GIVEN);
            });
        }
        Statement::Remember { set, key } => {
            load(w, family, key);
            expression(w, "dynset", |w| {
                w.text(1, set);
                w.be32(3, 1);
                w.be32(4, FIRST);
            });
        }
        Statement::Masquerade => expression(w, "masq", |w| w.be32(1, FULLY_RANDOM)),
        Statement::Reject => expression(w, "reject", |w| {
            // Type 0 is ICMP unreachable; the code for the port differs.
            let code = match family {
                Family::Ip => 3,
                Family::Ip6 => 4,
            };
            w.be32(1, 0);
            w.bytes(2, &[code]);
        }),
        Statement::Reset => {
            meta(w, PROTOCOL);
            compare(w, EQUAL, &[TCP]);
            expression(w, "reject", |w| {
                w.be32(1, 1);
                w.bytes(2, &[0]);
            });
        }
        Statement::Go(verdict) => go(w, verdict),
    }
}

/// Ends a rule with a verdict.
pub(crate) fn go(w: &mut Writer, verdict: &Verdict) {
    expression(w, "immediate", |w| {
        w.be32(1, VERDICT);
        w.nest(2, |w| self::verdict(w, verdict));
    });
}

/// Writes a verdict of a rule or map element.
pub(crate) fn verdict(w: &mut Writer, verdict: &Verdict) {
    let code = match verdict {
        Verdict::Accept => verdict::ACCEPT,
        Verdict::Drop => verdict::DROP,
        Verdict::Continue => verdict::CONTINUE,
        Verdict::Return => verdict::RETURN,
        Verdict::Jump(_) => verdict::JUMP,
        Verdict::Goto(_) => verdict::GOTO,
    };
    w.nest(data::VERDICT, |w| {
        w.be32(data::VERDICT_CODE, code.cast_unsigned());
        if let Some(target) = verdict.target() {
            w.text(data::VERDICT_CHAIN, target);
        }
    });
}

/// Writes a named expression as a list element.
pub(crate) fn expression(w: &mut Writer, name: &str, body: impl FnOnce(&mut Writer)) {
    w.nest(LIST_ELEMENT, |w| named(w, name, body));
}

/// Writes a named expression.
pub(crate) fn named(w: &mut Writer, name: &str, body: impl FnOnce(&mut Writer)) {
    w.text(rule::EXPRESSION_NAME, name);
    w.nest(rule::EXPRESSION_DATA, body);
}

/// Loads the fields of a key into consecutive registers.
fn load(w: &mut Writer, family: Family, key: &[Field]) {
    let words = |field: &Field| u32::try_from(field.kind().len(family).div_ceil(4)).unwrap_or_default();
    let mut register = FIRST;
    // The next register of 16 bytes behind the key, as `nft` has it.
    let scratch = FIRST + key.iter().map(words).sum::<u32>().next_multiple_of(4);
    for field in key {
        load_field(w, family, *field, (register, scratch));
        register += words(field);
    }
}

/// Loads a field into a register; what it is computed from into a scratch register.
fn load_field(w: &mut Writer, family: Family, field: Field, (register, scratch): (u32, u32)) {
    let (source, destination, length) = match family {
        Family::Ip => (12, 16, 4),
        Family::Ip6 => (8, 24, 16),
    };
    let payload = |w: &mut Writer, into, base, offset, length| {
        expression(w, "payload", |w| {
            w.be32(1, into);
            w.be32(2, base);
            w.be32(3, offset);
            w.be32(4, length);
        });
    };
    match field {
        Field::Source => payload(w, register, NETWORK_HEADER, source, length),
        Field::Destination => payload(w, register, NETWORK_HEADER, destination, length),
        Field::DestinationPort => payload(w, register, TRANSPORT_HEADER, 2, 2),
        Field::Protocol => expression(w, "meta", |w| {
            w.be32(1, register);
            w.be32(2, PROTOCOL);
        }),
        Field::Random(below) => numgen(w, register, below, RANDOM),
        Field::Incremental(below) => numgen(w, register, below, INCREMENTAL),
        Field::SourceHash { below, seed } => {
            payload(w, scratch, NETWORK_HEADER, source, length);
            expression(w, "hash", |w| {
                w.be32(1, scratch);
                w.be32(2, register);
                w.be32(3, length);
                w.be32(4, below);
                w.be32(5, seed);
                w.be32(6, 0);
                w.be32(7, JENKINS);
            });
        }
    }
}

/// A number below a bound.
fn numgen(w: &mut Writer, register: u32, below: u32, kind: u32) {
    expression(w, "numgen", |w| {
        w.be32(1, register);
        w.be32(2, below);
        w.be32(3, kind);
        w.be32(4, 0);
    });
}

pub(crate) fn lookup(w: &mut Writer, set: &str, into: Option<u32>, negate: bool) {
    expression(w, "lookup", |w| {
        w.text(1, set);
        w.be32(2, FIRST);
        if let Some(register) = into {
            w.be32(3, register);
        }
        if negate {
            w.be32(5, 1);
        }
    });
}

/// DNAT to the address and port in consecutive registers.
fn translate(w: &mut Writer, family: Family) {
    let words = u32::try_from(family.address_len() / 4).unwrap_or_default();
    expression(w, "nat", |w| {
        w.be32(1, 1);
        w.be32(2, u32::from(family.number()));
        w.be32(3, FIRST);
        w.be32(5, FIRST + words);
    });
}

pub(crate) fn meta(w: &mut Writer, key: u32) {
    expression(w, "meta", |w| {
        w.be32(1, FIRST);
        w.be32(2, key);
    });
}

fn ct_bits(w: &mut Writer, key: u32, bits: u32) {
    expression(w, "ct", |w| {
        w.be32(1, FIRST);
        w.be32(2, key);
    });
    any_bit(w, bits);
}

fn fib_local(w: &mut Writer, address: u32) {
    expression(w, "fib", |w| {
        w.be32(1, FIRST);
        w.be32(2, FIB_TYPE);
        w.be32(3, address);
    });
    compare(w, EQUAL, &LOCAL.to_ne_bytes());
}

/// Matches when the register has one of the bits.
fn any_bit(w: &mut Writer, bits: u32) {
    bitwise(w, bits, 0);
    compare(w, NOT_EQUAL, &0u32.to_ne_bytes());
}

/// Sets the mark to `mark & mask ^ xor`.
fn mark(w: &mut Writer, mask: u32, xor: u32) {
    meta(w, MARK);
    bitwise(w, mask, xor);
    expression(w, "meta", |w| {
        w.be32(2, MARK);
        w.be32(3, FIRST);
    });
}

fn bitwise(w: &mut Writer, mask: u32, xor: u32) {
    expression(w, "bitwise", |w| {
        w.be32(1, FIRST);
        w.be32(2, FIRST);
        w.be32(3, 4);
        w.nest(4, |w| w.bytes(data::VALUE, &mask.to_ne_bytes()));
        w.nest(5, |w| w.bytes(data::VALUE, &xor.to_ne_bytes()));
    });
}

pub(crate) fn compare(w: &mut Writer, operation: u32, value: &[u8]) {
    expression(w, "cmp", |w| {
        w.be32(1, FIRST);
        w.be32(2, operation);
        w.nest(3, |w| w.bytes(data::VALUE, value));
    });
}
