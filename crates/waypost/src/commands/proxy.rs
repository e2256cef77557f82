//! The proxy of a machine, put together: watches and the kernel's news go in, rules and figures come out.
//!
//! `up` and `node` differ only in where objects come from.

pub(super) mod modes;
mod pages;
mod reports;
mod switch;
mod tried;

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
use dataplane::health::pages::{HealthPages, MetricsPages};
use dataplane::health::{Answers, Health, ports, serve};
use dataplane::inputs::Inputs;
use dataplane::metrics::Metrics;
use dataplane::sync::{Loop, Message, Tools};
use ipnet::IpNet;
use kernel::addresses::{Addresses as _, Monitor as _};
use kernel::lock::Lock;
use parking_lot::Mutex;
use plan::{LocalDetector, Loopback, NodePortAddresses, Options, Planner, Problem, Update};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use self::pages::NodePages;
use self::switch::Switch;
use self::tried::Trier;
use super::gateway::Gateway;
use crate::config::ProxyArguments;

/// Where /healthz is unless it was said: where the load balancers of clouds probe nodes.
pub(super) const HEALTHZ_EVERYWHERE: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 10256);
/// The same on a machine of its own.
pub(super) const HEALTHZ_ON_LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10256);
/// The lock of whoever serves Services on a machine.
pub(super) const LOCK: &str = "waypost-proxy";
/// How long until an address is tried again that somebody else has.
const AGAIN: Duration = Duration::from_secs(5);
/// How many connections may wait to be accepted at a page.
const BACKLOG: u32 = 128;
/// As whom we speak in Events.
const COMPONENT: &str = "waypost-proxy";

/// Where the proxy finds things.
pub(super) struct Surroundings<'a> {
    /// Where objects come from.
    pub(super) source: &'a dyn Source,
    /// How to reach the API, for Events.
    pub(super) remote: &'a Remote,
    /// The addresses of Pods.
    pub(super) pods: &'a [IpNet],
    /// Whether Services have loopback addresses.
    pub(super) on_loopback: bool,
    /// Where node ports are served unless it was said.
    pub(super) node_ports: &'static str,
    /// Where /healthz is unless it was said.
    pub(super) healthz: SocketAddr,
}

/// A proxy that runs. Dropping it ends it and leaves the rules.
pub(super) struct Proxy {
    /// The mode at the start, and why it is that one.
    pub(super) way: (&'static str, String),
    /// The name of its Node, and the way to the API.
    node: String,
    remote: Remote,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    /// Metrics of the announcers, on the same page.
    announcing: announce::metrics::Figures,
    /// Metrics of the agent, on the same page.
    agent: Arc<agent::metrics::Metrics>,
    stop: Sender<Message>,
    thread: Option<JoinHandle<()>>,
    _inputs: Inputs,
    _tasks: JoinSet<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended already. What it takes back at its end must be done before the process is gone.
        let _ = self.stop.send(Message::Stop);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Proxy {
    /// Starts the proxy; rules are written as soon as everything has been read. Nothing when this machine is not to be served.
    pub(super) async fn start(around: &Surroundings<'_>, arguments: &ProxyArguments) -> anyhow::Result<Option<Self>> {
        let Some(way) = modes::open(arguments, around.on_loopback)? else { return Ok(None) };
        let options = options(arguments, around, way.rootless)?;
        let has_loopback = !way.rootless && options.loopback.addresses().next().is_some();
        let loopback = has_loopback.then(|| Arc::new(Mutex::new(modes::loopback(arguments))));
        let switch = Switch { mode: Arc::new(Mutex::new(way.backend.mode())), loopback };
        let (rootless, chosen) = (way.rootless, (way.backend.mode(), way.why.clone()));
        let lock = if rootless { None } else { Some(turn()?) };
        let node = options.node_name.clone();
        let announcing = announce::metrics::Figures::default();
        let metrics = Metrics::beside(|registry| announcing.register(registry));
        let health = Arc::new(Health::default());
        let (sender, receiver) = channel();
        tell_addresses(&sender).context("reading the addresses of this machine")?;
        watch_addresses(sender.clone())?;
        let remote = around.remote.clone();
        let recorder = EventRecorder::start(&remote, COMPONENT, &node);
        let tools = Tools {
            serving: switch.serving(way),
            health: health.clone(),
            metrics: metrics.clone(),
            tell: {
                let recorder = recorder.clone();
                Box::new(move |problem| recorder.record(finding(problem)))
            },
        };
        let proxy = Loop::new(Planner::new(options), tools, sender.clone());
        let thread = spawn("proxy", move || {
            proxy.run(&receiver);
            drop(lock);
        })?;
        let at = (arguments.healthz_listen.unwrap_or(around.healthz), arguments.metrics_listen);
        let agent = agent::metrics::Metrics::new();
        let page = NodePages {
            proxy: MetricsPages { metrics: metrics.clone(), mode: switch.mode.clone() },
            agent: agent.clone(),
        };
        let mut tasks = pages(at, page, &health, metrics.clone(), recorder).await;
        if !rootless {
            tasks.spawn(switch.follow(arguments.clone(), sender.clone()));
        }
        let inputs = Inputs::start(around.source, &node, &sender);
        let inputs = inputs.map_err(|status| anyhow::anyhow!("{}", status.message))?;
        let thread = Some(thread);
        let (stop, _inputs, _tasks) = (sender, inputs, tasks);
        Ok(Some(Self { way: chosen, node, remote, health, metrics, announcing, agent, stop, thread, _inputs, _tasks }))
    }

    /// Somebody who can tell how this proxy stands, and can try Services of the domain.
    pub(super) fn reports(&self, domain: &str) -> Arc<dyn agent::serve::reports::Reports> {
        let trier = Trier::new(self.remote.clone(), &self.node, domain);
        Arc::new(reports::ProxyReports::new(self.stop.clone(), self.health.clone(), trier))
    }

    /// What the announcer of this machine counts, to be shown with the rest.
    pub(super) fn announcing(&self) -> announce::metrics::Figures {
        self.announcing.clone()
    }

    /// Metrics for the agent of this machine, shown with the rest.
    pub(super) fn agent_metrics(&self) -> Arc<agent::metrics::Metrics> {
        self.agent.clone()
    }

    /// Shows what the gateway of this machine counts, if one runs, with the rest.
    pub(super) fn show(&self, gateway: &Gateway) {
        if let Some(figures) = gateway.figures() {
            self.metrics.show_beside(figures);
        }
    }

    /// How it stands.
    pub(super) fn health(&self) -> Arc<Health> {
        self.health.clone()
    }

    /// Waits until Services are served for the first time.
    pub(super) async fn served(&self) {
        self.health.served().await;
    }
}

/// Waits until no other program serves this machine: two would undo each other's rules without end.
fn turn() -> anyhow::Result<Lock> {
    if let Some(lock) = Lock::take(LOCK)? {
        return Ok(lock);
    }
    tracing::warn!(
        "another waypost serves Services on this machine; waiting until it ends (`--proxy-mode none` does not wait)"
    );
    Ok(Lock::await_turn(LOCK)?)
}

fn options(arguments: &ProxyArguments, around: &Surroundings<'_>, rootless: bool) -> anyhow::Result<Options> {
    let host = || rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let words: Vec<&str> = match &arguments.nodeport_addresses[..] {
        [] => vec![around.node_ports],
        said => said.iter().map(String::as_str).collect(),
    };
    Ok(Options {
        node_name: arguments.node_name.clone().unwrap_or_else(host),
        masquerade_all: arguments.masquerade_all,
        local: LocalDetector::Ranges(around.pods.to_vec()),
        loopback: Loopback::named(&words),
        rootless,
        node_port_addresses: NodePortAddresses::parse(&words)
            .map_err(|why| anyhow::anyhow!("--nodeport-addresses: {why}"))?,
    })
}

/// A problem as an Event of its Service.
fn finding(problem: &Problem) -> ObjectEvent {
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

/// Serves what people, dashboards and load balancers ask.
async fn pages(
    (healthz, figures): (SocketAddr, SocketAddr),
    dashboards: NodePages,
    health: &Arc<Health>,
    metrics: Arc<Metrics>,
    recorder: EventRecorder,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let supervisors = HealthPages { health: health.clone(), metrics };
    tasks.spawn(listen(healthz, "--healthz-listen", Arc::new(supervisors)).await);
    tasks.spawn(listen(figures, "--metrics-listen", Arc::new(dashboards)).await);
    let any = vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    tasks.spawn(ports::run(health.clone(), any, move |service, port, why| {
        tracing::warn!(service, port, why, "the health-check port cannot be served");
        let what = format!("its health-check port {port} cannot be served on this node: {why}");
        let problem = Problem { service: service.into(), what };
        recorder.record(ObjectEvent { reason: "FailedToStartServiceHealthcheck", ..finding(&problem) });
    }));
    tasks
}

/// Listens at an address. What comes back serves pages there; as soon as it is free, if it is taken: a proxy does not stop working
/// because of that.
pub(super) async fn listen(
    address: SocketAddr,
    flag: &'static str,
    answers: Arc<dyn Answers>,
) -> impl Future<Output = ()> {
    // Before anything else: who says that it is ready has its pages.
    let mut bound = bind(address);
    if let Err(error) = &bound {
        tracing::warn!(%address, %error, "cannot listen; choose another address with {flag}");
    }
    async move {
        loop {
            match bound {
                Ok(listener) => return serve(listener, answers).await,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
            bound = bind(address);
        }
    }
}

/// Binds an address; `[::]` is all addresses of both families.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let is_any = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let open = |address: SocketAddr| {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        if is_any && address.is_ipv6() {
            // Whatever net.ipv6.bindv6only says.
            rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
        }
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    match open(address) {
        // On a machine without IPv6.
        Err(error) if is_any && error.kind() != io::ErrorKind::AddrInUse => {
            open((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        bound => bound,
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> anyhow::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).context("starting a thread")
}

/// Tells the loop which addresses this machine has.
fn tell_addresses(out: &Sender<Message>) -> anyhow::Result<()> {
    let list = kernel::addresses::linux::Linux::open()?.list()?;
    let ips: BTreeSet<IpAddr> = list.into_iter().map(|address| address.ip).collect();
    out.send(Message::Update(Box::new(Update::Machine(ips)))).ok().context("the proxy has ended")
}

/// Tells the loop when the addresses of this machine change.
fn watch_addresses(out: Sender<Message>) -> anyhow::Result<()> {
    let mut watcher = kernel::addresses::linux::Watcher::open().context("watching the addresses of this machine")?;
    spawn("addresses", move || {
        while watcher.wait(None).is_ok() {
            if tell_addresses(&out).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
