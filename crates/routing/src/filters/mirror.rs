//! Shares of requests that are copied to another backend.

use std::sync::atomic::{AtomicU64, Ordering};

use api::view::gateway_api::RequestMirror;

/// A share of all requests, spread evenly over them.
#[derive(Debug)]
pub struct MirrorShare {
    numerator: u64,
    denominator: u64,
    requests: AtomicU64,
}

impl MirrorShare {
    /// All requests, unless a percentage or a fraction is given; a fraction above 1 is 1.
    pub(super) fn new(given: &RequestMirror) -> Self {
        let (numerator, denominator) = match (given.percent, given.fraction) {
            (Some(percent), _) => (percent, 100),
            (None, Some(fraction)) => (fraction.numerator, fraction.denominator.filter(|n| *n > 0).unwrap_or(100)),
            (None, None) => (1, 1),
        };
        Self {
            numerator: u64::from(numerator.min(denominator)),
            denominator: u64::from(denominator),
            requests: AtomicU64::new(0),
        }
    }

    /// Whether the next request is copied. Of as many requests as the denominator, exactly the numerator are.
    pub fn takes_next(&self) -> bool {
        let request = self.requests.fetch_add(1, Ordering::Relaxed) % self.denominator;
        (request * self.numerator) % self.denominator + self.numerator >= self.denominator
    }
}
