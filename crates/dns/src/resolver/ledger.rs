//! What is counted of upstreams, for as long as the program runs.
//!
//! In: each question to an upstream, with its code and its time. Out: lines for the metrics. It belongs to an address, not to a
//! configuration: a changed file goes on with it, and two blocks that ask one upstream share it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::metrics::{Spread, head};
use crate::wire::rcode;

/// All upstreams there were.
#[derive(Default)]
pub(super) struct Ledger(Mutex<HashMap<SocketAddr, Arc<Account>>>);

/// One of them.
#[derive(Default)]
pub(super) struct Account {
    /// How long answers took, by their code.
    answers: Mutex<BTreeMap<u16, Spread>>,
    /// Probes without an answer.
    pub(super) probes_failed: AtomicU64,
    /// Questions that went over a connection there was, and over a new one; without TLS and with it.
    pub(super) kept: [AtomicU64; 2],
    pub(super) opened: [AtomicU64; 2],
}

impl Account {
    pub(super) fn answered(&self, rcode: u16, took: Duration) {
        self.answers.lock().entry(rcode).or_insert_with(Spread::of_answers).add(took);
    }
}

impl Ledger {
    /// The account of an upstream.
    pub(super) fn of(&self, address: SocketAddr) -> Arc<Account> {
        self.0.lock().entry(address).or_default().clone()
    }

    /// Writes all accounts, in the order of addresses.
    pub(super) fn write(&self, out: &mut String) {
        let accounts: BTreeMap<_, _> = self.0.lock().iter().map(|(to, account)| (*to, account.clone())).collect();
        let name = "coredns_proxy_request_duration_seconds";
        head(out, name, "How long upstreams took to answer", "histogram");
        for (to, account) in &accounts {
            for (code, spread) in account.answers.lock().iter() {
                let labels = format!("proxy_name=\"forward\",to=\"{to}\",rcode=\"{}\"", rcode::text(*code));
                spread.write(out, name, &labels);
            }
        }
        let name = "coredns_proxy_healthcheck_failures_total";
        head(out, name, "Probes of upstreams without an answer", "counter");
        for (to, account) in &accounts {
            let count = account.probes_failed.load(Relaxed);
            let _ = writeln!(out, "{name}{{proxy_name=\"forward\",to=\"{to}\"}} {count}");
        }
        let (hits, misses) = ("coredns_proxy_conn_cache_hits_total", "coredns_proxy_conn_cache_misses_total");
        for (name, help) in [(hits, "over a connection there was"), (misses, "over a new connection")] {
            head(out, name, &format!("Questions to upstreams {help}"), "counter");
            for (to, account) in &accounts {
                let counts = if name == hits { &account.kept } else { &account.opened };
                for (proto, count) in ["tcp", "tcp-tls"].into_iter().zip(counts) {
                    let count = count.load(Relaxed);
                    let _ = writeln!(out, "{name}{{proxy_name=\"forward\",to=\"{to}\",proto=\"{proto}\"}} {count}");
                }
            }
        }
    }
}
