//! `waypost up`: everything on this machine: an API server, and the components that follow it: proxy, names, gateway, agent, announcers.
//!
//! Started by root the API server is a process of its own, as another user ([`child`]); the components stay here, with the capabilities that they
//! use, and come to it through a socket. Otherwise all is one process, and they read its store.

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
use super::{agent, privileges, reach, server};
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
    let home = tempfile::Builder::new().prefix("waypost-dev-").tempdir().context("making a temporary directory")?;
    home.path().clone_into(&mut arguments.server.place.data_dir);
    let (rootless, bridge) = (arguments.rootless, arguments.agent.pod_bridge.clone());
    let ended = run(arguments);
    let removed = down::take_away(home.path(), &bridge, rootless).context("removing what was made");
    home.close().context("removing the temporary directory")?;
    ended.and(removed)
}

fn run(arguments: UpArguments) -> anyhow::Result<()> {
    let UpArguments { server: settings, proxy: mut proxying, dns, agent, add_context, dev, rootless, .. } = arguments;
    let (settings, manager) = (settings.for_one_machine(), Manager::find());
    let announces = settings.balancing.is_on() && !rootless && announce::may_announce();
    announce::leave_answers_to_us(&mut proxying, announces);
    let machine = machine(&settings, &agent, proxying.node_name.as_deref());
    let parts = privileges::Parts { agent: agent::is_wanted(&agent), removes_data: dev };
    let apart = if rootless { None } else { apart(&settings, &machine, parts)? };
    server::runtime()?.block_on(async {
        let api = match apart {
            Some(server) => Api::apart(server, &settings).await?,
            None => Api::here(&settings, machine).await?,
        };
        let on_loopback = settings.service_cluster_ip_range.iter().any(|range| range.addr().is_loopback());
        let balances = announces && settings.balancing.is_on();
        let gateway = Gateway::start(api.source.clone(), &api.remote, &proxying, balances)?;
        let environment = Environment {
            source: &gateway.seen(&*api.source),
            remote: &api.remote,
            pods: &settings.cluster_cidr,
            on_loopback,
            // There may be no Node object that names its addresses.
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
        let place = announce::Place {
            source: &*api.source,
            remote: &api.remote,
            node: agent::node_name(proxying.node_name.as_deref()),
            pod_bridge: &agent.pod_bridge,
            figures: proxy.as_ref().map(Proxy::announcing).unwrap_or_default(),
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
                    host::tell(ips, &settings.cluster_domain).await?;
                }
            }
            kernel::memory::give_back();
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
            // Whoever started us may not want to read them.
            let _ = reach::print(&lines.to_string());
            tracing::info!(address = %api.address, kubeconfig = %api.kubeconfig.display(), "ready");
            manager.ready(&format!("the API is at https://{}", api.address));
            manager.keep_telling(|| server::answers(&api.remote)).await;
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
            announcing.leave().await;
        }
        if let Some((names, _)) = &names {
            names.leave().await;
        }
        let kept = if dev { "everything that was made is removed" } else { "rules and Pods stay until `waypost down`" };
        tracing::info!("stopping; {kept}");
        gateway.stop().await;
        drop(pods);
        drop(proxy);
        api.stop().await;
        ended
    })
}

/// What runs here beside the API server.
fn machine(settings: &ServerArguments, agent: &AgentArguments, node: Option<&str>) -> Machine {
    if !agent::is_wanted(agent) {
        return Machine::default();
    }
    // Pods do not reach the loopback of this machine.
    let addresses = match settings.listen.ip().is_loopback() {
        true => agent::own_addresses().into_iter().filter(|ip| !ip.is_loopback()).collect(),
        false => Vec::new(),
    };
    Machine { addresses, node: Some(agent::node_name(node)), agent: agent::serving_names() }
}

/// Starts the API server as a user of its own, if it is to be one, and keeps what the other components use.
fn apart(settings: &ServerArguments, machine: &Machine, parts: privileges::Parts) -> anyhow::Result<Option<ApiServer>> {
    let Some(account) = privileges::server_user(settings, privileges::data_dir::share)? else { return Ok(None) };
    let (data_dir, machine) = (std::path::absolute(&settings.place.data_dir)?, machine.clone());
    let server = ApiServer::start(&Order { account, data_dir, machine })?;
    privileges::keep_for_components(parts)?;
    Ok(Some(server))
}

/// Answers names on an address of this machine, to which the Service `kube-dns` leads, at the addresses beside it; nothing when that is
/// not wished.
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
            tracing::info!(?ips, "the Service kube-system/kube-dns leads to the names of this machine");
            ips
        }
        Err(error) => {
            tracing::warn!(
                "the Service kube-system/kube-dns could not be made: {error:#}; names are answered without it"
            );
            Vec::new()
        }
    };
    Ok(Some((names, ips)))
}
