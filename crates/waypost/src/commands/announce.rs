//! The announcers of a machine, put together: watches and frames go in, Leases, answers to neighbours and Events come out.
//!
//! `up` and `node` differ only in where objects come from.

mod bgp;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dataplane::announce::api::{Answer, Api, Ask, News, Refusal, Versioned};
use dataplane::announce::inputs::Inputs;
use dataplane::announce::l2;
use dataplane::announce::lease::{self, Key, Lease};
use dataplane::announce::metrics::Figures;
use dataplane::health::Health;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use kernel::packets::{self, Packets, PacketsError};
use parking_lot::Mutex;
use rest::client::{Client, Method};
use rest::remote::{Finding, Remote, Teller};
use serde_json::Value;
use store::source::Source;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::ProxyArguments;

/// As whom we speak in Events.
const COMPONENT: &str = "waypost-announcer";
/// Where Leases are.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// How long an answer may take; a claim does not last longer either.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many idle connections are kept.
const KEPT: usize = 4;

/// What the announcers of a machine need.
pub(super) struct Place<'a> {
    /// Where objects come from.
    pub(super) source: &'a dyn Source,
    /// How to reach the API.
    pub(super) remote: &'a Remote,
    /// The name of the node.
    pub(super) node: String,
    /// The bridge of Pods, which leads to no neighbours.
    pub(super) pod_bridge: &'a str,
    /// What is counted.
    pub(super) figures: Figures,
    /// How the proxy of the machine stands, if there is one.
    pub(super) proxy: Option<Arc<Health>>,
}

/// Announcers that run.
pub(super) struct Announcing {
    stop: oneshot::Sender<()>,
    l2: JoinHandle<()>,
    bgp: bgp::Speaker,
    _inputs: Inputs,
}

impl Announcing {
    /// Starts them, on the present tokio runtime.
    pub(super) fn start(place: Place<'_>) -> anyhow::Result<Self> {
        let inputs = Inputs::start(place.source).map_err(|status| anyhow::anyhow!("{}", status.message))?;
        let remote = place.remote.clone();
        let teller = Teller::start(&remote, COMPONENT, &place.node);
        let (secrets, figures) = (Arc::new(remote.clone()), place.figures.bgp.clone());
        let bgp = bgp::Speaker::start(&place.node, inputs.view(), secrets, teller.clone(), figures, place.proxy);
        let api = Arc::new(Requests { remote, idle: Mutex::default(), teller });
        let left_out = vec![place.pod_bridge.to_owned()];
        let tools = l2::Tools {
            node: place.node,
            process: uuid::Uuid::new_v4().simple().to_string(),
            open: Box::new(move || -> Result<Box<dyn Packets>, PacketsError> {
                Ok(Box::new(packets::linux::Linux::open(left_out.clone())?))
            }),
            clock: packets::now,
            api,
            figures: place.figures,
        };
        let (stop, stopped) = oneshot::channel();
        let l2 = tokio::spawn(l2::run(inputs.view(), tools, stopped));
        Ok(Self { stop, l2, bgp, _inputs: inputs })
    }

    /// Falls silent and gives everything back, so that others answer at once.
    pub(super) async fn leave(self) {
        l2::leave(self.stop, self.l2).await;
        self.bgp.leave().await;
    }
}

/// Whether this machine lets us hear and send frames.
pub(super) fn may_announce() -> bool {
    use rustix::thread::CapabilitySet;
    rustix::thread::capabilities(None).is_ok_and(|have| have.effective.contains(CapabilitySet::NET_RAW))
}

/// The mode ipvs has addresses of Services on a device of its own, for which the kernel would answer neighbours of every node by itself.
pub(super) fn leave_answers_to_us(proxy: &mut ProxyArguments, announces: bool) {
    proxy.ipvs.ipvs_strict_arp |= announces;
}

/// The requests of announcers, over the client of this program: a few connections that are used again.
struct Requests {
    remote: Remote,
    idle: Mutex<Vec<Client>>,
    teller: Teller,
}

impl Requests {
    async fn carry(&self, key: &Key, ask: Ask) -> Answer {
        let now = Timestamp::now();
        let one = format!("{LEASES}/{}", key.name());
        let (method, path, body) = match &ask {
            Ask::Get => (Method::GET, one, None),
            Ask::Create(lease) => (Method::POST, LEASES.to_owned(), Some(lease.write(key, None, now))),
            Ask::Replace(lease, version) => (Method::PUT, one, Some(lease.write(key, Some(version), now))),
            Ask::Delete(version) => (Method::DELETE, one, Some(lease::preconditions(version))),
        };
        let Some((code, value)) = self.exchange(method, &path, body.as_ref()).await else {
            return Err(Refusal::Unknown);
        };
        match (code, &ask) {
            (404, Ask::Get | Ask::Delete(_)) | (200..=299, Ask::Delete(_)) => Ok(None),
            (200..=299, _) => Ok(Some(Versioned { lease: Lease::read(&value), version: lease::version(&value) })),
            (404 | 409, _) => Err(Refusal::TooLate),
            _ => {
                let message = value["message"].as_str().unwrap_or_default();
                tracing::warn!(code, message, lease = key.name(), "a Lease could not be read or written");
                Err(Refusal::Unknown)
            }
        }
    }

    /// Sends a request and reads the answer; nothing when there is none in time.
    async fn exchange(&self, method: Method, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let kind = body.map(|_| "application/json");
        let bytes = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let idle = self.idle.lock().pop();
        let kept = idle.is_some();
        let mut client = idle.unwrap_or_else(|| self.remote.client());
        let ask = async {
            let answer = client.bytes(method.clone(), path, kind, bytes.clone()).await;
            if answer.is_err() && kept {
                // The server may have closed a connection that nobody used; a new one knows better.
                self.remote.refresh();
                client = self.remote.client();
                return client.bytes(method, path, kind, bytes).await;
            }
            answer
        };
        let (code, bytes) = match tokio::time::timeout(PATIENCE, ask).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::debug!(%error, path, "a Lease is not to be had");
                self.remote.refresh();
                return None;
            }
            Err(_) => return None,
        };
        let mut idle = self.idle.lock();
        if idle.len() < KEPT {
            idle.push(client);
        }
        drop(idle);
        serde_json::from_slice(&bytes).ok().map(|value| (code, value))
    }
}

impl Api for Requests {
    fn ask<'a>(&'a self, key: &'a Key, ask: Ask) -> BoxFuture<'a, Answer> {
        self.carry(key, ask).boxed()
    }

    fn tell(&self, news: News) {
        let (namespace, name) = news.service.split_once('/').unwrap_or_default();
        self.teller.tell(Finding {
            kind: &api::kinds::service::KIND,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: news.uid.to_string(),
            normal: news.normal,
            reason: news.reason,
            message: news.message,
        });
    }
}
