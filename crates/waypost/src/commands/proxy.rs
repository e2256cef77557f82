//! Wires the proxy of a machine: object watches and address changes in, kernel rules and metrics out.
//!
//! `up` and `node` differ only in the source of objects.

mod checks;
mod handler;
pub(super) mod modes;
mod reports;
mod switch;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use client::events::{EventRecorder, ObjectEvent};
use client::remote::Remote;
use client::watch::Source;
use dataplane::health::handlers::{HealthHandler, MetricsHandler};
use dataplane::health::{Handler, Health, ports, serve};
use dataplane::inputs::Inputs;
use dataplane::metrics::Metrics;
use dataplane::sync::{Dependencies, Message, SyncLoop};
use ipnet::IpNet;
use kernel::addresses::{Addresses as _, Monitor as _};
use kernel::lock::Lock;
use parking_lot::Mutex;
use plan::{DataPlane, LocalDetector, Loopback, NodePortAddresses, Options, Planner, Problem, Redirect, Update};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::checks::ServiceChecker;
use self::handler::NodeHandler;
use self::switch::Switch;
use super::gateway::Gateway;
use crate::config::ProxyArguments;

/// Default address of /healthz: where cloud load balancers probe nodes.
pub(super) const HEALTHZ_EVERYWHERE: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 10256);
/// Default address of /healthz on a single machine.
pub(super) const HEALTHZ_ON_LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10256);
/// Name of the lock that only one proxy per machine holds.
pub(super) const LOCK: &str = "waypost-proxy";
/// Retry interval for addresses in use by other programs.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Listen backlog of the HTTP endpoints.
const BACKLOG: u32 = 128;
/// Event source component.
const COMPONENT: &str = "waypost-proxy";

/// What the proxy depends on.
pub(super) struct Environment<'a> {
    /// Source of objects.
    pub(super) source: Arc<dyn Source>,
    /// Redirects of the gateway.
    pub(super) redirects: watch::Receiver<Arc<BTreeSet<Redirect>>>,
    /// API access, for Events.
    pub(super) remote: &'a Remote,
    /// Pod CIDRs.
    pub(super) pods: &'a [IpNet],
    /// Whether Services have loopback addresses.
    pub(super) on_loopback: bool,
    /// Default of `--nodeport-addresses`.
    pub(super) node_ports: &'static str,
    /// Default of `--healthz-listen`.
    pub(super) healthz: SocketAddr,
}

/// A running proxy. Dropping it stops it and leaves the rules.
pub(super) struct Proxy {
    /// Mode at start, and why it was selected.
    pub(super) mode: (&'static str, String),
    /// Node name, and API access.
    node: String,
    remote: Remote,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    /// Metrics of the announcers, on the same endpoint.
    announcing: announce::metrics::Metrics,
    /// Metrics of the agent, on the same page.
    agent: Arc<agent::metrics::Metrics>,
    stop: Sender<Message>,
    thread: Option<JoinHandle<()>>,
    _inputs: Inputs,
    _tasks: JoinSet<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended already. Its cleanup must finish before the process exits.
        let _ = self.stop.send(Message::Stop);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Proxy {
    /// Starts the proxy; rules are written once all initial lists are complete. None with `--proxy-mode none`.
    pub(super) async fn start(
        environment: &Environment<'_>,
        arguments: &ProxyArguments,
    ) -> anyhow::Result<Option<Self>> {
        let Some(selected) = modes::open(arguments, environment.on_loopback)? else { return Ok(None) };
        let options = options(arguments, environment, selected.rootless)?;
        let has_loopback = !selected.rootless && options.loopback.addresses().next().is_some();
        let loopback = has_loopback.then(|| Arc::new(Mutex::new(modes::loopback(arguments))));
        let switch = Switch { mode: Arc::new(Mutex::new(selected.backend.mode())), loopback };
        let (rootless, chosen) = (selected.rootless, (selected.backend.mode(), selected.why.clone()));
        let lock = if rootless { None } else { Some(acquire_lock()?) };
        let node = options.node_name.clone();
        let announcing = announce::metrics::Metrics::default();
        let metrics = Metrics::with_components(|registry| announcing.register(registry));
        let health = Arc::new(Health::default());
        let (sender, receiver) = channel();
        send_addresses(&sender).context("reading the addresses of this machine")?;
        watch_addresses(sender.clone())?;
        let remote = environment.remote.clone();
        let recorder = EventRecorder::start(&remote, COMPONENT, &node);
        let (leases, needed_leases) = watch::channel(BTreeSet::new());
        let deps = Dependencies {
            active: switch.active_backend(selected),
            health: health.clone(),
            metrics: metrics.clone(),
            leases,
            report_problem: {
                let recorder = recorder.clone();
                Box::new(move |problem| recorder.record(problem_event(problem)))
            },
        };
        let proxy = SyncLoop::new(Planner::new(options), deps, sender.clone());
        let thread = spawn("proxy", move || {
            proxy.run(&receiver);
            drop(lock);
        })?;
        let at = (arguments.healthz_listen.unwrap_or(environment.healthz), arguments.metrics_listen);
        let agent = agent::metrics::Metrics::new();
        let handler = NodeHandler {
            proxy: MetricsHandler { metrics: metrics.clone(), mode: switch.mode.clone() },
            agent: agent.clone(),
        };
        let mut tasks = http_endpoints(at, handler, &health, metrics.clone(), recorder).await;
        if !rootless {
            tasks.spawn(switch.follow(arguments.clone(), sender.clone()));
        }
        let inputs = Inputs::start(&environment.source, environment.redirects.clone(), needed_leases, &node, &sender);
        let inputs = inputs.map_err(|status| anyhow::anyhow!("{}", status.message))?;
        let thread = Some(thread);
        let (stop, _inputs, _tasks) = (sender, inputs, tasks);
        Ok(Some(Self { mode: chosen, node, remote, health, metrics, announcing, agent, stop, thread, _inputs, _tasks }))
    }

    /// Reports of this proxy, including checks of Services in the DNS domain.
    pub(super) fn reports(&self, domain: &str) -> Arc<dyn agent::serve::reports::Reports> {
        let checker = ServiceChecker::new(self.remote.clone(), &self.node, domain);
        Arc::new(reports::ProxyReports::new(self.stop.clone(), self.health.clone(), checker))
    }

    /// Metrics of the announcer, served with those of the proxy.
    pub(super) fn announcing(&self) -> announce::metrics::Metrics {
        self.announcing.clone()
    }

    /// Metrics for the agent of this machine, shown with the rest.
    pub(super) fn agent_metrics(&self) -> Arc<agent::metrics::Metrics> {
        self.agent.clone()
    }

    /// Adds the metrics of the gateway, if one runs.
    pub(super) fn show_gateway(&self, gateway: &Gateway) {
        if let Some(figures) = gateway.figures() {
            self.metrics.set_extra_collector(figures);
        }
    }

    /// Health state.
    pub(super) fn health(&self) -> Arc<Health> {
        self.health.clone()
    }

    /// Waits for the first sync.
    pub(super) async fn served(&self) {
        self.health.wait_first_sync().await;
    }
}

/// Waits until no other proxy runs on this machine: two would overwrite each other's rules.
fn acquire_lock() -> anyhow::Result<Lock> {
    if let Some(lock) = Lock::take(LOCK)? {
        return Ok(lock);
    }
    tracing::warn!(
        "another waypost proxy runs on this machine; waiting until it stops (`--proxy-mode none` does not wait)"
    );
    Ok(Lock::acquire(LOCK)?)
}

fn options(arguments: &ProxyArguments, environment: &Environment<'_>, rootless: bool) -> anyhow::Result<Options> {
    let host = || rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let words: Vec<&str> = match &arguments.nodeport_addresses[..] {
        [] => vec![environment.node_ports],
        said => said.iter().map(String::as_str).collect(),
    };
    Ok(Options {
        node_name: arguments.node_name.clone().unwrap_or_else(host),
        masquerade_all: arguments.masquerade_all,
        local: LocalDetector::Ranges(environment.pods.to_vec()),
        loopback: Loopback::named(&words),
        rootless,
        node_port_addresses: NodePortAddresses::parse(&words)
            .map_err(|why| anyhow::anyhow!("--nodeport-addresses: {why}"))?,
        // The active backend sets it.
        data_plane: DataPlane::default(),
    })
}

/// The Event of a problem, on its Service.
fn problem_event(problem: &Problem) -> ObjectEvent {
    let (namespace, name) = problem.service.split_once('/').unwrap_or_default();
    ObjectEvent {
        kind: &api::kinds::service::KIND,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: String::new(),
        normal: false,
        reason: "NotServedInFull",
        message: problem.what.clone(),
    }
}

/// Serves /healthz, /metrics and the health-check ports.
async fn http_endpoints(
    (healthz, figures): (SocketAddr, SocketAddr),
    handler: NodeHandler,
    health: &Arc<Health>,
    metrics: Arc<Metrics>,
    recorder: EventRecorder,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let supervisors = HealthHandler { health: health.clone(), metrics };
    tasks.spawn(listen(healthz, "--healthz-listen", Arc::new(supervisors)).await);
    tasks.spawn(listen(figures, "--metrics-listen", Arc::new(handler)).await);
    let any = vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    tasks.spawn(ports::run(health.clone(), any, move |service, port, why| {
        tracing::warn!(service, port, why, "cannot open health-check port");
        let what = format!("health-check port {port} cannot be opened on this node: {why}");
        let problem = Problem { service: service.into(), what };
        recorder.record(ObjectEvent { reason: "FailedToStartServiceHealthcheck", ..problem_event(&problem) });
    }));
    tasks
}

/// Listens at an address. The returned future serves it. An address in use is retried: the proxy works without it.
pub(super) async fn listen(
    address: SocketAddr,
    flag: &'static str,
    handler: Arc<dyn Handler>,
) -> impl Future<Output = ()> {
    // Bind before readiness is reported.
    let mut bound = bind(address);
    if let Err(error) = &bound {
        tracing::warn!(%address, %error, "cannot listen; choose another address with {flag}");
    }
    async move {
        loop {
            match bound {
                Ok(listener) => return serve(listener, handler).await,
                Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
            bound = bind(address);
        }
    }
}

/// Binds an address; `[::]` means all addresses of both families.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let is_any = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let open = |address: SocketAddr| {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        if is_any && address.is_ipv6() {
            // Independent of net.ipv6.bindv6only.
            rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
        }
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    match open(address) {
        // No IPv6 on this machine.
        Err(error) if is_any && error.kind() != io::ErrorKind::AddrInUse => {
            open((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        bound => bound,
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> anyhow::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).context("starting a thread")
}

/// Sends the addresses of this machine to the loop.
fn send_addresses(out: &Sender<Message>) -> anyhow::Result<()> {
    let list = kernel::addresses::linux::Linux::open()?.list()?;
    let ips: BTreeSet<IpAddr> = list.into_iter().map(|address| address.ip).collect();
    out.send(Message::Update(Box::new(Update::Machine(ips)))).ok().context("the proxy has ended")
}

/// Sends the addresses of this machine to the loop whenever they change.
fn watch_addresses(out: Sender<Message>) -> anyhow::Result<()> {
    let mut watcher = kernel::addresses::linux::Watcher::open().context("watching the addresses of this machine")?;
    spawn("addresses", move || {
        while watcher.wait(None).is_ok() {
            if send_addresses(&out).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
