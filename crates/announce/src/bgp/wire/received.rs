//! Parsing of UPDATE with the error handling of RFC 7606.
//!
//! In: the body of a message. Out: [`ReceivedUpdate`] with its routes and its most severe error; or a NOTIFICATION if the
//! affected routes cannot be determined.

use ipnet::IpNet;

use super::attributes::Attributes;
use super::{Family, Negotiated, Notification, Reader, Update, prefix};

/// What is done about an error, in the order of severity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ErrorAction {
    /// The attribute is discarded.
    DiscardAttribute,
    /// The routes of the message are treated as withdrawn.
    TreatAsWithdraw,
}

/// An error of an UPDATE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpdateError {
    /// What is done about it.
    pub action: ErrorAction,
    /// Description.
    pub what: &'static str,
}

/// A received UPDATE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedUpdate {
    /// Its content.
    pub update: Update,
    /// Its most severe error.
    pub error: Option<UpdateError>,
}

impl ReceivedUpdate {
    /// Whether its announced routes are treated as withdrawn.
    fn is_withdrawal(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.action == ErrorAction::TreatAsWithdraw)
    }

    fn all_announced(&self) -> impl Iterator<Item = IpNet> {
        let reach = self.update.attributes.reach.iter().flat_map(|reach| &reach.routes);
        self.update.announced.iter().chain(reach).copied()
    }

    /// Announced prefixes.
    pub fn announced(&self) -> impl Iterator<Item = IpNet> {
        self.all_announced().filter(|_| !self.is_withdrawal())
    }

    /// Withdrawn prefixes.
    pub fn withdrawn(&self) -> impl Iterator<Item = IpNet> {
        let unreach = self.update.attributes.unreach.iter().flat_map(|unreach| &unreach.routes);
        let named = self.update.withdrawn.iter().chain(unreach).copied();
        named.chain(self.all_announced().filter(|_| self.is_withdrawal()))
    }

    /// The family of an End-of-RIB.
    #[must_use]
    pub fn end_of_rib(&self) -> Option<Family> {
        Family::OURS.into_iter().find(|family| self.error.is_none() && self.update == Update::end_of_rib(*family))
    }
}

/// Parses the body of an UPDATE.
pub(super) fn read(body: &[u8], negotiated: Negotiated) -> Result<ReceivedUpdate, Notification> {
    let mut rest = Reader(body);
    let mut part = || rest.short().and_then(|length| rest.take(length.into())).ok_or(Notification::BAD_ATTRIBUTES);
    let (withdrawn, attributes) = (part()?, part()?);
    let withdrawn = prefix::read(withdrawn, Family::V4).ok_or(Notification::BAD_NETWORK)?;
    let announced = prefix::read(rest.0, Family::V4).ok_or(Notification::BAD_NETWORK)?;
    let mut found = Attributes::read(attributes, negotiated)?;
    let attributes = &found.attributes;
    if found.is_truncated && announced.is_empty() && attributes.reach.is_none() {
        // The lost part may contain the routes.
        return Err(Notification::BAD_ATTRIBUTES);
    }
    let comes = !announced.is_empty() || attributes.reach.as_ref().is_some_and(|reach| !reach.routes.is_empty());
    let lacks = attributes.origin.is_none()
        || attributes.path.is_none()
        || !announced.is_empty() && attributes.next_hop.is_none();
    if comes && lacks {
        found.add_error(ErrorAction::TreatAsWithdraw, "missing mandatory attribute");
    }
    Ok(ReceivedUpdate { update: Update { withdrawn, attributes: found.attributes, announced }, error: found.error })
}
