//! `waypost up`: all components on this machine: API server, controllers, proxy, DNS, gateway, agent, announcers.
//!
//! Started by root, the API server is a separate process with its own user ([`child`]); the other components stay in this process, with the
//! capabilities that they need, and use its socket. Otherwise there is one process, and they read its store.

mod apart;
mod api;
mod child;
pub(super) mod context;
mod host;
mod identity;
mod lines;
mod order;
mod reporter;

use std::net::IpAddr;

use anyhow::Context as _;
use cli::terminal;

use self::apart::ApiServer;
use self::api::Api;
pub(crate) use self::child::is_one as is_api_server;
use self::lines::Lines;
use self::order::{Machine, Order};
use super::announce::{self, Announcing};
use super::dns::{self, Dns};
use super::down::{self, Running};
use super::gateway::Gateway;
use super::proxy::{self, Environment, Proxy};
use super::{agent, privileges, server};
use crate::config::{AgentArguments, DnsArguments, ServerArguments, UpArguments};
use crate::notify::Manager;

/// Runs the command.
pub(crate) fn exec(mut arguments: UpArguments) -> anyhow::Result<()> {
    if child::is_one() {
        return child::exec(arguments.server.for_one_machine());
    }
    if !arguments.dev {
        return run(arguments);
    }
    let home = tempfile::Builder::new().prefix("waypost-dev-").tempdir().context("creating a temporary directory")?;
    home.path().clone_into(&mut arguments.server.place.data_dir);
    let (rootless, bridge) = (arguments.rootless, arguments.agent.pod_bridge.clone());
    let ended = run(arguments);
    let removed = down::remove_host_state(home.path(), &bridge, rootless).context("removing kernel objects and Pods");
    home.close().context("removing the temporary directory")?;
    ended.and(removed)
}

const fn what_stays(dev: bool) -> &'static str {
    if dev { "everything that was made is removed" } else { "rules and Pods stay until `waypost down`" }
}

fn run(arguments: UpArguments) -> anyhow::Result<()> {
    let UpArguments { server: settings, proxy: mut proxying, log, dns, agent, add_context, dev, rootless } = arguments;
    let (settings, manager) = (settings.for_one_machine(), Manager::find());
    let announces = settings.balancing.is_on() && !rootless && announce::may_announce();
    announce::require_strict_arp(&mut proxying, announces);
    let machine = machine(&settings, &agent, proxying.node_name.as_deref());
    let parts = privileges::Parts { agent: agent::is_wanted(&agent), removes_data: dev };
    let apart = if rootless { None } else { apart(&settings, &machine, parts)? };
    server::runtime()?.block_on(async {
        let api = match apart {
            Some(server) => Api::apart(server, &settings).await?,
            None => Api::here(&settings, machine).await?,
        };
        let on_loopback = settings.service_cluster_ip_range.iter().any(|range| range.addr().is_loopback());
        // Services at layer 7 need it, whether there are load balancers or not.
        let proxies = !rootless;
        let gateway = Gateway::start(api.source.clone(), &api.remote, (&proxying, &settings.ingress, &log), proxies)?;
        let environment = Environment {
            source: api.source.clone(),
            redirects: gateway.redirects(),
            remote: &api.remote,
            pods: &settings.cluster_cidr,
            on_loopback,
            // There may be no Node object with its addresses.
            node_ports: "all",
            healthz: proxy::HEALTHZ_ON_LOOPBACK,
        };
        let proxy = Proxy::start(&environment, &proxying).await?;
        proxy.iter().for_each(|proxy| proxy.show_gateway(&gateway));
        let names = names(&api, &settings, &dns).await?;
        let (tls, _following) = identity::start(&api, &settings.place.data_dir, add_context.as_deref())?;
        let places = agent::Places {
            source: api.source.clone(),
            remote: &api.remote,
            data_dir: &settings.place.data_dir,
            cluster: &settings.cluster_cidr,
            domain: &settings.cluster_domain,
            node: proxying.node_name.as_deref(),
            tls: Some(tls),
            metrics: proxy.as_ref().map_or_else(::agent::metrics::Metrics::new, Proxy::agent_metrics),
            reports: proxy.as_ref().map(|proxy| proxy.reports(&settings.cluster_domain)),
        };
        let pods = agent::for_one_machine(&places, &agent).await?;
        let place = announce::Dependencies {
            source: &*api.source,
            remote: &api.remote,
            node: agent::node_name(proxying.node_name.as_deref()),
            pod_bridge: &agent.pod_bridge,
            metrics: proxy.as_ref().map(Proxy::announcing).unwrap_or_default(),
            proxy: proxy.as_ref().map(Proxy::health),
        };
        let announcing = if announces { Some(Announcing::start(place)?) } else { None };
        let ready = async {
            if let Some(pods) = &pods {
                pods.ready().await;
            }
            if let Some(proxy) = &proxy {
                proxy.served().await;
            }
            if let Some((names, ips)) = &names {
                names.ready().await;
                if dns.host_dns && !ips.is_empty() {
                    host::configure(ips, &settings.cluster_domain).await?;
                }
            }
            kernel::memory::release();
            if let Some(name) = &add_context {
                context::add(&settings.place.data_dir, &api.kubeconfig, name)?;
            }
            let lines = Lines {
                api: format!("https://{}", api.address),
                kubeconfig: &api.kubeconfig,
                context: add_context.as_deref(),
                names: names.as_ref().map(|(names, ips)| (&**ips, names.addresses(), &*settings.cluster_domain)),
                proxy: proxy.as_ref().map(|proxy| (proxy.mode.0, &*proxy.mode.1)),
            };
            // Standard output may be closed.
            let _ = terminal::print(&lines.to_string());
            tracing::info!(address = %api.address, kubeconfig = %api.kubeconfig.display(), "ready");
            manager.ready(&format!("the API is at https://{}", api.address));
            manager.run_watchdog(|| server::responds(&api.remote)).await;
            Ok(())
        };
        let _here = Running::note(&settings.place.data_dir)?;
        let ended: anyhow::Result<()> = tokio::select! {
            failed = ready => failed,
            () = server::stop_signal() => Ok(()),
            error = api.ended() => Err(error),
        };
        manager.stopping();
        if let Some(announcing) = announcing {
            announcing.stop().await;
        }
        if let Some((names, _)) = &names {
            names.drain().await;
        }
        tracing::info!("stopping; {}", what_stays(dev));
        gateway.stop(proxy.as_ref()).await;
        drop((pods, proxy));
        api.stop().await;
        ended
    })
}

/// The components besides the API server.
fn machine(settings: &ServerArguments, agent: &AgentArguments, node: Option<&str>) -> Machine {
    if !agent::is_wanted(agent) {
        return Machine::default();
    }
    // Pods cannot reach the loopback addresses of this machine.
    let addresses = match settings.listen.ip().is_loopback() {
        true => agent::own_addresses().into_iter().filter(|ip| !ip.is_loopback()).collect(),
        false => Vec::new(),
    };
    Machine { addresses, node: Some(agent::node_name(node)), agent: agent::serving_names() }
}

/// Starts the API server as a separate process, if it has its own user; this process keeps the capabilities of the other components.
fn apart(settings: &ServerArguments, machine: &Machine, parts: privileges::Parts) -> anyhow::Result<Option<ApiServer>> {
    let Some(account) = privileges::server_user(settings, privileges::data_dir::share)? else { return Ok(None) };
    let (data_dir, machine) = (std::path::absolute(&settings.place.data_dir)?, machine.clone());
    let server = ApiServer::start(&Order { account, data_dir, machine })?;
    privileges::keep_for_components(parts)?;
    Ok(Some(server))
}

/// Starts the DNS server and publishes it as the Service `kube-dns`; returns it with the addresses of the Service. None with
/// `--dns-listen none`.
async fn names(
    api: &Api,
    settings: &ServerArguments,
    arguments: &DnsArguments,
) -> anyhow::Result<Option<(Dns, Vec<IpAddr>)>> {
    let listen = dns::listen(arguments, dns::own_addresses)?;
    if listen.is_empty() {
        return Ok(None);
    }
    let names = Dns::start(api.source.clone(), arguments, &settings.cluster_domain, listen).await?;
    let ranges = &settings.service_cluster_ip_range;
    let ips = match dns::publish(&api.remote, ranges, names.addresses()).await {
        Ok(ips) => {
            tracing::info!(?ips, "published Service kube-system/kube-dns");
            ips
        }
        Err(error) => {
            tracing::warn!("cannot publish Service kube-system/kube-dns: {error:#}; DNS listens without it");
            Vec::new()
        }
    };
    Ok(Some((names, ips)))
}
