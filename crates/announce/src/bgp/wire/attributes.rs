//! Path attributes.
//!
//! In: the attributes of a message, or values. Out: values and their most severe error, or bytes. Errors are handled as in
//! RFC 7606: most affect the routes of the message and not the session. Attributes that are not used are validated where an
//! error would matter, and dropped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::open::AS_TRANS;
use super::received::{ErrorAction, UpdateError};
use super::{Family, Negotiated, Notification, Reader, prefix};

const ORIGIN: u8 = 1;
const AS_PATH: u8 = 2;
const NEXT_HOP: u8 = 3;
const METRIC: u8 = 4;
const LOCAL_PREF: u8 = 5;
const ATOMIC_AGGREGATE: u8 = 6;
const AGGREGATOR: u8 = 7;
const COMMUNITIES: u8 = 8;
const ORIGINATOR: u8 = 9;
const CLUSTERS: u8 = 10;
const MP_REACH: u8 = 14;
const MP_UNREACH: u8 = 15;
const EXTENDED_COMMUNITIES: u8 = 16;
const AS4_PATH: u8 = 17;
const AS4_AGGREGATOR: u8 = 18;
const LARGE_COMMUNITIES: u8 = 32;

const OPTIONAL: u8 = 0x80;
const TRANSITIVE: u8 = 0x40;
/// Extended length flag.
const LONG: u8 = 0x10;

/// A large community (RFC 8092).
pub type Large = [u32; 3];

/// Known path attributes of an UPDATE.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// ORIGIN: 0 IGP, 1 EGP, 2 incomplete.
    pub origin: Option<u8>,
    /// AS_PATH.
    pub path: Option<Vec<Segment>>,
    /// NEXT_HOP of IPv4 prefixes.
    pub next_hop: Option<Ipv4Addr>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// Communities (RFC 1997).
    pub communities: Vec<u32>,
    /// Large communities.
    pub large: Vec<Large>,
    /// MP_REACH_NLRI (RFC 4760).
    pub reach: Option<Reach>,
    /// MP_UNREACH_NLRI.
    pub unreach: Option<Unreach>,
}

/// A segment of AS_PATH.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// AS_SEQUENCE, the last AS first; otherwise AS_SET.
    pub ordered: bool,
    /// AS numbers.
    pub systems: Vec<u32>,
}

/// Announced routes of a family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reach {
    /// Their family.
    pub family: Family,
    /// Next hop.
    pub next_hop: IpAddr,
    /// Prefixes.
    pub routes: Vec<IpNet>,
}

/// Withdrawn routes of a family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreach {
    /// Their family.
    pub family: Family,
    /// Prefixes.
    pub routes: Vec<IpNet>,
}

/// Result of parsing.
pub(super) struct ParsedAttributes {
    pub(super) attributes: Attributes,
    /// The most severe error.
    pub(super) error: Option<UpdateError>,
    /// Whether the list is truncated.
    pub(super) is_truncated: bool,
}

/// The value of an attribute of no family of ours is none of our business.
type Value<T> = Result<Option<T>, Notification>;

impl Attributes {
    /// Parses a list of attributes.
    pub(super) fn read(bytes: &[u8], negotiated: Negotiated) -> Result<ParsedAttributes, Notification> {
        let mut found = ParsedAttributes { attributes: Self::default(), error: None, is_truncated: false };
        let (mut rest, mut seen) = (Reader(bytes), [false; 256]);
        while !rest.is_empty() {
            let Some((flags, kind, value)) = next(&mut rest) else {
                found.is_truncated = true;
                found.add_error(ErrorAction::TreatAsWithdraw, "truncated attributes");
                break;
            };
            if std::mem::replace(&mut seen[usize::from(kind)], true) {
                if matches!(kind, MP_REACH | MP_UNREACH) {
                    return Err(Notification::BAD_ATTRIBUTES);
                }
                found.add_error(ErrorAction::DiscardAttribute, "duplicate attribute");
                continue;
            }
            found.take(flags, kind, value, negotiated)?;
        }
        Ok(found)
    }

    /// Encodes the list. Attributes with routes come first, so that they are found if the rest is malformed (RFC 7606).
    pub(super) fn write(&self, negotiated: Negotiated, out: &mut Vec<u8>) {
        if let Some(unreach) = &self.unreach {
            let mut value = [&unreach.family.afi.to_be_bytes()[..], &[unreach.family.safi]].concat();
            prefix::write(&unreach.routes, &mut value);
            put(out, OPTIONAL, MP_UNREACH, &value);
        }
        if let Some(reach) = &self.reach {
            let mut value = [&reach.family.afi.to_be_bytes()[..], &[reach.family.safi]].concat();
            match reach.next_hop {
                IpAddr::V4(hop) => value.extend([&[4], &hop.octets()[..]].concat()),
                IpAddr::V6(hop) => value.extend([&[16], &hop.octets()[..]].concat()),
            }
            value.push(0);
            prefix::write(&reach.routes, &mut value);
            put(out, OPTIONAL, MP_REACH, &value);
        }
        if let Some(origin) = self.origin {
            put(out, TRANSITIVE, ORIGIN, &[origin]);
        }
        if let Some(path) = &self.path {
            put(out, TRANSITIVE, AS_PATH, &write_path(path, negotiated.four_octet_as));
            if !negotiated.four_octet_as
                && path.iter().flat_map(|segment| &segment.systems).any(|asn| u16::try_from(*asn).is_err())
            {
                put(out, OPTIONAL | TRANSITIVE, AS4_PATH, &write_path(path, true));
            }
        }
        if let Some(hop) = self.next_hop {
            put(out, TRANSITIVE, NEXT_HOP, &hop.octets());
        }
        if let Some(preference) = self.local_pref {
            put(out, TRANSITIVE, LOCAL_PREF, &preference.to_be_bytes());
        }
        if !self.communities.is_empty() {
            let value: Vec<u8> = self.communities.iter().flat_map(|community| community.to_be_bytes()).collect();
            put(out, OPTIONAL | TRANSITIVE, COMMUNITIES, &value);
        }
        if !self.large.is_empty() {
            let value: Vec<u8> = self.large.iter().flatten().flat_map(|number| number.to_be_bytes()).collect();
            put(out, OPTIONAL | TRANSITIVE, LARGE_COMMUNITIES, &value);
        }
    }
}

impl ParsedAttributes {
    /// Keeps the most severe error, the first of equals.
    pub(super) fn add_error(&mut self, action: ErrorAction, what: &'static str) {
        if self.error.as_ref().is_none_or(|known| known.action < action) {
            self.error = Some(UpdateError { action, what });
        }
    }

    /// Adds an attribute.
    fn take(&mut self, flags: u8, kind: u8, value: &[u8], negotiated: Negotiated) -> Result<(), Notification> {
        let Some(expected) = flags_of(kind) else {
            // Unknown attributes must be optional.
            let data = [&[flags, kind], value].concat();
            let unknown = Notification { data, ..Notification::new(3, 2) };
            return if flags & OPTIONAL == 0 { Err(unknown) } else { Ok(()) };
        };
        if matches!(kind, MP_REACH | MP_UNREACH) {
            // The affected routes cannot be determined without these.
            match kind {
                MP_REACH => self.attributes.reach = reach(value)?,
                _ => self.attributes.unreach = unreach(value)?,
            }
        }
        if flags & (OPTIONAL | TRANSITIVE) != expected {
            self.add_error(ErrorAction::TreatAsWithdraw, "attribute with invalid flags");
            return Ok(());
        }
        if !negotiated.internal && matches!(kind, LOCAL_PREF | ORIGINATOR | CLUSTERS) {
            // Ignored from eBGP peers.
            return Ok(());
        }
        self.value(kind, value, negotiated);
        Ok(())
    }

    /// Adds the value of an attribute without routes.
    fn value(&mut self, kind: u8, value: &[u8], negotiated: Negotiated) {
        let attributes = &mut self.attributes;
        let error = match kind {
            ORIGIN => {
                attributes.origin = value.first().copied().filter(|origin| value.len() == 1 && *origin <= 2);
                attributes.origin.is_none().then_some("ORIGIN is none")
            }
            AS_PATH => {
                attributes.path = read_path(value, negotiated.four_octet_as);
                attributes.path.is_none().then_some("AS_PATH cannot be read")
            }
            NEXT_HOP => {
                attributes.next_hop = <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from);
                attributes.next_hop.is_none().then_some("NEXT_HOP is not an address")
            }
            METRIC => (value.len() != 4).then_some("MULTI_EXIT_DISC has a wrong length"),
            LOCAL_PREF => {
                attributes.local_pref = value.try_into().ok().map(u32::from_be_bytes);
                attributes.local_pref.is_none().then_some("LOCAL_PREF has a wrong length")
            }
            ORIGINATOR => (value.len() != 4).then_some("ORIGINATOR_ID has a wrong length"),
            CLUSTERS => wrong_multiple(value, 4).then_some("CLUSTER_LIST has a wrong length"),
            COMMUNITIES => {
                attributes.communities = numbers(value).collect();
                wrong_multiple(value, 4).then_some("COMMUNITIES have a wrong length")
            }
            EXTENDED_COMMUNITIES => wrong_multiple(value, 8).then_some("EXTENDED COMMUNITIES have a wrong length"),
            LARGE_COMMUNITIES => {
                let all: Vec<u32> = numbers(value).collect();
                attributes.large = all.chunks_exact(3).map(|three| [three[0], three[1], three[2]]).collect();
                wrong_multiple(value, 12).then_some("LARGE_COMMUNITY has a wrong length")
            }
            ATOMIC_AGGREGATE if !value.is_empty() => {
                return self.add_error(ErrorAction::DiscardAttribute, "ATOMIC_AGGREGATE has a value");
            }
            AGGREGATOR if value.len() != if negotiated.four_octet_as { 8 } else { 6 } => {
                return self.add_error(ErrorAction::DiscardAttribute, "AGGREGATOR has a wrong length");
            }
            // AS4_PATH and AS4_AGGREGATOR: paths are not used.
            _ => None,
        };
        if let Some(what) = error {
            self.add_error(ErrorAction::TreatAsWithdraw, what);
        }
    }
}

/// Whether a list of fixed-size items is empty or truncated.
const fn wrong_multiple(value: &[u8], each: usize) -> bool {
    value.is_empty() || !value.len().is_multiple_of(each)
}

fn numbers(value: &[u8]) -> impl Iterator<Item = u32> {
    value.as_chunks().0.iter().map(|octets| u32::from_be_bytes(*octets))
}

/// The next attribute: its flags, its kind, its value.
fn next<'a>(rest: &mut Reader<'a>) -> Option<(u8, u8, &'a [u8])> {
    let (flags, kind) = (rest.byte()?, rest.byte()?);
    let length = if flags & LONG == 0 { rest.byte()?.into() } else { rest.short()? };
    Some((flags, kind, rest.take(length.into())?))
}

/// Flags of a known attribute.
const fn flags_of(kind: u8) -> Option<u8> {
    Some(match kind {
        ORIGIN | AS_PATH | NEXT_HOP | LOCAL_PREF | ATOMIC_AGGREGATE => TRANSITIVE,
        METRIC | ORIGINATOR | CLUSTERS | MP_REACH | MP_UNREACH => OPTIONAL,
        AGGREGATOR | COMMUNITIES | EXTENDED_COMMUNITIES | AS4_PATH | AS4_AGGREGATOR | LARGE_COMMUNITIES => {
            OPTIONAL | TRANSITIVE
        }
        _ => return None,
    })
}

fn put(out: &mut Vec<u8>, flags: u8, kind: u8, value: &[u8]) {
    match u8::try_from(value.len()) {
        Ok(length) => out.extend([flags, kind, length]),
        Err(_) => {
            out.extend([flags | LONG, kind]);
            out.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    out.extend(value);
}

fn read_path(value: &[u8], four_octet_as: bool) -> Option<Vec<Segment>> {
    let mut rest = Reader(value);
    let mut path = Vec::new();
    while !rest.is_empty() {
        let ordered = match rest.byte()? {
            1 => false,
            2 => true,
            _ => return None,
        };
        let count = rest.byte().filter(|count| *count > 0)?;
        let number = |_| if four_octet_as { rest.long() } else { rest.short().map(u32::from) };
        path.push(Segment { ordered, systems: (0..count).map(number).collect::<Option<_>>()? });
    }
    Some(path)
}

fn write_path(path: &[Segment], four_octet_as: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for segment in path {
        let kind = if segment.ordered { 2 } else { 1 };
        out.extend([kind, u8::try_from(segment.systems.len()).unwrap_or(u8::MAX)]);
        for asn in segment.systems.iter().take(u8::MAX.into()) {
            match four_octet_as {
                true => out.extend(asn.to_be_bytes()),
                false => out.extend(u16::try_from(*asn).unwrap_or(AS_TRANS).to_be_bytes()),
            }
        }
    }
    out
}

fn family(rest: &mut Reader<'_>) -> Result<Family, Notification> {
    let read = |rest: &mut Reader<'_>| Some(Family { afi: rest.short()?, safi: rest.byte()? });
    read(rest).ok_or(Notification::BAD_OPTIONAL)
}

fn reach(value: &[u8]) -> Value<Reach> {
    let mut rest = Reader(value);
    let family = family(&mut rest)?;
    let hop = rest.byte().and_then(|length| rest.take(length.into())).ok_or(Notification::BAD_OPTIONAL)?;
    rest.byte().ok_or(Notification::BAD_OPTIONAL)?;
    if !Family::OURS.contains(&family) {
        return Ok(None);
    }
    let next_hop = match hop.len() {
        4 => hop.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        // The optional second next hop is link-local.
        16 | 32 => hop.first_chunk::<16>().map(|octets| IpAddr::from(Ipv6Addr::from(*octets))),
        _ => None,
    };
    let next_hop = next_hop.ok_or(Notification::BAD_OPTIONAL)?;
    let routes = prefix::read(rest.0, family).ok_or(Notification::BAD_OPTIONAL)?;
    Ok(Some(Reach { family, next_hop, routes }))
}

fn unreach(value: &[u8]) -> Value<Unreach> {
    let mut rest = Reader(value);
    let family = family(&mut rest)?;
    if !Family::OURS.contains(&family) {
        return Ok(None);
    }
    let routes = prefix::read(rest.0, family).ok_or(Notification::BAD_OPTIONAL)?;
    Ok(Some(Unreach { family, routes }))
}
