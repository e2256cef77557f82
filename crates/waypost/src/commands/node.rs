//! `waypost node`: proxy, DNS, agent and announcers of this machine, for any Kubernetes API.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use client::remote::Remote;

use super::agent;
use super::announce::{self, Announcing};
use super::dns::{self, Dns};
use super::gateway::Gateway;
use super::join;
use super::proxy::{self, Environment, Proxy};
use super::server;
use crate::config::{NodeArguments, Role};
use crate::notify::Manager;

/// Runs the command.
pub(crate) fn exec(arguments: &NodeArguments) -> anyhow::Result<()> {
    let manager = Manager::find();
    server::runtime()?.block_on(async {
        let mut credentials = join::credentials(arguments).await?;
        let kubeconfig = credentials.kubeconfig.clone();
        let remote =
            Remote::new(&kubeconfig).with_context(|| format!("reading the kubeconfig {}", kubeconfig.display()))?;
        credentials.keep(&remote);
        let proxies = arguments.does(Role::Proxy);
        let settings = (&arguments.proxy, &arguments.ingress, &arguments.access_log);
        let gateway = Gateway::start(Arc::new(remote.clone()), &remote, settings, proxies)?;
        let environment = Environment {
            source: Arc::new(remote.clone()),
            redirects: gateway.redirects(),
            remote: &remote,
            pods: &arguments.cluster_cidr,
            on_loopback: false,
            node_ports: "primary",
            healthz: proxy::HEALTHZ_EVERYWHERE,
        };
        let proxy = match arguments.does(Role::Proxy) {
            true => {
                let mut proxying = arguments.proxy.clone();
                announce::require_strict_arp(&mut proxying, arguments.does(Role::Announce));
                Proxy::start(&environment, &proxying).await?
            }
            false => None,
        };
        proxy.iter().for_each(|proxy| proxy.show_gateway(&gateway));
        let dns = match arguments.does(Role::Dns) {
            true => {
                let everywhere = || vec![(Ipv4Addr::UNSPECIFIED, 53).into(), (Ipv6Addr::UNSPECIFIED, 53).into()];
                let listen: Vec<SocketAddr> = dns::listen(&arguments.dns, everywhere)?;
                Some(Dns::start(Arc::new(remote.clone()), &arguments.dns, &arguments.cluster_domain, listen).await?)
            }
            false => None,
        };
        let runs_pods = arguments.does(Role::Agent);
        let places = agent::Places {
            source: Arc::new(remote.clone()),
            remote: &remote,
            data_dir: &arguments.place.data_dir,
            cluster: &arguments.cluster_cidr,
            domain: &arguments.cluster_domain,
            node: arguments.proxy.node_name.as_deref(),
            tls: match runs_pods {
                true => credentials.serving(&remote),
                false => None,
            },
            metrics: proxy.as_ref().map_or_else(::agent::metrics::Metrics::new, Proxy::agent_metrics),
            reports: proxy.as_ref().map(|proxy| proxy.reports(&arguments.cluster_domain)),
        };
        let pods = match runs_pods {
            true => Some(agent::start(&places, &arguments.agent).await?),
            false => None,
        };
        let announcing = match arguments.does(Role::Announce) {
            true => Some(Announcing::start(announce::Dependencies {
                source: &remote,
                remote: &remote,
                node: agent::node_name(arguments.proxy.node_name.as_deref()),
                pod_bridge: &arguments.agent.pod_bridge,
                metrics: proxy.as_ref().map(Proxy::announcing).unwrap_or_default(),
                proxy: proxy.as_ref().map(Proxy::health),
            })?),
            false => None,
        };
        let ready = async {
            if let Some(pods) = &pods {
                pods.ready().await;
                credentials.served().await;
            }
            if let Some(dns) = &dns {
                dns.ready().await;
            }
            if let Some(proxy) = &proxy {
                proxy.served().await;
            }
            kernel::memory::release();
            tracing::info!("ready");
            manager.ready("this machine is served");
            manager.run_watchdog(|| std::future::ready(())).await;
        };
        tokio::select! {
            () = ready => {}
            () = server::stop_signal() => {}
        }
        if let Some(announcing) = announcing {
            announcing.stop().await;
        }
        if let Some(dns) = &dns {
            dns.drain().await;
        }
        manager.stopping();
        tracing::info!("stopping; rules stay until `waypost cleanup`");
        gateway.stop(proxy.as_ref()).await;
        Ok(())
    })
}
