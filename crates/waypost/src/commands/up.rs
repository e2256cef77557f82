//! `waypost up`: everything on this machine, in one process: a server, a proxy and a DNS server that read its store.

mod host;

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;

use super::agent;
use super::dns::{self, Dns};
use super::proxy::{Proxy, Surroundings};
use super::server;
use crate::config::{DnsArguments, ServerArguments, UpArguments};

/// Runs the command.
pub(crate) fn exec(arguments: UpArguments) -> anyhow::Result<()> {
    let UpArguments { server: settings, proxy: proxying, dns, agent } = arguments;
    let settings = settings.for_one_machine();
    server::runtime()?.block_on(async {
        // Pods do not reach the loopback of this machine.
        let beside = match settings.listen.ip().is_loopback() && agent::is_wanted(&agent) {
            true => agent::own_addresses().into_iter().filter(|ip| !ip.is_loopback()).collect(),
            false => Vec::new(),
        };
        let running = server::start(&settings, &beside).await?;
        let around = Surroundings {
            source: &running.source(),
            kubeconfig: &running.kubeconfig,
            pods: &settings.cluster_cidr,
            on_loopback: settings.service_cluster_ip_range.iter().any(|range| range.addr().is_loopback()),
            // There may be no Node object that names its addresses.
            node_ports: "all",
        };
        let proxy = Proxy::start(&around, &proxying)?;
        let names = names(&running, &settings, &dns).await?;
        let places = agent::Places {
            source: Arc::new(running.source()),
            kubeconfig: &running.kubeconfig,
            data_dir: &settings.place.data_dir,
            cluster: &settings.cluster_cidr,
            domain: &settings.cluster_domain,
            node: proxying.node_name.as_deref(),
            tls: Some(running.pki.agent_server_config(&agent::serving_names(), Timestamp::now())?),
        };
        let pods = agent::for_one_machine(&places, &agent).await?;
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
            tracing::info!(address = %running.address, kubeconfig = %running.kubeconfig.display(), "ready");
            std::future::pending::<anyhow::Result<()>>().await
        };
        tokio::select! {
            failed = ready => failed?,
            () = server::stop_signal() => {}
        }
        if let Some((names, _)) = &names {
            names.leave().await;
        }
        tracing::info!("stopping; rules and Pods stay until `waypost cleanup`");
        drop(pods);
        drop(proxy);
        running.stop().await;
        Ok(())
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
