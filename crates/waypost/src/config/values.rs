//! Parsers of flag values: addresses, port ranges, schedulers, durations.

use std::net::{Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use kernel::ipvs::Scheduler;

pub(super) fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').ok_or("expected FIRST-LAST, such as 30000-32767")?;
    let parse = |text: &str| text.trim().parse::<u16>().map_err(|_| format!("`{text}` is not a port number"));
    let (first, last) = (parse(first)?, parse(last)?);
    if first == 0 || first > last {
        return Err("the first port must be at least 1 and not above the last".to_owned());
    }
    Ok(first..=last)
}

/// An address to listen at: `IP:PORT`, or `:PORT` for all addresses of both families.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').and_then(|port| port.parse().ok());
    let everywhere = port.map(|port: u16| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    everywhere.or_else(|| text.parse().ok()).ok_or_else(|| "expected IP:PORT, or :PORT for all addresses".to_owned())
}

pub(super) fn scheduler(name: &str) -> Result<Scheduler, String> {
    let known = || Scheduler::ALL.map(Scheduler::name).join(", ");
    Scheduler::named(name).ok_or_else(|| format!("there is no scheduler of that name; choose one of {}", known()))
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    number.parse().map(Duration::from_secs).map_err(|_| "expected a number of seconds, such as 60".to_owned())
}

/// A number of things, at least one.
pub(super) fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "it must be a number greater than 0".to_owned())
}

/// The longest life of a token in seconds, within the limits of kube-apiserver.
pub(super) fn token_lifetime(text: &str) -> Result<i64, String> {
    let seconds = i64::try_from(lifetime(text)?.as_secs()).unwrap_or(i64::MAX);
    if !(3600..=1 << 32).contains(&seconds) {
        return Err("it must be between 1 hour and 2^32 seconds".to_owned());
    }
    Ok(seconds)
}

/// A duration as Go writes it, such as 24h.
pub(super) fn lifetime(text: &str) -> Result<Duration, String> {
    let nanoseconds = api::duration::parse(text)?;
    u64::try_from(nanoseconds).map(Duration::from_nanos).map_err(|_| "it must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_address_is_at_all_addresses() {
        assert_eq!(listen_address(":10256"), Ok("[::]:10256".parse().expect("an address")));
        assert_eq!(listen_address("127.0.0.1:1"), Ok("127.0.0.1:1".parse().expect("an address")));
        assert_eq!(listen_address("[::1]:1"), Ok("[::1]:1".parse().expect("an address")));
        for wrong in ["", ":", ":x", ":65536", "10256", "localhost:1", "127.0.0.1"] {
            let error = listen_address(wrong).expect_err(wrong);
            assert!(error.contains(":PORT"), "{error}");
        }
    }
}
