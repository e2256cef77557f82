//! What a rule demands beyond the Gateway API: access, limits, silence timeouts, rewrites by regular expression, sticky
//! sessions. Filled from the annotations of Ingresses; enforced in one place, by the gateway.
//!
//! In: values that the constructors here have checked. Out: decisions that need no further parsing, one method each.
//!
//! The gateway enforces the members in this order, which is that of nginx: [`Policy::require_https`],
//! [`Policy::refuse`], [`Policy::redirect`], [`Policy::admits`], [`Policy::rate_limits`] and
//! [`Policy::connection_limit`], [`Policy::basic_auth`], [`Policy::external_auth`], [`Policy::body_limit`], then the
//! filters of the rule, then [`Policy::rewrite`], and towards the backend [`Policy::session`], [`Policy::balancing`] and the
//! timeouts.
//!
//! Several owners may demand something of a rule. Their demands are joined in one policy; what a policy can have only once
//! (authentication, a limit of concurrent requests) and others demand, too, is in [`Policy::outer`]. A request must pass all
//! [layers](Policy::layers): each of these checks is made for all of them, the outermost first. Passwords are removed from it
//! before a server for external authentication sees it.

mod access;
mod balancing;
mod limits;
mod rewrite;
mod session;
mod template;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

pub use access::{BasicAuth, ExternalAuth, PasswordFormat};
pub use balancing::{Balancing, BalancingMethod, HashKey, Outlier, SlowStart};
pub use limits::{ConnectionLimit, RateKey, RateLimit};
pub use rewrite::{PathRewrite, Pattern, PatternError, Redirect};
pub use session::{CookieAffinity, SameSite};
pub use template::{RequestValues, Template, TemplateError, Variable};

/// The length of the prefix of IPv4-mapped addresses.
const MAPPED_PREFIX: u8 = 96;

/// What a rule demands beyond the Gateway API. The default demands nothing.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Policy {
    /// What others demand in addition, enforced before the same members of this policy: `connection_limit`, `basic_auth`,
    /// `external_auth` and another `outer`. Its other members are none.
    pub outer: Option<Arc<Self>>,
    /// Requests on a listener without TLS are redirected to `https` with this status.
    pub require_https: Option<u16>,
    /// All requests fail with this status: access was to be restricted in a way that cannot be enforced.
    pub refuse: Option<u16>,
    /// All requests are redirected.
    pub redirect: Option<Redirect>,
    /// Client addresses that are accepted; all when empty.
    pub allow: Vec<IpNet>,
    /// Client addresses that are not accepted.
    pub deny: Vec<IpNet>,
    /// Limits of the number of requests.
    pub rate_limits: Vec<RateLimit>,
    /// Limit of concurrent requests.
    pub connection_limit: Option<ConnectionLimit>,
    /// User names and passwords.
    pub basic_auth: Option<BasicAuth>,
    /// Another server that authorises each request.
    pub external_auth: Option<ExternalAuth>,
    /// The longest request body, in bytes; longer ones fail with 413.
    pub body_limit: Option<u64>,
    /// The change of the path that the backend sees.
    pub rewrite: Option<PathRewrite>,
    /// Sticky sessions.
    pub session: Option<CookieAffinity>,
    /// How requests are spread over endpoints.
    pub balancing: Option<Balancing>,
    /// How long a connection to a backend may take to be established.
    pub connect_timeout: Option<Duration>,
    /// The longest silence of a backend between two reads.
    pub read_timeout: Option<Duration>,
    /// The longest time that a backend reads nothing while data for it is waiting.
    pub send_timeout: Option<Duration>,
}

impl Policy {
    /// The policy and those around it, the outermost last. They are enforced in the opposite order.
    pub fn layers(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |policy| policy.outer.as_deref())
    }

    /// Whether a client may send requests, also by the policies around this one. `deny` beats `allow`, as in nginx, where it
    /// comes first.
    #[must_use]
    pub fn admits(&self, client: IpAddr) -> bool {
        self.layers().all(|policy| policy.admits_alone(client))
    }

    /// Whether it, or one around it, limits who may send requests, or how many.
    #[must_use]
    pub fn restricts(&self) -> bool {
        let alone = |policy: &Self| {
            policy.refuse.is_some()
                || !(policy.allow.is_empty() && policy.deny.is_empty() && policy.rate_limits.is_empty())
                || policy.connection_limit.is_some()
                || policy.basic_auth.is_some()
                || policy.external_auth.is_some()
        };
        self.layers().any(alone)
    }

    fn admits_alone(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        let has = |ranges: &[IpNet]| ranges.iter().any(|range| range.contains(&client));
        !has(&self.deny) && (self.allow.is_empty() || has(&self.allow))
    }
}

/// A range of addresses in the form in which [`Policy::admits`] compares: without bits beyond its length, an IPv4-mapped one as
/// that of IPv4. None for a range that is written as IPv4-mapped and holds other addresses too.
pub(crate) fn source_range(range: IpNet) -> Option<IpNet> {
    match (range.addr().to_canonical(), range.addr(), range.prefix_len()) {
        (mapped @ IpAddr::V4(_), IpAddr::V6(_), length) => {
            IpNet::new(mapped, length.checked_sub(MAPPED_PREFIX)?).ok().map(|range| range.trunc())
        }
        _ => Some(range.trunc()),
    }
}

#[cfg(test)]
mod tests;
