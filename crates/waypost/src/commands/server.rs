//! `waypost server`: store, certificates, listener, first objects, controllers; then wait to be stopped.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::admission::{Plugin, Plugins};
use api::facts::Facts;
use api::ip::Family;
use api::kinds::certificatesigningrequest::NODE_SERVING;
use bytes::Bytes;
use client::http::Method;
use client::remote::Remote;
use control::certificate_orders::{Acme, Pauses};
use control::signers::{CertificateRequest, Signer, TokenRequest, TokenSigner};
use control::{CertificateChecks, Election, ServerNames, Settings};
use jiff::Timestamp;
use kernel::addresses::Addresses as _;
use rest::auth::service_account::ServiceAccounts;
use rest::auth::token_file::TokenFile;
use rest::auth::{Authenticator, objects};
use rest::kubeconfig;
use rest::local::Local;
use rest::pki::{self, Clients, Live, Pki, ServingNames};
use rest::{ConnectionLimits, LocalSocket, Options, Server};
use store::allocation::Ranges;
use store::{Embedded, Store};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::certificate_authority::AcmeServer;
use super::dns;
use super::encryption::{self, Follower, Reloads};
use super::identity::{self, Published};
use super::privileges;
use super::release;
use super::served_certificates::ServedCertificates;
use crate::config::{IngressClassCreation, ServerArguments};
use crate::notify::Manager;

/// The first revision of a new store, so that a revision of another cluster is most likely older.
const FIRST_REVISION: u64 = 1000;

/// Runs the command.
pub(crate) fn exec(arguments: &ServerArguments) -> anyhow::Result<()> {
    if let Some(account) = privileges::server_user(arguments, privileges::data_dir::give)? {
        privileges::become_server(&account, arguments)?;
    }
    runtime()?.block_on(async {
        let running = start(arguments, Beside::default()).await?;
        // A signal may arrive as soon as readiness is reported.
        let asked = stop_signal();
        tracing::info!(address = %running.address, kubeconfig = %running.kubeconfig.display(), "ready");
        let (manager, remote) = (Manager::find(), Remote::new(&running.kubeconfig)?);
        manager.ready(&format!("the API is at https://{}", running.address));
        tokio::select! {
            () = asked => {}
            () = manager.run_watchdog(|| responds(&remote)) => {}
        }
        manager.stopping();
        tracing::info!("stopping");
        running.stop().await;
        Ok(())
    })
}

/// Waits until our own API responds.
pub(super) async fn responds(remote: &Remote) {
    let asked = async || -> anyhow::Result<bool> {
        let (code, _) = remote.client().bytes(Method::GET, "/livez", None, Bytes::new()).await?;
        Ok(code == 200)
    };
    while !asked().await.unwrap_or(false) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A runtime for servers. Memory that they no longer need is released.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting threads")?;
    runtime.spawn(release::follow());
    Ok(runtime)
}

/// A running server.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) kubeconfig: PathBuf,
    pub(super) identity: Live,
    stop: tokio::sync::oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
    halt: tokio::sync::oneshot::Sender<()>,
    control: tokio::task::JoinHandle<()>,
    store: Arc<Embedded>,
    /// Follow the certificates, and the encryption configuration if there is one.
    followers: JoinSet<()>,
}

impl Running {
    /// Watches in this process.
    pub(super) fn source(&self) -> Local {
        Local::new(self.store.clone())
    }

    /// Stops after requests in progress, then closes the store.
    pub(super) async fn stop(mut self) {
        // The tasks may have ended already.
        let _ = self.halt.send(());
        let _ = self.control.await;
        let _ = self.stop.send(());
        let _ = self.serving.await;
        self.followers.abort_all();
        self.store.close();
    }
}

/// The components besides the server, in this process or in another.
#[derive(Default)]
pub(super) struct Beside {
    /// Other addresses at which the server listens, for Pods.
    pub(super) addresses: Vec<IpAddr>,
    /// The Node whose agent runs here.
    pub(super) node: Option<String>,
    /// Local socket for their requests.
    pub(super) socket: Option<LocalSocket>,
    /// They run in another process, which writes the kubeconfig: the server has no right to the data directory.
    pub(super) is_apart: bool,
}

/// Starts a server and returns when it is ready.
pub(super) async fn start(arguments: &ServerArguments, beside: Beside) -> anyhow::Result<Running> {
    let ranges = ranges(arguments)?;
    let data_dir = &arguments.place.data_dir;
    std::fs::create_dir_all(data_dir).with_context(|| {
        format!("making the data directory {}; choose another with --data-dir or run as root", data_dir.display())
    })?;
    let store = Arc::new(open_store(arguments)?);
    let names = serving_names(arguments, &ranges, &beside.addresses);
    let pki = pki::load_or_create(&data_dir.join("pki"), &names, Timestamp::now()).context("preparing certificates")?;
    let (accounts, clients) = (service_accounts(arguments, &pki)?, Arc::new(Clients::default()));
    clients.restore(&data_dir.join("pki")).context("reading the clients of the CA")?;
    let live = Live::new(pki);
    let metrics = control::Metrics::new();
    let reloads = Arc::new(Reloads::default());
    let Beside { addresses, node: local_node, socket: local, is_apart } = beside;
    let options = Options {
        beside: addresses,
        local_node,
        local,
        clients: clients.clone(),
        ..options(arguments, &store, &ranges, (&live, &accounts), &metrics, &reloads)?
    };
    let server = Server::bind(options)
        .await
        .with_context(|| format!("listening on {}; choose another address with --listen", arguments.listen))?;
    let (address, advertised) = (server.address(), advertised(arguments, &server, &ranges));
    let kubeconfig = data_dir.join("kubeconfig");
    if !is_apart {
        kubeconfig::write_admin(&kubeconfig, &reachable(address), &live.get())
            .context("writing the admin kubeconfig")?;
    }
    // Before requests are accepted: without roles no user may do anything.
    control::bootstrap::run(&*store, &ranges, advertised).await.context("creating the first objects")?;
    if let Some(channel) = arguments.gateway_api.channel() {
        let installed = control::gateway_api::install(&*store, channel, Timestamp::now()).await;
        installed.context("installing the kinds of the Gateway API")?;
    }
    let (readiness, dynamic) = (server.readiness(), server.dynamic_admission());
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let serving = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    let advertised = format!("https://{advertised}");
    let news = Published::new(&advertised, &live.get(), &accounts, Timestamp::now());
    let (news, published) = watch::channel(news);
    let shared: Arc<dyn Store> = store.clone();
    let (halt, halted) = tokio::sync::oneshot::channel();
    let server_names =
        ServerNames { dns: names.dns.clone(), ips: names.ips.clone(), domain: arguments.cluster_domain.clone() };
    let settings = Settings {
        server_names,
        dynamic: Some(dynamic),
        token_signer: Some(token_signer(accounts.clone())),
        acme: certificate_authority(arguments)?,
        ..settings(arguments, &ranges, &live)
    };
    let following = Following { settings, published };
    let control = tokio::spawn(controllers(arguments.leader_elect, shared, following, metrics, halted));
    let mut followers = JoinSet::new();
    let (admin, dir) = ((kubeconfig.clone(), reachable(address)), data_dir.join("pki"));
    let follower = identity::Follower {
        dir,
        names,
        live: live.clone(),
        accounts,
        clients,
        kubeconfig: (!is_apart).then_some(admin),
        advertised,
        published: news,
    };
    followers.spawn(follower.run());
    if let Some(path) = arguments.encryption.encryption_provider_config.clone() {
        let (data_dir, store) = (data_dir.clone(), store.clone());
        followers.spawn(Follower { path, data_dir, store, reloads }.run());
    }
    let _ = readiness.send(true);
    Ok(Running { address, kubeconfig, identity: live, stop, serving, halt, control, store, followers })
}

/// The ACME server from which certificates are ordered.
fn certificate_authority(arguments: &ServerArguments) -> anyhow::Result<Option<Acme>> {
    let pauses = Pauses { retry: arguments.acme.acme_retry_period, ..Pauses::default() };
    let server = arguments.acme.directory()?;
    Ok(server.map(|directory| Acme::new(Arc::new(AcmeServer(directory)), pauses)))
}

/// Signs tokens in Secrets.
fn token_signer(accounts: ServiceAccounts) -> TokenSigner {
    let keys = accounts.clone();
    let sign = move |order: &TokenRequest<'_>| Ok(accounts.sign_kept(order.namespace, order.account, order.secret)?);
    TokenSigner::new(sign, move |token| keys.accepts_key_of(token, Timestamp::now()))
}

fn open_store(arguments: &ServerArguments) -> anyhow::Result<Embedded> {
    let data_dir = &arguments.place.data_dir;
    let encryption = Arc::new(encryption::load(&arguments.encryption, data_dir)?);
    let options = store::Options { first_revision: FIRST_REVISION, encryption, ..store::Options::default() };
    Embedded::open(store_dir(data_dir), index, options)
        .with_context(|| format!("opening the store in {}", data_dir.display()))
}

fn admission_plugins(arguments: &ServerArguments) -> Plugins {
    Plugins::new(&arguments.enable_admission_plugins, &arguments.disable_admission_plugins)
}

fn options(
    arguments: &ServerArguments,
    store: &Arc<Embedded>,
    ranges: &Ranges,
    (live, accounts): (&Live, &ServiceAccounts),
    control: &Arc<control::Metrics>,
    reloads: &Arc<Reloads>,
) -> anyhow::Result<Options> {
    let shared: Arc<dyn Store> = store.clone();
    let tokens = match &arguments.token_auth_file {
        Some(path) => TokenFile::load(path).context("reading --token-auth-file")?,
        None => TokenFile::default(),
    };
    let authn = Authenticator::new(tokens, accounts.clone(), objects::stored(shared.clone()));
    let authn = authn.with_identity(live.clone());
    let authn = if arguments.anonymous_auth { authn } else { authn.without_anonymous() };
    let (figures, control, reloads) = (store.clone(), control.clone(), reloads.clone());
    Ok(Options {
        listen: arguments.listen,
        beside: Vec::new(),
        local: None,
        identity: live.clone(),
        clients: Arc::default(),
        authn,
        store: shared,
        agents: true,
        local_node: None,
        ranges: ranges.clone(),
        plugins: admission_plugins(arguments),
        allocates_pod_cidrs: arguments.allocate_node_cidrs.unwrap_or_default(),
        ingresses: arguments.ingress.served(),
        connections: connection_limits(arguments),
        max_in_flight: arguments.max_requests_inflight,
        request_timeout: arguments.request_timeout,
        audit: arguments.audit.open()?,
        extra_metrics: Box::new(move || crate::figures::text(&figures.stats()) + &control.text() + &reloads.text()),
    })
}

/// Signs and verifies tokens of ServiceAccounts.
fn service_accounts(arguments: &ServerArguments, pki: &Pki) -> anyhow::Result<ServiceAccounts> {
    let accounts = ServiceAccounts::new(pki.signing_key(), &arguments.cluster_domain)
        .context("reading the key of ServiceAccount tokens")?;
    accounts.set_keys(pki.signing_keys()).context("reading the keys of ServiceAccount tokens")?;
    Ok(match arguments.service_account_max_token_expiration {
        Some(seconds) => accounts.with_max_lifetime(seconds),
        None => accounts,
    })
}

/// Limits of connections: a quarter of the files that the process may open, and half of that for one source.
fn connection_limits(arguments: &ServerArguments) -> ConnectionLimits {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let files = if raised.is_ok() { maximum } else { current };
    let share = files.and_then(|files| usize::try_from(files / 4).ok()).unwrap_or(usize::MAX).max(1);
    let asked = arguments.max_connections;
    if share < asked {
        tracing::info!(
            asked,
            limit = share,
            "limited connections by the number of open files; raise it with ulimit -n"
        );
    }
    let total = asked.min(share);
    let usual = ConnectionLimits::default();
    ConnectionLimits {
        total,
        per_source: arguments.max_connections_per_address.min(total.div_ceil(2)),
        handshakes: usual.handshakes.min(total),
        handshakes_per_source: usual.handshakes_per_source.min(total.div_ceil(2)),
        ..usual
    }
}

/// The directory of the store.
pub(super) fn store_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("store")
}

/// The indexed fields of a stored object.
pub(super) fn index(table: &str, value: &[u8]) -> Facts {
    api::custom::facts_of(table, value)
}

/// The settings of controllers, which change when the identity does.
struct Following {
    settings: Settings,
    published: watch::Receiver<Published>,
}

impl Following {
    /// Runs the controllers, and restarts them when their settings change, since that concerns every object.
    async fn run(&self, store: &Arc<dyn Store>, metrics: &Arc<control::Metrics>) {
        let mut published = self.published.clone();
        loop {
            let settings = published.borrow_and_update().settings(&self.settings);
            tokio::select! {
                () = control::acme::run(store.clone(), settings.clone()) => return,
                () = control::runner::run(store.clone(), settings, metrics.clone()) => return,
                Ok(()) = published.changed() => {}
            }
        }
    }
}

/// Runs the controllers until they are stopped; with leader election only while this server leads.
async fn controllers(
    elect: bool,
    store: Arc<dyn Store>,
    following: Following,
    metrics: Arc<control::Metrics>,
    halted: tokio::sync::oneshot::Receiver<()>,
) {
    let run = || following.run(&store, &metrics);
    let settings = &following.settings;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let election = elect.then(|| Election::new(format!("{host}_{}", uuid::Uuid::new_v4())));
    let work = async {
        match &election {
            Some(election) => election.run_while_leader(store.clone(), &settings.ranges, &metrics, run).await,
            None => run().await,
        }
    };
    tokio::select! {
        () = work => {}
        _ = halted => if let Some(election) = &election {
            election.release(&*store, &settings.ranges).await;
        },
    }
}

/// The settings of the controllers. What Kubernetes does not have is off by default.
fn settings(arguments: &ServerArguments, ranges: &Ranges, live: &Live) -> Settings {
    let live = live.clone();
    let allocates = arguments.allocate_node_cidrs.unwrap_or_default();
    Settings {
        max_endpoints_per_slice: arguments.max_endpoints_per_slice.into(),
        service_conditions: arguments.service_conditions.unwrap_or_default(),
        cluster_cidrs: if allocates { arguments.cluster_cidr.clone() } else { Vec::new() },
        node_masks: (arguments.node_cidr_mask_size_ipv4, arguments.node_cidr_mask_size_ipv6),
        node_grace: arguments.node_monitor_grace_period,
        signer: Some(Signer::new(move |order: &CertificateRequest<'_>| {
            let pki = live.get();
            let signing = if order.signer == NODE_SERVING { pki.agent_signing() } else { pki.signing() };
            Ok(signing.sign(order.request, order.usages, order.lifetime, order.now)?)
        })),
        certificate_lifetime: arguments.cluster_signing_duration,
        load_balancer: arguments.balancing.settings(),
        gateway_class: arguments.gateway_class.unwrap_or_default(),
        gateway_http3: arguments.gateway_http3,
        ingress_class: arguments.ingress_class.map(IngressClassCreation::setting).unwrap_or_default(),
        ingress: arguments.ingress.options(),
        certificate_checks: CertificateChecks(Some(Arc::new(ServedCertificates))),
        // Needed by the volumes that the plugin adds to Pods.
        publish_root_ca: admission_plugins(arguments).has(Plugin::ServiceAccount),
        plugins: admission_plugins(arguments),
        ..Settings::plain(ranges.clone())
    }
}

fn ranges(arguments: &ServerArguments) -> anyhow::Result<Ranges> {
    let addresses = arguments.service_cluster_ip_range.clone();
    let families: Vec<Family> = addresses.iter().map(|range| Family::of(range.addr())).collect();
    ensure!(
        matches!(families[..], [_]) || matches!(families[..], [first, second] if first != second),
        "--service-cluster-ip-range takes one range, or one IPv4 and one IPv6 range"
    );
    for range in &addresses {
        let shortest = if range.addr().is_ipv4() { 8 } else { 64 };
        ensure!(
            range.prefix_len() >= shortest && range.trunc() == *range,
            "--service-cluster-ip-range {range}: the prefix must be at least /{shortest} and the address its first ({})",
            range.trunc()
        );
    }
    Ok(Ranges { addresses, ports: arguments.service_node_port_range.clone() })
}

/// The address of the server for Pods and other machines, and the endpoint of the Service `kubernetes`: the configured one, or a
/// non-loopback address, of the preferred family of Services if there is one.
fn advertised(arguments: &ServerArguments, server: &Server, ranges: &Ranges) -> SocketAddr {
    let listening = server.address();
    if let Some(given) = arguments.reached.advertise_address {
        return SocketAddr::new(given, listening.port());
    }
    let own = |at: SocketAddr| match at.ip().is_unspecified() {
        true => dns::own_addresses().into_iter().map(|own| SocketAddr::new(own.ip(), at.port())).collect(),
        false => vec![at],
    };
    let known: Vec<SocketAddr> = server.addresses().flat_map(own).filter(|at| !at.ip().is_loopback()).collect();
    let preferred = ranges.first_address().is_none_or(|first| first.is_ipv4());
    known.iter().find(|at| at.is_ipv4() == preferred).or(known.first()).copied().unwrap_or(listening)
}

fn serving_names(arguments: &ServerArguments, ranges: &Ranges, beside: &[IpAddr]) -> ServingNames {
    let mut ips: Vec<IpAddr> = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
    ips.extend(ranges.first_address());
    if arguments.listen.ip().is_unspecified() {
        // The certificate covers all addresses of this machine.
        let machine = kernel::addresses::linux::Linux::open().and_then(|mut addresses| addresses.list());
        ips.extend(machine.unwrap_or_default().iter().map(|address| address.ip));
    } else {
        ips.push(arguments.listen.ip());
    }
    ips.extend(arguments.reached.advertise_address);
    ips.extend(beside);
    let service = "kubernetes.default.svc";
    let mut dns: Vec<String> = ["localhost", "kubernetes", "kubernetes.default", service].map(str::to_owned).into();
    dns.push(format!("{service}.{}", arguments.cluster_domain));
    dns.push(rustix::system::uname().nodename().to_string_lossy().into_owned());
    for name in &arguments.reached.tls_san {
        match name.parse() {
            Ok(ip) => ips.push(ip),
            Err(_) => dns.push(name.clone()),
        }
    }
    ServingNames { ips, dns }
}

/// The URL of the server for this machine.
pub(super) fn reachable(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(ip, address.port()))
}

/// Resolves on SIGTERM or SIGINT after this call.
pub(super) fn stop_signal() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async {
        let (Ok(mut term), Ok(mut interrupt)) = signals else { return std::future::pending().await };
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}
