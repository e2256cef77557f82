//! Parsers of flag values: addresses, port ranges, schedulers, durations.

use std::net::{Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use kernel::ipvs::Scheduler;

pub(super) fn port_range(text: &str) -> anyhow::Result<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').context("expected FIRST-LAST, such as 30000-32767")?;
    let parse = |text: &str| text.trim().parse::<u16>().with_context(|| format!("`{text}` is not a port number"));
    let (first, last) = (parse(first)?, parse(last)?);
    ensure!(first > 0 && first <= last, "the first port must be at least 1 and not above the last");
    Ok(first..=last)
}

/// An address to listen at: `IP:PORT`, or `:PORT` for all addresses of both families.
pub(super) fn listen_address(text: &str) -> anyhow::Result<SocketAddr> {
    let port = text.strip_prefix(':').and_then(|port| port.parse().ok());
    let everywhere = port.map(|port: u16| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    everywhere.or_else(|| text.parse().ok()).context("expected IP:PORT, or :PORT for all addresses")
}

pub(super) fn scheduler(name: &str) -> anyhow::Result<Scheduler> {
    let known = || Scheduler::ALL.map(Scheduler::name).join(", ");
    Scheduler::named(name).with_context(|| format!("there is no scheduler of that name; choose one of {}", known()))
}

pub(super) fn seconds(text: &str) -> anyhow::Result<Duration> {
    let number = text.strip_suffix('s').unwrap_or(text);
    number.parse().map(Duration::from_secs).context("expected a number of seconds, such as 60")
}

/// A number of things, at least one.
pub(super) fn count(text: &str) -> anyhow::Result<usize> {
    text.parse().ok().filter(|count| *count > 0).context("it must be a number greater than 0")
}

/// The maximum lifetime of a token in seconds, within the limits of kube-apiserver.
pub(super) fn token_lifetime(text: &str) -> anyhow::Result<i64> {
    let seconds = i64::try_from(lifetime(text)?.as_secs()).unwrap_or(i64::MAX);
    ensure!((3600..=1 << 32).contains(&seconds), "it must be between 1 hour and 2^32 seconds");
    Ok(seconds)
}

/// A duration as Go writes it, such as 24h.
pub(super) fn lifetime(text: &str) -> anyhow::Result<Duration> {
    let nanoseconds = api::duration::parse(text).map_err(anyhow::Error::msg)?;
    u64::try_from(nanoseconds).map(Duration::from_nanos).context("it must not be negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_address_is_at_all_addresses() {
        for (text, wanted) in [(":10256", "[::]:10256"), ("127.0.0.1:1", "127.0.0.1:1"), ("[::1]:1", "[::1]:1")] {
            assert_eq!(listen_address(text).expect("an address").to_string(), wanted);
        }
        for wrong in ["", ":", ":x", ":65536", "10256", "localhost:1", "127.0.0.1"] {
            let error = listen_address(wrong).expect_err(wrong).to_string();
            assert!(error.contains(":PORT"), "{error}");
        }
    }
}
