//! Limits by client address. All rules of an Ingress count together.

use std::sync::Arc;
use std::time::Duration;

use crate::ingress::reader::{Reader, ranges};
use crate::policy::{ConnectionLimit, Policy, RateKey, RateLimit};

/// The burst, as a multiple of the rate.
const BURST: u32 = 5;
/// The status of requests beyond a limit.
const STATUS: u16 = 503;

pub(super) fn read(policy: &mut Policy, reader: &mut Reader<'_>, ingress: &str) {
    let zone: Arc<str> = ingress.into();
    let burst = reader.number("limit-burst-multiplier").filter(|multiplier| *multiplier > 0).unwrap_or(BURST);
    let exempt = reader.any(&["limit-allowlist", "limit-whitelist"]).map(|(key, text)| (key, ranges(text)));
    let exempt = match exempt {
        Some((_, Some(ranges))) => ranges,
        Some((key, None)) => {
            reader.reject(key, "the value must be address ranges that commas separate");
            Vec::new()
        }
        None => Vec::new(),
    };
    for (key, seconds) in [("limit-rps", 1), ("limit-rpm", 60)] {
        let Some(requests) = reader.number(key).filter(|requests| *requests > 0) else { continue };
        policy.rate_limits.push(RateLimit {
            zone: zone.clone(),
            requests,
            per: Duration::from_secs(seconds),
            burst: requests.saturating_mul(burst),
            key: RateKey::Client,
            exempt: exempt.clone(),
            status: STATUS,
        });
    }
    let connections = reader.number("limit-connections").filter(|limit| *limit > 0);
    policy.connection_limit = connections.map(|limit| ConnectionLimit { zone, limit, exempt, status: STATUS });
}
