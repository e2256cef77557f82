//! `acl` and `template`.
//!
//! In: a query and its client. Out: whether it is answered, and with which RCODE. The first matching rule applies.

use std::net::IpAddr;

use super::message::{Extended, Query, rcode};
use crate::config::{Acl, Action, Name, Template};

/// Action of the first matching rule.
pub(super) fn admission(rules: &[Acl], block_zones: &[Name], query: &Query<'_>, client: IpAddr) -> Action {
    let client = client.to_canonical();
    let fits = |rule: &&Acl| {
        let zones = if rule.zones.is_empty() { block_zones } else { &rule.zones };
        zones.iter().any(|zone| zone.covers(query.name.as_wire()))
            && (rule.qtypes.is_empty() || rule.qtypes.contains(&query.qtype))
            && (rule.networks.is_empty() || rule.networks.iter().any(|network| network.contains(&client)))
    };
    rules.iter().find(fits).map_or(Action::Allow, |rule| rule.action)
}

/// RCODE and extended error of a denied query; `None` to drop it.
pub(super) fn denial(action: Action) -> Option<(u16, Extended)> {
    match action {
        Action::Filter => Some((rcode::NOERROR, Extended::new(17, "filtered by an acl"))),
        Action::Block => Some((rcode::REFUSED, Extended::new(Extended::PROHIBITED, "blocked by an acl"))),
        Action::Allow | Action::Drop => None,
    }
}

/// Answer of a template.
pub(super) struct Ruled<'t> {
    pub(super) rcode: u16,
    pub(super) extended: Option<Extended>,
    /// Zone in which it matched; `None` if no pattern matched and the name does not fall through.
    pub(super) zone: Option<&'t Name>,
}

/// Answer of the first matching template.
pub(super) fn template<'t>(
    templates: &'t [Template],
    block_zones: &'t [Name],
    lower: &[u8],
    qtype: u16,
    qclass: u16,
) -> Option<Ruled<'t>> {
    for template in templates {
        let zones = if template.zones.is_empty() { block_zones } else { &template.zones };
        let meant =
            template.class.is_none_or(|class| class == qclass) && template.qtype.is_none_or(|wanted| wanted == qtype);
        let Some(zone) = zones.iter().find(|zone| meant && zone.covers(lower)) else { continue };
        let text = || Name::from_wire(lower).map(|name| name.to_string()).unwrap_or_default();
        if template.matching.is_empty() || template.matching.iter().any(|expression| expression.is_match(&text())) {
            let extended = template.extended_error.as_ref();
            let extended = extended.map(|(code, text)| Extended::new(*code, text.clone()));
            return Some(Ruled { rcode: u16::from(template.rcode), extended, zone: Some(zone) });
        }
        if !template.fallthrough.covers(lower) {
            // Without fallthrough the template is authoritative for its zone.
            return Some(Ruled { rcode: rcode::NXDOMAIN, extended: None, zone: None });
        }
    }
    None
}
