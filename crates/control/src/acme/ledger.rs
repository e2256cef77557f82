//! How often certificates are ordered: limits that hold across restarts and with objects that come and go.
//!
//! In: attempts and their results. Out: when a certificate may be ordered. The limits of public CAs are per account, host and set of hosts, so certificates
//! are counted by namespace and hosts, not by object, and failures by namespace and host: with another set of hosts for each order, a tenant would use up the
//! failed validations that the CA permits for the host of another one. An attempt is entered before it begins, as a failure: a process that is killed over and
//! over again orders no more often than one whose orders fail. Times are seconds since 1970; those in the future, after the clock went back, do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::objects::split;

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
/// The most records, and the most hosts with failures; the oldest are dropped. With both, the ConfigMap stays below its limit of 1 MiB.
const MOST_RECORDS: usize = 500;
const MOST_FAILURES: usize = 1500;
/// The most hosts with failures of one namespace: it does not displace its own by those that it invents.
const MOST_FAILURES_OF_NAMESPACE: usize = 300;
/// The longest description of a problem, in bytes.
const LONGEST_PROBLEM: usize = 200;
/// How long an attempt without a result may be in progress.
const LONGEST_ATTEMPT: i64 = 600;
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
    /// By namespace and host; none of hosts whose last attempt succeeded.
    failures: BTreeMap<Box<str>, Failures>,
}

/// What is known of a certificate.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    /// When the last attempt began.
    last: i64,
    /// When the last certificates were issued, in the last week.
    issued: Vec<i64>,
    /// How long the last of them is valid.
    lifetime: i64,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Box<str>>,
}

/// Attempts for a host, with whatever other hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Failures {
    /// Attempts since the last success.
    count: u32,
    /// When the last one began.
    last: i64,
    /// Not before this.
    next: i64,
    /// Whether the last one has no result.
    is_open: bool,
}

/// A certificate in the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Certificate {
    namespace: Box<str>,
    key: Box<str>,
    /// The keys of its hosts.
    hosts: Vec<Box<str>>,
}

impl Certificate {
    pub(super) fn new(namespace: &str, hosts: &BTreeSet<Box<str>>) -> Self {
        let key = |text: String| format!("{namespace}/{}", shortened(text)).into();
        Self {
            namespace: namespace.into(),
            key: key(hosts.iter().map(|host| &**host).collect::<Vec<_>>().join(",")),
            hosts: hosts.iter().map(|host| key(host.to_string())).collect(),
        }
    }
}

/// Hosts as part of a key.
fn shortened(mut hosts: String) -> String {
    if hosts.len() > LONGEST_HOSTS {
        let hash = api::hash::fnv1a32(hosts.as_bytes());
        hosts.truncate(LONGEST_HOSTS);
        hosts.push_str(&format!("…{hash:08x}"));
    }
    hosts
}

impl Ledger {
    /// When a certificate may be ordered; not after `now` if at once.
    pub(super) fn earliest(&self, of: &Certificate, is_renewal: bool, now: i64) -> i64 {
        let failures = of.hosts.iter().filter_map(|host| self.failures.get(host));
        let mut earliest = failures.filter(|failures| failures.last <= now).fold(now, |at, one| at.max(one.next));
        let record = self.records.get(&of.key);
        let issued: Vec<i64> = record.into_iter().flat_map(|record| within(&record.issued, now, WEEK)).collect();
        if is_renewal {
            // One that is due as soon as it is issued is not renewed over and over: the clock is ahead, the CA has dated it back, or a user has
            // replaced it by another.
            let pause = record.map_or(0, |record| record.lifetime / 3);
            earliest = issued.iter().fold(earliest, |at, issued| at.max(issued + pause));
        } else if issued.len() >= MOST_OF_HOSTS {
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
        if self.has_room(of) { earliest } else { earliest.max(now + HOUR) }
    }

    /// Whether failures of its hosts can be remembered.
    fn has_room(&self, of: &Certificate) -> bool {
        let new = of.hosts.iter().filter(|host| !self.failures.contains_key(*host)).count();
        let prefix = format!("{}/", of.namespace);
        let own = self.failures.range::<str, _>((Bound::Included(&*prefix), Bound::Unbounded));
        new == 0 || own.take_while(|(key, _)| key.starts_with(&prefix)).count() + new <= MOST_FAILURES_OF_NAMESPACE
    }

    /// Whether another namespace has an attempt for one of the hosts in progress, if only by another leader. A CA may answer both with the same
    /// authorization, so that the proof of one tenant would count for the other.
    pub(super) fn is_contended(&self, of: &Certificate, now: i64) -> bool {
        let is_open = |one: &Failures| one.is_open && is_within(one.last, now, LONGEST_ATTEMPT);
        let is_own = |key: &str| of.hosts.iter().any(|own| **own == *key);
        let open = self.failures.iter().filter(|(key, one)| is_open(one) && !is_own(key));
        let mut open = open.map(|(key, _)| split(key).1);
        open.any(|host| of.hosts.iter().any(|own| split(own).1 == host))
    }

    /// Enters an attempt, which counts as failed until it has succeeded.
    pub(super) fn begin(&mut self, of: &Certificate, now: i64, retry: Duration) {
        self.prune(now, of.hosts.len());
        self.orders.push((now, of.namespace.clone()));
        self.records.entry(of.key.clone()).or_default().last = now;
        for host in &of.hosts {
            let failures = self.failures.entry(host.clone()).or_default();
            let count = failures.count.saturating_add(1);
            *failures = Failures { count, last: now, next: now + pause(count, retry), is_open: true };
        }
    }

    /// Enters a success; `lifetime` is that of the certificate, in seconds.
    pub(super) fn succeed(&mut self, of: &Certificate, now: i64, lifetime: i64) {
        for host in &of.hosts {
            self.failures.remove(host);
        }
        let record = self.records.entry(of.key.clone()).or_default();
        (record.lifetime, record.problem) = (lifetime, None);
        record.issued.push(now);
        let excess = record.issued.len().saturating_sub(MOST_OF_HOSTS);
        record.issued.drain(..excess);
    }

    /// Enters why an attempt failed. Which hosts are the cause is not known: a CA may have tried to validate all of them.
    pub(super) fn fail(&mut self, of: &Certificate, now: i64, retry: Duration, problem: &str, is_rate_limit: bool) {
        let shortest = if is_rate_limit { RATE_LIMIT_PAUSE } else { 0 };
        for host in &of.hosts {
            let failures = self.failures.entry(host.clone()).or_default();
            failures.next = now + pause(failures.count.max(1), retry).max(shortest);
            failures.is_open = false;
        }
        let end = problem.floor_char_boundary(LONGEST_PROBLEM);
        self.records.entry(of.key.clone()).or_default().problem = problem.get(..end).map(Into::into);
    }

    /// Makes room for an attempt with this many hosts.
    fn prune(&mut self, now: i64, hosts: usize) {
        self.orders.retain(|(at, _)| is_within(*at, now, HOUR));
        self.records.retain(|_, record| {
            record.issued.retain(|at| is_within(*at, now, WEEK));
            is_within(record.last, now, WEEK)
        });
        self.failures.retain(|_, failures| is_within(failures.last, now, WEEK));
        drop_oldest(&mut self.records, MOST_RECORDS - 1, |record| record.last);
        drop_oldest(&mut self.failures, MOST_FAILURES - hosts, |failures| failures.last);
    }
}

/// Drops the oldest values beyond a number.
fn drop_oldest<T>(all: &mut BTreeMap<Box<str>, T>, most: usize, age: impl Fn(&T) -> i64) {
    let Some(excess) = all.len().checked_sub(most).filter(|excess| *excess > 0) else { return };
    let mut by_age: Vec<(i64, Box<str>)> = all.iter().map(|(key, value)| (age(value), key.clone())).collect();
    by_age.sort_unstable();
    for (_, key) in by_age.into_iter().take(excess) {
        all.remove(&key);
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
mod tests;
