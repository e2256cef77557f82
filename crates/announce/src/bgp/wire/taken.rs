//! UPDATE, as it is received: what is wrong with it is weighed, and costs no more than it must (RFC 7606).
//!
//! In: the body of a message. Out: [`Taken`], the routes in it and the gravest fault; or a reason to end the session, when nobody can
//! say which routes the message is about.

use ipnet::IpNet;

use super::attributes::Attributes;
use super::{Family, Notification, Rest, Terms, Update, prefix};

/// What a fault costs. The later the graver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Weight {
    /// The attribute.
    Discard,
    /// The routes of the message: they count as withdrawn.
    Withdraw,
}

/// What is wrong with a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What it costs.
    pub weight: Weight,
    /// What it is.
    pub what: &'static str,
}

/// An UPDATE that came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// What it says.
    pub update: Update,
    /// What is wrong with it.
    pub fault: Option<Fault>,
}

impl Taken {
    /// Whether the routes that it announces count as withdrawn.
    fn is_withdrawal(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.weight == Weight::Withdraw)
    }

    fn all_announced(&self) -> impl Iterator<Item = IpNet> {
        let reach = self.update.attributes.reach.iter().flat_map(|reach| &reach.routes);
        self.update.announced.iter().chain(reach).copied()
    }

    /// The networks that are reached now.
    pub fn announced(&self) -> impl Iterator<Item = IpNet> {
        self.all_announced().filter(|_| !self.is_withdrawal())
    }

    /// The networks that are reached no longer.
    pub fn withdrawn(&self) -> impl Iterator<Item = IpNet> {
        let unreach = self.update.attributes.unreach.iter().flat_map(|unreach| &unreach.routes);
        let named = self.update.withdrawn.iter().chain(unreach).copied();
        named.chain(self.all_announced().filter(|_| self.is_withdrawal()))
    }

    /// The family of which all routes have been told, if that is what it says.
    #[must_use]
    pub fn end_of_rib(&self) -> Option<Family> {
        Family::OURS.into_iter().find(|family| self.fault.is_none() && self.update == Update::end_of_rib(*family))
    }
}

/// Reads the body of an UPDATE.
pub(super) fn read(body: &[u8], terms: Terms) -> Result<Taken, Notification> {
    let mut rest = Rest(body);
    let mut part = || rest.short().and_then(|length| rest.take(length.into())).ok_or(Notification::BAD_ATTRIBUTES);
    let (withdrawn, attributes) = (part()?, part()?);
    let withdrawn = prefix::read(withdrawn, Family::V4).ok_or(Notification::BAD_NETWORK)?;
    let announced = prefix::read(rest.0, Family::V4).ok_or(Notification::BAD_NETWORK)?;
    let mut found = Attributes::read(attributes, terms)?;
    let said = &found.attributes;
    if found.broken && announced.is_empty() && said.reach.is_none() {
        // The routes may be in what was lost.
        return Err(Notification::BAD_ATTRIBUTES);
    }
    let comes = !announced.is_empty() || said.reach.as_ref().is_some_and(|reach| !reach.routes.is_empty());
    let lacks = said.origin.is_none() || said.path.is_none() || !announced.is_empty() && said.next_hop.is_none();
    if comes && lacks {
        found.fault(Weight::Withdraw, "an attribute is missing that every route must have");
    }
    Ok(Taken { update: Update { withdrawn, attributes: found.attributes, announced }, fault: found.fault })
}
