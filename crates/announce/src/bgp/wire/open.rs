//! OPEN: who speaks, for how long silence is fine, and what it can do.
//!
//! In: bytes, or what we say of ourselves. Out: the same the other way round. Capabilities (RFC 5492) that we do not know are kept as
//! bytes and mean nothing.

use std::net::Ipv4Addr;

use super::{Family, Notification, OPEN, Rest, framed};

/// The number that stands where one of four octets has no room (RFC 6793).
pub const AS_TRANS: u16 = 23456;

/// The parameter that carries capabilities.
const CAPABILITIES: u8 = 2;
/// As a length and as a type: lengths of two octets follow (RFC 9072).
const EXTENDED: u8 = 255;

const MULTIPROTOCOL: u8 = 1;
const ROUTE_REFRESH: u8 = 2;
const GRACEFUL_RESTART: u8 = 64;
const FOUR_OCTETS: u8 = 65;

/// The bit that says: I have restarted.
const RESTARTED: u16 = 0x8000;
/// The bits of the time.
const SECONDS: u16 = 0x0fff;
/// The bit that says: packets went on being forwarded.
const FORWARDED: u8 = 0x80;

/// Who speaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    /// The number of its autonomous system, or [`AS_TRANS`].
    pub my_as: u16,
    /// How long silence is fine, in seconds; nothing or at least three.
    pub hold: u16,
    /// Its name among routers.
    pub id: Ipv4Addr,
    /// What it can do.
    pub capabilities: Vec<Capability>,
}

/// Something that a speaker can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Capability {
    /// Routes of this family (RFC 4760).
    Multiprotocol(Family),
    /// Telling all routes again (RFC 2918).
    Refresh,
    /// Forwarding while its program is away (RFC 4724).
    Restart(Restart),
    /// Numbers of four octets (RFC 6793); this is its own.
    Wide(u32),
    /// Something that we do not know.
    Unknown {
        /// Its number.
        code: u8,
        /// What belongs to it.
        data: Vec<u8>,
    },
}

/// How a speaker goes on forwarding while its program is away.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Restart {
    /// Whether its program has just come back.
    pub restarted: bool,
    /// For how many seconds its routes should be kept; at most 4095.
    pub seconds: u16,
    /// Families, and whether packets of them went on being forwarded.
    pub families: Vec<(Family, bool)>,
}

impl Open {
    /// The number of its autonomous system.
    #[must_use]
    pub fn asn(&self) -> u32 {
        let wide = self.capabilities.iter().find_map(|capability| match capability {
            Capability::Wide(asn) => Some(*asn),
            _ => None,
        });
        wide.unwrap_or_else(|| self.my_as.into())
    }

    /// Whether its numbers have four octets.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.capabilities.iter().any(|capability| matches!(capability, Capability::Wide(_)))
    }

    /// Whether it takes routes of a family. Who says nothing of families speaks of IPv4.
    #[must_use]
    pub fn takes(&self, family: Family) -> bool {
        let mut families = self.capabilities.iter().filter_map(|capability| match capability {
            Capability::Multiprotocol(family) => Some(*family),
            _ => None,
        });
        let mut said = families.clone().peekable();
        if said.peek().is_none() { family == Family::V4 } else { families.any(|said| said == family) }
    }

    /// What it says of restarts.
    #[must_use]
    pub fn restart(&self) -> Option<&Restart> {
        self.capabilities.iter().find_map(|capability| match capability {
            Capability::Restart(restart) => Some(restart),
            _ => None,
        })
    }

    /// Reads it.
    pub(super) fn read(body: &[u8]) -> Result<Self, Notification> {
        let mut rest = Rest(body);
        if rest.byte() != Some(4) {
            return Err(Notification::bad_version());
        }
        let head = |rest: &mut Rest<'_>| Some((rest.short()?, rest.short()?, rest.long()?, rest.byte()?));
        let (my_as, hold, id, length) = head(&mut rest).ok_or(Notification::BAD_OPEN)?;
        if matches!(hold, 1 | 2) {
            return Err(Notification::BAD_HOLD_TIME);
        }
        if id == 0 {
            return Err(Notification::BAD_IDENTIFIER);
        }
        let is_extended = length != 0 && rest.0.first() == Some(&EXTENDED);
        let length = match is_extended {
            true => rest.take(1).and_then(|_| rest.short()).ok_or(Notification::BAD_OPEN)?,
            false => length.into(),
        };
        if usize::from(length) != rest.0.len() {
            return Err(Notification::BAD_OPEN);
        }
        let mut capabilities = Vec::new();
        while !rest.is_empty() {
            let kind = rest.byte().ok_or(Notification::BAD_OPEN)?;
            let length = if is_extended { rest.short() } else { rest.byte().map(u16::from) };
            let value = length.and_then(|length| rest.take(length.into())).ok_or(Notification::BAD_OPEN)?;
            if kind != CAPABILITIES {
                return Err(Notification::BAD_PARAMETER);
            }
            read_capabilities(value, &mut capabilities).ok_or(Notification::BAD_OPEN)?;
        }
        Ok(Self { my_as, hold, id: id.into(), capabilities })
    }

    /// Writes it.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let capabilities: Vec<u8> = self.capabilities.iter().flat_map(Capability::write).collect();
        let mut body = vec![4];
        body.extend(self.my_as.to_be_bytes());
        body.extend(self.hold.to_be_bytes());
        body.extend(self.id.octets());
        match u8::try_from(capabilities.len()) {
            Ok(0) => body.push(0),
            Ok(length) if length < EXTENDED - 2 => body.extend([length + 2, CAPABILITIES, length]),
            _ => {
                let length = u16::try_from(capabilities.len()).unwrap_or(u16::MAX);
                body.extend([EXTENDED, EXTENDED]);
                body.extend(length.saturating_add(3).to_be_bytes());
                body.push(CAPABILITIES);
                body.extend(length.to_be_bytes());
            }
        }
        body.extend(capabilities);
        framed(OPEN, &body)
    }
}

impl Capability {
    fn write(&self) -> Vec<u8> {
        let family = |family: Family| [family.afi.to_be_bytes(), [0, family.safi]].concat();
        let (code, data) = match self {
            Self::Multiprotocol(said) => (MULTIPROTOCOL, family(*said)),
            Self::Refresh => (ROUTE_REFRESH, Vec::new()),
            Self::Restart(restart) => {
                let flag = if restart.restarted { RESTARTED } else { 0 };
                let mut data = (flag | (restart.seconds & SECONDS)).to_be_bytes().to_vec();
                for (family, forwarded) in &restart.families {
                    data.extend(family.afi.to_be_bytes());
                    data.extend([family.safi, if *forwarded { FORWARDED } else { 0 }]);
                }
                (GRACEFUL_RESTART, data)
            }
            Self::Wide(asn) => (FOUR_OCTETS, asn.to_be_bytes().into()),
            Self::Unknown { code, data } => (*code, data.clone()),
        };
        let mut out = vec![code, u8::try_from(data.len()).unwrap_or(u8::MAX)];
        out.extend(data.iter().take(usize::from(u8::MAX)));
        out
    }
}

/// Reads the capabilities of a parameter. One of ours whose length is wrong is as one that we do not know.
fn read_capabilities(value: &[u8], out: &mut Vec<Capability>) -> Option<()> {
    let mut rest = Rest(value);
    while !rest.is_empty() {
        let (code, length) = (rest.byte()?, rest.byte()?);
        let data = rest.take(length.into())?;
        out.push(known(code, data).unwrap_or_else(|| Capability::Unknown { code, data: data.into() }));
    }
    Some(())
}

fn known(code: u8, data: &[u8]) -> Option<Capability> {
    let mut rest = Rest(data);
    let capability = match code {
        MULTIPROTOCOL => {
            let (afi, [_, safi]) = (rest.short()?, rest.chunk()?);
            Capability::Multiprotocol(Family { afi, safi })
        }
        ROUTE_REFRESH => Capability::Refresh,
        GRACEFUL_RESTART => {
            let first = rest.short()?;
            let mut families = Vec::new();
            while let Some([high, low, safi, flags]) = rest.chunk() {
                families.push((Family { afi: u16::from_be_bytes([high, low]), safi }, flags & FORWARDED != 0));
            }
            Capability::Restart(Restart { restarted: first & RESTARTED != 0, seconds: first & SECONDS, families })
        }
        FOUR_OCTETS => Capability::Wide(rest.long()?),
        _ => return None,
    };
    rest.is_empty().then_some(capability)
}
