//! `waypost up`: everything on this machine, in one process: a server, a proxy and a DNS server that read its store.

pub(super) mod context;
mod host;
mod lines;

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;

use self::lines::Lines;
use super::announce::{self, Announcing};
use super::dns::{self, Dns};
use super::down::{self, Running};
use super::gateway::Gateway;
use super::proxy::{Proxy, Surroundings};
use super::{agent, reach, server};
use crate::config::{DnsArguments, ServerArguments, UpArguments};
use crate::notify::Manager;

/// Runs the command.
pub(crate) fn exec(mut arguments: UpArguments) -> anyhow::Result<()> {
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
    server::runtime()?.block_on(async {
        // Pods do not reach the loopback of this machine.
        let addresses = match settings.listen.ip().is_loopback() && agent::is_wanted(&agent) {
            true => agent::own_addresses().into_iter().filter(|ip| !ip.is_loopback()).collect(),
            false => Vec::new(),
        };
        let node = agent::is_wanted(&agent).then(|| agent::node_name(proxying.node_name.as_deref()));
        let running = server::start(&settings, &server::Beside { addresses, node }).await?;
        let on_loopback = settings.service_cluster_ip_range.iter().any(|range| range.addr().is_loopback());
        let local = running.source();
        let balances = announces && settings.balancing.is_on();
        let gateway = Gateway::start(Arc::new(local.clone()), &running.kubeconfig, &proxying, balances)?;
        let around = Surroundings {
            source: &gateway.seen(&local),
            kubeconfig: &running.kubeconfig,
            pods: &settings.cluster_cidr,
            on_loopback,
            // There may be no Node object that names its addresses.
            node_ports: "all",
        };
        let proxy = Proxy::start(&around, &proxying).await?;
        proxy.iter().for_each(|proxy| proxy.show(&gateway));
        let names = names(&running, &settings, &dns).await?;
        let places = agent::Places {
            source: Arc::new(running.source()),
            kubeconfig: &running.kubeconfig,
            data_dir: &settings.place.data_dir,
            cluster: &settings.cluster_cidr,
            domain: &settings.cluster_domain,
            node: proxying.node_name.as_deref(),
            tls: Some(running.pki.agent_server_config(&agent::serving_names(), Timestamp::now())?),
            reports: proxy.as_ref().map(|proxy| proxy.reports(&settings.cluster_domain)),
        };
        let pods = agent::for_one_machine(&places, &agent).await?;
        let announcing = match announces {
            true => Some(Announcing::start(announce::Place {
                source: &running.source(),
                kubeconfig: &running.kubeconfig,
                node: agent::node_name(proxying.node_name.as_deref()),
                pod_bridge: &agent.pod_bridge,
                figures: proxy.as_ref().map(Proxy::announcing).unwrap_or_default(),
                proxy: proxy.as_ref().map(Proxy::health),
            })?),
            false => None,
        };
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
                context::add(&settings.place.data_dir, &running.kubeconfig, name)?;
            }
            let lines = Lines {
                api: format!("https://{}", running.address),
                kubeconfig: &running.kubeconfig,
                context: add_context.as_deref(),
                names: names.as_ref().map(|(names, ips)| (&**ips, names.addresses(), &*settings.cluster_domain)),
                proxy: proxy.as_ref().map(|proxy| (proxy.way.0, &*proxy.way.1)),
            };
            // Whoever started us may not want to read them.
            let _ = reach::print(&lines.to_string());
            tracing::info!(address = %running.address, kubeconfig = %running.kubeconfig.display(), "ready");
            manager.ready(&format!("the API is at https://{}", running.address));
            manager.keep_telling(|| server::answers(&running.kubeconfig)).await;
            Ok(())
        };
        let _here = Running::note(&settings.place.data_dir)?;
        let ended: anyhow::Result<()> = tokio::select! {
            failed = ready => failed,
            () = server::stop_signal() => Ok(()),
        };
        manager.stopping();
        if let Some(announcing) = announcing {
            announcing.leave().await;
        }
        if let Some((names, _)) = &names {
            names.leave().await;
        }
        match dev {
            true => tracing::info!("stopping; everything that was made is removed"),
            false => tracing::info!("stopping; rules and Pods stay until `waypost down`"),
        }
        gateway.stop().await;
        drop(pods);
        drop(proxy);
        running.stop().await;
        ended
    })
}

/// Answers names on an address of this machine, to which the Service `kube-dns` leads, at the addresses beside it; nothing when that is
/// not wished.
async fn names(
    running: &server::Running,
    settings: &ServerArguments,
    arguments: &DnsArguments,
) -> anyhow::Result<Option<(Dns, Vec<IpAddr>)>> {
    let listen = dns::listen(arguments, dns::own_addresses)?;
    if listen.is_empty() {
        return Ok(None);
    }
    let names = Dns::start(&running.source(), arguments, &settings.cluster_domain, listen).await?;
    let ranges = &settings.service_cluster_ip_range;
    let ips = match dns::publish(&running.kubeconfig, ranges, names.addresses()).await {
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
