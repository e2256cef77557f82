//! Gateway of a node: watches Services and runs a [`ServiceWorker`] for each that uses the gateway.
//!
//! In: a [`Source`]. Out: workers, and a [`Redirect`] for each address they listen on.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::kinds;
use api::status::Status;
use api::view::annotations::LAYER_7;
use api::view::labels::SERVICE_PROXY_NAME;
use api::view::{Node, Service};
use client::watch::{Event, KnownKeys, Object, Selection, Source, Watch};
use parking_lot::Mutex;
use plan::{Redirect, RedirectedFrontends};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::access_log::AccessLog;
use crate::annotations::{HINT, gateway_spec};
use crate::challenges::Challenges;
use crate::clients::LocalClients;
use crate::limits::Limits;
use crate::metrics::GatewayMetrics;
use crate::objects::parse;
use crate::policy::{Enforcer, may_connect};
use crate::port_config::PortConfig;
use crate::routes;
use crate::service_worker::ServiceWorker;
use crate::tls::UpstreamTls;
use crate::workers::Workers;

/// How often [`Gateway::stop`] checks whether the last connection has closed.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Warning for the owner of a Service, reported as an Event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Event reason.
    pub reason: &'static str,
    /// Event message.
    pub message: String,
}

/// Receives notices; must not block.
pub type EventSink = Arc<dyn Fn(Notice) + Send + Sync>;

/// The addresses of the node as they are now. Called for each lookup of a host that a route names; must not block for long.
pub type OwnAddresses = Arc<dyn Fn() -> Vec<IpAddr> + Send + Sync>;

/// Settings of a gateway.
#[derive(Clone)]
pub struct Settings {
    /// Name of the node.
    pub node: String,
    /// Addresses of the node, used in addition to those of its Node object. Listeners use those at the start; servers of
    /// routes must have none of those at the time.
    pub addresses: OwnAddresses,
    /// Limits and timeouts.
    pub limits: Limits,
    /// Which Ingresses are served, and how.
    pub ingress: routing::ingress::Options,
    /// The access log, if there is one.
    pub access_log: Option<Arc<AccessLog>>,
    /// Receives notices.
    pub events: EventSink,
}

/// State shared by all workers.
pub(crate) struct Shared {
    pub(crate) node: Box<str>,
    pub(crate) addresses: watch::Receiver<Arc<[IpAddr]>>,
    pub(crate) limits: Limits,
    pub(crate) ingress: routing::ingress::Options,
    pub(crate) workers: Arc<Workers>,
    pub(crate) upstream_tls: Arc<UpstreamTls>,
    events: EventSink,
    redirects: watch::Sender<Arc<BTreeSet<Redirect>>>,
    /// Port configurations that may have open connections.
    port_configs: Mutex<Vec<Weak<PortConfig>>>,
    pub(crate) metrics: GatewayMetrics,
    access_log: Option<Arc<AccessLog>>,
    /// Enforces the policies of rules.
    pub(crate) enforcer: Arc<Enforcer>,
    /// Answers to ACME challenges.
    pub(crate) challenges: Arc<Challenges>,
    /// Who connects from this node.
    pub(crate) clients: Arc<LocalClients>,
    /// The zone of the node.
    pub(crate) zone: watch::Receiver<Option<Box<str>>>,
    /// Whether some Service asks for layer 7 by an annotation.
    pub(crate) layer7_wanted: watch::Sender<bool>,
    /// Whether the gateway stops: what the kernel serves by itself stays.
    pub(crate) is_stopping: AtomicBool,
}

impl Shared {
    pub(crate) fn emit(&self, notice: Notice) {
        tracing::warn!(
            service = format!("{}/{}", notice.namespace, notice.name),
            reason = notice.reason,
            "{}",
            notice.message
        );
        (self.events)(notice);
    }

    pub(crate) fn register(&self, mut port_config: PortConfig) -> Arc<PortConfig> {
        port_config.access_log.clone_from(&self.access_log);
        let port_config = Arc::new(port_config);
        let mut port_configs = self.port_configs.lock();
        port_configs.retain(|port_config| port_config.strong_count() > 0);
        port_configs.push(Arc::downgrade(&port_config));
        port_config
    }

    /// Publishes the redirects of these frontends of a Service.
    pub(crate) fn publish(&self, service: &str, frontends: RedirectedFrontends, redirects: BTreeSet<Redirect>) {
        if frontends == RedirectedFrontends::ClusterIp && self.is_stopping.load(Relaxed) && !redirects.is_empty() {
            return;
        }
        let is_of_it = |redirect: &&Redirect| *redirect.service == *service && redirect.frontends == frontends;
        self.redirects.send_if_modified(|all| {
            let is_new = !all.iter().filter(is_of_it).eq(&redirects);
            if is_new {
                let all = Arc::make_mut(all);
                all.retain(|redirect| !is_of_it(&redirect));
                all.extend(redirects);
            }
            is_new
        });
    }
}

/// Why the gateway cannot start, which is a bug.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A built-in selector is invalid.
    #[error("{}", .0.message)]
    Selector(Status),
    /// The TLS settings towards Pods are invalid.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// Running gateway. Dropping it stops it at once.
pub struct Gateway {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Gateway {
    /// Starts the gateway. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When a built-in selector or TLS setting is invalid, which is a bug.
    pub fn start(source: Arc<dyn Source>, settings: Settings) -> Result<Self, StartError> {
        let services = Selection::all(&kinds::service::KIND).selected(&format!("!{SERVICE_PROXY_NAME}"), "");
        let services = source.watch(services.map_err(StartError::Selector)?);
        let node = Selection::all(&kinds::node::KIND).named(&settings.node).map_err(StartError::Selector)?;
        let node = source.watch(node.optional());
        let at_start = (settings.addresses)();
        let (address_sender, addresses) = watch::channel(Arc::from(at_start.clone()));
        let (zone_sender, zone) = watch::channel(None);
        let clients = Arc::new(LocalClients::new(addresses.clone(), Arc::clone(&settings.addresses)));
        let (workers, of_node, own) = (Arc::new(Workers::new()), addresses.clone(), settings.addresses);
        let permits = Box::new(move |address| may_connect(address, &of_node.borrow()) && may_connect(address, &own()));
        let shared = Arc::new(Shared {
            node: settings.node.into(),
            addresses,
            limits: settings.limits,
            enforcer: Enforcer::new(settings.limits, workers.count(), permits),
            ingress: settings.ingress,
            workers,
            upstream_tls: Arc::new(UpstreamTls::new()?),
            events: settings.events,
            redirects: watch::Sender::default(),
            port_configs: Mutex::default(),
            metrics: settings.access_log.as_deref().map(GatewayMetrics::of_log).unwrap_or_default(),
            access_log: settings.access_log,
            challenges: Arc::default(),
            clients,
            zone,
            layer7_wanted: watch::Sender::new(false),
            is_stopping: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(watch_node(node, at_start, address_sender, zone_sender));
        tasks.spawn(routes::run(Arc::clone(&source), Arc::clone(&shared)));
        tasks.spawn(watch_services(services, source, Arc::clone(&shared)));
        Ok(Self { shared, tasks })
    }

    /// All redirects, as they change.
    #[must_use]
    pub fn redirects(&self) -> watch::Receiver<Arc<BTreeSet<Redirect>>> {
        self.shared.redirects.subscribe()
    }

    /// Metrics.
    #[must_use]
    pub fn metrics(&self) -> GatewayMetrics {
        self.shared.metrics.clone()
    }

    /// Withdraws the redirects of cluster IPs for good: Services at layer 7 are served at layer 4 once the proxy has followed.
    /// New connections are accepted until [`Self::stop`].
    pub fn withdraw(&self) {
        self.shared.is_stopping.store(true, Relaxed);
        self.shared.redirects.send_if_modified(|all| {
            let has_any = all.iter().any(|redirect| redirect.frontends == RedirectedFrontends::ClusterIp);
            if has_any {
                Arc::make_mut(all).retain(|redirect| redirect.frontends != RedirectedFrontends::ClusterIp);
            }
            has_any
        });
    }

    /// Stops accepting and waits for open connections to close, up to the drain timeout; then closes the access log.
    pub async fn stop(mut self) {
        self.withdraw();
        self.tasks.shutdown().await;
        let over = Instant::now() + self.shared.limits.drain;
        let open = || {
            self.shared
                .port_configs
                .lock()
                .iter()
                .filter_map(Weak::upgrade)
                .map(|port_config| port_config.open())
                .sum::<usize>()
        };
        while open() > 0 && Instant::now() < over {
            sleep(DRAIN_POLL_INTERVAL).await;
        }
        if let Some(log) = &self.shared.access_log {
            log.close().await;
        }
    }
}

/// Watches the addresses and the zone of the Node object.
async fn watch_node(
    mut watch: Watch,
    own: Vec<IpAddr>,
    sender: watch::Sender<Arc<[IpAddr]>>,
    zone_sender: watch::Sender<Option<Box<str>>>,
) {
    loop {
        let node = match watch.next().await {
            Event::InitApply(object) | Event::Apply(object) => parse::<Node>(&object),
            Event::Delete(_) => Some(Node::default()),
            Event::Init | Event::InitDone => None,
        };
        let Some(node) = node else { continue };
        zone_sender.send_if_modified(|zone| {
            let is_new = zone.as_deref() != node.zone();
            *zone = node.zone().map(Into::into);
            is_new
        });
        let mut all = node.addresses();
        all.extend(own.iter().copied().filter(|ip| !all.contains(ip)).collect::<Vec<_>>());
        let all: Arc<[IpAddr]> = all.into();
        sender.send_if_modified(|known| {
            let is_new = *known != all;
            *known = all;
            is_new
        });
    }
}

/// Runs a worker for each Service that uses the gateway.
async fn watch_services(mut watch: Watch, source: Arc<dyn Source>, shared: Arc<Shared>) {
    let mut known = KnownKeys::default();
    let (mut workers_by_key, mut stopping) =
        (HashMap::<Box<str>, WorkerHandle>::new(), HashMap::<Box<str>, JoinHandle<()>>::new());
    loop {
        let event = watch.next().await;
        stopping.retain(|_, task| !task.is_finished());
        for deleted in known.apply(&event) {
            stop_worker(&deleted, &mut workers_by_key, &mut stopping);
        }
        match event {
            Event::InitApply(object) | Event::Apply(object) => {
                let key: Box<str> = object.key().into();
                if contains(&object, LAYER_7.as_bytes()) {
                    shared.layer7_wanted.send_if_modified(|wanted| !std::mem::replace(wanted, true));
                }
                let Some(service) = gateway_service(&object) else {
                    stop_worker(&key, &mut workers_by_key, &mut stopping);
                    continue;
                };
                let service = Arc::new(service);
                if let Some(worker) = workers_by_key.get(&key) {
                    worker.service.send_replace(service);
                    continue;
                }
                if let Some(before) = stopping.remove(&key) {
                    // Its final cleanup must not remove what the new worker publishes.
                    let _ = before.await;
                }
                let (sender, receiver) = watch::channel(service);
                let task =
                    tokio::spawn(ServiceWorker::new(&key, Arc::clone(&shared), receiver).run(Arc::clone(&source)));
                workers_by_key.insert(key, WorkerHandle { service: sender, task });
            }
            Event::Delete(object) => stop_worker(&object.key(), &mut workers_by_key, &mut stopping),
            Event::Init | Event::InitDone => {}
        }
    }
}

/// Handle of a worker. The worker stops when the sender is dropped.
struct WorkerHandle {
    service: watch::Sender<Arc<Service>>,
    task: JoinHandle<()>,
}

fn stop_worker(
    key: &str,
    workers_by_key: &mut HashMap<Box<str>, WorkerHandle>,
    stopping: &mut HashMap<Box<str>, JoinHandle<()>>,
) {
    if let Some(WorkerHandle { task, .. }) = workers_by_key.remove(key) {
        stopping.insert(key.into(), task);
    }
}

/// Whether an object may have an annotation: whether its text occurs anywhere.
fn contains(object: &Object, annotation: &[u8]) -> bool {
    object.value.windows(annotation.len()).any(|part| part == annotation)
}

/// Parses a Service that uses the gateway.
fn gateway_service(object: &Object) -> Option<Service> {
    contains(object, HINT).then_some(())?;
    let needs_word = |service: &Service| {
        let gateway_spec = gateway_spec(service);
        // Services with invalid annotations need a worker, too: it reports the problem.
        !gateway_spec.ports.is_empty() || !gateway_spec.warnings.is_empty()
    };
    parse::<Service>(object).filter(needs_word)
}
