//! Encoding of UPDATE.
//!
//! In: routes with their attributes. Out: bytes. IPv4 prefixes are fields of the message; IPv6 prefixes are in attributes.

use ipnet::IpNet;

use super::{Attributes, Family, Negotiated, UPDATE, Unreach, frame, prefix};

/// Announced and withdrawn routes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Update {
    /// Withdrawn IPv4 prefixes.
    pub withdrawn: Vec<IpNet>,
    /// Attributes of the announced routes.
    pub attributes: Attributes,
    /// Announced IPv4 prefixes.
    pub announced: Vec<IpNet>,
}

impl Update {
    /// End-of-RIB of a family (RFC 4724).
    #[must_use]
    pub fn end_of_rib(family: Family) -> Self {
        let unreach = (family != Family::V4).then_some(Unreach { family, routes: Vec::new() });
        Self { attributes: Attributes { unreach, ..Attributes::default() }, ..Self::default() }
    }

    /// Encodes it. The caller limits it to the length of one message.
    #[must_use]
    pub fn write(&self, negotiated: Negotiated) -> Vec<u8> {
        let (mut withdrawn, mut attributes, mut body) = (Vec::new(), Vec::new(), Vec::new());
        prefix::write(&self.withdrawn, &mut withdrawn);
        self.attributes.write(negotiated, &mut attributes);
        for part in [withdrawn, attributes] {
            body.extend(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
            body.extend(part);
        }
        prefix::write(&self.announced, &mut body);
        frame(UPDATE, &body)
    }
}
