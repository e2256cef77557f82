//! How the requests of a rule are spread over the endpoints of a backend, and when an endpoint is avoided.
//!
//! In: checked values. Out: settings that the gateway applies. The state of an endpoint (requests in flight, ejection) is
//! shared by all rules that lead to it; these settings belong to one rule.

use std::time::Duration;

use http::HeaderName;

/// How requests are spread over endpoints. The default is that of rules without a policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Balancing {
    /// Which endpoint gets a request.
    pub method: BalancingMethod,
    /// When an endpoint is ejected because its responses are errors. Endpoints that refuse connections are avoided without
    /// it, too.
    pub outlier: Option<Outlier>,
    /// How the share of a new endpoint grows; at once without it.
    pub slow_start: Option<SlowStart>,
}

/// Which endpoint gets a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum BalancingMethod {
    /// The one of two with fewer requests in flight.
    #[default]
    LeastRequest,
    /// Each in turn.
    RoundRobin,
    /// Any.
    Random,
    /// The same for equal values, on all nodes. Requests without the value are spread as by `LeastRequest`.
    ConsistentHash(HashKey),
}

/// The value of a request that selects its endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HashKey {
    /// The address of the client.
    Source,
    /// The first value of a header.
    Header(HeaderName),
    /// The value of a cookie, whose name is compared with case.
    Cookie(Box<str>),
    /// The first value of a query parameter, as it is encoded in the request.
    Query(Box<str>),
    /// The path, without the query.
    Path,
}

/// When an endpoint is ejected, and for how long. After the time, one request is let through; its outcome decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outlier {
    /// Errors in a row after which an endpoint is ejected; 0 means never. Errors are connections that fail, responses that do
    /// not arrive in time, and those with one of `statuses`.
    pub consecutive_errors: u16,
    /// Statuses of responses that are errors.
    pub statuses: Vec<u16>,
    /// The time of the first ejection; it doubles with each that follows.
    pub base_ejection: Duration,
    /// The longest time of an ejection. An endpoint that was not ejected for so long begins with `base_ejection` again.
    pub max_ejection: Duration,
    /// The largest share of the endpoints of a backend that is ejected at a time, in percent, rounded down; never the last one.
    pub max_ejection_percent: u8,
}

/// How the share of a new endpoint grows: linearly, from 10 % of the share of the others. Not applied while all endpoints
/// of a backend are new, nor to requests of a session or with a hash key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowStart {
    /// The time in which it grows.
    pub window: Duration,
}

impl Default for Outlier {
    fn default() -> Self {
        Self {
            consecutive_errors: 5,
            statuses: vec![502, 503, 504],
            base_ejection: Duration::from_secs(30),
            max_ejection: Duration::from_secs(300),
            max_ejection_percent: 50,
        }
    }
}

impl SlowStart {
    /// The share of a new endpoint at the beginning.
    const FIRST_SHARE: f64 = 0.1;

    /// The share of an endpoint of this age, between 0.1 and 1, in proportion to one that is not new.
    #[must_use]
    pub fn share(&self, age: Duration) -> f64 {
        if age >= self.window {
            return 1.0;
        }
        (age.as_secs_f64() / self.window.as_secs_f64()).max(Self::FIRST_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_new_endpoint_grows_linearly() {
        let slow = SlowStart { window: Duration::from_secs(100) };
        let share = |seconds| (slow.share(Duration::from_secs(seconds)) * 100.0).round();
        assert_eq!([0, 5, 10, 50, 99, 100, 500].map(share), [10.0, 10.0, 10.0, 50.0, 99.0, 100.0, 100.0]);
        let none = SlowStart { window: Duration::ZERO };
        assert!((none.share(Duration::ZERO) - 1.0).abs() < f64::EPSILON);
    }
}
