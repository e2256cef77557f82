//! The fields of a policy, apart: restrictions, which add up over owners, and settings, of which one wins.

use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::policy::{
    Balancing, BalancingMethod, BasicAuth, ConnectionLimit, CookieAffinity, ExternalAuth, Outlier, Policy, RateLimit,
    SlowStart,
};

/// The status of a redirect to https.
const REDIRECT: u16 = 308;
/// The status of all requests where a restriction cannot be understood.
const CLOSED: u16 = 503;

/// All fields of a policy, for one target.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Fields {
    pub(crate) restrictions: Restrictions,
    pub(crate) settings: Settings,
}

/// Who may send requests, how many, how long. Absent is no restriction.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Restrictions {
    pub(crate) body_limit: Option<u64>,
    pub(crate) ranges: Option<Ranges>,
    pub(crate) authentication: Option<Authentication>,
    pub(crate) rate_limits: Option<Vec<RateLimit>>,
    pub(crate) connection_limit: Option<ConnectionLimit>,
    pub(crate) require_https: bool,
    /// A restriction cannot be understood.
    pub(crate) is_closed: bool,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Ranges {
    pub(crate) allow: Vec<IpNet>,
    pub(crate) deny: Vec<IpNet>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Authentication {
    pub(crate) basic: Option<BasicAuth>,
    pub(crate) external: Option<ExternalAuth>,
}

/// How requests reach backends. Absent says nothing.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) timeouts: Option<Timeouts>,
    pub(crate) method: Option<BalancingMethod>,
    pub(crate) outlier: Option<Outlier>,
    pub(crate) slow_start: Option<SlowStart>,
    pub(crate) session: Option<CookieAffinity>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Timeouts {
    pub(crate) connect: Option<Duration>,
    pub(crate) read: Option<Duration>,
    pub(crate) send: Option<Duration>,
}

impl Fields {
    /// These fields; those of `other` where there is none.
    pub(crate) fn over(self, other: Self) -> Self {
        Self { restrictions: self.restrictions.over(other.restrictions), settings: self.settings.over(&other.settings) }
    }
}

impl Restrictions {
    fn over(self, other: Self) -> Self {
        Self {
            body_limit: self.body_limit.or(other.body_limit),
            ranges: self.ranges.or(other.ranges),
            authentication: self.authentication.or(other.authentication),
            rate_limits: self.rate_limits.or(other.rate_limits),
            connection_limit: self.connection_limit.or(other.connection_limit),
            require_https: self.require_https || other.require_https,
            is_closed: self.is_closed || other.is_closed,
        }
    }

    /// Counters of different targets are apart: all limits get a zone that begins with this.
    pub(crate) fn with_zone(mut self, zone: &str) -> Self {
        for (index, limit) in self.rate_limits.iter_mut().flatten().enumerate() {
            limit.zone = format!("{zone}/{index}").into();
        }
        if let Some(limit) = &mut self.connection_limit {
            limit.zone = zone.into();
        }
        self
    }

    /// As a policy that also has the restrictions of other owners; theirs alone if there are none here.
    pub(crate) fn within(self, others: Option<&Arc<Policy>>) -> Option<Arc<Policy>> {
        if self == Self::default() {
            return others.cloned();
        }
        let none = Policy::default();
        let others = others.map_or(&none, |others| &**others);
        let own = self.alone();
        let (allow, deny) = intersection(&own, others);
        let limits = others.rate_limits.iter().chain(&own.rate_limits);
        Some(Arc::new(Policy {
            outer: displaced(&own, others).map(Arc::new).or_else(|| others.outer.clone()),
            require_https: own.require_https.or(others.require_https),
            refuse: own.refuse.or(others.refuse),
            allow,
            deny,
            rate_limits: limits.cloned().collect(),
            connection_limit: own.connection_limit.or_else(|| others.connection_limit.clone()),
            basic_auth: own.basic_auth.or_else(|| others.basic_auth.clone()),
            external_auth: own.external_auth.or_else(|| others.external_auth.clone()),
            body_limit: own.body_limit.into_iter().chain(others.body_limit).min(),
            ..Policy::default()
        }))
    }

    fn alone(self) -> Policy {
        let Ranges { allow, deny } = self.ranges.unwrap_or_default();
        let Authentication { basic, external } = self.authentication.unwrap_or_default();
        Policy {
            require_https: self.require_https.then_some(REDIRECT),
            refuse: self.is_closed.then_some(CLOSED),
            allow,
            deny,
            rate_limits: self.rate_limits.unwrap_or_default(),
            connection_limit: self.connection_limit,
            basic_auth: basic,
            external_auth: external,
            body_limit: self.body_limit,
            ..Policy::default()
        }
    }
}

/// The ranges that both policies admit, and those that one of them does not. Of two ranges with common addresses one
/// contains the other.
fn intersection(one: &Policy, other: &Policy) -> (Vec<IpNet>, Vec<IpNet>) {
    let mut deny = [&other.deny[..], &one.deny].concat();
    let within = |ranges: &[IpNet], range: &IpNet| ranges.iter().any(|wide| wide.contains(range));
    let allow = match (&one.allow[..], &other.allow[..]) {
        ([], all) | (all, []) => all.to_vec(),
        (one, other) => {
            let narrow = one.iter().filter(|range| within(other, range));
            let others = other.iter().filter(|range| within(one, range) && !one.contains(range));
            let both: Vec<IpNet> = narrow.chain(others).copied().collect();
            if both.is_empty() {
                // No ranges would mean all of them.
                deny.extend([IpNet::from(Ipv4Net::default()), Ipv6Net::default().into()]);
            }
            both
        }
    };
    (allow, deny)
}

/// What a policy can have only once, and both have: that of the other one.
fn displaced(own: &Policy, others: &Policy) -> Option<Policy> {
    let displaced = Policy {
        connection_limit: own.connection_limit.as_ref().and(others.connection_limit.clone()),
        basic_auth: own.basic_auth.as_ref().and(others.basic_auth.clone()),
        external_auth: own.external_auth.as_ref().and(others.external_auth.clone()),
        ..Policy::default()
    };
    (displaced != Policy::default()).then(|| Policy { outer: others.outer.clone(), ..displaced })
}

impl Settings {
    /// These settings; those of `other` where there is none.
    pub(crate) fn over(self, other: &Self) -> Self {
        Self {
            timeouts: self.timeouts.or(other.timeouts),
            method: self.method.or_else(|| other.method.clone()),
            outlier: self.outlier.or_else(|| other.outlier.clone()),
            slow_start: self.slow_start.or(other.slow_start),
            session: self.session.or_else(|| other.session.clone()),
        }
    }

    /// The same restrictions with these settings.
    pub(crate) fn with(&self, restrictions: Option<&Arc<Policy>>) -> Option<Arc<Policy>> {
        if *self == Self::default() {
            return restrictions.cloned();
        }
        let mut policy = restrictions.map(|policy| Policy::clone(policy)).unwrap_or_default();
        let Timeouts { connect, read, send } = self.timeouts.unwrap_or_default();
        (policy.connect_timeout, policy.read_timeout, policy.send_timeout) = (connect, read, send);
        policy.session.clone_from(&self.session);
        let has_balancing = self.method.is_some() || self.outlier.is_some() || self.slow_start.is_some();
        policy.balancing = has_balancing.then(|| Balancing {
            method: self.method.clone().unwrap_or_default(),
            outlier: self.outlier.clone(),
            slow_start: self.slow_start,
        });
        Some(Arc::new(policy))
    }
}
