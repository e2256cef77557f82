//! Leader election: of several servers on one store, the holder of a Lease runs the controllers.
//!
//! In: the stored Lease. Out: at most one active leader. The timestamps in the Lease are not trusted: it is expired when it has not changed for its
//! duration by the local monotonic clock. Two leaders for a moment do no harm, because every write has the revision that it replaces.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::admission::Plugins;
use api::custom::Kinds;
use api::object;
use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::allocation::Ranges;
use store::{Entry, Key, Store, Table};

use crate::metrics::Metrics;
use crate::write::{Write, Writer};

/// The namespace of the Lease.
const NAMESPACE: &str = "kube-system";
/// The name of the Lease.
const NAME: &str = "waypost-controllers";

/// Parameters of the election.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Election {
    /// The unique identity of this server.
    pub identity: String,
    /// `leaseDurationSeconds`
    pub duration: Duration,
    /// A leader that cannot renew for this long stops (renew deadline).
    pub deadline: Duration,
    /// The retry period.
    pub retry: Duration,
}

impl Election {
    /// The defaults of Kubernetes.
    #[must_use]
    pub const fn new(identity: String) -> Self {
        Self {
            identity,
            duration: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }

    /// Runs `work` while this server is the leader, and drops it when leadership is lost. Never returns.
    pub async fn run_while_leader<W, F>(&self, store: Arc<dyn Store>, ranges: &Ranges, metrics: &Metrics, work: W)
    where
        W: Fn() -> F,
        F: Future<Output = ()>,
    {
        let mut observed = ObservedLease::default();
        loop {
            metrics.set_leader(false);
            while !self.attempt(&*store, ranges, &mut observed).await {
                tokio::time::sleep(self.retry).await;
            }
            tracing::info!(identity = self.identity, "became leader of the controllers");
            tokio::select! {
                () = work() => {}
                () = self.renew(&*store, ranges, &mut observed) => {
                    tracing::warn!("lost leadership of the controllers: failed to renew the Lease");
                }
            }
        }
    }

    /// Releases the Lease, so that another server need not wait for its expiry.
    pub async fn release(&self, store: &dyn Store, ranges: &Ranges) {
        let Some(entry) = store.get(&key()) else { return };
        let mut lease = object::decode_bare(&entry.value);
        if lease.text("spec.holderIdentity") != self.identity {
            return;
        }
        lease.put("spec.holderIdentity", "");
        lease.put("spec.leaseDurationSeconds", 1);
        let write = Write::Object { table: "leases", object: Box::new(lease), modified: entry.modified };
        let writer = Writer {
            store,
            ranges,
            now: Timestamp::now(),
            checked: true,
            plugins: &Plugins::none(),
            kinds: Kinds::fixed(),
        };
        if let Ok(txn) = writer.transaction(&[write]) {
            // On failure the Lease expires.
            let _ = store.commit(txn).await;
        }
    }

    /// Renews the Lease; returns when the renew deadline has passed.
    async fn renew(&self, store: &dyn Store, ranges: &Ranges, observed: &mut ObservedLease) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < self.deadline {
            tokio::time::sleep(self.retry).await;
            if self.attempt(store, ranges, observed).await {
                renewed = Instant::now();
            }
        }
    }

    /// Tries to acquire or renew the Lease.
    async fn attempt(&self, store: &dyn Store, ranges: &Ranges, observed: &mut ObservedLease) -> bool {
        let entry = store.get(&key());
        let now = Timestamp::now();
        let Some(write) = self.decide(entry.as_deref(), observed, Instant::now(), now) else { return false };
        let writer = Writer { store, ranges, now, checked: true, plugins: &Plugins::none(), kinds: Kinds::fixed() };
        match writer.transaction(&[write]) {
            Ok(txn) => store.commit(txn).await.is_ok(),
            Err(_) => false,
        }
    }

    /// The Lease to write; nothing while another server holds it.
    fn decide(
        &self,
        entry: Option<&Entry>,
        observed: &mut ObservedLease,
        at: Instant,
        now: Timestamp,
    ) -> Option<Write> {
        let time = now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let Some(entry) = entry else {
            let metadata = json!({"name": NAME, "namespace": NAMESPACE});
            return Some(Write::create("leases", json!({"metadata": metadata, "spec": self.spec(&time, &time, 0)})));
        };
        if observed.modified != entry.modified {
            *observed = ObservedLease { modified: entry.modified, at: Some(at) };
        }
        let mut lease = object::decode_bare(&entry.value);
        let holder = lease.text("spec.holderIdentity");
        let transitions = lease.int("spec.leaseTransitions");
        let spec = if holder == self.identity {
            self.spec(lease.text("spec.acquireTime"), &time, transitions)
        } else {
            let seconds = u64::try_from(lease.int("spec.leaseDurationSeconds")).unwrap_or_default();
            let unchanged_for = observed.at.map_or(Duration::ZERO, |since| at.saturating_duration_since(since));
            if !holder.is_empty() && unchanged_for < Duration::from_secs(seconds) {
                return None;
            }
            self.spec(&time, &time, transitions + 1)
        };
        lease.put("spec", spec);
        Some(Write::Object { table: "leases", object: Box::new(lease), modified: entry.modified })
    }

    fn spec(&self, acquired: &str, renewed: &str, transitions: i64) -> Value {
        json!({
            "holderIdentity": self.identity, "leaseDurationSeconds": self.duration.as_secs().max(1),
            "acquireTime": acquired, "renewTime": renewed, "leaseTransitions": transitions,
        })
    }
}

/// The key of the Lease.
fn key() -> Key {
    Key { table: Table::named("leases"), name: format!("{NAMESPACE}/{NAME}").into() }
}

/// The last observed revision of the Lease, and when it was observed.
#[derive(Debug, Default)]
struct ObservedLease {
    modified: u64,
    at: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use store::{Embedded, Options};
    use tokio::sync::mpsc;

    use super::*;
    use crate::bootstrap;

    fn election(identity: &str) -> Election {
        Election {
            identity: identity.to_owned(),
            duration: Duration::from_secs(1),
            deadline: Duration::from_millis(600),
            retry: Duration::from_millis(50),
        }
    }

    async fn store(home: &std::path::Path) -> (Arc<dyn Store>, Ranges) {
        let index = |table: &str, value: &[u8]| {
            api::kinds::by_table(table).map_or_else(Default::default, |kind| kind.facts(&object::decode_light(value)))
        };
        let store = Embedded::open(home.join("store"), index, Options::default()).expect("a store");
        let ranges = Ranges { addresses: vec!["10.96.0.0/16".parse().expect("a range")], ports: 30000..=32767 };
        bootstrap::run(&store, &ranges, "127.0.0.1:6443".parse().expect("an address")).await.expect("first objects");
        (Arc::new(store), ranges)
    }

    /// A candidate that sends its name when it becomes leader.
    fn candidate(
        name: &'static str,
        store: &Arc<dyn Store>,
        ranges: &Ranges,
        began: &mpsc::Sender<&'static str>,
    ) -> tokio::task::JoinHandle<()> {
        let (store, ranges, began) = (store.clone(), ranges.clone(), began.clone());
        tokio::spawn(async move {
            let work = || async {
                let _ = began.send(name).await;
                std::future::pending::<()>().await;
            };
            election(name).run_while_leader(store, &ranges, &Metrics::new(), work).await;
        })
    }

    #[tokio::test]
    async fn another_candidate_takes_over_when_the_lease_expires() {
        let home = tempfile::tempdir().expect("a directory");
        let (store, ranges) = store(home.path()).await;
        let (began, mut heard) = mpsc::channel(8);
        let first = candidate("first", &store, &ranges, &began);
        assert_eq!(heard.recv().await, Some("first"));
        let second = candidate("second", &store, &ranges, &began);
        first.abort();
        let silent_since = Instant::now();
        assert_eq!(heard.recv().await, Some("second"));
        assert!(silent_since.elapsed() >= Duration::from_millis(500), "not before the Lease has run out");
        second.abort();
        let _ = second.await;
        election("second").release(&*store, &ranges).await;
        let _third = candidate("third", &store, &ranges, &began);
        let given_back = Instant::now();
        assert_eq!(heard.recv().await, Some("third"));
        assert!(given_back.elapsed() < Duration::from_millis(900), "a Lease that was given back is free at once");
    }

    #[test]
    fn a_lease_expires_when_it_has_not_changed_for_its_duration() {
        let (me, now, at) = (election("me"), Timestamp::UNIX_EPOCH, Instant::now());
        let other = json!({
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 3,
                     "renewTime": "2001-01-01T00:00:00.000000Z"},
        });
        let entry = |modified| Entry {
            key: Key { table: Table::named("leases"), name: "kube-system/x".into() },
            created: 1,
            modified,
            expires: None,
            value: object::encode(&other),
            facts: Arc::default(),
        };
        let mut observed = ObservedLease::default();
        let second = Duration::from_secs(1);
        assert_eq!(me.decide(Some(&entry(7)), &mut observed, at, now), None, "whatever its clock says");
        assert_eq!(me.decide(Some(&entry(8)), &mut observed, at + second * 14, now), None);
        assert_eq!(me.decide(Some(&entry(8)), &mut observed, at + second * 20, now), None, "it was renewed");
        let Some(Write::Object { object, modified: 8, .. }) =
            me.decide(Some(&entry(8)), &mut observed, at + second * 30, now)
        else {
            panic!("it is free now")
        };
        assert_eq!((object.text("spec.holderIdentity"), object.int("spec.leaseTransitions")), ("me", 4));
    }
}
