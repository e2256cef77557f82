//! Nodes that renew their Leases and an administrator who lists, at a fixed pace.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::http::{Client, Method};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{LEASES, NODES, Scenario, node_name, post, runtime, succeed};

/// Threads of these clients.
const THREADS: usize = 2;
/// The pause between two renewals of one node.
const RENEWAL_INTERVAL: Duration = Duration::from_millis(200);
/// The pause between two lists of the administrator.
const LIST_INTERVAL: Duration = Duration::from_millis(25);
/// Lists of the administrator for each renewal of one node: both take as long.
const LISTS_PER_ROUND: usize = 8;

/// How long every request took.
#[derive(Debug, Default)]
pub struct Samples {
    /// Renewals of all nodes.
    pub renewals: Vec<Duration>,
    /// Lists of the administrator.
    pub lists: Vec<Duration>,
}

impl Scenario {
    /// Nodes renew their Leases this many times, while the administrator lists Services and Pods.
    ///
    /// # Panics
    /// When one of the requests fails.
    #[must_use]
    pub fn observe(&self, rounds: usize) -> Samples {
        let ready = Arc::new(Barrier::new(NODES + 1));
        let mut renewing = JoinSet::new();
        runtime(THREADS).block_on(async {
            for node in 0..NODES {
                let client = self.client(&node_name(node));
                renewing.spawn(renew(client, node, rounds, ready.clone()));
            }
            let listing = tokio::spawn(list(self.admin.another(), rounds * LISTS_PER_ROUND, ready));
            let mut samples = Samples::default();
            while let Some(renewals) = renewing.join_next().await {
                samples.renewals.extend(renewals.expect("renewals of a node"));
            }
            samples.lists = listing.await.expect("lists of the administrator");
            samples
        })
    }
}

/// Renews the Lease of a node as a kubelet does: an update of the object that the last answer contained.
async fn renew(mut client: Client, node: usize, rounds: usize, ready: Arc<Barrier>) -> Vec<Duration> {
    let name = node_name(node);
    let path = format!("{LEASES}/{name}");
    let mut lease = existing(&mut client, &path).await;
    if lease.is_null() {
        let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 40});
        let new =
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec});
        lease = post(&mut client, LEASES, &new).await;
    }
    ready.wait().await;
    let mut samples = Vec::with_capacity(rounds);
    // Nodes do not renew at the same moment.
    let offset = RENEWAL_INTERVAL * u32::try_from(node).expect("few nodes") / u32::try_from(NODES).expect("few nodes");
    tokio::time::sleep(offset).await;
    let mut pace = interval(RENEWAL_INTERVAL);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..rounds {
        pace.tick().await;
        lease["spec"]["renewTime"] = format!("{:.6}", Timestamp::now()).into();
        let begun = Instant::now();
        let answer = succeed(&mut client, Method::PUT, &path, lease.to_string().into()).await;
        samples.push(begun.elapsed());
        lease = serde_json::from_slice(&answer).expect("JSON");
    }
    samples
}

/// The Lease, from an earlier observation; null when there is none.
async fn existing(client: &mut Client, path: &str) -> Value {
    let (code, lease) = client.json(Method::GET, path, None).await.expect("an answer");
    if code == 200 { lease } else { Value::Null }
}

async fn list(mut client: Client, rounds: usize, ready: Arc<Barrier>) -> Vec<Duration> {
    ready.wait().await;
    let mut samples = Vec::with_capacity(rounds);
    let mut pace = interval(LIST_INTERVAL);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for path in ["/api/v1/services", "/api/v1/pods"].into_iter().cycle().take(rounds) {
        pace.tick().await;
        let begun = Instant::now();
        let _ = succeed(&mut client, Method::GET, path, Bytes::new()).await;
        samples.push(begun.elapsed());
    }
    samples
}
