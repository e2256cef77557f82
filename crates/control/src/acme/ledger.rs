//! How often certificates are ordered: limits that hold across restarts and with objects that come and go.
//!
//! In: attempts and their results. Out: when a certificate may be ordered. The limits of public CAs are per account, host and set of hosts, so records
//! are by namespace and hosts, not by object. An attempt is entered before it begins, as a failure: a process that is killed over and over again orders no more
//! often than one whose orders fail. Times are seconds since 1970; those in the future, after the clock went back, do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;
/// The most orders in an hour, and those of one namespace: no tenant uses up what all share.
const MOST_OF_ALL: usize = 100;
const MOST_OF_NAMESPACE: usize = 20;
/// The most certificates for the same hosts in a week, except renewals that are due.
const MOST_OF_HOSTS: usize = 4;
/// The longest pause after failures.
const LONGEST_PAUSE: i64 = DAY;
/// The shortest pause after a rate limit of the CA.
const RATE_LIMIT_PAUSE: i64 = HOUR;
/// The most records; the oldest are dropped. With it, the ConfigMap stays far below its limit of 1 MiB.
const MOST_RECORDS: usize = 1500;
/// The longest description of a problem, in bytes.
const LONGEST_PROBLEM: usize = 200;
/// The longest list of hosts in a key, in bytes.
const LONGEST_HOSTS: usize = 120;

/// Attempts and their results.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Ledger {
    /// Orders of the last hour: when, and of which namespace.
    orders: Vec<(i64, Box<str>)>,
    /// By namespace and hosts.
    records: BTreeMap<Box<str>, Record>,
}

/// What is known of a certificate.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    /// Attempts since the last success.
    failures: u32,
    /// When the last attempt began.
    last: i64,
    /// Not before this.
    next: i64,
    /// When certificates were issued, in the last week.
    issued: Vec<i64>,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Box<str>>,
}

/// A certificate in the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Certificate {
    namespace: Box<str>,
    key: Box<str>,
}

impl Certificate {
    pub(super) fn new(namespace: &str, hosts: &BTreeSet<Box<str>>) -> Self {
        let mut text = hosts.iter().map(|host| &**host).collect::<Vec<_>>().join(",");
        if text.len() > LONGEST_HOSTS {
            let hash = api::hash::fnv1a32(text.as_bytes());
            text.truncate(LONGEST_HOSTS);
            text.push_str(&format!("…{hash:08x}"));
        }
        Self { namespace: namespace.into(), key: format!("{namespace}/{text}").into() }
    }
}

impl Ledger {
    /// When a certificate may be ordered; not after `now` if at once.
    pub(super) fn earliest(&self, of: &Certificate, is_renewal: bool, now: i64) -> i64 {
        let record = self.records.get(&of.key);
        let mut earliest = record.map_or(now, |record| record.next.min(now + LONGEST_PAUSE));
        let issued: Vec<i64> = record.into_iter().flat_map(|record| within(&record.issued, now, WEEK)).collect();
        if !is_renewal && issued.len() >= MOST_OF_HOSTS {
            earliest = earliest.max(issued[issued.len() - MOST_OF_HOSTS] + WEEK);
        }
        let orders = |of_namespace: Option<&str>| -> Vec<i64> {
            let all = self.orders.iter().filter(|(_, namespace)| of_namespace.is_none_or(|of| **namespace == *of));
            within(&all.map(|(at, _)| *at).collect::<Vec<_>>(), now, HOUR).collect()
        };
        for (orders, most) in [(orders(None), MOST_OF_ALL), (orders(Some(&of.namespace)), MOST_OF_NAMESPACE)] {
            if orders.len() >= most {
                earliest = earliest.max(orders[orders.len() - most] + HOUR);
            }
        }
        earliest
    }

    /// Enters an attempt, which counts as failed until it has succeeded.
    pub(super) fn begin(&mut self, of: &Certificate, now: i64, retry: Duration) {
        self.prune(now);
        self.orders.push((now, of.namespace.clone()));
        let record = self.records.entry(of.key.clone()).or_default();
        record.failures = record.failures.saturating_add(1);
        record.last = now;
        record.next = now + pause(record.failures, retry);
    }

    /// Enters a success.
    pub(super) fn succeed(&mut self, of: &Certificate, now: i64) {
        let record = self.records.entry(of.key.clone()).or_default();
        (record.failures, record.next, record.problem) = (0, now, None);
        record.issued.push(now);
    }

    /// Enters why an attempt failed.
    pub(super) fn fail(&mut self, of: &Certificate, now: i64, retry: Duration, problem: &str, is_rate_limit: bool) {
        let record = self.records.entry(of.key.clone()).or_default();
        let shortest = if is_rate_limit { RATE_LIMIT_PAUSE } else { 0 };
        record.next = now + pause(record.failures.max(1), retry).max(shortest);
        let end = problem.floor_char_boundary(LONGEST_PROBLEM);
        record.problem = problem.get(..end).map(Into::into);
    }

    fn prune(&mut self, now: i64) {
        self.orders.retain(|(at, _)| is_within(*at, now, HOUR));
        self.records.retain(|_, record| {
            record.issued.retain(|at| is_within(*at, now, WEEK));
            is_within(record.last, now, WEEK)
        });
        while self.records.len() >= MOST_RECORDS {
            let oldest = self.records.iter().min_by_key(|(_, record)| record.last).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            self.records.remove(&oldest);
        }
    }
}

/// The pause after this number of failures, in seconds.
fn pause(failures: u32, retry: Duration) -> i64 {
    let first = i64::try_from(retry.as_secs()).unwrap_or(LONGEST_PAUSE).max(1);
    first.saturating_mul(3_i64.saturating_pow(failures.saturating_sub(1))).min(LONGEST_PAUSE)
}

fn is_within(at: i64, now: i64, period: i64) -> bool {
    (now - period..=now).contains(&at)
}

fn within(all: &[i64], now: i64, period: i64) -> impl Iterator<Item = i64> {
    all.iter().copied().filter(move |at| is_within(*at, now, period))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Duration = Duration::from_secs(120);
    const START: i64 = 1_800_000_000;

    fn certificate(namespace: &str, host: &str) -> Certificate {
        Certificate::new(namespace, &BTreeSet::from([host.into()]))
    }

    #[test]
    fn pauses_grow_also_when_the_process_is_killed() {
        let (mut ledger, shop, mut now) = (Ledger::default(), certificate("shop", "a.example"), START);
        let mut attempts = Vec::new();
        while now < START + 3 * DAY {
            assert_eq!(ledger.earliest(&shop, false, now), now, "due at {now}");
            ledger.begin(&shop, now, RETRY);
            attempts.push(now);
            // No result: it was killed. A restart reads what was written.
            let text = serde_json::to_string(&ledger).unwrap();
            ledger = serde_json::from_str(&text).unwrap();
            now = ledger.earliest(&shop, false, now);
        }
        let pauses: Vec<i64> = attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses[..6], [120, 360, 1080, 3240, 9720, 29160]);
        assert_eq!(pauses.last(), Some(&DAY));
        let in_an_hour = attempts.iter().filter(|at| **at < START + HOUR).count();
        assert!(in_an_hour < 5, "a CA permits five failed validations of a host in an hour, here {in_an_hour}");
        ledger.succeed(&shop, now);
        assert_eq!(ledger.earliest(&shop, false, now), now, "a success ends the pauses");
    }

    #[test]
    fn the_same_hosts_get_few_certificates_in_a_week_but_renewals() {
        let (mut ledger, shop) = (Ledger::default(), certificate("shop", "a.example"));
        for at in 0..4 {
            let now = START + at * DAY;
            assert!(ledger.earliest(&shop, false, now) <= now);
            ledger.begin(&shop, now, RETRY);
            ledger.succeed(&shop, now);
        }
        let now = START + 4 * DAY;
        assert_eq!(ledger.earliest(&shop, false, now), START + WEEK, "when the first is a week old");
        assert_eq!(
            ledger.earliest(&shop, true, now),
            START + 3 * DAY,
            "the CA decided how long a certificate is valid"
        );
        assert_eq!(ledger.earliest(&certificate("shop", "b.example"), false, now), now);
        assert_eq!(ledger.earliest(&certificate("blog", "a.example"), false, now), now, "of another tenant");
    }

    #[test]
    fn no_namespace_uses_up_what_all_share() {
        let mut ledger = Ledger::default();
        for index in 0..MOST_OF_NAMESPACE {
            ledger.begin(&certificate("loud", &format!("{index}.example")), START + 1, RETRY);
        }
        let now = START + 10;
        assert_eq!(ledger.earliest(&certificate("loud", "new.example"), false, now), START + 1 + HOUR);
        assert_eq!(ledger.earliest(&certificate("shop", "new.example"), false, now), now);
        for index in 0..MOST_OF_ALL - MOST_OF_NAMESPACE {
            ledger.begin(&certificate(&format!("n{index}"), "x.example"), START + 2, RETRY);
        }
        assert_eq!(ledger.earliest(&certificate("shop", "new.example"), true, now), START + 1 + HOUR);
        assert_eq!(ledger.earliest(&certificate("shop", "new.example"), true, now + HOUR), now + HOUR);
    }

    #[test]
    fn a_rate_limit_of_the_ca_is_respected_and_clocks_may_go_back() {
        let (mut ledger, shop) = (Ledger::default(), certificate("shop", "a.example"));
        ledger.begin(&shop, START, RETRY);
        ledger.fail(&shop, START + 5, RETRY, &"ä".repeat(500), true);
        assert_eq!(ledger.earliest(&shop, false, START + 5), START + 5 + HOUR);
        assert!(ledger.records[&shop.key].problem.as_ref().is_some_and(|text| text.len() <= LONGEST_PROBLEM));
        let earlier = START - 400 * DAY;
        assert!(ledger.earliest(&shop, false, earlier) <= earlier + LONGEST_PAUSE);
        for index in 0..MOST_OF_NAMESPACE {
            ledger.begin(&certificate("shop", &format!("{index}.example")), START, RETRY);
        }
        let other = certificate("shop", "other.example");
        assert_eq!(ledger.earliest(&other, false, earlier), earlier, "orders in the future do not count");
    }

    #[test]
    fn the_number_of_records_is_bounded() {
        let mut ledger = Ledger::default();
        for index in 0..i64::try_from(MOST_RECORDS).unwrap() + 10 {
            ledger.begin(&certificate("shop", &format!("{index}.example")), START + index, RETRY);
        }
        assert!(ledger.records.len() <= MOST_RECORDS && !ledger.records.contains_key("shop/0.example"));
        let long = (0..99).map(|index| format!("{index}.{}", "x".repeat(60)).into()).collect();
        assert!(Certificate::new("shop", &long).key.len() < LONGEST_HOSTS + 20);
    }
}
