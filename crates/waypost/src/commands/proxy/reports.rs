//! How the proxy of this machine stands, for whoever asks the agent: the loop says what it serves, the kernel who talks to whom, and
//! what is tried whether it works.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use agent::serve::reports::{NoReport, Reports};
use dataplane::health::Health;
use dataplane::report::{self, Question, Snapshot, Traffic};
use dataplane::sync::Message;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kernel::Family;
use kernel::conntrack::Conntrack as _;
use kernel::conntrack::linux::Linux;
use kernel::sysctl::Sysctl as _;
use serde_json::Value;
use tokio::sync::oneshot;

use super::tried::Trier;

/// How long the loop may take to answer: it may be busy writing the rules of a large cluster.
const PATIENCE: Duration = Duration::from_secs(10);
/// Whether the kernel counts what passes.
const ACCOUNTING: &str = "net/netfilter/nf_conntrack_acct";
/// The mode in which this program carries connections: the kernel does not know who is behind a Service then.
const CARRIED: &str = "userspace";

/// See the module.
pub(super) struct ProxyReports {
    out: Sender<Message>,
    health: Arc<Health>,
    trier: Trier,
}

impl ProxyReports {
    pub(super) const fn new(out: Sender<Message>, health: Arc<Health>, trier: Trier) -> Self {
        Self { out, health, trier }
    }

    async fn ask(&self, service: Option<String>, rules: bool) -> Result<Snapshot, NoReport> {
        let ended = || NoReport("the proxy of this node has ended".to_owned());
        let (sender, receiver) = oneshot::channel();
        // Whoever asked may have gone meanwhile.
        let answer = Box::new(move |snapshot| drop(sender.send(snapshot)));
        self.out.send(Message::Ask(Question { service, rules, answer })).map_err(|_| ended())?;
        let answered = tokio::time::timeout(PATIENCE, receiver).await;
        let busy = |_| NoReport(format!("the proxy of this node is busy: it does not answer within {PATIENCE:?}"));
        answered.map_err(busy)?.map_err(|_| ended())
    }
}

impl Reports for ProxyReports {
    fn report(&self, service: Option<String>, is_tried: bool) -> BoxFuture<'_, Result<String, NoReport>> {
        async move {
            let trying = async {
                match service.as_deref().filter(|_| is_tried) {
                    Some(service) => self.trier.of(service).await,
                    None => Value::Null,
                }
            };
            let (snapshot, tried) = tokio::join!(self.ask(service.clone(), false), trying);
            let snapshot = snapshot?;
            let traffic = match snapshot.mode {
                CARRIED => Traffic::default(),
                _ => tokio::task::spawn_blocking(traffic).await.unwrap_or_default(),
            };
            let mut told = report::report(&snapshot, &self.health.written(), &traffic);
            if !tried.is_null() {
                told["tried"] = tried;
            }
            Ok(told.to_string())
        }
        .boxed()
    }

    fn rules(&self, service: String) -> BoxFuture<'_, Result<String, NoReport>> {
        async move { Ok(report::rules(&self.ask(Some(service), true).await?)) }.boxed()
    }
}

/// The connections that the kernel remembers.
fn traffic() -> Traffic {
    let read = || {
        let mut conntrack = Linux::open()?;
        let mut flows = conntrack.led_flows(Family::Ip)?;
        flows.extend(conntrack.led_flows(Family::Ip6)?);
        Ok::<_, kernel::conntrack::ConntrackError>(flows)
    };
    let flows = read().inspect_err(|error| tracing::debug!(%error, "connections cannot be read")).ok();
    let counted = kernel::sysctl::Linux.read(ACCOUNTING).is_ok_and(|value| value.trim() == "1");
    Traffic { flows, counted }
}
