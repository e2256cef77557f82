//! Parsing and encoding of OPEN. Unknown capabilities (RFC 5492) are kept as bytes and ignored.

use std::net::Ipv4Addr;

use super::{Family, Notification, OPEN, Reader, frame};

/// Placeholder for a four-octet AS number (RFC 6793).
pub const AS_TRANS: u16 = 23456;

/// Optional parameter with capabilities.
const CAPABILITIES: u8 = 2;
/// Length and type that mark extended optional parameters (RFC 9072).
const EXTENDED: u8 = 255;

const MULTIPROTOCOL: u8 = 1;
const ROUTE_REFRESH: u8 = 2;
const GRACEFUL_RESTART: u8 = 64;
const FOUR_OCTETS: u8 = 65;

/// Restart bit.
const RESTARTED: u16 = 0x8000;
/// Mask of the restart time.
const SECONDS: u16 = 0x0fff;
/// Forwarding bit.
const FORWARDED: u8 = 0x80;

/// OPEN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    /// AS number, or [`AS_TRANS`].
    pub my_as: u16,
    /// Hold time in seconds; 0 or at least 3.
    pub hold: u16,
    /// Router ID.
    pub id: Ipv4Addr,
    /// Capabilities.
    pub capabilities: Vec<Capability>,
}

/// A capability.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Capability {
    /// Multiprotocol: this family (RFC 4760).
    Multiprotocol(Family),
    /// Route refresh (RFC 2918).
    Refresh,
    /// Graceful restart (RFC 4724).
    Restart(Restart),
    /// Four-octet AS number (RFC 6793).
    FourOctetAs(u32),
    /// An unknown capability.
    Unknown {
        /// Its code.
        code: u8,
        /// Its value.
        data: Vec<u8>,
    },
}

/// Graceful restart capability.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Restart {
    /// Restart bit: the speaker has restarted.
    pub restarted: bool,
    /// Restart time in seconds, at most 4095.
    pub seconds: u16,
    /// Families, and whether their forwarding state was preserved.
    pub families: Vec<(Family, bool)>,
}

impl Open {
    /// AS number.
    #[must_use]
    pub fn asn(&self) -> u32 {
        let four_octet_as = self.capabilities.iter().find_map(|capability| match capability {
            Capability::FourOctetAs(asn) => Some(*asn),
            _ => None,
        });
        four_octet_as.unwrap_or_else(|| self.my_as.into())
    }

    /// Whether it supports four-octet AS numbers.
    #[must_use]
    pub fn has_four_octet_as(&self) -> bool {
        self.capabilities.iter().any(|capability| matches!(capability, Capability::FourOctetAs(_)))
    }

    /// Whether it supports a family; IPv4 unicast is the default.
    #[must_use]
    pub fn supports(&self, family: Family) -> bool {
        let mut families = self.capabilities.iter().filter_map(|capability| match capability {
            Capability::Multiprotocol(family) => Some(*family),
            _ => None,
        });
        let is_default = families.clone().next().is_none();
        if is_default { family == Family::V4 } else { families.any(|supported| supported == family) }
    }

    /// Its graceful restart capability.
    #[must_use]
    pub fn restart(&self) -> Option<&Restart> {
        self.capabilities.iter().find_map(|capability| match capability {
            Capability::Restart(restart) => Some(restart),
            _ => None,
        })
    }

    /// Parses the body.
    pub(super) fn read(body: &[u8]) -> Result<Self, Notification> {
        let mut rest = Reader(body);
        if rest.byte() != Some(4) {
            return Err(Notification::bad_version());
        }
        let head = |rest: &mut Reader<'_>| Some((rest.short()?, rest.short()?, rest.long()?, rest.byte()?));
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

    /// Encodes it.
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
        frame(OPEN, &body)
    }
}

impl Capability {
    fn write(&self) -> Vec<u8> {
        let family = |family: Family| [family.afi.to_be_bytes(), [0, family.safi]].concat();
        let (code, data) = match self {
            Self::Multiprotocol(supported) => (MULTIPROTOCOL, family(*supported)),
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
            Self::FourOctetAs(asn) => (FOUR_OCTETS, asn.to_be_bytes().into()),
            Self::Unknown { code, data } => (*code, data.clone()),
        };
        let mut out = vec![code, u8::try_from(data.len()).unwrap_or(u8::MAX)];
        out.extend(data.iter().take(usize::from(u8::MAX)));
        out
    }
}

/// Parses the capabilities of a parameter. A known one of invalid length is treated as unknown.
fn read_capabilities(value: &[u8], out: &mut Vec<Capability>) -> Option<()> {
    let mut rest = Reader(value);
    while !rest.is_empty() {
        let (code, length) = (rest.byte()?, rest.byte()?);
        let data = rest.take(length.into())?;
        out.push(known(code, data).unwrap_or_else(|| Capability::Unknown { code, data: data.into() }));
    }
    Some(())
}

fn known(code: u8, data: &[u8]) -> Option<Capability> {
    let mut rest = Reader(data);
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
        FOUR_OCTETS => Capability::FourOctetAs(rest.long()?),
        _ => return None,
    };
    rest.is_empty().then_some(capability)
}
