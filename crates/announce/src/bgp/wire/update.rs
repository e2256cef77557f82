//! UPDATE: routes that come and routes that go, as they are sent.
//!
//! In: routes with their attributes. Out: bytes. Networks of IPv4 have their own places in the message; those of IPv6 are in attributes.

use ipnet::IpNet;

use super::{Attributes, Family, Terms, UPDATE, Unreach, framed, prefix};

/// Routes that come and go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Update {
    /// Networks of IPv4 that are no longer reached this way.
    pub withdrawn: Vec<IpNet>,
    /// What holds for the routes that come.
    pub attributes: Attributes,
    /// Networks of IPv4 that are reached this way.
    pub announced: Vec<IpNet>,
}

impl Update {
    /// The word that all routes of a family have been told (RFC 4724).
    #[must_use]
    pub fn end_of_rib(family: Family) -> Self {
        let unreach = (family != Family::V4).then_some(Unreach { family, routes: Vec::new() });
        Self { attributes: Attributes { unreach, ..Attributes::default() }, ..Self::default() }
    }

    /// Writes it. Whoever makes it keeps it short enough for one message.
    #[must_use]
    pub fn write(&self, terms: Terms) -> Vec<u8> {
        let (mut withdrawn, mut attributes, mut body) = (Vec::new(), Vec::new(), Vec::new());
        prefix::write(&self.withdrawn, &mut withdrawn);
        self.attributes.write(terms, &mut attributes);
        for part in [withdrawn, attributes] {
            body.extend(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
            body.extend(part);
        }
        prefix::write(&self.announced, &mut body);
        framed(UPDATE, &body)
    }
}
