//! Limits by client.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

/// A limit of the number of requests: a leaky bucket for each key, as `limit_req` of nginx with `nodelay`. `burst` requests
/// beyond the rate are accepted at once; further ones fail with `status`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Rules with the same zone and the same rate share their buckets.
    pub zone: Arc<str>,
    /// Requests of a key in each period.
    pub requests: u32,
    /// The period.
    pub per: Duration,
    /// Requests beyond the rate.
    pub burst: u32,
    /// Which requests share a bucket.
    pub key: RateKey,
    /// Client addresses without limit.
    pub exempt: Vec<IpNet>,
    /// The status of requests beyond the limit.
    pub status: u16,
}

/// Which requests share a bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RateKey {
    /// Those of a client address.
    Client,
    /// Those with the same value of a header; those without it are counted by client address.
    Header(Box<str>),
}

/// A limit of the concurrent requests of a client address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionLimit {
    /// Rules with the same zone count together.
    pub zone: Arc<str>,
    /// Concurrent requests.
    pub limit: u32,
    /// Client addresses without limit.
    pub exempt: Vec<IpNet>,
    /// The status of requests beyond the limit.
    pub status: u16,
}

impl RateLimit {
    /// Whether a client has no limit.
    #[must_use]
    pub fn exempts(&self, client: IpAddr) -> bool {
        contains(&self.exempt, client)
    }

    /// The time in which one request leaves the bucket.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.per / self.requests.max(1)
    }
}

impl ConnectionLimit {
    /// Whether a client has no limit.
    #[must_use]
    pub fn exempts(&self, client: IpAddr) -> bool {
        contains(&self.exempt, client)
    }
}

fn contains(ranges: &[IpNet], client: IpAddr) -> bool {
    let client = client.to_canonical();
    ranges.iter().any(|range| range.contains(&client))
}
