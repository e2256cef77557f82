//! Proxy reports for the agent's API: Services from the sync loop, connections from conntrack, and optional checks.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use agent::serve::reports::{NoReport, Reports};
use dataplane::health::Health;
use dataplane::report::{self, Snapshot, SnapshotRequest, Traffic};
use dataplane::sync::Message;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kernel::Family;
use kernel::conntrack::Conntrack as _;
use kernel::conntrack::linux::Linux;
use kernel::sysctl::Sysctl as _;
use serde_json::Value;
use tokio::sync::oneshot;

use super::checks::ServiceChecker;

/// Response timeout of the loop: it may be writing the rules of a large cluster.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Sysctl: whether the kernel counts bytes.
const ACCOUNTING: &str = "net/netfilter/nf_conntrack_acct";
/// The mode in which conntrack does not show the backend.
const RELAYED_MODE: &str = "userspace";

/// Implements [`Reports`].
pub(super) struct ProxyReports {
    out: Sender<Message>,
    health: Arc<Health>,
    checker: ServiceChecker,
}

impl ProxyReports {
    pub(super) const fn new(out: Sender<Message>, health: Arc<Health>, checker: ServiceChecker) -> Self {
        Self { out, health, checker }
    }

    async fn snapshot(&self, service: Option<String>, rules: bool) -> Result<Snapshot, NoReport> {
        let ended = || NoReport("the proxy of this node has stopped".to_owned());
        let (sender, receiver) = oneshot::channel();
        // The requester may have gone.
        let reply = Box::new(move |snapshot| drop(sender.send(snapshot)));
        self.out.send(Message::Snapshot(SnapshotRequest { service, rules, reply })).map_err(|_| ended())?;
        let answered = tokio::time::timeout(TIMEOUT, receiver).await;
        let busy = |_| NoReport(format!("the proxy of this node is busy: no response within {TIMEOUT:?}"));
        answered.map_err(busy)?.map_err(|_| ended())
    }
}

impl Reports for ProxyReports {
    fn report(&self, service: Option<String>, is_tried: bool) -> BoxFuture<'_, Result<String, NoReport>> {
        async move {
            let checks = async {
                match service.as_deref().filter(|_| is_tried) {
                    Some(service) => self.checker.of(service).await,
                    None => Value::Null,
                }
            };
            let (snapshot, tried) = tokio::join!(self.snapshot(service.clone(), false), checks);
            let snapshot = snapshot?;
            let traffic = match snapshot.mode {
                RELAYED_MODE => Traffic::default(),
                _ => tokio::task::spawn_blocking(traffic).await.unwrap_or_default(),
            };
            let mut report = report::report(&snapshot, &self.health.last_sync(), &traffic);
            if !tried.is_null() {
                report["tried"] = tried;
            }
            Ok(report.to_string())
        }
        .boxed()
    }

    fn rules(&self, service: String) -> BoxFuture<'_, Result<String, NoReport>> {
        async move { Ok(report::rules(&self.snapshot(Some(service), true).await?)) }.boxed()
    }
}

/// Connections from conntrack.
fn traffic() -> Traffic {
    let read = || {
        let mut conntrack = Linux::open()?;
        let mut flows = conntrack.translated_flows(Family::Ip)?;
        flows.extend(conntrack.translated_flows(Family::Ip6)?);
        Ok::<_, kernel::conntrack::ConntrackError>(flows)
    };
    let flows = read().inspect_err(|error| tracing::debug!(%error, "cannot read conntrack entries")).ok();
    let accounting = kernel::sysctl::Linux.read(ACCOUNTING).is_ok_and(|value| value.trim() == "1");
    Traffic { flows, accounting }
}
